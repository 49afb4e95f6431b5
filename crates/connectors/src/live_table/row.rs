//! One row of a table, as a job says it.

use std::fmt::Display;

/// One row of a table: a key, the cells behind it, and where it stands.
///
/// ```
/// use ardea_connectors::live_table::Row;
///
/// let row = Row::new("JFK → LAX").number(11_262).text("busy").weight(11_262.0);
/// assert_eq!(row.key(), "JFK → LAX");
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub(super) key: Cell,
    pub(super) cells: Vec<Cell>,
    pub(super) weight: f64,
    pub(super) is_gone: bool,
}

/// What stands at one place of a table.
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
    /// The row of this key, which is shown in the first column. A key that reads as a number is sorted and aligned as one.
    pub fn new(key: impl Display) -> Self {
        let mut key = Cell::new(key, false);
        key.is_number = key.text.parse::<f64>().is_ok();
        Row {
            key,
            cells: Vec::new(),
            weight: 0.0,
            is_gone: false,
        }
    }

    /// Says that the row of this key is not there any more.
    pub fn gone(key: impl Display) -> Self {
        Row {
            is_gone: true,
            ..Row::new(key)
        }
    }

    /// Adds a cell of text.
    pub fn text(mut self, value: impl Display) -> Self {
        self.cells.push(Cell::new(value, false));
        self
    }

    /// Adds a cell that is aligned to the right: a number, with or without its unit.
    pub fn number(mut self, value: impl Display) -> Self {
        self.cells.push(Cell::new(value, true));
        self
    }

    /// Rows with a greater weight come first; those of equal weight (zero, unless told) in the order of their keys.
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key.text
    }
}
