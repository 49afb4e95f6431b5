//! A store in a directory on a disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ardea_core::Result;
use ardea_filesystem::{Feature, create_folder, is_probe_file, probe, rename_to_free};
use bytes::Bytes;

use crate::store::failure::{unreadable, unwritable};
use crate::store::file_name::WriterToken;
use crate::store::{FileEntry, FileName, FileState, ObjectStore};

/// The maximum number of files written at a time, which limits open files.
const MOST_OPEN: usize = 32;

/// A store of files in a directory, which may be on a file system shared by several machines.
///
/// A file is written under a temporary name (name, number and `.writing`) and synced. It is then
/// renamed, and the directory is synced. Subdirectories, links and files with other names are
/// ignored.
#[derive(Clone, Debug)]
pub struct LocalDirStore {
    path: PathBuf,
}

impl LocalDirStore {
    /// Opens a directory, which is created if missing.
    ///
    /// # Errors
    /// `WriteFailed` if the directory cannot be created.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let folder = LocalDirStore { path: path.into() };
        folder
            .make()
            .map_err(|error| unwritable("the folder itself", &folder.place(), error))?;
        Ok(folder)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory durably if missing: also syncs the parents of new directories.
    fn make(&self) -> io::Result<()> {
        let mut missing: Vec<&Path> = Vec::new();
        for path in self.path.ancestors() {
            if path.as_os_str().is_empty() || path.is_dir() {
                break;
            }
            missing.push(path);
        }
        create_folder(&self.path)?;
        for made in missing {
            let parent = made
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            sync(parent.unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    fn path_of(&self, name: &FileName, state: FileState) -> PathBuf {
        match state {
            FileState::Whole => self.path.join(name.as_str()),
            FileState::Unfinished(writer) => self.path.join(name.unfinished(writer)),
        }
    }

    fn write_new(&self, files: &[(&FileName, &[u8])]) -> Result<()> {
        let mut begun = Vec::with_capacity(files.len());
        let written = self.write_and_name(files, &mut begun);
        if written.is_err() {
            for unfinished in begun {
                // A later sweep removes the files that remain.
                let _ = fs::remove_file(unfinished);
            }
        }
        written
    }

    /// Writes, syncs and renames files. Executes each of these steps for all files together, since
    /// a disk syncs many files in about the time of one.
    fn write_and_name(&self, files: &[(&FileName, &[u8])], begun: &mut Vec<PathBuf>) -> Result<()> {
        let failed = |name: &FileName, error| unwritable(name.as_str(), &self.place(), error);
        // No other writer uses this temporary name, even for the same file.
        let WriterToken(writer) = WriterToken::fresh();
        let mut open = Vec::with_capacity(files.len());
        for (name, bytes) in files {
            let path = self.path_of(name, FileState::Unfinished(writer));
            begun.push(path.clone());
            open.push(write(&path, bytes).map_err(|error| failed(name, error))?);
        }
        for (file, (name, _)) in open.iter().zip(files) {
            file.sync_all().map_err(|error| failed(name, error))?;
        }
        drop(open);
        for ((name, bytes), unfinished) in files.iter().zip(&*begun) {
            self.give_name(name, bytes, unfinished)
                .map_err(|error| failed(name, error))?;
        }
        sync(&self.path).map_err(|error| unwritable("the folder itself", &self.place(), error))
    }

    fn give_name(&self, name: &FileName, bytes: &[u8], unfinished: &Path) -> io::Result<()> {
        let whole = self.path_of(name, FileState::Whole);
        if rename_to_free(unfinished, &whole)? {
            return Ok(());
        }
        if fs::read(&whole)? != bytes {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // The original writer may have died before its sync.
        File::open(&whole)?.sync_all()?;
        remove(unfinished)
    }
}

/// Writes a new file, without syncing it.
fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the store's file for a directory entry; `None` if the entry is not such a file.
fn listed(entry: &fs::DirEntry) -> io::Result<Option<FileEntry>> {
    let text = entry.file_name();
    let Some(text) = text.to_str() else {
        return Ok(None);
    };
    let found = match FileName::of_unfinished(text) {
        Some((name, writer)) => Some((name, FileState::Unfinished(writer))),
        None => FileName::new(text).map(|name| (name, FileState::Whole)),
    };
    let Some((name, state)) = found else {
        return Ok(None);
    };
    // The metadata of the entry itself; links are not followed.
    let metadata = entry.metadata()?;
    Ok(metadata.is_file().then_some(FileEntry {
        name,
        state,
        bytes: metadata.len(),
    }))
}

impl ObjectStore for LocalDirStore {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.write_new(&[(name, bytes)])
    }

    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        // Limits the number of open files.
        for files in files.chunks(MOST_OPEN) {
            let files: Vec<_> = files
                .iter()
                .map(|(name, bytes)| (name, &bytes[..]))
                .collect();
            self.write_new(&files)?;
        }
        Ok(())
    }

    fn probe(&self) -> Result<()> {
        const FEATURES: [Feature; 4] = [
            Feature::ExclusiveCreate,
            Feature::RenameToFree,
            Feature::Sync,
            Feature::FolderSync,
        ];
        probe(&self.path, &FEATURES, "a folder of checkpoints")
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        let read = || -> io::Result<Bytes> {
            let mut file = File::open(self.path_of(name, FileState::Whole))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Bytes::from(bytes))
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            // If the directory itself is gone, its contents are unknown.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_dir() => Ok(None),
            Err(error) => Err(unreadable(name.as_str(), &self.place(), error)),
        }
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        let failed = |error| unreadable("the folder itself", &self.place(), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            match entry.and_then(|entry| listed(&entry)) {
                Ok(file) => found.extend(file),
                // The file was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(found)
    }

    fn is_empty(&self) -> Result<bool> {
        let mut entries = fs::read_dir(&self.path)
            .map_err(|error| unreadable("the folder itself", &self.place(), error))?;
        Ok(entries.all(|entry| entry.is_ok_and(|entry| is_probe_file(&entry.file_name()))))
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        for (name, state) in files {
            remove(&self.path_of(name, *state))
                .map_err(|error| unwritable(name.as_str(), &self.place(), error))?;
        }
        sync(&self.path).map_err(|error| unwritable("the folder itself", &self.place(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::ErrorCode;

    fn name(name: &str) -> FileName {
        FileName::new(name).expect("a name")
    }

    fn folder() -> (tempfile::TempDir, LocalDirStore) {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = LocalDirStore::open(temporary.path().join("deep/down")).expect("made");
        (temporary, folder)
    }

    #[test]
    fn a_folder_with_the_file_of_another_process_probe_is_empty() {
        let (_temporary, folder) = folder();
        std::fs::write(folder.path.join(".ardea-probe-00-1.part"), "").expect("written");
        assert!(folder.is_empty().expect("listed"));
        std::fs::write(folder.path.join("other"), "").expect("written");
        assert!(!folder.is_empty().expect("listed"));
    }

    #[test]
    fn what_is_written_is_read_and_listed_until_it_is_removed() {
        let (_temporary, folder) = folder();
        let a = name("a");
        assert_eq!(folder.read(&a).expect("read"), None);
        folder.write(&a, b"hello").expect("written");
        assert_eq!(
            folder.read(&a).expect("read").as_deref(),
            Some(&b"hello"[..])
        );
        let listed = folder.list().expect("listed");
        let whole = FileEntry {
            name: a.clone(),
            state: FileState::Whole,
            bytes: 5,
        };
        assert_eq!(listed, [whole]);
        for _ in 0..2 {
            folder
                .remove(&[(a.clone(), FileState::Whole)])
                .expect("removed");
            assert_eq!(folder.list().expect("listed"), []);
        }
    }

    #[test]
    fn a_file_is_written_once_and_again_only_with_the_same_bytes() {
        let (_temporary, folder) = folder();
        let a = name("a");
        folder.write(&a, b"hello").expect("written");
        folder.write(&a, b"hello").expect("as it is there");
        let error = folder.write(&a, b"other").expect_err("taken");
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert_eq!(
            folder.read(&a).expect("read").as_deref(),
            Some(&b"hello"[..])
        );
        assert_eq!(folder.list().expect("listed").len(), 1);
    }

    #[test]
    fn many_files_are_written_together_and_none_is_left_unfinished_when_one_is_taken() {
        let (_temporary, folder) = folder();
        let file = |number: usize| (name(&format!("f{number}")), Bytes::from(vec![7; number]));
        let files: Vec<_> = (0..2 * MOST_OPEN + 1).map(file).collect();
        folder.write_all(&files).expect("written");
        for (name, bytes) in &files {
            assert_eq!(folder.read(name).expect("read").as_ref(), Some(bytes));
        }
        assert_eq!(folder.list().expect("listed").len(), files.len());
        let others = [file(100), (name("f1"), Bytes::from("taken")), file(101)];
        let error = folder.write_all(&others).expect_err("taken");
        assert!(error.to_string().contains("f1"), "{error}");
        let listed = folder.list().expect("listed");
        assert!(listed.iter().all(|listed| listed.state == FileState::Whole));
        assert_eq!(
            folder.read(&name("f1")).expect("read").as_deref(),
            Some(&[7][..])
        );
    }

    #[test]
    fn what_a_killed_process_left_is_told_and_does_not_stand_in_the_way() {
        let (_temporary, folder) = folder();
        let a = name("a");
        fs::write(folder.path().join("a.00000000000000ff.writing"), "hel").expect("written");
        assert_eq!(folder.read(&a).expect("read"), None);
        let left = FileState::Unfinished(255);
        let listed = FileEntry {
            name: a.clone(),
            state: left,
            bytes: 3,
        };
        assert_eq!(folder.list().expect("listed"), [listed]);
        folder.write(&a, b"hello").expect("written");
        assert_eq!(folder.list().expect("listed").len(), 2);
        folder.remove(&[(a.clone(), left)]).expect("removed");
        assert_eq!(folder.list().expect("listed").len(), 1);
        assert_eq!(
            folder.read(&a).expect("read").as_deref(),
            Some(&b"hello"[..])
        );
    }

    #[test]
    fn two_who_write_the_same_file_at_once_both_know_which_it_is() {
        let (_temporary, folder) = folder();
        for round in 0..50 {
            let name = name(&format!("f{round}"));
            let contents = [b'x', b'y'].map(|byte| vec![byte; 100_000]);
            let written = std::thread::scope(|scope| {
                let threads = contents.each_ref().map(|bytes| {
                    let (folder, name) = (&folder, &name);
                    scope.spawn(move || folder.write(name, bytes).is_ok())
                });
                threads.map(|thread| thread.join().expect("no panic"))
            });
            let found = folder
                .read(&name)
                .expect("read")
                .expect("one has written it");
            for (content, is_written) in contents.iter().zip(written) {
                assert_eq!(found == content, is_written);
            }
        }
        let listed = folder.list().expect("listed");
        assert!(listed.iter().all(|listed| listed.state == FileState::Whole));
    }

    #[test]
    fn folders_links_and_strange_names_are_not_listed() {
        let (_temporary, folder) = folder();
        for other in [
            "Mine.TXT",
            "a.writing",
            "a.ff.writing",
            ".00000000000000ff.writing",
        ] {
            fs::write(folder.path().join(other), "x").expect("written");
        }
        fs::create_dir(folder.path().join("b")).expect("made");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("c")).expect("linked");
        assert_eq!(folder.list().expect("listed"), []);
    }

    #[test]
    fn in_a_folder_that_is_gone_no_file_is_taken_for_missing() {
        let (place, folder) = folder();
        let away = place.path().join("away");
        assert_eq!(folder.read(&name("a.block")).unwrap(), None);
        fs::rename(folder.path(), &away).unwrap();
        let error = folder.read(&name("a.block")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        fs::rename(&away, folder.path()).unwrap();
        assert_eq!(folder.read(&name("a.block")).unwrap(), None);
    }

    #[test]
    fn a_usual_folder_is_suitable_and_nothing_of_the_probe_is_left() {
        let (_temporary, folder) = folder();
        folder.probe().expect("suitable");
        assert!(folder.is_empty().expect("listed"));
        let system = LocalDirStore {
            path: "/proc/self".into(),
        };
        let error = system.probe().expect_err("nothing can be written");
        assert_eq!(error.code(), ErrorCode::WriteFailed);
    }

    #[test]
    fn a_folder_that_is_a_file_is_told() {
        let temporary = tempfile::tempdir().expect("a folder");
        let path = temporary.path().join("a");
        fs::write(&path, "x").expect("written");
        let error = LocalDirStore::open(&path).expect_err("a file");
        assert!(error.to_string().contains("/a"), "{error}");
    }
}
