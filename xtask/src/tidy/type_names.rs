//! Checks that names of types use the vocabulary of the field, and that each names one type.
//!
//! Two rules, with exceptions that only shrink (see [`ratchet`]). A type name that is visible
//! outside its file is the name of one type only in the workspace. Every word of a type's name is
//! in the glossary or in `xtask/type-words.txt`.

use super::Finding;
use super::ratchet::{self, Excess, Rule};
use super::rust_code;
use super::tree::{Text, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Common words of type names that are not in the glossary.
const COMMON: &str = include_str!("../../type-words.txt");

/// The vocabulary of the project.
const GLOSSARY: &str = "docs/glossary.md";

const ONCE: Rule = Rule {
    name: "type-once",
    unit: "types",
};

const WORDS: Rule = Rule {
    name: "type-word",
    unit: "types",
};

/// Finds names of visible types that stand for several types.
pub fn check_once(tree: &Tree) -> Vec<Finding> {
    ONCE.compare(repeated(tree), ratchet::EXCEPTIONS)
}

/// Finds words of type names that are not in the vocabulary.
pub fn check_words(tree: &Tree) -> Vec<Finding> {
    let glossary = tree.text(GLOSSARY).map_or("", |file| file.text.as_str());
    WORDS.compare(
        unknown_words(tree, &words_of(glossary, COMMON)),
        ratchet::EXCEPTIONS,
    )
}

/// The definition of a type.
struct Definition<'a> {
    path: &'a str,
    line: usize,
    name: &'a str,
    is_visible: bool,
}

/// Returns the types that product code defines outside functions and test modules.
fn definitions(tree: &Tree) -> impl Iterator<Item = Definition<'_>> {
    tree.rust()
        .filter(|file| is_product(&file.path))
        .flat_map(in_file)
}

fn is_product(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.contains("test")
}

fn in_file(file: &Text) -> Vec<Definition<'_>> {
    let tests = file.code.find("mod tests {").unwrap_or(file.code.len());
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "trait", "union"] {
        for at in rust_code::words(&file.code[..tests], keyword) {
            let begin = file.code[..at].rfind('\n').map_or(0, |line| line + 1);
            let before = file.code[begin..at].trim_end();
            let rest = file.code[at + keyword.len()..].trim_start();
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            if !before.is_empty() && !before.starts_with("pub") || end == 0 {
                continue;
            }
            found.push(Definition {
                path: &file.path,
                line: rust_code::line(&file.code, at),
                name: &rest[..end],
                is_visible: before.ends_with("pub"),
            });
        }
    }
    found
}

fn repeated(tree: &Tree) -> BTreeMap<String, Excess> {
    let mut by_name: BTreeMap<&str, Vec<Definition<'_>>> = BTreeMap::new();
    for definition in definitions(tree).filter(|definition| definition.is_visible) {
        by_name.entry(definition.name).or_default().push(definition);
    }
    by_name.retain(|_, all| all.len() > 1);
    let excess = |(name, all): (&str, Vec<Definition<'_>>)| {
        let findings = all.iter().map(|one| {
            let message = format!(
                "`{name}` is {} types: give each a name of its own",
                all.len()
            );
            Finding::new(one.path, one.line, message)
        });
        let findings = findings.collect();
        (
            name.to_owned(),
            Excess {
                count: all.len(),
                findings,
            },
        )
    };
    by_name.into_iter().map(excess).collect()
}

fn unknown_words(tree: &Tree, known: &BTreeSet<String>) -> BTreeMap<String, Excess> {
    let mut unknown: BTreeMap<String, Excess> = BTreeMap::new();
    for definition in definitions(tree) {
        for word in split(definition.name).filter(|word| !known.contains(word)) {
            let message = format!(
                "`{}`: \"{word}\" is neither in {GLOSSARY} nor in xtask/type-words.txt: take the field's word",
                definition.name
            );
            let excess = unknown.entry(word).or_insert_with(|| Excess {
                count: 0,
                findings: Vec::new(),
            });
            excess.count += 1;
            excess
                .findings
                .push(Finding::new(definition.path, definition.line, message));
        }
    }
    unknown
}

/// Returns the words of a name in camel case, in lower case and without digits. An acronym is one
/// word.
fn split(name: &str) -> impl Iterator<Item = String> + '_ {
    let letters: Vec<char> = name
        .chars()
        .filter(|c| c.is_alphabetic() || *c == '_')
        .collect();
    let begins = |at: usize| {
        let upper = |at: usize| letters.get(at).is_some_and(|c| c.is_uppercase());
        at == 0 || upper(at) && (!upper(at - 1) || at + 1 < letters.len() && !upper(at + 1))
    };
    let mut words: Vec<String> = Vec::new();
    for (at, letter) in letters.iter().enumerate() {
        match words.last_mut() {
            Some(word) if !begins(at) => word.extend(letter.to_lowercase()),
            _ => words.push(letter.to_lowercase().collect()),
        }
    }
    words.into_iter().filter(|word| word.len() > 1)
}

/// Returns the words of the glossary's first column and of the list of common words.
fn words_of(glossary: &str, common: &str) -> BTreeSet<String> {
    let column = glossary
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let listed = common.lines().filter(|line| !line.starts_with('#'));
    column
        .chain(listed)
        .flat_map(|text| text.split(|c: char| !c.is_alphabetic()))
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_capitals_and_acronyms_are_words() {
        let words: Vec<_> = split("HTTPServerV2Config").collect();
        assert_eq!(words, ["http", "server", "config"]);
    }

    #[test]
    fn a_visible_name_of_two_types_is_found_and_private_ones_are_not() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "pub struct Window;\nstruct Cell;\n"),
            ("crates/b/src/lib.rs", "pub enum Window {}\nstruct Cell;\n"),
        ]);
        let found = repeated(&tree);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["Window"]);
        assert_eq!(found["Window"].count, 2);
    }

    #[test]
    fn words_come_from_the_glossary_and_from_the_list() {
        let tree = Tree::of(&[(
            "crates/a/src/lib.rs",
            "pub struct WindowDesk;\nstruct Cell;\n",
        )]);
        let known = words_of("| **window** | a stretch of time |\n", "# common\ncell\n");
        let unknown = unknown_words(&tree, &known);
        assert_eq!(unknown.keys().collect::<Vec<_>>(), ["desk"]);
    }

    #[test]
    fn types_of_tests_may_be_called_anything() {
        let tests = "#[cfg(test)]\nmod tests {\n    struct Desk;\n}\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", tests),
            ("crates/a/tests/b.rs", "struct Desk;\n"),
        ]);
        assert_eq!(definitions(&tree).count(), 0);
    }
}
