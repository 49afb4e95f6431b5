//! The records of the job `numbers`: emitted and received numbers, in a folder that outlives its
//! processes.
//!
//! | file | content |
//! |---|---|
//! | `spout-I` | the next number of spout instance I, and the number below which all are acked; 8 bytes each |
//! | `seen-…` | the numbers received in one attempt of an instance of `record`, 8 bytes each |
//! | `enough` | if it exists, spouts emit no new numbers |

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Combines a spout's number and its instance into one number.
pub fn stamped(instance: u32, number: u64) -> i64 {
    (number * 1000 + u64::from(instance)) as i64
}

/// The position of a spout instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// The next number that it has never emitted.
    pub next: u64,
    /// The number below which all numbers have been acked.
    pub acked_below: u64,
}

/// The file with the position of a spout instance.
#[derive(Debug)]
pub struct PositionFile(File);

impl PositionFile {
    /// Opens the file, and returns the position in it.
    pub fn open(folder: &Path, instance: u32) -> io::Result<(Self, Position)> {
        let path = folder.join(format!("spout-{instance}"));
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)?;
        let position = read(&file)?;
        Ok((PositionFile(file), position))
    }

    /// Writes the position in one call: after a kill, the file has the old position or the new one.
    pub fn write(&self, position: Position) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&position.next.to_le_bytes());
        bytes[8..].copy_from_slice(&position.acked_below.to_le_bytes());
        self.0.write_all_at(&bytes, 0)
    }
}

fn read(file: &File) -> io::Result<Position> {
    let mut bytes = [0; 16];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(Position::default());
        }
        Err(error) => return Err(error),
    }
    let half = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    Ok(Position {
        next: half(0),
        acked_below: half(8),
    })
}

/// The file with the numbers received in one attempt of an instance of `record`.
#[derive(Debug)]
pub struct SeenFile(File);

impl SeenFile {
    /// Opens a file for this process.
    pub fn open(folder: &Path, instance: u32) -> io::Result<Self> {
        let path = folder.join(format!("seen-{instance}-{}", std::process::id()));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(SeenFile(file))
    }

    /// Records a number. The record survives the death of the process.
    pub fn add(&mut self, stamped: i64) -> io::Result<()> {
        self.0.write_all(&stamped.to_le_bytes())
    }
}

/// The folder of a job, as the test reads it.
#[derive(Clone, Debug)]
pub struct Ledger(pub PathBuf);

impl Ledger {
    /// Returns the positions of all spout instances.
    pub fn positions(&self) -> BTreeMap<u32, Position> {
        let mut positions = BTreeMap::new();
        for (name, path) in self.files("spout-") {
            let file = File::open(path).expect("it was listed");
            positions.insert(
                name.parse().expect("a number"),
                read(&file).expect("it is read"),
            );
        }
        positions
    }

    /// Returns the number of records, including repeated ones.
    pub fn records(&self) -> u64 {
        let files = self.files("seen-").into_iter();
        files
            .filter_map(|(_, path)| fs::metadata(path).ok())
            .map(|file| file.len() / 8)
            .sum()
    }

    /// Makes the spouts stop emitting new numbers.
    pub fn enough(&self) {
        fs::write(self.0.join("enough"), "").expect("the folder is there");
    }

    /// Returns true if all emitted numbers have been acked.
    pub fn is_whole(&self) -> bool {
        let positions = self.positions();
        positions.values().all(|at| at.acked_below == at.next)
    }

    /// Fails unless all acked numbers were recorded. Returns the count of these numbers, and the
    /// count of repeated records.
    pub fn nothing_is_lost(&self) -> (u64, u64) {
        let positions = self.positions();
        let mut seen: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
        for (instance, position) in &positions {
            seen.insert(*instance, vec![false; position.acked_below as usize]);
        }
        let mut records = 0_u64;
        for (_, path) in self.files("seen-") {
            let bytes = fs::read(path).expect("it was listed");
            for stamped in bytes.chunks_exact(8) {
                let stamped = u64::from_le_bytes(stamped.try_into().expect("8 bytes"));
                let seen = seen.get_mut(&((stamped % 1000) as u32));
                if let Some(slot) = seen.and_then(|seen| seen.get_mut((stamped / 1000) as usize)) {
                    *slot = true;
                    records += 1;
                }
            }
        }
        for (instance, seen) in &seen {
            let lost: Vec<usize> = (0..seen.len()).filter(|at| !seen[*at]).collect();
            let first = &lost[..lost.len().min(10)];
            assert!(
                lost.is_empty(),
                "spout {instance} lost {}: {first:?}",
                lost.len()
            );
        }
        let numbers = positions
            .values()
            .map(|position| position.acked_below)
            .sum();
        (numbers, records - numbers)
    }

    fn files(&self, prefix: &str) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_prefix(prefix)?.to_string(), entry.path()))
        });
        named.collect()
    }
}
