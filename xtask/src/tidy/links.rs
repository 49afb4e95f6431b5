//! A check that every link between pages of the project leads to an existing file, and its anchor
//! to a heading in that file.
//!
//! Addresses with a scheme are not checked, because a check must not need a network. Paths of Rust
//! items are not checked either, because rustdoc checks them. Code in a page is ignored.

use super::Finding;
use super::tree::Tree;

/// Finds broken links in Markdown files.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in tree.texts().filter(|file| file.ending() == "md") {
        for (line, prose) in prose(&page.text) {
            for target in targets(&prose) {
                if let Some(message) = broken(tree, &page.path, target) {
                    findings.push(Finding::new(&page.path, line, message));
                }
            }
        }
    }
    findings
}

/// Returns the reason why a link of a page is broken; `None` if it is valid.
fn broken(tree: &Tree, page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.contains("::") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() {
        Some(page.to_owned())
    } else {
        resolve(page, path)
    };
    let Some(file) = file.filter(|file| tree.contains(file)) else {
        return Some(format!("`{target}` leads to no file of the checkout"));
    };
    let headed = tree
        .text(&file)
        .filter(|file| file.ending() == "md" && !heading.is_empty())?;
    let found = anchors(&headed.text).any(|anchor| anchor == heading);
    (!found).then(|| format!("`{target}`: {file} has no heading `#{heading}`"))
}

/// Returns the path of a link's target from the checkout's root; `None` if it leaves the checkout.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = if link.starts_with('/') {
        Vec::new()
    } else {
        page.split('/').collect()
    };
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the lines of a page with their numbers, without blocks of code and with inline code
/// blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fence = None;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(_), _) if fence == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => {
                let halves = line.split('`').enumerate();
                let text = halves.map(|(i, part)| if i % 2 == 0 { part } else { "code" });
                return Some((number, text.collect()));
            }
        }
        None
    })
}

/// Returns the targets of the links `[text](target)`, `![alt](target)` and `[name]: target` in a
/// line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .and_then(|(_, target)| target.split_whitespace().next());
    inline
        .chain(definition)
        .map(|target| target.trim_matches(['<', '>']))
}

/// Returns the anchors of a page's headings in the format of forges: lower case, hyphens for
/// spaces, no punctuation.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/guide.md", page),
            ("docs/time.md", "# Time, and `windows`\n"),
            ("README.md", "# Ardea\n"),
            ("crates/core/src/lib.rs", ""),
        ]);
        check(&tree)
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn links_to_files_folders_and_headings_are_followed() {
        let page = "# Guide\n[a](time.md) ![b](../README.md#ardea) [c](time.md#time-and-windows)\n\
                    [d](#guide) [e](/crates/core/) [f](../crates/core/src/lib.rs \"title\")\n[g]: ./time.md\n";
        assert!(messages(page).is_empty(), "{:?}", messages(page));
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(
            messages(
                "[a](gone.md) [b](../../out.md)\n[c](time.md#gone) [d](#gone)\n[e]: gone.md\n"
            ),
            [
                "`gone.md` leads to no file of the checkout",
                "`../../out.md` leads to no file of the checkout",
                "`time.md#gone`: docs/time.md has no heading `#gone`",
                "`#gone`: docs/guide.md has no heading `#gone`",
                "`gone.md` leads to no file of the checkout",
            ]
        );
    }

    #[test]
    fn code_addresses_and_rust_paths_are_left_alone() {
        let page = "`[a](gone.md)` [b](https://example.org/x) [c](ardea::Pipeline) [d](mailto:a@b)\n\
                    ```\n[e](gone.md)\n```\n~~~text\n```\n[f](gone.md)\n~~~\n";
        assert!(messages(page).is_empty(), "{:?}", messages(page));
    }
}
