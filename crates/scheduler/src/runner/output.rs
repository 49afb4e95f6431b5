//! What a container writes: files that are put aside when they are long, and pieces of them for readers.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result, is_unseen};

use super::records::cannot;
use crate::{LogPiece, LogRange, LogRequest};

/// How many lines are told of an ended container.
const LAST_WORDS: usize = 20;

/// How many bytes are looked at for them.
const LAST_WORDS_BYTES: u64 = 16 << 10;

/// Opens `NAME` in a container's folder for appending; one that has become longer than `most_bytes` is first put aside as `NAME.1`, and
/// older ones up to `NAME.FILES` after it.
pub(super) fn open(folder: &Path, name: &str, most_bytes: u64, files: u32) -> Result<File> {
    let path = folder.join(name);
    let failed = |error| cannot(ErrorCode::WriteFailed, "write", &path, error);
    match path.metadata() {
        Ok(metadata) if metadata.len() > most_bytes => {
            let aged = |age: u32| folder.join(format!("{name}.{age}"));
            for age in (1..files).rev() {
                rename_if_there(&aged(age), &aged(age + 1)).map_err(failed)?;
            }
            match files {
                0 => std::fs::remove_file(&path).map_err(failed)?,
                _ => std::fs::rename(&path, aged(1)).map_err(failed)?,
            }
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = File::options().create(true).append(true).open(&path);
    file.map_err(failed)
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The last lines of a file from a position on, without those that can't be read.
pub(crate) fn last_words(path: &Path, from: u64) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(
            from.max(length.saturating_sub(LAST_WORDS_BYTES)),
        ))?;
        let mut bytes = Vec::new();
        file.take(LAST_WORDS_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let skipped = lines.len().saturating_sub(LAST_WORDS);
    lines[skipped..].iter().map(|line| shown(line)).collect()
}

/// A stranger's line, made safe for a terminal.
fn shown(line: &str) -> String {
    line.chars()
        .map(|letter| match letter {
            '\t' => ' ',
            letter if is_unseen(letter) => '�',
            letter => letter,
        })
        .collect()
}

/// Reads a piece of a container's output.
pub(crate) fn piece(folder: &Path, request: &LogRequest) -> Result<LogPiece> {
    let path = folder.join(request.file.name());
    let failed = |error| cannot(ErrorCode::ReadFailed, "read", &path, error);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::new(
                ErrorCode::NoSuchContainer,
                format!("there is no {}", path.display()),
            )
            .hint("the container has never run there, or has not written so much"));
        }
        Err(error) => return Err(failed(error)),
    };
    let file_bytes = file.metadata().map_err(failed)?.len();
    let most = u64::from(request.most_bytes.min(LogPiece::MOST_BYTES));
    let offset = match request.range {
        LogRange::From { offset } => offset.min(file_bytes),
        LogRange::Tail { .. } => file_bytes.saturating_sub(most),
    };
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    let mut piece = LogPiece {
        offset,
        bytes,
        file_bytes,
    };
    if let LogRange::Tail { lines } = request.range {
        let skipped = before_last_lines(&piece.bytes, lines as usize);
        piece.bytes.drain(..skipped);
        piece.offset += skipped as u64;
    }
    Ok(piece)
}

/// Where the last so many lines begin.
fn before_last_lines(bytes: &[u8], lines: usize) -> usize {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if lines == 0 {
        return bytes.len();
    }
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.rev().nth(lines - 1).map_or(0, |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogFile;
    use proptest::prelude::*;
    use std::io::Write;

    fn folder_with(text: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("stdout.log"), text).expect("written");
        folder
    }

    #[test]
    fn the_last_lines_and_what_follows_them_are_read() {
        let folder = folder_with(b"one\ntwo\nthree\n");
        let tail = piece(folder.path(), &LogRequest::tail(LogFile::Stdout, 2)).expect("read");
        assert_eq!((tail.offset, &tail.bytes[..]), (4, &b"two\nthree\n"[..]));
        let mut file = open(folder.path(), "stdout.log", 1 << 20, 2).expect("opened");
        file.write_all(b"four").expect("written");
        let more = LogRequest::from(LogFile::Stdout, tail.next());
        assert_eq!(piece(folder.path(), &more).expect("read").bytes, b"four");
        let none = LogRequest::from(LogFile::Stdout, 1 << 40);
        assert!(piece(folder.path(), &none).expect("read").bytes.is_empty());
        let error = piece(folder.path(), &LogRequest::tail(LogFile::Stderr, 1));
        let error = error.expect_err("there is none");
        assert_eq!(error.code(), ErrorCode::NoSuchContainer);
    }

    #[test]
    fn a_long_file_is_put_aside_and_the_oldest_goes() {
        let folder = folder_with(b"first");
        for text in [b"second", b"third!", b"fourth"] {
            let mut file = open(folder.path(), "stdout.log", 4, 2).expect("opened");
            file.write_all(text).expect("written");
        }
        let read = |name| std::fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("stdout.log").as_deref(), Some("fourth"));
        assert_eq!(read("stdout.log.1").as_deref(), Some("third!"));
        assert_eq!(read("stdout.log.2").as_deref(), Some("second"));
        assert_eq!(read("stdout.log.3"), None);
    }

    #[test]
    fn last_words_are_of_this_life_and_harmless() {
        let folder = folder_with(b"before\nnow\x1b[2J\n");
        let words = last_words(&folder.path().join("stdout.log"), 7);
        assert_eq!(words, ["now\u{fffd}[2J"]);
        assert!(last_words(&folder.path().join("none"), 0).is_empty());
    }

    proptest! {
        #[test]
        fn a_tail_has_as_many_lines_as_asked_for_or_all(
            lines in proptest::collection::vec("[a-z]{0,5}", 0..20), asked in 0_u32..30
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let folder = folder_with(text.as_bytes());
            let tail = piece(folder.path(), &LogRequest::tail(LogFile::Stdout, asked)).expect("read");
            let expected = &lines[lines.len().saturating_sub(asked as usize)..];
            let expected: String = expected.iter().map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(tail.bytes, expected.as_bytes());
            prop_assert_eq!(tail.file_bytes, text.len() as u64);
        }
    }
}
