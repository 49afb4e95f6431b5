//! The latest row of each key of a table, in order.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::row::{Cell, Row};
use super::text_width::width;

/// The number of rows to which a table is reduced when it has more than twice as many.
const RETAINED_ROWS: usize = 10_000;

/// The content of a table.
#[derive(Debug)]
pub(super) struct TableState {
    pub(super) title: String,
    columns: Vec<String>,
    most: usize,
    rows: HashMap<String, Row>,
    /// The maximum width of each column so far. Columns never shrink, so that the table does not
    /// move.
    widths: Vec<usize>,
    /// For each column, true if it has contained text and is left-aligned.
    has_text: Vec<bool>,
    /// True if the sink of the table has ended.
    pub(super) is_finished: bool,
}

/// A table as text: the cells of each line are aligned in columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lines {
    /// The headings.
    pub(super) head: String,
    /// The rows in order.
    pub(super) rows: Vec<String>,
    /// The number of rows that are not shown.
    pub(super) more: usize,
}

impl TableState {
    pub(super) fn new(title: String, columns: Vec<String>, most: usize) -> Self {
        let count = columns.len().max(1);
        let mut board = TableState {
            widths: vec![0; count],
            has_text: vec![false; count],
            rows: HashMap::new(),
            is_finished: false,
            title,
            columns,
            most,
        };
        for (column, name) in board.columns.iter().enumerate() {
            board.widths[column] = width(name);
        }
        board
    }

    /// Applies `rows`; a later row of a key replaces the earlier row.
    pub(super) fn update(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            if row.is_removed {
                self.rows.remove(row.key());
                continue;
            }
            for (column, cell) in cells(&row).enumerate() {
                if column == self.widths.len() {
                    self.widths.push(0);
                    self.has_text.push(false);
                }
                self.widths[column] = self.widths[column].max(width(&cell.text));
                self.has_text[column] |= !cell.is_number;
            }
            match self.rows.get_mut(row.key()) {
                Some(old) => *old = row,
                None => {
                    self.rows.insert(row.key().to_string(), row);
                }
            }
        }
        if self.rows.len() > 2 * RETAINED_ROWS {
            self.forget_the_last();
        }
    }

    fn forget_the_last(&mut self) {
        let last: Vec<String> = self.in_order()[RETAINED_ROWS..]
            .iter()
            .map(|row| row.key().to_string())
            .collect();
        for key in last {
            self.rows.remove(&key);
        }
    }

    /// Returns the number of rows to show.
    pub(super) fn len(&self) -> usize {
        self.rows.len().min(self.most)
    }

    /// Returns the width of all columns with the gaps between them, or of the title if it is wider.
    pub(super) fn width(&self) -> usize {
        let columns: usize =
            self.widths.iter().sum::<usize>() + GAP.len() * (self.widths.len() - 1);
        columns.max(width(&self.title))
    }

    /// Returns the heading and up to `count` rows as text.
    pub(super) fn lines(&self, count: usize) -> Lines {
        let shown = count.min(self.len());
        let rows = self.in_order()[..shown]
            .iter()
            .map(|row| self.line(cells(row).map(|cell| cell.text.as_str())))
            .collect();
        let head = self.line(self.columns.iter().map(String::as_str));
        Lines {
            head,
            rows,
            more: self.len() - shown,
        }
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            if column > 0 {
                line.push_str(GAP);
            }
            let space = self
                .widths
                .get(column)
                .map_or(0, |all| all.saturating_sub(width(cell)));
            let is_left =
                self.has_text.get(column).is_none_or(|&text| text) || self.rows.is_empty();
            let (before, after) = if is_left { (0, space) } else { (space, 0) };
            line.extend(std::iter::repeat_n(' ', before));
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', after));
        }
        line.truncate(line.trim_end().len());
        line
    }

    fn in_order(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| by_key(a, b)));
        rows
    }
}

const GAP: &str = "  ";

fn cells(row: &Row) -> impl Iterator<Item = &Cell> {
    std::iter::once(&row.key).chain(&row.cells)
}

/// Compares keys: numbers before texts and by value, texts by characters.
fn by_key(a: &Row, b: &Row) -> Ordering {
    let number = |row: &Row| {
        row.key
            .is_number
            .then(|| row.key().parse::<f64>().ok())
            .flatten()
    };
    let by_value = match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    };
    by_value.then_with(|| a.key().cmp(b.key()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(rows: impl IntoIterator<Item = Row>) -> TableState {
        let mut board = TableState::new("t".into(), vec!["key".into(), "n".into()], usize::MAX);
        board.update(rows);
        board
    }

    fn keys(board: &TableState) -> Vec<&str> {
        board.in_order().iter().map(|row| row.key()).collect()
    }

    #[test]
    fn the_latest_row_of_a_key_is_shown_and_a_gone_one_is_not() {
        let mut board = board([Row::new("a").number(1), Row::new("b").number(2)]);
        board.update([
            Row::new("a").number(30),
            Row::removed("b"),
            Row::removed("never there"),
        ]);
        assert_eq!(board.lines(9).rows, ["a    30"]);
    }

    #[test]
    fn greater_weights_come_first_then_numbers_by_value_then_texts() {
        let rows = ["10", "b", "9", "a"].map(Row::new);
        assert_eq!(keys(&board(rows)), ["9", "10", "a", "b"]);
        let rows = [Row::new("a").weight(1.0), Row::new("b").weight(7.5)];
        assert_eq!(keys(&board(rows)), ["b", "a"]);
    }

    #[test]
    fn numbers_are_aligned_to_the_right_with_their_heading() {
        let lines = board([Row::new("JFK").number(1), Row::new("LGA").number(12_345)]).lines(9);
        assert_eq!(lines.head, "key      n");
        assert_eq!(lines.rows, ["JFK      1", "LGA  12345"]);
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let board = board((0..20).map(Row::new));
        let lines = board.lines(3);
        assert_eq!((lines.rows.len(), lines.more), (3, 17));
    }

    #[test]
    fn columns_do_not_shrink() {
        let mut board = board([Row::new("a").number(100_000)]);
        let before = board.width();
        board.update([Row::new("a").number(1)]);
        assert_eq!(board.width(), before);
    }

    #[test]
    fn more_keys_than_anybody_reads_are_forgotten_from_the_end() {
        let board = board((0..3 * RETAINED_ROWS).map(|n| Row::new(n).weight(n as f64)));
        assert!(board.len() <= 2 * RETAINED_ROWS);
        assert_eq!(keys(&board)[0], (3 * RETAINED_ROWS - 1).to_string());
    }

    #[test]
    fn more_cells_than_columns_and_fewer_are_both_shown() {
        let board = board([Row::new("a"), Row::new("b").text("x").text("beyond")]);
        assert_eq!(board.lines(9).rows, ["a", "b    x  beyond"]);
    }
}
