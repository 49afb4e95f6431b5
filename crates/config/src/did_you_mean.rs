//! Suggestions for misspelt words.

/// Returns the candidate nearest to `word`, if at most a third of its letters are wrong.
///
/// The last part of a dotted word is also compared alone, for a word with a wrong or missing table.
///
/// ```
/// use ardea_config::nearest;
///
/// assert_eq!(nearest("wordcuont", ["flights", "wordcount"].into_iter()), Some("wordcount"));
/// ```
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (word_distance(word, candidate), candidate))
        .filter(|(strangeness, candidate)| *strangeness <= tolerance(last_part(candidate)))
        // Of two candidates at the same distance, the one with the smaller distance as a whole
        // word.
        .min_by_key(|(strangeness, candidate)| (*strangeness, edit_distance(word, candidate)))
        .map(|(_, candidate)| candidate)
}

fn tolerance(candidate: &str) -> usize {
    (candidate.chars().count() / 3).max(1)
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn word_distance(word: &str, candidate: &str) -> usize {
    let whole = edit_distance(word, candidate);
    let (left, right) = (last_part(word), last_part(candidate));
    if (left, right) == (word, candidate) {
        return whole;
    }
    // A wrong table counts as one error.
    whole.min(edit_distance(left, right) + 1)
}

/// Returns the number of letters to insert, remove, replace or swap with their neighbour (optimal
/// string alignment), in `O(a · b)`.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(before[j - 2] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = ["threads", "idle_poll", "engine.slice", "spin"];

    #[test]
    fn slips_of_the_pen_are_understood() {
        for (word, meant) in [
            ("thread", "threads"),
            ("Threads", "threads"),
            ("theradss", "threads"),
            ("idle-poll", "idle_poll"),
            ("engine.slise", "engine.slice"),
            ("slice", "engine.slice"),
            ("engin.slice", "engine.slice"),
            ("node.threads", "threads"),
        ] {
            assert_eq!(nearest(word, KEYS.into_iter()), Some(meant), "{word}");
        }
    }

    #[test]
    fn of_two_last_parts_that_fit_the_one_in_the_nearer_table_is_meant() {
        let keys = ["state.folder", "checkpoints.folder"];
        let meant = nearest("checkpoint.folder", keys.into_iter());
        assert_eq!(meant, Some("checkpoints.folder"));
    }

    #[test]
    fn something_else_is_not_taken_for_a_slip() {
        for word in ["", "x", "colour", "engine.colour"] {
            assert_eq!(nearest(word, KEYS.into_iter()), None, "{word}");
        }
    }

    #[test]
    fn the_distance_counts_slips() {
        for (a, b, slips) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edit_distance(a, b), slips, "{a} {b}");
        }
    }
}
