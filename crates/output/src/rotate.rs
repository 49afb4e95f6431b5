//! Rotation: starts a new file when the current one has reached its size.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::files::OutputFile;
use crate::{OutputBounds, OutputFiles};

impl OutputFiles {
    /// Opens the current file for appending, for a new process. A file that has reached its size is
    /// rotated first.
    ///
    /// No other process may rotate the files at the same time.
    ///
    /// # Errors
    ///
    /// If a file cannot be renamed or opened.
    pub fn open(&self, bounds: &OutputBounds) -> io::Result<File> {
        match std::fs::metadata(self.path()) {
            Ok(metadata) if metadata.len() >= bounds.file_bytes => {
                let rotated = self.rotate(bounds)?;
                self.record_previous(&rotated)?;
                Ok(rotated.new)
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.append(),
        }
    }

    /// Rotates the current file and starts a new one. The caller redirects its output to the new
    /// file, then calls [`record_previous`](Self::record_previous).
    ///
    /// The oldest file is emptied and becomes the new one. A process that still appends to the
    /// oldest file then appends to the current file, and no unnamed file grows.
    pub(crate) fn rotate(&self, bounds: &OutputBounds) -> io::Result<RotationResult> {
        let parts = self.parts()?;
        let (old, current) = match parts.split_last() {
            Some((current, old)) if current.age == 0 => (old, Some(current)),
            _ => (&parts[..], None),
        };
        let oldest = bounds.oldest_age();
        let next = self.beside("next");
        let mut left_out = 0;
        for part in old.iter().filter(|part| part.age >= oldest) {
            left_out += part.bytes;
            rename_if_there(&self.aged(part.age), &next)?;
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        let new = options.open(&next)?;
        new.set_len(0)?;
        for age in (1..oldest).rev() {
            rename_if_there(&self.aged(age), &self.aged(age + 1))?;
        }
        rename_if_there(&self.path(), &self.aged(1))?;
        std::fs::rename(&next, self.path())?;
        Ok(RotationResult {
            new,
            before: current.and_then(|part| Some((part.file.try_clone().ok()?, part.at))),
            left_out,
        })
    }

    /// Records the position of the file before the new one. A write to that file may still be in
    /// progress, so the start of the new file is computed from that file's size on demand.
    pub(crate) fn record_previous(&self, rotated: &RotationResult) -> io::Result<()> {
        match &rotated.before {
            Some((file, at)) => self.record(file.metadata()?.ino(), *at),
            None => Ok(()),
        }
    }

    /// Records the position of the current file, so that it does not change when an older one is
    /// emptied or removed.
    fn record_current(&self, parts: &[OutputFile]) -> io::Result<()> {
        match parts.last().filter(|part| part.age == 0) {
            Some(current) => self.record(current.inode, current.at),
            None => Ok(()),
        }
    }

    /// Removes the file of this age: 0 is the current file, 1 the newest rotated file. The
    /// positions of the others do not change.
    ///
    /// # Errors
    ///
    /// If a file cannot be written or removed.
    pub fn remove(&self, age: u32) -> io::Result<()> {
        self.record_current(&self.parts()?)?;
        match std::fs::remove_file(self.aged(age)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Empties rotated files to which another process still appends: those that have grown by more
    /// than the bound of a file since they were first seen. Returns the number of dropped bytes.
    /// All calls must get the same `seen`.
    ///
    /// # Errors
    ///
    /// If a file cannot be emptied.
    pub fn truncate_old(&self, bounds: &OutputBounds, seen: &mut SeenSizes) -> io::Result<u64> {
        let mut left_out = 0;
        let mut now = BTreeMap::new();
        let parts = self.parts()?;
        for part in parts.iter().filter(|part| part.age > 0) {
            let key = (part.inode, part.mark);
            let before = seen.old.get(&key).copied().unwrap_or(part.bytes);
            match part.bytes > before.saturating_add(bounds.file_bytes) {
                true => {
                    self.record_current(&parts)?;
                    left_out += self.empty(part)?;
                }
                false => drop(now.insert(key, before)),
            }
        }
        seen.old = now;
        Ok(left_out)
    }

    /// Empties the current file if no process rotates it: if the file exceeds the limit of all
    /// files together in two consecutive calls, which must get the same `seen`. Bytes appended at
    /// that moment are lost without being counted. Returns the number of dropped bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be emptied.
    pub fn truncate_current(&self, bounds: &OutputBounds, seen: &mut SeenSizes) -> io::Result<u64> {
        let parts = self.parts()?;
        let current = parts.last().filter(|part| part.age == 0);
        let long = current.filter(|part| part.bytes > bounds.all_bytes());
        let before = std::mem::replace(&mut seen.long, long.map(|part| part.inode));
        match long.filter(|part| before == Some(part.inode)) {
            Some(part) => self.empty(part),
            None => Ok(0),
        }
    }

    /// Empties a file in place. Later appends start at its new end.
    pub(crate) fn empty(&self, part: &OutputFile) -> io::Result<u64> {
        let file = OpenOptions::new().write(true).open(self.aged(part.age))?;
        let metadata = file.metadata()?;
        if metadata.ino() != part.inode {
            return Ok(0);
        }
        file.set_len(0)?;
        if part.age == 0 {
            self.record(part.inode, part.at.saturating_add(metadata.len()))?;
        }
        Ok(metadata.len())
    }
}

/// The sizes of files that earlier calls of [`truncate_old`](OutputFiles::truncate_old) and
/// [`truncate_current`](OutputFiles::truncate_current) found.
#[derive(Debug, Default)]
pub struct SeenSizes {
    /// The sizes of rotated files when they were first seen, by inode and `OutputFile::mark`.
    old: BTreeMap<(u64, u64), u64>,
    /// The inode of the current file if it was too large in the last call.
    long: Option<u64>,
}

/// The result of a rotation.
#[derive(Debug)]
pub(crate) struct RotationResult {
    /// The new current file.
    pub(crate) new: File,
    /// The previous file, and the position at which it starts.
    before: Option<(File, u64)>,
    /// The number of dropped bytes of old files.
    pub(crate) left_out: u64,
}

impl RotationResult {
    /// Returns the size of the previous file, which is final when nothing more is appended to it.
    pub(crate) fn bytes_before(&self) -> u64 {
        let file = self.before.as_ref().map(|(file, _)| file.metadata());
        file.and_then(|metadata| Some(metadata.ok()?.len()))
            .unwrap_or(0)
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const BOUNDS: OutputBounds = OutputBounds {
        file_bytes: 4,
        files: 3,
    };

    fn output() -> (tempfile::TempDir, OutputFiles) {
        let folder = tempfile::tempdir().unwrap();
        let output = OutputFiles::new(folder.path(), "out");
        (folder, output)
    }

    fn append(output: &OutputFiles, text: &str) {
        let mut file = output.open(&BOUNDS).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn the_oldest_file_goes_and_what_is_left_out_is_counted() {
        let (folder, output) = output();
        for text in ["first", "second", "third!", "fourth"] {
            append(&output, text);
        }
        let read = |name| std::fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("out").as_deref(), Some("fourth"));
        assert_eq!(read("out.1").as_deref(), Some("third!"));
        assert_eq!(read("out.2").as_deref(), Some("second"));
        assert_eq!(read("out.3"), None);
        assert_eq!(output.stored_range().unwrap(), (5, 23));
    }

    #[test]
    fn fewer_files_than_before_are_kept_from_the_next_rotation_on() {
        let (_folder, output) = output();
        for text in ["first", "second", "third!", "fourth"] {
            append(&output, text);
        }
        let fewer = OutputBounds { files: 2, ..BOUNDS };
        drop(output.open(&fewer).unwrap());
        assert_eq!(output.stored_range().unwrap(), (17, 23));
    }

    #[test]
    fn a_record_that_is_one_rotation_behind_still_counts() {
        let (_folder, output) = output();
        for text in ["first", "second", "third!"] {
            append(&output, text);
        }
        // The rotation was interrupted before the record was written.
        drop(output.rotate(&BOUNDS).unwrap());
        assert_eq!(output.stored_range().unwrap(), (5, 17));
        append(&output, "fourth");
        assert_eq!(output.stored_range().unwrap(), (5, 23));
    }

    #[test]
    fn a_rotation_that_was_interrupted_between_two_renames_is_repaired() {
        let (_folder, output) = output();
        for text in ["first", "second", "third!"] {
            append(&output, text);
        }
        std::fs::rename(output.aged(0), output.aged(9)).unwrap();
        std::fs::rename(output.aged(9), output.beside("next")).unwrap();
        append(&output, "fourth");
        assert_eq!(output.stored_range().unwrap().0, 0);
    }

    #[test]
    fn a_process_that_appends_to_an_old_file_is_bounded() {
        let (_folder, output) = output();
        let mut stray = output.open(&BOUNDS).unwrap();
        stray.write_all(b"stray").unwrap();
        append(&output, "second");
        let mut seen = SeenSizes::default();
        assert_eq!(output.truncate_old(&BOUNDS, &mut seen).unwrap(), 0);
        stray.write_all(b" and").unwrap();
        assert_eq!(output.truncate_old(&BOUNDS, &mut seen).unwrap(), 0);
        stray.write_all(b" much more").unwrap();
        assert_eq!(output.truncate_old(&BOUNDS, &mut seen).unwrap(), 19);
        for text in ["third!", "fourth"] {
            append(&output, text);
        }
        // The file has become the current one.
        stray.write_all(b" again").unwrap();
        let current = std::fs::read_to_string(output.path()).unwrap();
        assert_eq!(current, "fourth again");
    }

    #[test]
    fn a_file_that_nothing_rotates_is_emptied_in_place() {
        let (_folder, output) = output();
        let mut file = output.open(&BOUNDS).unwrap();
        file.write_all(b"twelve bytes").unwrap();
        let mut seen = SeenSizes::default();
        let mut cut = || output.truncate_current(&BOUNDS, &mut seen).unwrap();
        assert_eq!([cut(), cut()], [0, 0]);
        file.write_all(b"!").unwrap();
        assert_eq!([cut(), cut()], [0, 13]);
        file.write_all(b"more").unwrap();
        assert_eq!(output.stored_range().unwrap(), (13, 17));
    }
}
