//! Layout of tables into lines: their arrangement side by side, and the number of rows of each.

use super::table_state::TableState;
use super::terminal::Size;
use super::text_width::{fit, width};

/// A piece of a line in one style.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) emphasis: Emphasis,
}

/// The style of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Emphasis {
    Plain,
    Title,
    Dim,
}

pub(super) type Line = Vec<Piece>;

/// The number of empty columns between two tables placed side by side.
const GUTTER: usize = 3;
/// The number of lines for the title and the headings of a table.
const HEAD_LINES: usize = 2;

/// Tables placed side by side.
struct TableRegion<'a> {
    boards: Vec<(&'a TableState, usize)>,
    /// The number of lines below the headings.
    body: usize,
}

impl TableRegion<'_> {
    fn wanted(&self) -> usize {
        self.boards
            .iter()
            .map(|(board, _)| board.len())
            .max()
            .unwrap_or(0)
    }

    /// Returns the minimum number of lines below the headings: one row, and a line with the number
    /// of hidden rows.
    fn least(&self) -> usize {
        self.wanted().clamp(1, 2)
    }
}

/// Returns the lines of all tables for a pipe: one below the other, complete and at full width.
pub(super) fn printed<'a>(boards: impl IntoIterator<Item = &'a TableState>) -> Vec<Line> {
    let mut lines = Vec::new();
    for board in boards {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        let block = block(board, board.width(), board.len());
        lines.extend(block.into_iter().map(|mut piece| {
            piece.text.truncate(piece.text.trim_end().len());
            vec![piece]
        }));
    }
    lines
}

/// Returns the lines of all tables on a terminal, with `status` below them. The lines fit into
/// `size`.
pub(super) fn drawn<'a>(
    boards: impl IntoIterator<Item = &'a TableState>,
    status: Option<&str>,
    size: Size,
) -> Vec<Line> {
    // The last line is reserved for the cursor.
    let height = size.rows.saturating_sub(1);
    let status_lines = status.map_or(0, |_| 2).min(height);
    let mut bands = bands(boards, size.columns);
    let left_out = share_out(&mut bands, height - status_lines);
    let mut lines = Vec::new();
    for band in &bands {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        draw_band(band, &mut lines);
    }
    if left_out > 0 && lines.len() < height - status_lines {
        let what = if left_out == 1 { "table" } else { "tables" };
        let text = format!("… {left_out} more {what} below: make the window taller");
        lines.push(vec![dim(fit(&text, size.columns.min(width(&text))))]);
    }
    if let Some(status) = status {
        lines.push(Vec::new());
        lines.push(vec![dim(fit(status, size.columns.min(width(status))))]);
        let excess = lines.len().saturating_sub(height);
        lines.drain(..excess);
    }
    lines
}

/// Places tables side by side, in order, as far as they fit.
fn bands<'a>(
    boards: impl IntoIterator<Item = &'a TableState>,
    columns: usize,
) -> Vec<TableRegion<'a>> {
    let mut bands: Vec<TableRegion<'a>> = Vec::new();
    let mut free = 0;
    for board in boards {
        let wide = board.width().min(columns);
        match bands.last_mut() {
            Some(band) if free >= GUTTER + wide => {
                band.boards.push((board, wide));
                free -= GUTTER + wide;
            }
            _ => {
                bands.push(TableRegion {
                    boards: vec![(board, wide)],
                    body: 0,
                });
                free = columns - wide;
            }
        }
    }
    bands
}

/// Distributes `height` lines over the bands, one at a time to the smallest band with hidden rows.
/// Drops bands at the end that do not fit; returns the number of dropped tables.
fn share_out(bands: &mut Vec<TableRegion<'_>>, height: usize) -> usize {
    // The number of lines of some bands without rows.
    let heads = |bands: usize| bands * HEAD_LINES + bands.saturating_sub(1);
    let mut left_out = 0;
    loop {
        // Dropped tables need a line that reports them. A single band is kept if one row fits.
        let rows: usize = match &bands[..] {
            [] => return left_out,
            [_] => 1,
            all => all.iter().map(TableRegion::least).sum::<usize>() + left_out.min(1),
        };
        if heads(bands.len()) + rows <= height {
            break;
        }
        left_out += bands.pop().map_or(0, |band| band.boards.len());
    }
    let mut free = height - heads(bands.len());
    if left_out > 0 && free > 1 {
        free -= 1;
    }
    while free > 0 {
        let Some(band) = bands
            .iter_mut()
            .filter(|band| band.body < band.wanted())
            .min_by_key(|band| band.body)
        else {
            break;
        };
        band.body += 1;
        free -= 1;
    }
    left_out
}

fn draw_band(band: &TableRegion<'_>, lines: &mut Vec<Line>) {
    let first = lines.len();
    let mut offset = 0;
    for (board, wide) in &band.boards {
        for (index, piece) in block(board, *wide, band.body).into_iter().enumerate() {
            if lines.len() == first + index {
                lines.push(Vec::new());
            }
            let line = &mut lines[first + index];
            let used: usize = line.iter().map(|piece: &Piece| width(&piece.text)).sum();
            if offset > used {
                line.push(Piece {
                    text: " ".repeat(offset - used),
                    emphasis: Emphasis::Plain,
                });
            }
            line.push(piece);
        }
        offset += wide + GUTTER;
    }
}

