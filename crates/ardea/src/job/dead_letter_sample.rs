//! A bounded file of a container's first dead letters, which the container's host reads.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ardea_core::DeadLetter;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;

/// Maximum number of bytes of a record in the file.
const MOST_RAW_BYTES: usize = 64 << 10;

/// Maximum number of bytes of the origin and of the reason in the file.
const MOST_TEXT_BYTES: usize = 8 << 10;

/// A bounded file of dead letters, each a line of JSON. It is created with the first letter.
///
/// A failed write loses the letter from the file and does not affect the job. Several processes may
/// append to the file; each line is one write.
#[derive(Debug)]
pub(super) struct DeadLetterSample {
    path: PathBuf,
    most_bytes: u64,
    file: Mutex<Option<File>>,
}

/// A letter as it is written.
#[derive(Serialize)]
struct Line<'a> {
    at_ms: u64,
    vertex: &'a str,
    origin: &'a str,
    reason: &'a str,
    /// Size of the whole record.
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_base64: Option<String>,
}

impl DeadLetterSample {
    /// Creates the sample in the file at `path`, of at most `most_bytes` bytes.
    pub(super) fn new(path: impl AsRef<Path>, most_bytes: u64) -> Self {
        DeadLetterSample {
            path: path.as_ref().to_path_buf(),
            most_bytes,
            file: Mutex::new(None),
        }
    }

    /// Appends a letter if it fits. A long record is cut to its first 64 KiB.
    pub(super) fn append(&self, letter: &DeadLetter) {
        // The job's own destination of dead letters reports errors; this is a copy.
        let _ = self.write(letter);
    }

    fn write(&self, letter: &DeadLetter) -> io::Result<()> {
        let mut open = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *open {
            Some(file) => file,
            none => {
                let file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(&self.path)?;
                none.insert(file)
            }
        };
        if file.metadata()?.len() >= self.most_bytes {
            return Ok(());
        }
        let raw = &letter.raw[..letter.raw.len().min(MOST_RAW_BYTES)];
        let text = text_of(raw, letter.raw.len() > raw.len());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = Line {
            at_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX)),
            vertex: &letter.vertex,
            origin: beginning(&letter.origin),
            reason: beginning(&letter.reason),
            bytes: letter.raw.len(),
            raw: text,
            raw_base64: text.is_none().then(|| BASE64_STANDARD.encode(raw)),
        };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        file.write_all(&bytes)
    }
}

/// Returns a record as text if it is UTF-8. The last character of a cut record may be incomplete.
fn text_of(raw: &[u8], is_cut: bool) -> Option<&str> {
    match std::str::from_utf8(raw) {
        Ok(text) => Some(text),
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&raw[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT_BYTES)]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn letter(raw: &[u8]) -> DeadLetter {
        DeadLetter {
            vertex: "parse".into(),
            origin: "in:1".into(),
            raw: raw.to_vec(),
            reason: "x".repeat(2 * MOST_TEXT_BYTES),
        }
    }

    #[test]
    fn letters_are_cut_and_the_file_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters.jsonl");
        let sample = DeadLetterSample::new(&path, 200_000);
        assert!(!path.exists());
        let long = "é".repeat(MOST_RAW_BYTES);
        for raw in [&b"text"[..], b"\xff", long.as_bytes()] {
            sample.append(&letter(raw));
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["raw"], "text");
        assert_eq!(lines[0]["reason"].as_str().unwrap().len(), MOST_TEXT_BYTES);
        assert_eq!(lines[1]["raw_base64"], "/w==");
        assert_eq!(lines[2]["bytes"], 2 * MOST_RAW_BYTES);
        assert_eq!(lines[2]["raw"].as_str().unwrap().len(), MOST_RAW_BYTES);
        for _ in 0..1_000 {
            sample.append(&letter(b"text"));
        }
        assert!(fs::metadata(&path).unwrap().len() < 220_000);
    }

    #[test]
    fn a_file_that_can_not_be_written_is_ignored() {
        DeadLetterSample::new("/no/such/folder/letters", 1_000).append(&letter(b"text"));
    }
}
