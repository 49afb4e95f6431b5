//! Tests of row groups that are not read.

use std::fs;
use std::path::Path;

use ardea_pipeline::Pipeline;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;

use super::tests::{file, write};
use crate::test_adapter::{Row, row, to_columns};
use crate::{Columns, Expr, col, files, lit};

/// A record with the fields of a [`Row`].
#[derive(serde::Deserialize)]
struct Numbered {
    number: i64,
    price: Option<u64>,
    text: String,
}

fn numbered(numbers: &[(i64, Option<u64>, &str)]) -> Vec<Row> {
    let rows = numbers.iter();
    rows.map(|(number, price, text)| row(*number, *price, text))
        .collect()
}

/// Returns the accepted records, sorted, or the error of the job.
fn accepted(path: &Path, condition: Expr) -> Result<Vec<Row>, String> {
    let p = Pipeline::new("filtered");
    let rows = Columns::read_from(&p, files::parquet(path))
        .filter(condition)
        .rows::<Numbered>()
        .map(|it| (it.number, it.price, it.text))
        .collect();
    p.run().map_err(|error| error.to_string())?;
    Ok(rows.take_sorted())
}

/// Overwrites the pages of all columns of a row group, so that reading it fails.
fn damage(path: &Path, group: usize) {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let mut bytes = fs::read(path).unwrap();
    for column in reader.metadata().row_group(group).columns() {
        let (start, length) = column.byte_range();
        bytes[start as usize..(start + length) as usize].fill(0xff);
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_row_group_without_accepted_records_is_not_read() {
    let rows = numbered(&[
        (1, Some(5), "ann"),
        (2, Some(6), "ann"),
        (3, None, "bob"),
        (11, Some(70), "eve"),
        (12, None, "eve"),
        (13, Some(71), "zoe"),
    ]);
    let (_dir, path) = file(&to_columns(&rows));
    damage(&path, 0);
    let last = |condition: Expr| accepted(&path, condition);
    for condition in [
        col("number").gt(3),
        lit(3).lt(col("number")),
        col("number").gt_eq(11).and(col("text").eq("eve")),
        col("text").gt("bob").and(col("price").is_null()),
        col("number").eq(12).or(col("price").gt(70)),
        col("price").gt(6).and(col("number").lt(100)),
    ] {
        let found = last(condition.clone());
        assert!(found.is_ok_and(|found| !found.is_empty()), "{condition}");
    }
    // Row groups that may have such a record, or of which nothing is known, are read.
    for condition in [
        col("number").gt_eq(3),
        col("number").gt(3).or(col("price").is_null()),
        (col("number") + 1).gt(10),
        col("number").not_eq(1),
        // A division by zero would be a dead letter.
        col("number").gt(3).and((lit(1) / col("number")).gt(0)),
    ] {
        assert!(last(condition.clone()).is_err(), "{condition}");
    }
    // Nothing but filters may be between the source and the filter.
    let p = Pipeline::new("filtered");
    let _rows = Columns::read_from(&p, files::parquet(&path))
        .select(["number"])
        .filter(col("number").gt(3))
        .rows::<serde_json::Value>()
        .collect();
    assert!(p.run().is_err());
}

proptest! {
    #[test]
    fn the_same_records_are_accepted_with_and_without_statistics(
        rows in prop::collection::vec((-9i64..9, prop::option::of(0u64..9), "[a-c]{0,2}"), 1..40),
        number in -9i64..9, price in 0u64..9, text in "[a-c]{0,2}", which in 0usize..6,
    ) {
        let rows: Vec<Row> = rows;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.parquet");
        write(&path, &to_columns(&rows), 3);
        let condition = match which {
            0 => col("number").lt(number).or(col("price").gt_eq(price)),
            1 => col("number").lt_eq(number).and(col("text").gt(&*text)),
            2 => col("text").eq(&*text),
            3 => lit(price).lt(col("price")),
            4 => col("price").eq(price).and(col("number").gt(number)),
            _ => col("text").lt(&*text).or(col("number").eq(number)),
        };
        let mut expected: Vec<Row> = rows.into_iter().filter(|(n, p, t)| match which {
            0 => *n < number || p.is_some_and(|p| p >= price),
            1 => *n <= number && *t > text,
            2 => *t == text,
            3 => p.is_some_and(|p| price < p),
            4 => *p == Some(price) && *n > number,
            _ => *t < text || *n == number,
        }).collect();
        expected.sort();
        prop_assert_eq!(accepted(&path, condition).unwrap(), expected);
    }
}