/// Returns one table in `wide` columns, with up to `body` lines below its headings.
fn block(board: &TableState, wide: usize, body: usize) -> Vec<Piece> {
    // The line with the number of hidden rows replaces a row, unless there is only one line.
    let rows = if board.len() > body && body > 1 {
        body - 1
    } else {
        body
    };
    let lines = board.lines(rows);
    let mut block = vec![
        Piece {
            text: fit(&board.title, wide),
            emphasis: Emphasis::Title,
        },
        dim(fit(&lines.head, wide)),
    ];
    block.extend(lines.rows.iter().map(|row| Piece {
        text: fit(row, wide),
        emphasis: Emphasis::Plain,
    }));
    if lines.more > 0 && rows < body {
        block.push(dim(fit(&format!("… {} more", lines.more), wide)));
    }
    block
}

fn dim(text: String) -> Piece {
    Piece {
        text,
        emphasis: Emphasis::Dim,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;
    use proptest::prelude::*;

    fn board(title: &str, rows: usize, cell: &str) -> TableState {
        let mut board = TableState::new(title.into(), vec!["k".into(), "v".into()], usize::MAX);
        board.update((0..rows).map(|n| Row::new(n).text(cell)));
        board
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines
            .iter()
            .map(|line| {
                let text: String = line.iter().map(|piece| piece.text.as_str()).collect();
                text.trim_end().to_string()
            })
            .collect()
    }

    const WIDE: Size = Size {
        columns: 80,
        rows: 24,
    };

    #[test]
    fn tables_stand_side_by_side_where_there_is_room() {
        let boards = [board("one", 2, "x"), board("two", 1, "y")];
        let lines = texts(&drawn(&boards, Some("running"), WIDE));
        assert_eq!(
            lines,
            [
                "one    two",
                "k  v   k  v",
                "0  x   0  y",
                "1  x",
                "",
                "running"
            ]
        );
    }

    #[test]
    fn and_below_each_other_where_there_is_not() {
        let boards = [board("one", 1, "x"), board("two", 1, "y")];
        let lines = texts(&drawn(
            &boards,
            None,
            Size {
                columns: 8,
                rows: 24,
            },
        ));
        assert_eq!(lines, ["one", "k  v", "0  x", "", "two", "k  v", "0  y"]);
    }

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let boards = [board("fifty rows", 50, "x")];
        let lines = texts(&drawn(
            &boards,
            None,
            Size {
                columns: 20,
                rows: 8,
            },
        ));
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[6], "… 46 more");
    }

    #[test]
    fn tables_that_find_no_room_are_counted() {
        let boards = [board("one", 1, "x"), board("two", 9, "y")];
        let lines = texts(&drawn(
            &boards,
            None,
            Size {
                columns: 60,
                rows: 6,
            },
        ));
        assert_eq!(lines.len(), 5);
        let narrow = texts(&drawn(
            &boards,
            None,
            Size {
                columns: 9,
                rows: 6,
            },
        ));
        assert_eq!(narrow, ["one", "k  v", "0  x", "… 1 more…"]);
    }

    #[test]
    fn in_a_small_window_each_row_that_is_not_shown_is_counted_or_its_table_is() {
        let boards = [
            board("one", 2, "x"),
            board("two", 2, "y"),
            board("three", 1, "z"),
        ];
        let drawn = |rows| texts(&drawn(&boards, None, Size { columns: 9, rows }));
        let lines = drawn(8);
        let told = "… 2 more…";
        assert_eq!(lines, ["one", "k  v", "0  x", "1  x", told]);
        let all = drawn(14);
        assert_eq!(all.len(), 13);
        assert!(!all.iter().any(|line| line.contains('…')), "{all:?}");
        let tight = drawn(5);
        assert_eq!(tight, ["one", "k  v", "0  x", told]);
    }

    #[test]
    fn in_a_pipe_everything_is_printed_whole() {
        let boards = [board("one", 30, "a rather long cell")];
        let lines = texts(&printed(&boards));
        assert_eq!(lines.len(), 32);
        assert_eq!(lines[31], "29  a rather long cell");
    }

    proptest! {
        #[test]
        fn no_frame_is_larger_than_the_terminal(
            columns in 0usize..100,
            rows in 0usize..40,
            counts in prop::collection::vec((0usize..30, "\\PC{0,30}"), 0..6),
            status in prop::option::of("\\PC{0,50}"),
        ) {
            let boards: Vec<TableState> = counts.iter().map(|(count, cell)| board(cell, *count, cell)).collect();
            let lines = drawn(&boards, status.as_deref(), Size { columns, rows });
            prop_assert!(lines.len() <= rows.saturating_sub(1));
            for line in lines {
                let wide: usize = line.iter().map(|piece| width(&piece.text)).sum();
                prop_assert!(wide <= columns, "{} > {}", wide, columns);
            }
        }
    }
}
