//! Which files a vertex reads or writes, for telling before anything runs that a job would overwrite its own input.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use crate::{Delivery, Instance, Processor, ProcessorSupplier, Result};

/// A file that the instances of a vertex will read or write, as far as that is known before they start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileUse {
    /// Read from this file. Who reads the files of a directory names those that he would read now.
    Reads(PathBuf),
    /// Written to this file, in place of what is there.
    Writes(PathBuf),
}

/// The one name of a file that may have several: absolute, without `.`, `..` and links, as far as the way to it exists.
///
/// What of the way isn't there yet is taken as it is written. So a file keeps its name when it and its directories are made, also
/// behind a link that leads to nothing yet. Costs a few system calls for each part of the path.
///
/// ```
/// use ardea_core::real_path;
///
/// assert_eq!(real_path("/no/such/../file".as_ref()), real_path("/no/./file".as_ref()));
/// assert!(real_path("file".as_ref()).is_absolute());
/// ```
pub fn real_path(path: &Path) -> PathBuf {
    let mut links_left = MOST_LINKS;
    follow(
        env::current_dir().unwrap_or_default(),
        path,
        &mut links_left,
    )
}

/// How many links that lead to nothing are followed, as many as the system follows links.
const MOST_LINKS: u32 = 40;

/// The real path of `path`, which is relative to `real`.
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

/// Supplies what another supplies, and says which files that will use.
pub(crate) struct UsingFiles<F> {
    pub(crate) supplier: Arc<dyn ProcessorSupplier>,
    pub(crate) files: F,
}

impl<F> ProcessorSupplier for UsingFiles<F>
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
