//! A row of a live table.

use std::fmt::Display;

/// A row of a table: a key, further cells, and a weight that determines its place in the table.
///
/// ```
/// use ardea::connect::live_table::Row;
///
/// let row = Row::new("JFK → LAX").number(11_262).text("busy").weight(11_262.0);
/// assert_eq!(row.key(), "JFK → LAX");
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub(super) key: Cell,
    pub(super) cells: Vec<Cell>,
    pub(super) weight: f64,
    pub(super) is_removed: bool,
}

/// A cell of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) is_number: bool,
}

impl Cell {
    fn new(value: impl Display, is_number: bool) -> Self {
        // A line break or an escape sequence in the data must not reach the terminal.
        let text = value.to_string();
        let text = if text.chars().any(char::is_control) {
            text.chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect()
        } else {
            text
        };
        Cell { text, is_number }
    }
}

impl Row {
    /// Creates the row of `key`, which is shown in the first column. A numeric key is sorted and
    /// aligned as a number.
    pub fn new(key: impl Display) -> Self {
        let mut key = Cell::new(key, false);
        key.is_number = key.text.parse::<f64>().is_ok();
        Row {
            key,
            cells: Vec::new(),
            weight: 0.0,
            is_removed: false,
        }
    }

    /// Creates a removal: the table deletes its row of `key`.
    pub fn removed(key: impl Display) -> Self {
        Row {
            is_removed: true,
            ..Row::new(key)
        }
    }

    /// Adds a cell of text.
    pub fn text(mut self, value: impl Display) -> Self {
        self.cells.push(Cell::new(value, false));
        self
    }

    /// Adds a right-aligned cell: a number, with or without its unit.
    pub fn number(mut self, value: impl Display) -> Self {
        self.cells.push(Cell::new(value, true));
        self
    }

    /// Sets the weight, which is zero by default. Rows are sorted by descending weight, and then by
    /// key.
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.key.text
    }
}
