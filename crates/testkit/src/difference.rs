//! Where what was expected and what came part, in words.

use std::fmt::{Debug, Write};

/// How many lines are shown around the first difference, and how many unmatched records.
const SHOWN: usize = 4;

/// Compares two lists in order.
///
/// # Errors
/// A readable account of the first difference and what stands around it.
pub(crate) fn parting<E: PartialEq + Debug>(
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
        "{} {what}s were expected, {} came; they part at {what} {same}:",
        expected.len(),
        came.len()
    );
    for (index, item) in expected[..same]
        .iter()
        .enumerate()
        .skip(same.saturating_sub(SHOWN))
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
    for (index, item) in list.iter().enumerate().skip(from).take(SHOWN) {
        let _ = write!(text, "\n      {index:>4} {name:<8} {item:?}");
    }
    if list.len() > from + SHOWN {
        let _ = write!(
            text,
            "\n           {name:<8} … {} more",
            list.len() - from - SHOWN
        );
    }
}

/// Compares two lists as multisets.
///
/// # Errors
/// What is missing and what is there without being expected.
pub(crate) fn unmatched<E: PartialEq + Debug>(expected: &[E], came: &[E]) -> Result<(), String> {
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
    for item in items.iter().take(2 * SHOWN) {
        let _ = write!(text, "\n      {name:<12} {item:?}");
    }
    if items.len() > 2 * SHOWN {
        let _ = write!(
            text,
            "\n      {name:<12} … {} more",
            items.len() - 2 * SHOWN
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let text = parting("record", &[1, 2, 3], &[1, 3]).unwrap_err();
        assert!(
            text.starts_with("3 records were expected, 2 came; they part at record 1"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_tail_is_named() {
        let text = parting("record", &[1, 2], &[1]).unwrap_err();
        assert!(text.contains("1 came     nothing more"), "{text}");
    }

    #[test]
    fn multisets_count_how_often_a_record_comes() {
        assert!(unmatched(&[1, 2, 2], &[2, 1, 2]).is_ok());
        let text = unmatched(&[1, 2, 2], &[2, 1, 1]).unwrap_err();
        assert!(
            text.contains("missing      2") && text.contains("not expected 1"),
            "{text}"
        );
    }
}
