//! The files of an instance's recording.
//!
//! A recording is a sequence of segments, each in a file. A segment begins with a state of the
//! instance, so older segments can be removed.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use ardea_core::Result;

use super::{read_failed, write_failed};

/// The first part of a file's name; the number of the segment follows.
const PREFIX: &str = "segment-";

/// The segments of an instance that is being recorded, bounded by their size.
pub(super) struct SegmentFiles {
    folder: PathBuf,
    limit_bytes: u64,
    /// The retained segments with their sizes in bytes, oldest first.
    segments: VecDeque<(u64, u64)>,
    /// The file of the last segment.
    file: Option<File>,
}

impl SegmentFiles {
    /// Creates the folder, without a segment.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`](ardea_core::ErrorCode::WriteFailed).
    pub(super) fn create(folder: PathBuf, limit_bytes: u64) -> Result<Self> {
        fs::create_dir_all(&folder).map_err(|error| write_failed(&folder, error))?;
        Ok(SegmentFiles {
            folder,
            limit_bytes,
            segments: VecDeque::new(),
            file: None,
        })
    }

    /// Returns the maximum size of all segments in bytes.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the size of the last segment in bytes.
    pub(super) fn current_bytes(&self) -> u64 {
        self.segments.back().map_or(0, |(_, bytes)| *bytes)
    }

    /// Starts the next segment.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`](ardea_core::ErrorCode::WriteFailed).
    pub(super) fn begin(&mut self) -> Result<()> {
        let number = self.segments.back().map_or(1, |(number, _)| number + 1);
        let path = path_of(&self.folder, number);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        self.file = Some(file.map_err(|error| write_failed(&path, error))?);
        self.segments.push_back((number, 0));
        Ok(())
    }

    /// Writes to the last segment, and removes old segments while all are larger than the limit.
    ///
    /// # Errors
    /// [`ErrorCode::DiskFull`](ardea_core::ErrorCode::DiskFull) and
    /// [`ErrorCode::WriteFailed`](ardea_core::ErrorCode::WriteFailed).
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let (Some(file), Some((number, size))) = (&mut self.file, self.segments.back_mut()) else {
            return Ok(());
        };
        let written = file.write_all(bytes);
        written.map_err(|error| write_failed(&path_of(&self.folder, *number), error))?;
        *size += bytes.len() as u64;
        let mut total: u64 = self.segments.iter().map(|(_, bytes)| bytes).sum();
        while total > self.limit_bytes
            && self.segments.len() > 1
            && let Some((number, bytes)) = self.segments.pop_front()
        {
            let path = path_of(&self.folder, number);
            fs::remove_file(&path).map_err(|error| write_failed(&path, error))?;
            total -= bytes;
        }
        Ok(())
    }
}

/// Returns the file of a segment.
pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{number:08}"))
}

/// Returns the segments in a folder, oldest first.
///
/// # Errors
/// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed).
pub(super) fn segments_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| read_failed(folder, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        found.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|it| path_of(folder, it)).collect())
}
