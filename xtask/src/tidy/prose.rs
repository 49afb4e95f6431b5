//! The checkable part of docs/style.md: comments in plain words, at most 100 columns wide.
//!
//! Three rules, each with exceptions per file that only shrink (see [`ratchet`]). A comment does
//! not begin with an interrogative, it contains no refused word, and its lines are not wider than
//! code.

use super::Finding;
use super::ratchet::{self, Excess, Rule};
use super::tree::{Text, Tree};
use std::collections::BTreeMap;

/// Interrogatives, which are refused as the first word of a comment.
const INTERROGATIVES: [&str; 7] = ["What", "Who", "Whose", "Whether", "Where", "Which", "How"];

/// Words that refer to people instead of parts of the system, or have no meaning.
const REFUSED: [&str; 10] = [
    "whoever",
    "nobody",
    "somebody",
    "who is",
    "who are",
    "what is",
    "what was",
    "as ever",
    "anew",
    "of one's own",
];

/// The widest comment line with indentation: the width of code in rustfmt.
const MOST_COLUMNS: usize = 100;

const FIRST_WORD: Rule = Rule {
    name: "first-word",
    unit: "comments that begin with an interrogative",
};

const REFUSED_WORD: Rule = Rule {
    name: "refused-word",
    unit: "refused words",
};

const WIDTH: Rule = Rule {
    name: "comment-width",
    unit: "wide comment lines",
};

/// Finds comments that begin with an interrogative.
pub fn check_first_words(tree: &Tree) -> Vec<Finding> {
    FIRST_WORD.compare(count(tree, first_word), ratchet::EXCEPTIONS)
}

/// Finds refused words in comments.
pub fn check_refused_words(tree: &Tree) -> Vec<Finding> {
    REFUSED_WORD.compare(count(tree, refused_words), ratchet::EXCEPTIONS)
}

/// Finds comment lines that are too wide.
pub fn check_widths(tree: &Tree) -> Vec<Finding> {
    WIDTH.compare(count(tree, too_wide), ratchet::EXCEPTIONS)
}

/// A line of a comment.
struct CommentLine<'a> {
    /// The line's number, from 1.
    number: usize,
    /// The whole line.
    line: &'a str,
    /// The marker: `//`, `///` or `//!`.
    marker: &'a str,
    /// The text behind the marker.
    text: &'a str,
    /// True if the line before is not a comment with this marker.
    is_first: bool,
}

/// Returns the lines of a file's comments, without those of code blocks.
fn comment_lines(file: &Text) -> impl Iterator<Item = CommentLine<'_>> {
    let (mut before, mut is_code) = ("", false);
    (1..)
        .zip(file.text.lines())
        .filter_map(move |(number, line)| {
            let all = line.trim_start();
            let marker = ["//!", "///", "//"]
                .into_iter()
                .find(|marker| all.starts_with(marker))
                .unwrap_or_default();
            let text = all[marker.len()..].trim();
            let is_first = marker != before;
            let is_fence = !marker.is_empty() && text.starts_with("```");
            is_code = !marker.is_empty() && is_code != is_fence;
            before = marker;
            let is_prose = !marker.is_empty() && !is_code && !is_fence;
            is_prose.then_some(CommentLine {
                number,
                line,
                marker,
                text,
                is_first,
            })
        })
}

/// Returns the number of faults of every Rust file, by path.
fn count(
    tree: &Tree,
    faults: impl Fn(&CommentLine<'_>) -> Vec<String>,
) -> BTreeMap<String, Excess> {
    let mut found = BTreeMap::new();
    for file in tree.rust() {
        let findings: Vec<Finding> = comment_lines(file)
            .flat_map(|comment| {
                let number = comment.number;
                faults(&comment)
                    .into_iter()
                    .map(move |message| Finding::new(&file.path, number, message))
            })
            .collect();
        if !findings.is_empty() {
            let count = findings.len();
            found.insert(file.path.clone(), Excess { count, findings });
        }
    }
    found
}

fn first_word(comment: &CommentLine<'_>) -> Vec<String> {
    let word = comment.text.split_whitespace().next().unwrap_or_default();
    let is_interrogative = comment.is_first && INTERROGATIVES.contains(&word);
    is_interrogative
        .then(|| {
            format!("`{word}` begins the comment: begin with a noun or a verb (docs/style.md)")
        })
        .into_iter()
        .collect()
}

fn refused_words(comment: &CommentLine<'_>) -> Vec<String> {
    // Names of code in backticks are no prose.
    let prose: Vec<&str> = comment.text.split('`').step_by(2).collect();
    let text = prose.join(" ").to_lowercase();
    let is_word = |at: usize, word: &str| {
        let letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        !letter(at.checked_sub(1).and_then(|at| bytes.get(at)))
            && !letter(bytes.get(at + word.len()))
    };
    REFUSED
        .iter()
        .filter(|word| text.match_indices(*word).any(|(at, _)| is_word(at, word)))
        .map(|word| format!("\"{word}\": name the part of the system (docs/style.md)"))
        .collect()
}

/// Returns the fault of a line that is too wide. Table rows and links cannot be broken, so they may
/// be wider.
fn too_wide(comment: &CommentLine<'_>) -> Vec<String> {
    let columns = comment.line.chars().count();
    let cannot_break = comment.text.starts_with('|')
        || comment.text.contains("://")
        || comment.text.contains("](")
        || comment.marker == "//" && comment.text.starts_with("language=");
    (columns > MOST_COLUMNS && !cannot_break)
        .then(|| format!("{columns} columns, {MOST_COLUMNS} are the most"))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, faults: impl Fn(&CommentLine<'_>) -> Vec<String>) -> Vec<usize> {
        let found = count(&Tree::of(&[("a.rs", text)]), faults);
        let findings = found.into_values().flat_map(|excess| excess.findings);
        findings.map(|finding| finding.line).collect()
    }

    #[test]
    fn an_interrogative_is_refused_at_the_beginning_of_a_comment_only() {
        let text =
            "/// What it is.\nfn f() {}\n/// A thing.\n/// What follows.\nfn g() {} // What\n";
        assert_eq!(lines(text, first_word), [1]);
    }

    #[test]
    fn a_header_and_a_comment_behind_it_are_two() {
        assert_eq!(lines("//! A file.\n// How it works.\n", first_word), [2]);
    }

    #[test]
    fn refused_words_are_found_as_words() {
        let text = "// Nobody waits.\n// The renewal.\n// Begins anew, as ever.\n";
        assert_eq!(lines(text, refused_words), [1, 3, 3]);
    }

    #[test]
    fn code_blocks_of_documentation_are_not_prose() {
        let text = "/// A thing:\n///\n/// ```\n/// nobody();\n/// ```\n/// Nobody waits.\n";
        assert_eq!(lines(text, refused_words), [6]);
    }

    #[test]
    fn a_wide_line_is_found_unless_it_cannot_be_broken() {
        let wide = "word ".repeat(25);
        let text = format!("// {wide}\n/// | {wide}\n// {wide} https://a.example/b\n");
        assert_eq!(lines(&text, too_wide), [1]);
    }
}
