//! The checkout as input of the checks: all paths, and the text of every hand-written file.

use super::rust_code;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The extensions of hand-written files, which the checks read. All other files are data.
const WRITTEN_ENDINGS: &[&str] = &["rs", "md", "toml", "sh", "py", "sql", "yml", "yaml"];

/// Hand-written files without an extension.
const WRITTEN_NAMES: &[&str] = &["Makefile", ".ci/run"];

/// Hidden folders of the project; all others (version control, editors, virtual environments) are
/// ignored.
const HIDDEN_FOLDERS: &[&str] = &[".ci", ".cargo", ".github"];

/// The name of the repository itself: a folder in a clone, a file in a worktree.
const REPOSITORY: &str = ".git";

/// Folders with generated files.
const FILLED_FOLDERS: &[&str] = &["target", "__pycache__", "node_modules", "venv"];

/// One hand-written file.
#[derive(Debug)]
pub struct Text {
    /// The path from the checkout's root, with `/` between folders.
    pub path: String,
    /// The content.
    pub text: String,
    /// For a Rust file, the text with comments and literals blanked (see [`rust_code::blank`]),
    /// else empty.
    pub code: String,
}

impl Text {
    fn new(path: String, text: String) -> Self {
        let code = if path.ends_with(".rs") {
            rust_code::blank(&text)
        } else {
            String::new()
        };
        Self { path, text, code }
    }

    /// Returns the extension of the file's name, without the dot; empty if there is none.
    pub fn ending(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, ending)| ending)
    }
}

/// The whole checkout.
#[derive(Debug, Default)]
pub struct Tree {
    /// The paths of all files and folders; the root itself is the empty path.
    paths: BTreeSet<String>,
    texts: Vec<Text>,
}

impl Tree {
    /// Reads the checkout at `root` without generated files.
    ///
    /// # Errors
    /// If a folder cannot be listed, or a hand-written file cannot be read or is not UTF-8.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        tree.paths.insert(String::new());
        tree.read_folder(root, "")?;
        tree.texts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> Result<(), String> {
        let failed = |error| format!("cannot list the folder `{folder}`: {error}");
        for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if name == REPOSITORY {
                continue;
            }
            let path = if folder.is_empty() {
                name.clone()
            } else {
                format!("{folder}/{name}")
            };
            if entry.file_type().map_err(failed)?.is_dir() {
                let hidden = name.starts_with('.') && !HIDDEN_FOLDERS.contains(&name.as_str());
                if !hidden && !FILLED_FOLDERS.contains(&name.as_str()) {
                    self.read_folder(root, &path)?;
                    self.paths.insert(path);
                }
                continue;
            }
            if is_written(&path) {
                let text = fs::read_to_string(root.join(&path))
                    .map_err(|error| format!("cannot read `{path}` as text: {error}"))?;
                self.texts.push(Text::new(path.clone(), text));
            }
            self.paths.insert(path);
        }
        Ok(())
    }

    /// Returns every hand-written file, by path.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        self.texts.iter()
    }

    /// Returns every Rust file, by path.
    pub fn rust(&self) -> impl Iterator<Item = &Text> {
        self.texts().filter(|text| text.ending() == "rs")
    }

    /// Returns the manifest of every package of the workspace.
    pub fn manifests(&self) -> impl Iterator<Item = &Text> {
        self.texts()
            .filter(|text| text.path.ends_with("/Cargo.toml"))
    }

    /// Returns the hand-written file at `path`.
    pub fn text(&self, path: &str) -> Option<&Text> {
        self.texts().find(|text| text.path == path)
    }

    /// Returns true if there is a file or a folder at `path`.
    pub fn contains(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Returns a checkout of the given files, for the tests of the checks.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for &(path, text) in files {
            for (slash, _) in path.match_indices('/') {
                tree.paths.insert(path[..slash].to_owned());
            }
            tree.paths.insert(path.to_owned());
            tree.texts.push(Text::new(path.to_owned(), text.to_owned()));
        }
        tree.paths.insert(String::new());
        tree
    }
}

fn is_written(path: &str) -> bool {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    WRITTEN_ENDINGS.contains(&ending) || WRITTEN_NAMES.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_programs_without_an_ending_are_not_hand_written() {
        assert!(is_written("crates/core/src/lib.rs"));
        assert!(is_written("Makefile"));
        assert!(is_written(".ci/run"));
        assert!(!is_written("examples/demo/data/flights.csv.gz"));
        assert!(!is_written("LICENSE"));
    }

    #[test]
    fn the_checkout_holds_this_file_and_no_build_output() {
        let tree = Tree::read(&crate::repository_root()).expect("the checkout can be read");
        assert!(tree.text("xtask/src/tidy/tree.rs").is_some());
        assert!(tree.contains("xtask/src/tidy"));
        assert!(!tree.contains("target"));
        assert!(!tree.contains(".git"));
    }
}
