//! The part of Rust's grammar used by the checks: code, positions of words, ends of blocks.
//!
//! All functions work on text with blanked comments and literals, so that a brace or a word in a
//! string does not mislead a check. Offsets are in bytes; lines are counted from 1.

use std::ops::Range;

/// Returns the text with every comment, string and character literal replaced by spaces. Line
/// breaks stay, so that line numbers do not change. Characters outside ASCII also become spaces, so
/// that every offset is the start of a character.
pub fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(chars.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            code.push(if chars[at].is_ascii() { chars[at] } else { ' ' });
            at += 1;
        } else {
            code.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    code
}

/// Returns the end of the comment or literal that begins at `at`; `at` itself if none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match (chars[at], next) {
        ('/', Some('/')) => find(chars, at, |c| c == '\n'),
        ('/', Some('*')) => block_comment_end(chars, at),
        ('"', _) => quoted_end(chars, at, '"'),
        ('\'', Some('\\')) => quoted_end(chars, at, '\''),
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
        ('r', Some('"' | '#')) if !ends_a_name(chars, at) => raw_string_end(chars, at),
        _ => at,
    }
}

/// Returns true if the `r` at `at` is the last letter of a longer name, and so does not begin a raw
/// string.
fn ends_a_name(chars: &[char], at: usize) -> bool {
    let is_name = |c: Option<&char>| c.is_some_and(|&c| c.is_alphanumeric() || c == '_');
    match at.checked_sub(1).map(|before| chars[before]) {
        Some('b' | 'c') => is_name(at.checked_sub(2).and_then(|before| chars.get(before))),
        Some(before) => is_name(Some(&before)),
        None => false,
    }
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    chars[from..]
        .iter()
        .position(|&c| wanted(c))
        .map_or(chars.len(), |offset| from + offset)
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0, from);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn raw_string_end(chars: &[char], from: usize) -> usize {
    let open = find(chars, from + 1, |c| c != '#');
    if chars.get(open) != Some(&'"') {
        return from; // a raw identifier, such as r#type
    }
    let hashes = open - from - 1;
    let mut at = open + 1;
    while at < chars.len() {
        let closes = chars[at] == '"'
            && chars.len() > at + hashes
            && chars[at + 1..=at + hashes].iter().all(|&c| c == '#');
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// Returns the offset of every occurrence of `word` that is not a part of a longer name.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            !code[..at].ends_with(is_name) && !code[at + word.len()..].starts_with(is_name)
        })
}

/// Returns the line of an offset.
pub fn line(code: &str, offset: usize) -> usize {
    code[..offset].matches('\n').count() + 1
}

/// Returns the next `{ … }` at or after `from`, braces included; `None` if the item there ends with
/// a `;` first.
pub fn next_block(code: &str, from: usize) -> Option<Range<usize>> {
    let mut brackets = 0_i32;
    let (offset, _) = code[from..].char_indices().find(|&(_, c)| {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            _ => {}
        }
        brackets <= 0 && matches!(c, '{' | ';')
    })?;
    let open = from + offset;
    if code[open..].starts_with(';') {
        return None;
    }
    let mut depth = 0_i32;
    for (offset, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open..open + offset + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "a /* x /* y */\n z */ b // c\n\"d\\\" e\" f 'g' '\\'' h";
        assert_eq!(
            blank(text).split_whitespace().collect::<Vec<_>>(),
            ["a", "b", "f", "h"]
        );
        assert_eq!(
            blank(text).matches('\n').count(),
            text.matches('\n').count()
        );
    }

    #[test]
    fn raw_strings_of_every_kind_are_blanked() {
        let text = "a r\"x\\\" b r##\"y\"# z\"## c br#\"{\"# d cr\"}\" e";
        let code = blank(text);
        assert!(!code.contains(['x', 'y', 'z', '{', '}']), "{code}");
        assert!(code.ends_with(" e"), "{code}");
    }

    #[test]
    fn lifetimes_raw_names_and_names_that_end_in_r_stay() {
        assert_eq!(blank("fn f<'a>(x: &'a T) {}"), "fn f<'a>(x: &'a T) {}");
        assert_eq!(blank("r#type"), "r#type");
        assert_eq!(blank("var\"x\""), "var   ");
    }

    #[test]
    fn an_unfinished_literal_reaches_to_the_end() {
        for text in ["\"abc", "r#\"abc\"", "/* abc", "'\\abc"] {
            assert_eq!(blank(text).trim_matches([' ', 'r', '#']), "", "{text}");
        }
    }

    #[test]
    fn a_word_inside_a_name_does_not_count() {
        assert_eq!(
            words("unsafe unsafe_code not_unsafe unsafe", "unsafe").count(),
            2
        );
    }

    #[test]
    fn a_block_ends_with_its_own_brace() {
        let code = "fn f(x: [u8; 4]) -> u8 { if x { 1 } else { 2 } } fn g();";
        let block = next_block(code, 0).expect("f has a body");
        assert_eq!(&code[block], "{ if x { 1 } else { 2 } }");
        assert_eq!(
            next_block(code, code.find("fn g").expect("g is there")),
            None
        );
    }
}
