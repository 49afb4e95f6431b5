//! Rows to be sent, stored by column.

use std::error::Error as StdError;
use std::ops::Range;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::postgres::cell::Cell;
use crate::sink_worker::QueuedRecords;

/// Approximate size of one statement in bytes.
const STATEMENT: usize = 16 << 20;
/// Maximum size of a row in bytes. The server accepts messages below 1 GiB and makes several copies
/// of each.
pub(crate) const MOST_ROW: usize = 256 << 20;

/// Length marker of null.
const NULL: i32 = -1;

/// Rows of one table, one per record. Columns are stored in the server's format: length of each
/// value, then the value.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rows {
    columns: Vec<Filling>,
    /// Position of each row's record.
    records: Vec<i64>,
    bytes: usize,
}

#[derive(Clone, Default, Debug)]
struct Filling {
    bytes: Vec<u8>,
    /// Start offset of each value, and of the value to be added next.
    starts: Vec<usize>,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn clear(&mut self) {
        for column in &mut self.columns {
            column.bytes.clear();
            column.starts.clear();
        }
        self.records.clear();
        self.bytes = 0;
    }

    /// Returns the record positions of the rows in the range `rows`.
    pub fn records(&self, rows: &Range<usize>) -> &[i64] {
        &self.records[rows.clone()]
    }

    /// Returns the values of a column in the range `rows`, as a parameter of type `text[]`.
    pub fn column(&self, column: usize, rows: &Range<usize>) -> Column<'_> {
        let Filling { bytes, starts } = &self.columns[column];
        let start = starts.get(rows.start).copied().unwrap_or(bytes.len());
        let end = starts.get(rows.end).copied().unwrap_or(bytes.len());
        Column {
            values: &bytes[start..end],
            count: rows.len(),
        }
    }

    /// Returns the size of the rows in the range `rows` in bytes.
    pub fn bytes_of(&self, rows: &Range<usize>) -> usize {
        let columns = 0..self.columns.len();
        columns
            .map(|column| self.column(column, rows).values.len())
            .sum()
    }

    /// Splits all rows into ranges of one statement each, in order.
    pub fn parts(&self) -> Vec<Range<usize>> {
        if self.bytes <= STATEMENT {
            let all = 0..self.len();
            return vec![all];
        }
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut bytes = 0;
        for row in 0..self.len() {
            let more = self.bytes_of(&(row..row + 1));
            bytes += more;
            match parts.last_mut() {
                Some(part) if bytes <= STATEMENT => part.end = row + 1,
                _ => {
                    parts.push(row..row + 1);
                    bytes = more;
                }
            }
        }
        parts.reverse();
        parts
    }

    /// Begins a row of `columns` columns for the record at position `record`. The caller must
    /// [end](Row::end) the row.
    pub fn begin(&mut self, columns: usize, record: u64, scratch: String) -> Row<'_> {
        self.columns.resize_with(columns, Filling::default);
        self.records.push(i64::try_from(record).unwrap_or(i64::MAX));
        Row {
            rows: self,
            filled: 0,
            scratch,
        }
    }
}

impl QueuedRecords for Rows {
    /// A size in bytes.
    const LIMIT: usize = 1 << 20;

    fn size(&self) -> usize {
        self.bytes.max(self.len())
    }

    /// Moves the rows of `other`, which has the same columns.
    fn append(&mut self, other: &mut Rows) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        for (column, more) in self.columns.iter_mut().zip(&mut other.columns) {
            let before = column.bytes.len();
            column.bytes.append(&mut more.bytes);
            column
                .starts
                .extend(more.starts.drain(..).map(|start| start + before));
        }
        self.records.append(&mut other.records);
        self.bytes += other.bytes;
        other.bytes = 0;
    }
}

/// A row being filled, column by column in the sink's column order.
#[derive(Debug)]
pub struct Row<'a> {
    rows: &'a mut Rows,
    filled: usize,
    scratch: String,
}

impl Row<'_> {
    /// Sets the next column.
    pub fn set(&mut self, cell: impl Cell) -> &mut Self {
        self.scratch.clear();
        let is_there = cell.append_to(&mut self.scratch);
        if let Some(column) = self.rows.columns.get_mut(self.filled) {
            column.starts.push(column.bytes.len());
            let length = i32::try_from(self.scratch.len()).unwrap_or(i32::MAX);
            let length = if is_there { length } else { NULL };
            column.bytes.extend_from_slice(&length.to_be_bytes());
            column.bytes.extend_from_slice(self.scratch.as_bytes());
            self.rows.bytes += 4 + self.scratch.len();
        }
        self.filled += 1;
        self
    }

    /// Sets the next column to null.
    pub fn null(&mut self) -> &mut Self {
        self.set(None::<bool>)
    }

    /// Ends the row. Returns the number of columns set, and the buffer for the next row.
    pub(crate) fn end(self) -> (usize, String) {
        (self.filled, self.scratch)
    }
}

/// A column of some rows as a statement parameter.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    values: &'a [u8],
    count: usize,
}

impl ToSql for Column<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        // Array header: one dimension, nulls allowed, element type, length, lower bound 1.
        out.put_i32(1);
        out.put_i32(1);
        out.put_u32(Type::TEXT.oid());
        out.put_i32(i32::try_from(self.count)?);
        out.put_i32(1);
        out.put_slice(self.values);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT_ARRAY
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[(u64, Option<&str>)]) -> Rows {
        let mut rows = Rows::default();
        let mut scratch = String::new();
        for (record, value) in values {
            let mut row = rows.begin(2, *record, scratch);
            row.set(record).set(value);
            let (filled, memory) = row.end();
            assert_eq!(filled, 2);
            scratch = memory;
        }
        rows
    }

    #[test]
    fn rows_of_several_batches_are_one_behind_the_other() {
        let mut all = rows(&[(7, Some("a")), (8, None)]);
        let mut more = rows(&[(9, Some("")), (10, Some("bc"))]);
        all.append(&mut more);
        assert!(more.is_empty() && more.size() == 0);
        assert_eq!((all.len(), all.records(&(1..4))), (4, &[8, 9, 10][..]));
        let column = all.column(1, &(1..4));
        let bytes = [&[255; 4][..], &[0; 4], &[0, 0, 0, 2], b"bc"].concat();
        assert_eq!((column.values, column.count), (&bytes[..], 3));
        assert_eq!(all.column(0, &(0..1)).values, [0, 0, 0, 1, b'7']);
        all.clear();
        assert!(all.is_empty());
        all.append(&mut rows(&[(1, None)]));
        assert_eq!(all.column(1, &(0..1)).values, [255; 4]);
    }

    #[test]
    fn rows_are_divided_into_statements_that_the_server_takes() {
        let large = "x".repeat(STATEMENT / 2);
        let huge = "x".repeat(STATEMENT + 1);
        let values: Vec<_> = ["a", &large, "b", &large, "c", &huge, "d"]
            .into_iter()
            .map(|value| (0, Some(value)))
            .collect();
        let rows = rows(&values);
        let mut parts = rows.parts();
        parts.reverse();
        assert_eq!(parts, [0..3, 3..5, 5..6, 6..7]);
        assert_eq!(rows.bytes_of(&(5..6)), huge.len() + 4 + 5);
        assert_eq!(Rows::default().parts().len(), 1);
    }
}
