//! A durable store with a copy of its files in the memory of hosts. Reads try the copy first.

use std::sync::Arc;

use crate::store::{FileEntry, FileName, FileState, ObjectStore};
use ardea_core::Result;
use bytes::Bytes;

/// A durable store, and a faster store that may lose files or be full.
///
/// The faster store contains only files of the durable store. A file is written to the durable
/// store first, and removed from the faster store first.
#[derive(Debug)]
pub(crate) struct WriteThroughStore {
    kept: Arc<dyn ObjectStore>,
    quick: Arc<dyn ObjectStore>,
}

impl WriteThroughStore {
    pub(crate) fn new(kept: Arc<dyn ObjectStore>, quick: Arc<dyn ObjectStore>) -> Self {
        WriteThroughStore { kept, quick }
    }
}

impl ObjectStore for WriteThroughStore {
    fn place(&self) -> String {
        self.kept.place()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.write_all(&[(name.clone(), Bytes::copy_from_slice(bytes))])
    }

    /// Writes to the durable store first, which accepts only one of two writers of a name. The
    /// refused file must not reach memory.
    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        self.kept.write_all(files)?;
        // Files that do not fit are read from the durable store.
        let _ = self.quick.write_all(files);
        Ok(())
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        match self.quick.read(name) {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) | Err(_) => self.kept.read(name),
        }
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        let mut listed = self.kept.list()?;
        // Unfinished files in memory are left over from a write.
        let left = self.quick.list().unwrap_or_default().into_iter();
        listed.extend(left.filter(|file| file.state != FileState::Whole));
        Ok(listed)
    }

    fn is_empty(&self) -> Result<bool> {
        self.kept.is_empty()
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        // A file that remained in memory would still be read.
        self.quick.remove(files)?;
        self.kept.remove(files)
    }
}

#[cfg(test)]
mod tests {
    use crate::store::conformance::CHECKS;
    use crate::store::{LocalDirStore, MemoryStore};
    use ardea_core::{Error, ErrorCode};

    use super::*;

    /// A memory store that is full and cannot be read.
    #[derive(Debug)]
    struct Away;

    fn away<T>() -> Result<T> {
        Err(Error::new(ErrorCode::ReadFailed, "it is away"))
    }

    impl ObjectStore for Away {
        fn place(&self) -> String {
            "away".into()
        }

        fn write(&self, _: &FileName, _: &[u8]) -> Result<()> {
            away()
        }

        fn read(&self, _: &FileName) -> Result<Option<Bytes>> {
            away()
        }

        fn list(&self) -> Result<Vec<FileEntry>> {
            away()
        }

        fn remove(&self, _: &[(FileName, FileState)]) -> Result<()> {
            away()
        }
    }

    fn disk(place: &tempfile::TempDir) -> Arc<dyn ObjectStore> {
        Arc::new(LocalDirStore::open(place.path()).unwrap())
    }

    fn name(name: &str) -> FileName {
        FileName::new(name).unwrap()
    }

    #[test]
    fn a_mirrored_folder_promises_what_every_folder_does() {
        for (what, check) in CHECKS {
            println!("{what}");
            let place = tempfile::tempdir().unwrap();
            check(&WriteThroughStore::new(
                disk(&place),
                Arc::new(MemoryStore::new()),
            ));
        }
    }

    #[test]
    fn what_memory_has_lost_or_never_had_is_read_from_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let memory = MemoryStore::new();
        let folder = WriteThroughStore::new(disk(&place), Arc::new(memory.clone()));
        folder.write(&name("a"), b"hello").unwrap();
        assert_eq!(
            memory.read(&name("a")).unwrap().as_deref(),
            Some(&b"hello"[..])
        );
        memory.remove(&[(name("a"), FileState::Whole)]).unwrap();
        assert_eq!(
            folder.read(&name("a")).unwrap().as_deref(),
            Some(&b"hello"[..])
        );

        let folder = WriteThroughStore::new(disk(&place), Arc::new(Away));
        folder.write(&name("b"), b"x").unwrap();
        assert_eq!(folder.read(&name("b")).unwrap().as_deref(), Some(&b"x"[..]));
        assert_eq!(folder.list().unwrap().len(), 2);
        // A file stays in the durable store while it may still be read from memory.
        assert!(folder.remove(&[(name("b"), FileState::Whole)]).is_err());
        assert!(folder.read(&name("b")).unwrap().is_some());
    }

    #[test]
    fn memory_never_has_what_the_folder_has_refused() {
        let place = tempfile::tempdir().unwrap();
        let memory = MemoryStore::new();
        let folder = WriteThroughStore::new(disk(&place), Arc::new(memory.clone()));
        disk(&place).write(&name("a"), b"another's").unwrap();
        assert!(folder.write(&name("a"), b"own").is_err());
        assert_eq!(memory.read(&name("a")).unwrap(), None);
        assert_eq!(
            folder.read(&name("a")).unwrap().as_deref(),
            Some(&b"another's"[..])
        );
    }
}
