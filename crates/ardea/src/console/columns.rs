//! Tables of text: columns under headings, of the necessary width.

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

use ardea_core::escape_invisible;

use Side::{Left, Right};

/// Formats a table; a heading that begins with `>` marks a column of numbers. Control characters in
/// cells are escaped.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let sides: Vec<Side> = headings
        .iter()
        .map(|heading| {
            if heading.starts_with('>') {
                Right
            } else {
                Left
            }
        })
        .collect();
    let heading = headings
        .iter()
        .map(|heading| heading.trim_start_matches('>').to_string())
        .collect();
    let lines: Vec<Vec<String>> = std::iter::once(heading)
        .chain(rows.iter().map(|row| {
            row.iter()
                .map(|cell| escape_invisible(cell).into_owned())
                .collect()
        }))
        .collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut told = String::new();
        for ((cell, width), side) in line.iter().zip(&widths).zip(&sides) {
            // The width of a format is limited to 65,535.
            let padding = " ".repeat(width - cell.chars().count());
            match side {
                Left => told.extend([cell, padding.as_str(), "  "]),
                Right => told.extend([padding.as_str(), cell, "  "]),
            }
        }
        text += told.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [["a", "1"], ["word\ncount", "100"]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        assert_eq!(
            table(&["job", ">n"], &rows),
            "job            n\na              1\nword\\ncount  100\n"
        );
        assert_eq!(table(&["job"], &[]), "job\n");
    }
}
