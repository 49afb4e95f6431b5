//! Selections of records, in any order and any number of parts.

use ardea_aggregate::{Aggregate, laws};
use ardea_operators::Partial;
use proptest::prelude::*;

use super::top_key::TopKeyColumns;
use super::*;
use crate::key::GroupKey;
use crate::record::RecordLayout;
use crate::test_adapter::{FromColumns, Row, row, schema, to_columns};
use crate::{ColumnBatch, col, lit};

/// Returns the selection of a batch, as the first stage makes it.
fn select(top: &TopRecords, rows: &[Row]) -> TopSelection {
    let function = TopFunction::bind(top, &schema()).unwrap();
    let records = to_columns(rows);
    let arguments = top.bind(&schema()).unwrap();
    let arguments: Vec<_> = arguments
        .iter()
        .map(|it| it.evaluate(&records).unwrap())
        .collect();
    let mut selected = TopSelection::default();
    let mut encoder = function.layout().encoder(&records).unwrap();
    for at in 0..rows.len() {
        selected.add(
            top.limit(),
            &TopKeyColumns::new(&arguments),
            &mut encoder,
            at,
        );
    }
    selected
}

fn rows_of(selected: &TopSelection) -> Vec<Row> {
    let layout = RecordLayout::new(&schema(), 0..3).unwrap();
    let columns = layout.decode(selected.records().map(Some)).unwrap();
    let records = arrow_array::RecordBatch::try_new(schema(), columns).unwrap();
    Row::from_columns(ColumnBatch::untimed(records).records())
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (0i64..4, prop::option::of(0u64..4), "[ab]");
    prop::collection::vec(row, 0..40)
}

proptest! {
    #[test]
    fn the_greatest_records_are_selected(rows in rows(), n in 0usize..6, parts in 1usize..9) {
        let top = top_n(n, [col("price"), col("number") * -1, col("text")]);
        let combine = TopCombine::new(TopLimit::Most(n));
        let mut selected = combine.create();
        for part in rows.chunks(parts) {
            combine.combine(&mut selected, &select(&top, part));
        }
        let mut expected = rows.clone();
        expected.sort_by_key(|(number, price, text)| (*price, -number, text.clone()));
        expected.reverse();
        expected.truncate(n);
        prop_assert_eq!(rows_of(&selected), expected);
    }

    #[test]
    fn all_records_with_the_greatest_value_are_selected(rows in rows(), parts in 1usize..9) {
        let top = all_with_max(["price"]);
        let combine = TopCombine::new(TopLimit::Ties);
        let mut selected = combine.create();
        for part in rows.chunks(parts) {
            combine.combine(&mut selected, &select(&top, part));
        }
        let max = rows.iter().map(|row| row.1).max();
        let mut expected: Vec<Row> = rows.iter().filter(|row| Some(row.1) == max).cloned().collect();
        let mut found = rows_of(&selected);
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_selection_obeys_the_laws_of_aggregates() {
    let parts: Vec<_> = [
        row(1, 5, "a"),
        row(2, 5, "b"),
        row(3, None, "c"),
        row(4, 9, "d"),
    ]
    .into_iter()
    .map(|row| Partial {
        key: GroupKey::Integer(0),
        acc: select(&top_n(2, ["price"]), &[row]),
    })
    .collect();
    laws::check(&TopCombine::new(TopLimit::Most(2)), &parts).unwrap();
}

#[test]
fn an_expression_without_order_is_refused() {
    let refused = top_n(1, ["prize"]).bind(&schema()).unwrap_err().to_string();
    assert!(refused.contains("price: UInt64"), "{refused}");
    let interval = arrow_schema::DataType::Null;
    let refused = top_n(1, [lit(1).cast(interval)]).bind(&schema());
    assert!(refused.is_err());
}
