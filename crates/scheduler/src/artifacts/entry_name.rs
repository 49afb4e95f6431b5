//! Names within a package, and checks that links stay within it.

use std::path::{Component, Path};

/// The maximum length of a name in bytes: Linux's limit for paths.
const MOST_BYTES: usize = 4_096;
/// The maximum number of folders above a file.
const MOST_DEPTH: usize = 64;

/// Returns the normalized name of an entry, such as `data/rates.csv`, or the reason why `text` is
/// invalid.
///
/// The normalized name is a relative path without `.` and `..`, and not empty.
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
                // A part of UTF-8 text is UTF-8.
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

/// Checks that a link called `name` may point to `target`. Otherwise returns the reason.
///
/// A target consists of `..` components, at most as many as the link's depth, followed by names.
/// The folders above a link are no links, so the `..` components stay within the package, and the
/// names lead only to permitted targets. A `..` after a name is refused, because the name could be
/// a link to a folder.
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
