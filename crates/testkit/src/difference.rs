//! Text reports of the differences between expected and actual output.

use std::fmt::{Debug, Write};

/// The number of lines shown around the first difference; twice as many unmatched records are
/// listed.
const CONTEXT_LINES: usize = 4;

/// Compares two lists in order.
///
/// # Errors
/// A readable report of the first difference and its surroundings.
pub(crate) fn compare_ordered<E: PartialEq + Debug>(
    what: &str,
    expected: &[E],
    came: &[E],
) -> Result<(), String> {
    if expected == came {
        return Ok(());
    }
    let same = expected
        .iter()
        .zip(came)
        .take_while(|(expected, came)| expected == came)
        .count();
    let mut text = format!(
        "{} {what}s were expected, {} came; the first difference is at {what} {same}:",
        expected.len(),
        came.len()
    );
    for (index, item) in expected[..same]
        .iter()
        .enumerate()
        .skip(same.saturating_sub(CONTEXT_LINES))
    {
        let _ = write!(text, "\n      {index:>4} both     {item:?}");
    }
    describe(&mut text, "expected", expected, same);
    describe(&mut text, "came", came, same);
    Err(text)
}

fn describe<E: Debug>(text: &mut String, name: &str, list: &[E], from: usize) {
    if from == list.len() {
        let _ = write!(text, "\n      {from:>4} {name:<8} nothing more");
    }
    for (index, item) in list.iter().enumerate().skip(from).take(CONTEXT_LINES) {
        let _ = write!(text, "\n      {index:>4} {name:<8} {item:?}");
    }
    if list.len() > from + CONTEXT_LINES {
        let _ = write!(
            text,
            "\n           {name:<8} … {} more",
            list.len() - from - CONTEXT_LINES
        );
    }
}

/// Compares two lists as multisets.
///
/// # Errors
/// The missing and the unexpected records.
pub(crate) fn compare_unordered<E: PartialEq + Debug>(
    expected: &[E],
    came: &[E],
) -> Result<(), String> {
    let mut missing: Vec<&E> = expected.iter().rev().collect();
    let mut surplus: Vec<&E> = Vec::new();
    for item in came {
        // Searched from the back: equal orders match at once.
        match missing.iter().rposition(|candidate| *candidate == item) {
            Some(index) => drop(missing.remove(index)),
            None => surplus.push(item),
        }
    }
    if missing.is_empty() && surplus.is_empty() {
        return Ok(());
    }
    missing.reverse();
    let mut text = format!(
        "{} records were expected in any order, {} came",
        expected.len(),
        came.len()
    );
    list_some(&mut text, "missing", &missing);
    list_some(&mut text, "not expected", &surplus);
    Err(text)
}

fn list_some<E: Debug>(text: &mut String, name: &str, items: &[&E]) {
    for item in items.iter().take(2 * CONTEXT_LINES) {
        let _ = write!(text, "\n      {name:<12} {item:?}");
    }
    if items.len() > 2 * CONTEXT_LINES {
        let _ = write!(
            text,
            "\n      {name:<12} … {} more",
            items.len() - 2 * CONTEXT_LINES
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let text = compare_ordered("record", &[1, 2, 3], &[1, 3]).unwrap_err();
        assert!(
            text.starts_with(
                "3 records were expected, 2 came; the first difference is at record 1"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_missing_tail_is_named() {
        let text = compare_ordered("record", &[1, 2], &[1]).unwrap_err();
        assert!(text.contains("1 came     nothing more"), "{text}");
    }

    #[test]
    fn multisets_count_how_often_a_record_comes() {
        assert!(compare_unordered(&[1, 2, 2], &[2, 1, 2]).is_ok());
        let text = compare_unordered(&[1, 2, 2], &[2, 1, 1]).unwrap_err();
        assert!(
            text.contains("missing      2") && text.contains("not expected 1"),
            "{text}"
        );
    }
}
