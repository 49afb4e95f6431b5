//! Begins a new file when the current one has reached its size.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::files::Part;
use crate::{OutputBounds, OutputFiles};

impl OutputFiles {
    /// Opens the current file for appending, for a process that is about to be started. A file that
    /// has reached its size is put aside first.
    ///
    /// No other process may rotate the files meanwhile.
    ///
    /// # Errors
    ///
    /// If a file can't be renamed or opened.
    pub fn open(&self, bounds: &OutputBounds) -> io::Result<File> {
        match std::fs::metadata(self.path()) {
            Ok(metadata) if metadata.len() >= bounds.file_bytes => {
                let rotated = self.rotate(bounds)?;
                self.settle(&rotated)?;
                Ok(rotated.new)
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.append(),
        }
    }

    /// Puts the current file aside, and begins a new one. The caller makes its output go there,
    /// then calls [`settle`](Self::settle).
    ///
    /// The oldest file is emptied and becomes the new one: a process that still appends to it
    /// appends to the current file from then on, and no file grows that has no name.
    pub(crate) fn rotate(&self, bounds: &OutputBounds) -> io::Result<Rotated> {
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
        Ok(Rotated {
            new,
            before: current.and_then(|part| Some((part.file.try_clone().ok()?, part.at))),
            left_out,
        })
    }

    /// Records the position of the file before the new one: a write to it may still be under way,
    /// so where the new one begins follows from its size when that is asked for.
    pub(crate) fn settle(&self, rotated: &Rotated) -> io::Result<()> {
        match &rotated.before {
            Some((file, at)) => self.record(file.metadata()?.ino(), *at),
            None => Ok(()),
        }
    }

    /// Records the position of the current file, so that it stays when an older one is emptied or
    /// removed.
    fn hold_current(&self, parts: &[Part]) -> io::Result<()> {
        match parts.last().filter(|part| part.age == 0) {
            Some(current) => self.record(current.inode, current.at),
            None => Ok(()),
        }
    }

    /// Removes the file of an age. The positions of the others stay.
    ///
    /// # Errors
    ///
    /// If a file can't be written or removed.
    pub fn remove(&self, age: u32) -> io::Result<()> {
        self.hold_current(&self.parts()?)?;
        match std::fs::remove_file(self.aged(age)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Empties files that were put aside and that another process still appends to: those that have
    /// grown by a file's size since they were first seen so. Returns the number of bytes that were
    /// left out. `seen` is kept from one call to the next.
    ///
    /// # Errors
    ///
    /// If a file can't be emptied.
    pub fn cut_old(&self, bounds: &OutputBounds, seen: &mut SeenSizes) -> io::Result<u64> {
        let mut left_out = 0;
        let mut now = BTreeMap::new();
        let parts = self.parts()?;
        for part in parts.iter().filter(|part| part.age > 0) {
            let key = (part.inode, part.mark);
            let before = seen.old.get(&key).copied().unwrap_or(part.bytes);
            match part.bytes > before.saturating_add(bounds.file_bytes) {
                true => {
                    self.hold_current(&parts)?;
                    left_out += self.empty(part)?;
                }
                false => drop(now.insert(key, before)),
            }
        }
        seen.old = now;
        Ok(left_out)
    }

    /// Empties the current file if no process rotates it: if it is larger than all files together
    /// may be, and was so at the call before. What is appended in that moment is lost without being
    /// counted. Returns the number of bytes that were left out.
    ///
    /// # Errors
    ///
    /// If the file can't be emptied.
    pub fn cut_current(&self, bounds: &OutputBounds, seen: &mut SeenSizes) -> io::Result<u64> {
        let parts = self.parts()?;
        let current = parts.last().filter(|part| part.age == 0);
        let long = current.filter(|part| part.bytes > bounds.all_bytes());
        let before = std::mem::replace(&mut seen.long, long.map(|part| part.inode));
        match long.filter(|part| before == Some(part.inode)) {
            Some(part) => self.empty(part),
            None => Ok(0),
        }
    }

    /// Empties a file in place. What is appended later begins at its new end.
    pub(crate) fn empty(&self, part: &Part) -> io::Result<u64> {
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

/// The sizes of files at earlier looks.
#[derive(Debug, Default)]
pub struct SeenSizes {
    /// Of files that were put aside, when they were first seen so, by inode and mark.
    old: BTreeMap<(u64, u64), u64>,
    /// The inode of a current file that was too long.
    long: Option<u64>,
}

/// The result of a rotation.
#[derive(Debug)]
pub(crate) struct Rotated {
    /// The new current file.
    pub(crate) new: File,
    /// The one before, and the position at which it begins.
    before: Option<(File, u64)>,
    /// The number of bytes of old files that are gone.
    pub(crate) left_out: u64,
}

impl Rotated {
    /// Returns the size of the file before the new one, which is final once nothing more is
    /// appended to it.
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
        assert_eq!(output.kept().unwrap(), (5, 23));
    }

    #[test]
    fn fewer_files_than_before_are_kept_from_the_next_rotation_on() {
        let (_folder, output) = output();
        for text in ["first", "second", "third!", "fourth"] {
            append(&output, text);
        }
        let fewer = OutputBounds { files: 2, ..BOUNDS };
        drop(output.open(&fewer).unwrap());
        assert_eq!(output.kept().unwrap(), (17, 23));
    }

    #[test]
    fn a_record_that_is_one_rotation_behind_still_counts() {
        let (_folder, output) = output();
        for text in ["first", "second", "third!"] {
            append(&output, text);
        }
        // It was interrupted before the record was written.
        drop(output.rotate(&BOUNDS).unwrap());
        assert_eq!(output.kept().unwrap(), (5, 17));
        append(&output, "fourth");
        assert_eq!(output.kept().unwrap(), (5, 23));
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
        assert_eq!(output.kept().unwrap().0, 0);
    }

    #[test]
    fn a_process_that_appends_to_an_old_file_is_bounded() {
        let (_folder, output) = output();
        let mut stray = output.open(&BOUNDS).unwrap();
        stray.write_all(b"stray").unwrap();
        append(&output, "second");
        let mut seen = SeenSizes::default();
        assert_eq!(output.cut_old(&BOUNDS, &mut seen).unwrap(), 0);
        stray.write_all(b" and").unwrap();
        assert_eq!(output.cut_old(&BOUNDS, &mut seen).unwrap(), 0);
        stray.write_all(b" much more").unwrap();
        assert_eq!(output.cut_old(&BOUNDS, &mut seen).unwrap(), 19);
        for text in ["third!", "fourth"] {
            append(&output, text);
        }
        // Its file has become the current one.
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
        let mut cut = || output.cut_current(&BOUNDS, &mut seen).unwrap();
        assert_eq!([cut(), cut()], [0, 0]);
        file.write_all(b"!").unwrap();
        assert_eq!([cut(), cut()], [0, 13]);
        file.write_all(b"more").unwrap();
        assert_eq!(output.kept().unwrap(), (13, 17));
    }
}
