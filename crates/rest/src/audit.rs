//! The audit log of a host: the actions of callers, in a bounded file.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ardea_core::{Error, ErrorCode, Result};
use ardea_output::{OutputBounds, OutputFiles, ReadFrom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default number of entries in a response.
pub const DEFAULT_AUDIT_ENTRIES: u32 = 100;

/// Maximum number of entries in a response.
pub const MAX_AUDIT_ENTRIES: u32 = 10_000;

/// Maximum number of bytes that are read for a response.
const MOST_READ_BYTES: u64 = 8 << 20;

/// An action, and its result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Time of the response, in milliseconds since 1970.
    pub at_ms: u64,
    /// Caller: the name of a token, `cluster token`, `certificate`, or `local` for a caller of the
    /// same machine without a token.
    pub caller: String,
    /// Role of the caller.
    pub role: crate::AccessRole,
    /// Address of the caller's machine.
    pub address: Option<String>,
    /// Method of the request.
    pub method: String,
    /// Path and query of the request.
    pub path: String,
    /// HTTP status of the response: 403 if the caller lacks the right.
    pub status: u16,
}

/// The latest entries of a host's audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditView {
    /// Entries, the latest last.
    pub entries: Vec<AuditEntry>,
    /// Number of entries that could not be written since the start of the host.
    pub lost_count: u64,
}

/// The selection of entries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Maximum number of entries, up to 10,000; 100 if not given.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

/// The audit log of a host. Each entry is a line of JSON in a rotated file.
#[derive(Debug)]
pub struct AuditLog {
    files: OutputFiles,
    bounds: OutputBounds,
    /// Held while a line is written.
    writing: Mutex<()>,
    lost: AtomicU64,
}

impl AuditLog {
    /// Creates the log in the file `name` of a folder.
    pub fn new(folder: impl Into<PathBuf>, name: impl Into<String>, bounds: OutputBounds) -> Self {
        AuditLog {
            files: OutputFiles::new(folder, name),
            bounds,
            writing: Mutex::new(()),
            lost: AtomicU64::new(0),
        }
    }

    /// Appends an entry. An entry that cannot be written is counted as lost.
    pub fn record(&self, entry: &AuditEntry) {
        if self.write(entry).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = self.files.path().parent() {
            std::fs::create_dir_all(folder)?;
        }
        self.files.open(&self.bounds)?.write_all(&line)
    }

    /// Returns the latest entries, at most `limit`. Damaged lines are left out.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the file can't be read.
    pub fn latest(&self, limit: u32) -> Result<AuditView> {
        let piece = self.files.read(ReadFrom::Last, MOST_READ_BYTES);
        let piece = piece.map_err(|error| {
            let what = format!("cannot read the audit log {}", self.files.path().display());
            Error::new(ErrorCode::ReadFailed, what).because(error)
        })?;
        let lines = piece.bytes.split(|byte| *byte == b'\n');
        let mut entries: Vec<AuditEntry> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        entries.drain(..entries.len().saturating_sub(limit));
        Ok(AuditView {
            entries,
            lost_count: self.lost.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessRole;

    fn entry(at_ms: u64) -> AuditEntry {
        AuditEntry {
            at_ms,
            caller: "ci".into(),
            role: AccessRole::Operator,
            address: Some("127.0.0.1".into()),
            method: "POST".into(),
            path: "/v1/jobs/word-count/pause".into(),
            status: 202,
        }
    }

    #[test]
    fn the_latest_entries_are_read_back_over_rotations_and_damage() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = OutputBounds {
            file_bytes: 500,
            files: 3,
        };
        let log = AuditLog::new(folder.path().join("logs"), "audit.jsonl", bounds);
        assert_eq!(log.latest(10).unwrap().entries, []);
        for at_ms in 0..39 {
            log.record(&entry(at_ms));
        }
        let mut file = log.files.open(&bounds).unwrap();
        file.write_all(b"{\"at_ms\": 7\n\xff\n").unwrap();
        log.record(&entry(39));
        let latest = log.latest(2).unwrap();
        assert_eq!(latest.entries, [entry(38), entry(39)]);
        assert_eq!(latest.lost_count, 0);
        // Bounded: the first entries are gone.
        assert!(log.latest(100).unwrap().entries.len() < 40);
    }

    #[test]
    fn an_entry_that_can_not_be_written_is_counted() {
        let log = AuditLog::new("/proc/none", "audit.jsonl", OutputBounds::default());
        log.record(&entry(0));
        assert_eq!(log.latest(1).map_or(1, |it| it.lost_count), 1);
    }
}
