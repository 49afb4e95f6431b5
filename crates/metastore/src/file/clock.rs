//! The counter for versions, which never goes back, even after a crash.
//!
//! Two slots in a small file are written alternately, each with a checksum, so a torn write leaves
//! the other slot intact. A number is flushed to disk before it is used: a crash may skip numbers,
//! but never repeats one.

use crate::Version;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Size of a slot: the slots lie in different sectors.
const SLOT_BYTES: u64 = 512;

/// The counter of one root. The caller must hold the root's lock.
#[derive(Debug)]
pub(super) struct VersionCounter(File);

impl VersionCounter {
    /// Creates the file of a new counter.
    pub(super) fn create(path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(2 * SLOT_BYTES)?;
        write_slot(&file, 0)?;
        file.sync_all()
    }

    /// Opens a counter.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(VersionCounter(file))
    }

    /// Returns the next number. Fails with [`io::ErrorKind::InvalidData`] if both slots are
    /// damaged.
    pub(super) fn next(&self) -> io::Result<Version> {
        let last = [read_slot(&self.0, 0)?, read_slot(&self.0, 1)?];
        let last = last.into_iter().flatten().max();
        let next = last
            .and_then(|number| number.checked_add(1))
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the counter of versions is damaged",
                )
            })?;
        write_slot(&self.0, next)?;
        self.0.sync_data()?;
        Ok(Version::new(next))
    }
}

fn write_slot(file: &File, number: u64) -> io::Result<()> {
    let bytes = number.to_le_bytes();
    let mut slot = [0; 16];
    slot[..8].copy_from_slice(&bytes);
    slot[8..].copy_from_slice(&xxh3_64(&bytes).to_le_bytes());
    file.write_all_at(&slot, (number % 2) * SLOT_BYTES)
}

fn read_slot(file: &File, slot: u64) -> io::Result<Option<u64>> {
    let mut number = [0; 8];
    let mut checksum = [0; 8];
    let read = file
        .read_exact_at(&mut number, slot * SLOT_BYTES)
        .and_then(|()| file.read_exact_at(&mut checksum, slot * SLOT_BYTES + 8));
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let is_whole = u64::from_le_bytes(checksum) == xxh3_64(&number);
    Ok(is_whole.then(|| u64::from_le_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_survive_a_slot_that_was_half_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("clock");
        VersionCounter::create(&path).expect("created");
        let clock = VersionCounter::open(&path).expect("opened");
        let numbers: Vec<_> = (0..5)
            .map(|_| clock.next().expect("a number").get())
            .collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);

        // A torn write of the number 6, which goes to the first slot.
        clock.0.write_all_at(&[6, 0, 0], 0).expect("written");
        let again = VersionCounter::open(&path).expect("opened");
        assert_eq!(again.next().expect("a number").get(), 6);

        clock.0.write_all_at(&[9; 16], 0).expect("written");
        clock.0.write_all_at(&[9; 16], SLOT_BYTES).expect("written");
        let error = again.next().expect_err("both are damaged");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        clock.0.set_len(5).expect("cut short");
        let error = again.next().expect_err("it is too short");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
