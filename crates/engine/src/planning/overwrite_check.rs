//! A check that refuses jobs that would overwrite their own input.
//!
//! A sink renames its file to the final name when it is complete, which would replace an input of
//! that name. If the temporary name is that of an input, the input would be replaced even earlier.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ardea_core::{Dag, Error, ErrorCode, FileUse, Result, VertexId, real_path};

/// The identity of a file independent of its path: device and inode if it exists, else its
/// canonical path.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Present(u64, u64),
    Absent(PathBuf),
}

/// Refuses a graph in which a vertex writes a file that a vertex reads, also under another name
/// such as a link or `./`.
///
/// Based on the files that suppliers declare for their parallelism. Devices and pipes are ignored.
///
/// # Errors
/// [`ErrorCode::InvalidJob`], naming both vertices.
pub(crate) fn refuse_overwriting(dag: &Dag, parallelism: impl Fn(VertexId) -> u32) -> Result<()> {
    let mut read = HashMap::new();
    let mut written = Vec::new();
    for (index, vertex) in dag.vertices().iter().enumerate() {
        let parallelism = parallelism(VertexId::of_index(index));
        for file_use in vertex.supplier().files(parallelism) {
            match file_use {
                FileUse::Reads(path) => {
                    if let Some(identity) = identity(&path) {
                        read.insert(identity, (vertex.name(), path));
                    }
                }
                FileUse::Writes(path) => written.push((vertex.name(), path)),
            }
        }
    }
    for (sink, path) in written {
        if let Some((source, input)) = identity(&path).and_then(|identity| read.get(&identity)) {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                format!(
                    "{sink:?} would overwrite {}, which {source:?} reads",
                    input.display()
                ),
            )
            .hint("write to another file"));
        }
    }
    Ok(())
}

/// Returns the identity of a path; `None` if it exists and is no regular file.
fn identity(path: &Path) -> Option<Identity> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            Some(Identity::Present(metadata.dev(), metadata.ino()))
        }
        Ok(_) => None,
        Err(_) => Some(Identity::Absent(real_path(path))),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use ardea_core::{Instance, Parallelism, Processor, ProcessorSupplier, Vertex};

    use super::*;

    const THREADS: NonZeroU32 = NonZeroU32::new(3).unwrap();

    /// A supplier that uses a file; a written one is in a folder named by the parallelism if there
    /// are several instances.
    struct Uses(FileUse);

    impl ProcessorSupplier for Uses {
        fn supply(&self, _: Instance) -> Result<Box<dyn Processor>> {
            Err(Error::new(ErrorCode::Internal, "only described"))
        }

        fn files(&self, parallelism: u32) -> Vec<FileUse> {
            vec![match &self.0 {
                FileUse::Writes(path) if parallelism > 1 => {
                    FileUse::Writes(path.join(parallelism.to_string()))
                }
                file_use => file_use.clone(),
            }]
        }
    }

    fn check(input: &Path, output: &Path) -> Result<()> {
        check_with(input, output, Parallelism::ONE)
    }

    fn check_with(input: &Path, output: &Path, parallelism: Parallelism) -> Result<()> {
        let mut dag = Dag::new();
        for (name, file_use) in [
            ("sink", FileUse::Writes(output.to_path_buf())),
            ("source", FileUse::Reads(input.to_path_buf())),
        ] {
            dag.vertex(Vertex::new(name, Arc::new(Uses(file_use))).parallelism(parallelism));
        }
        refuse_overwriting(&dag, |id| dag.get(id).wanted_parallelism().resolve(THREADS))
    }

    /// A temporary folder of this test, deleted when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("ardea-own-input-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_known_under_all_its_names() {
        let folder = Folder::new();
        let at = |name: &str| folder.0.join(name);
        fs::write(at("x"), "").unwrap();
        fs::hard_link(at("x"), at("hard")).unwrap();
        std::os::unix::fs::symlink(at("x"), at("soft")).unwrap();
        for output in [at("x"), at("./x"), at("hard"), at("soft")] {
            let error = check(&at("x"), &output).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidJob);
            assert!(error.to_string().contains("would overwrite"), "{error}");
        }
        for output in [at("y"), at("no/such/y"), PathBuf::from("/dev/null")] {
            check(&at("x"), &output).unwrap();
        }
        check(Path::new("/dev/null"), Path::new("/dev/null")).unwrap();
        // A file that does not exist yet, also in a missing directory.
        check(&at("later"), &at("./later")).unwrap_err();
        std::os::unix::fs::symlink(&folder.0, at("link")).unwrap();
        check(&at("no/such/later"), &at("link/no/such/later")).unwrap_err();
        std::os::unix::fs::symlink(at("later"), at("dangling")).unwrap();
        check(&at("later"), &at("dangling")).unwrap_err();
    }

    #[test]
    fn as_many_files_are_looked_at_as_the_node_has_instances_for() {
        let folder = Path::new("/no/such/folder");
        let check = |input: &str| check_with(&folder.join(input), folder, Parallelism::Auto);
        check("3").unwrap_err();
        check("2").unwrap();
    }
}
