//! Storage of a job's dead letters in a file.
//!
//! ```
//! use ardea_core::{DeadLetter, OnError};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("bad.jsonl");
//! let letters = ardea_connectors::dead_letters::to_file(&path)?;
//! letters.handle(OnError::DeadLetter, || DeadLetter {
//!     vertex: "parse".into(),
//!     origin: "in.csv:7".into(),
//!     raw: b"1;2".to_vec(),
//!     reason: "1 fields where the header has 2".into(),
//! })?;
//! let line = std::fs::read_to_string(&path)?;
//! assert_eq!(
//!     line,
//!     "{\"vertex\":\"parse\",\"origin\":\"in.csv:7\",\"reason\":\"1 fields where the header has 2\",\"raw\":\"1;2\"}\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod setting;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{DeadLetter, DeadLetters, Error, ErrorCode, Result};
use ardea_filesystem::Shown;
use serde::Serialize;

pub use setting::{DEAD_LETTER_SETTINGS, DeadLetterConfig, DeadLetterTarget};

/// Returns the dead letters of a job, each appended to the file at `path` as a line of JSON.
///
/// A line has `vertex`, `origin`, `reason`, and the record as `raw` if it is UTF-8, otherwise as
/// `raw_base64`. Each line is written to the operating system before the job continues, so a
/// process crash loses none. The file is flushed to disk (fsync) with the first letter written 100
/// ms after the last flush, and on drop. An existing file is appended to; a partial line left by a
/// system crash is terminated first. In a job with state, the letters of records replayed after a
/// failure are written again.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if the file cannot be opened. A later write error fails the job.
pub fn to_file(path: impl AsRef<Path>) -> Result<DeadLetters> {
    to_bounded_file(path, u64::MAX)
}

/// Like [`to_file`], with a maximum file size in bytes. Letters that do not fit are not written but
/// counted by [`DeadLetters::unwritten`].
///
/// # Errors
/// Those of [`to_file`].
pub fn to_bounded_file(path: impl AsRef<Path>, most_bytes: u64) -> Result<DeadLetters> {
    let path = path.as_ref();
    let file = open(path).map_err(|error| cannot_write(path, error))?;
    let length = file.metadata().map_err(|error| cannot_write(path, error))?;
    let log = Mutex::new(Log {
        path: path.to_path_buf(),
        file,
        length: length.len(),
        most_bytes,
        synced: Instant::now(),
        dirty: false,
    });
    Ok(DeadLetters::with_bounded_receiver(move |letter| {
        log.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(&letter)
    }))
}

/// The minimum interval between two flushes to disk.
const SYNC_PERIOD: Duration = Duration::from_millis(100);

struct Log {
    path: PathBuf,
    file: File,
    /// The length of the file in bytes.
    length: u64,
    most_bytes: u64,
    synced: Instant,
    dirty: bool,
}

/// A dead letter as it is written.
#[derive(Serialize)]
struct Line<'a> {
    vertex: &'a str,
    origin: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_base64: Option<String>,
}

impl Log {
    /// Appends a letter; returns false if the file would exceed its maximum size.
    fn append(&mut self, letter: &DeadLetter) -> Result<bool> {
        let raw = std::str::from_utf8(&letter.raw).ok();
        let line = Line {
            vertex: &letter.vertex,
            origin: &letter.origin,
            reason: &letter.reason,
            raw,
            raw_base64: raw.is_none().then(|| base64(&letter.raw)),
        };
        let outcome = serde_json::to_vec(&line)
            .map_err(io::Error::from)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                self.write(&bytes)
            });
        outcome.map_err(|error| cannot_write(&self.path, error))
    }

    fn write(&mut self, line: &[u8]) -> io::Result<bool> {
        // Other processes may append to the file too.
        self.length = self.length.max(self.file.metadata()?.len());
        let length = self.length.saturating_add(line.len() as u64);
        if length > self.most_bytes {
            // A shorter letter might still fit, but would hide the gap.
            self.most_bytes = self.length;
            return Ok(false);
        }
        self.file.write_all(line)?;
        (self.length, self.dirty) = (length, true);
        if self.synced.elapsed() >= SYNC_PERIOD {
            self.sync()?;
        }
        Ok(true)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.synced = Instant::now();
        self.dirty = false;
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.dirty {
            // The error cannot be reported; the lines are with the operating system in any case.
            let _ = self.sync();
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    if file.metadata()?.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    let what = format!("cannot write dead letters to {}", path.shown());
    Error::new(ErrorCode::WriteFailed, what)
        .because(error)
        .hint("check the path and the disk")
}

/// Encodes bytes as Base64 with the standard alphabet and padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63] as char;
            text.push(if place <= group.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ardea_core::OnError;

    use super::*;

    fn letter(raw: &[u8]) -> DeadLetter {
        DeadLetter {
            vertex: "v".into(),
            origin: "in:1".into(),
            raw: raw.to_vec(),
            reason: "bad".into(),
        }
    }

    #[test]
    fn letters_are_appended_behind_those_of_earlier_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad.jsonl");
        fs::write(&path, "{\"half").unwrap();
        for raw in [&b"text"[..], b"\xff\x00"] {
            to_file(&path)
                .unwrap()
                .handle(OnError::DeadLetter, || letter(raw))
                .unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].ends_with("\"raw\":\"text\"}"), "{text}");
        assert!(lines[2].ends_with("\"raw_base64\":\"/wA=\"}"), "{text}");
    }

    #[test]
    fn letters_beyond_the_limit_are_counted_and_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad.jsonl");
        let line = 1 + "{\"vertex\":\"v\",\"origin\":\"in:1\",\"reason\":\"bad\",\"raw\":\"text\"}"
            .len() as u64;
        for run in 1..=2 {
            let letters = to_bounded_file(&path, 3 * line).unwrap();
            for _ in 0..2 {
                letters
                    .handle(OnError::DeadLetter, || letter(b"text"))
                    .unwrap();
            }
            assert_eq!(letters.unwritten(), run - 1);
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * line);
    }

    #[test]
    fn several_writers_of_a_file_share_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad.jsonl");
        let line = 1 + "{\"vertex\":\"v\",\"origin\":\"in:1\",\"reason\":\"bad\",\"raw\":\"text\"}"
            .len() as u64;
        let writers = [(); 2].map(|()| to_bounded_file(&path, 3 * line).unwrap());
        for letters in writers.iter().cycle().take(6) {
            letters
                .handle(OnError::DeadLetter, || letter(b"text"))
                .unwrap();
        }
        let unwritten: u64 = writers.iter().map(DeadLetters::unwritten).sum();
        assert_eq!(unwritten, 3);
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * line);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let error = to_file("/no/such/dir/bad").expect_err("no such directory");
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert!(error.to_string().contains("/no/such/dir/bad"));
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        let expected = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (length, text) in expected.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), *text);
        }
    }
}
