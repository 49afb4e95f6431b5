//! Files that a vertex reads or writes, for detecting a job that would overwrite its own input
//! before it runs.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use crate::{Delivery, Instance, Processor, ProcessorSupplier, Result};

/// A file that the instances of a vertex will read or write, as far as known before they start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileUse {
    /// Read from this file. A reader of a directory names the files that it would read now.
    Reads(PathBuf),
    /// Written to this file, replacing its content.
    Writes(PathBuf),
}

/// Returns the canonical path of a file: absolute, without `.`, `..` and symbolic links, as far as
/// the path exists.
///
/// Parts that do not exist yet are taken literally. So a file keeps its path when the file and its
/// directories are created, also behind a dangling link. Costs a few system calls per part of the
/// path.
///
/// ```
/// use ardea_core::real_path;
///
/// assert_eq!(real_path("/no/such/../file".as_ref()), real_path("/no/./file".as_ref()));
/// assert!(real_path("file".as_ref()).is_absolute());
/// ```
pub fn real_path(path: &Path) -> PathBuf {
    let mut links_left = MAX_LINKS;
    follow(
        env::current_dir().unwrap_or_default(),
        path,
        &mut links_left,
    )
}

/// The maximum number of dangling links that are followed, equal to the limit of the system for
/// links.
const MAX_LINKS: u32 = 40;

/// Returns the canonical path of `path`, relative to `real`.
fn follow(mut real: PathBuf, path: &Path, links_left: &mut u32) -> PathBuf {
    for part in path.components() {
        match part {
            Component::ParentDir => {
                real.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                let next = real.join(part);
                real = match fs::canonicalize(&next) {
                    Ok(next) => next,
                    Err(_) => match fs::read_link(&next) {
                        Ok(target) if *links_left > 0 => {
                            *links_left -= 1;
                            follow(real, &target, links_left)
                        }
                        _ => next,
                    },
                };
            }
        }
    }
    real
}

/// A supplier that wraps another and declares the files that it will use.
pub(crate) struct WithFiles<F> {
    pub(crate) supplier: Arc<dyn ProcessorSupplier>,
    pub(crate) files: F,
}

impl<F> ProcessorSupplier for WithFiles<F>
where
    F: Fn(u32) -> Vec<FileUse> + Send + Sync,
{
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>> {
        self.supplier.supply(instance)
    }

    fn files(&self, parallelism: u32) -> Vec<FileUse> {
        let mut files = self.supplier.files(parallelism);
        files.extend((self.files)(parallelism));
        files
    }

    fn delivery(&self) -> Option<Delivery> {
        self.supplier.delivery()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_has_one_real_path_before_and_after_its_directories_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        symlink(at("real"), at("link")).unwrap();
        let names = [
            "real/a/b/c",
            "link/a/b/c",
            "link/./a/x/../b/c",
            "link/../real/a/b/c",
        ];
        let expected = fs::canonicalize(at("real")).unwrap().join("a/b/c");
        for made in [false, true] {
            for name in names {
                assert_eq!(real_path(&at(name)), expected, "{name}, made: {made}");
            }
            fs::create_dir_all(at("real/a/b")).unwrap();
            fs::write(at("real/a/b/c"), "").unwrap();
        }
    }

    #[test]
    fn a_link_that_leads_to_nothing_yet_has_the_name_of_what_it_will_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let expected = fs::canonicalize(folder.path()).unwrap().join("later/file");
        symlink(at("later"), at("folder")).unwrap();
        symlink("folder/file", at("link")).unwrap();
        symlink("link", at("again")).unwrap();
        for name in ["later/file", "folder/file", "link", "again"] {
            assert_eq!(real_path(&at(name)), expected, "{name}");
        }
        symlink("round", at("round")).unwrap();
        assert!(
            real_path(&at("round")).ends_with("round"),
            "it comes to an end"
        );
    }

    #[test]
    fn a_link_to_a_file_has_the_name_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert_eq!(real_path(&at("link")), real_path(&at("file")));
    }
}
