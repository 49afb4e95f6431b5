//! A probe that checks whether a store detects concurrent writers of one file.

use ardea_core::{Error, ErrorCode, Result};

use crate::store::file_name::WriterToken;
use crate::store::{FileName, FileState, ObjectStore};

/// Checks a store by writing a file twice, with different bytes. The second write must fail and
/// change nothing.
///
/// # Errors
/// [`ErrorCode::StoreUnsuitable`] if the second write has replaced the file; those of the first
/// write.
pub(crate) fn taken_once<F: ObjectStore + ?Sized>(folder: &F) -> Result<()> {
    let WriterToken(token) = WriterToken::fresh();
    let name = format!("probe-{token:016x}.probe");
    let internal = || Error::new(ErrorCode::Internal, "a probe has no name");
    let name = FileName::new(name).ok_or_else(internal)?;
    folder.write(&name, FIRST)?;
    let again = folder.write(&name, SECOND);
    let found = folder.read(&name);
    // A probe file that cannot be removed does no harm.
    let _ = folder.remove(&[(name, FileState::Whole)]);
    match (again, found?.as_deref()) {
        (Err(_), Some(FIRST)) => Ok(()),
        (Ok(()), _) | (Err(_), Some(SECOND)) => Err(replaced(&folder.place())),
        (Err(error), _) => Err(error),
    }
}

const FIRST: &[u8] = b"a probe of this place, which may be removed\n";
const SECOND: &[u8] = b"a second one\n";

fn replaced(place: &str) -> Error {
    let what = format!("{place} can't detect two processes that run the same job");
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because("a file that may be written once was replaced by a second one")
        .hint("name another place: a folder on a local disk, or a bucket of a store with conditional writes (If-None-Match)")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::store::{FileEntry, MemoryStore};

    /// A store where the last writer of a name wins, or whose writes fail from the second on.
    #[derive(Debug, Default)]
    struct Careless {
        folder: MemoryStore,
        is_away: AtomicBool,
        goes_away: bool,
    }

    impl ObjectStore for Careless {
        fn place(&self) -> String {
            "a careless place".into()
        }

        fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
            if self.is_away.swap(self.goes_away, Ordering::Relaxed) {
                return Err(Error::new(ErrorCode::WriteFailed, "it is away"));
            }
            self.folder.remove(&[(name.clone(), FileState::Whole)])?;
            self.folder.write(name, bytes)
        }

        fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
            self.folder.read(name)
        }

        fn list(&self) -> Result<Vec<FileEntry>> {
            self.folder.list()
        }

        fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
            self.folder.remove(files)
        }
    }

    #[test]
    fn a_place_that_replaces_files_is_refused_and_nothing_is_left_there() {
        let careless = Careless::default();
        let error = careless.probe().unwrap_err();
        assert_eq!(error.code(), ErrorCode::StoreUnsuitable);
        assert!(error.to_string().contains("a careless place"), "{error}");
        assert!(careless.is_empty().unwrap());
        let careful = MemoryStore::new();
        careful.probe().unwrap();
        assert!(careful.is_empty().unwrap());
    }

    #[test]
    fn a_write_that_fails_for_another_reason_refuses_no_place() {
        let away = Careless {
            goes_away: true,
            ..Careless::default()
        };
        away.probe().unwrap();
    }
}
