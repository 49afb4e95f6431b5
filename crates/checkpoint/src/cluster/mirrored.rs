//! A folder whose files are in the memory of hosts as well: they are read from there, and kept here whatever becomes of that.

use std::sync::Arc;

use crate::store::{FileName, FileState, Folder, Listed};
use ardea_core::Result;
use bytes::Bytes;

/// A folder, and beside it a quicker one that may lose what it has, or have no room.
///
/// What the quicker one has is what the folder has, never more: files come there later and go there first.
#[derive(Debug)]
pub(crate) struct Mirrored {
    kept: Arc<dyn Folder>,
    quick: Arc<dyn Folder>,
}

impl Mirrored {
    pub(crate) fn new(kept: Arc<dyn Folder>, quick: Arc<dyn Folder>) -> Self {
        Mirrored { kept, quick }
    }
}

impl Folder for Mirrored {
    fn place(&self) -> String {
        self.kept.place()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.write_all(&[(name.clone(), Bytes::copy_from_slice(bytes))])
    }

    /// Of two who take a name the folder knows who has got it: the other one's file must not be seen in memory.
    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        self.kept.write_all(files)?;
        // What does not fit is read from the folder.
        let _ = self.quick.write_all(files);
        Ok(())
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        match self.quick.read(name) {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) | Err(_) => self.kept.read(name),
        }
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let mut listed = self.kept.list()?;
        // What is there without being here was left of writing it.
        let left = self.quick.list().unwrap_or_default().into_iter();
        listed.extend(left.filter(|file| file.state != FileState::Whole));
        Ok(listed)
    }

    fn is_empty(&self) -> Result<bool> {
        self.kept.is_empty()
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        // What stayed there would be read.
        self.quick.remove(files)?;
        self.kept.remove(files)
    }
}

#[cfg(test)]
mod tests {
    use crate::store::conformance::CHECKS;
    use crate::store::{DiskFolder, MemoryFolder};
    use ardea_core::{Error, ErrorCode};

    use super::*;

    /// Memory that is full, and can't be read.
    #[derive(Debug)]
    struct Away;

    fn away<T>() -> Result<T> {
        Err(Error::new(ErrorCode::ReadFailed, "it is away"))
    }

    impl Folder for Away {
        fn place(&self) -> String {
            "away".into()
        }

        fn write(&self, _: &FileName, _: &[u8]) -> Result<()> {
            away()
        }

        fn read(&self, _: &FileName) -> Result<Option<Bytes>> {
            away()
        }

        fn list(&self) -> Result<Vec<Listed>> {
            away()
        }

        fn remove(&self, _: &[(FileName, FileState)]) -> Result<()> {
            away()
        }
    }

    fn disk(place: &tempfile::TempDir) -> Arc<dyn Folder> {
        Arc::new(DiskFolder::open(place.path()).unwrap())
    }

    fn name(name: &str) -> FileName {
        FileName::new(name).unwrap()
    }

    #[test]
    fn a_mirrored_folder_promises_what_every_folder_does() {
        for (what, check) in CHECKS {
            println!("{what}");
            let place = tempfile::tempdir().unwrap();
            check(&Mirrored::new(disk(&place), Arc::new(MemoryFolder::new())));
        }
    }

    #[test]
    fn what_memory_has_lost_or_never_had_is_read_from_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let memory = MemoryFolder::new();
        let folder = Mirrored::new(disk(&place), Arc::new(memory.clone()));
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

        let folder = Mirrored::new(disk(&place), Arc::new(Away));
        folder.write(&name("b"), b"x").unwrap();
        assert_eq!(folder.read(&name("b")).unwrap().as_deref(), Some(&b"x"[..]));
        assert_eq!(folder.list().unwrap().len(), 2);
        // Nothing goes here that may still be read there.
        assert!(folder.remove(&[(name("b"), FileState::Whole)]).is_err());
        assert!(folder.read(&name("b")).unwrap().is_some());
    }

    #[test]
    fn memory_never_has_what_the_folder_has_refused() {
        let place = tempfile::tempdir().unwrap();
        let memory = MemoryFolder::new();
        let folder = Mirrored::new(disk(&place), Arc::new(memory.clone()));
        disk(&place).write(&name("a"), b"another's").unwrap();
        assert!(folder.write(&name("a"), b"own").is_err());
        assert_eq!(memory.read(&name("a")).unwrap(), None);
        assert_eq!(
            folder.read(&name("a")).unwrap().as_deref(),
            Some(&b"another's"[..])
        );
    }
}
