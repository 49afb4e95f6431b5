//! Copies of streams in columns.

use super::Table;

/// Returns `count` copies of a stream, at least one. The columns are shared.
pub(super) fn tee(table: Table, count: usize) -> Vec<Table> {
    let mut tables = Vec::with_capacity(count);
    let mut rest = table;
    while tables.len() + 1 < count {
        let (first, second) = rest.tee();
        tables.push(first);
        rest = second;
    }
    tables.push(rest);
    tables
}
