//! Names within a package, and where links may lead: nowhere but into the package.

use std::path::{Component, Path};

/// The longest name, in bytes: what Linux takes as a path.
const MOST_BYTES: usize = 4_096;
/// The most folders above a file.
const MOST_DEPTH: usize = 64;

/// The name of an entry, in its one way of writing: `data/rates.csv`. Why not, if it is none.
///
/// It is relative, without `.` and `..`, and not empty.
pub(crate) fn entry_name(text: &str) -> Result<String, &'static str> {
    if text.len() > MOST_BYTES {
        return Err("its name is longer than 4,096 bytes");
    }
    if text.contains('\0') {
        return Err("its name holds a zero byte");
    }
    let mut name = String::with_capacity(text.len());
    let mut depth = 0;
    for component in Path::new(text).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => {
                if depth > 0 {
                    name.push('/');
                }
                // It was text before it was cut into pieces.
                name.push_str(part.to_str().unwrap_or_default());
                depth += 1;
            }
            Component::ParentDir => return Err("its name leads out of the package"),
            Component::RootDir | Component::Prefix(_) => return Err("its name is absolute"),
        }
    }
    match depth {
        0 => Err("its name is empty"),
        1..=MOST_DEPTH => Ok(name),
        _ => Err("it lies more than 64 folders deep"),
    }
}

/// Whether a link called `name` may lead to `target`. Why not, if it may not.
///
/// A target is some `..`, no more than the link's depth, and names behind them. Since the folders above a link are folders and
/// no links, the `..` stay within the package; and the names lead, one after another, to where each link may lead itself.
/// A `..` behind a name could be that of a folder which a link leads to, so there is none.
pub(crate) fn check_link(name: &str, target: &str) -> Result<(), &'static str> {
    if target.is_empty() || target.contains('\0') || target.len() > MOST_BYTES {
        return Err("it is a link to nothing");
    }
    let depth = name.matches('/').count();
    let (mut ups, mut names) = (0, 0);
    for component in Path::new(target).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if names > 0 => {
                return Err("it is a link with .. behind a name");
            }
            Component::ParentDir => ups += 1,
            Component::Normal(_) => names += 1,
            Component::RootDir | Component::Prefix(_) => {
                return Err("it is a link to an absolute path");
            }
        }
    }
    if ups > depth {
        return Err("it is a link that leads out of the package");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_in_one_way() {
        assert_eq!(entry_name("./a//b/./c/").as_deref(), Ok("a/b/c"));
        let deep = vec!["d"; 65].join("/");
        for name in [
            "",
            ".",
            "/a",
            "../a",
            "a/../b",
            "a\0b",
            &"x".repeat(5_000),
            &deep,
        ] {
            assert!(entry_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn links_stay_within_the_package() {
        for (name, target) in [
            ("a", "b"),
            ("a/b", "../c"),
            ("a/b", "./c/d"),
            ("a/b/c", "../.."),
            ("a", "."),
        ] {
            assert_eq!(check_link(name, target), Ok(()), "{name} -> {target}");
        }
        for (name, target) in [
            ("a", ""),
            ("a", "/etc"),
            ("a", "../x"),
            ("a/b", "../../x"),
            ("a/b/c", "d/../../e"),
        ] {
            assert!(check_link(name, target).is_err(), "{name} -> {target}");
        }
    }
}
