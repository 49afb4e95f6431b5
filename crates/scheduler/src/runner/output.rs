//! The output files of containers: opens them for a new incarnation, and reads them in pieces.

use std::fs::File;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result, is_invisible};
use ardea_output::{OutputBounds, OutputFiles, OutputStart, ReadFrom};

use super::folders::WORK;
use super::records::cannot;
use crate::{LogFile, LogPiece, LogRange, LogRequest};

/// The number of lines reported for an ended container.
const LAST_WORDS: usize = 20;

/// Returns the files of one of a container's outputs.
pub(crate) fn files(folder: &Path, file: LogFile) -> OutputFiles {
    match file {
        LogFile::Stdout | LogFile::Stderr => OutputFiles::new(folder, file.name()),
        // The container's process writes them.
        LogFile::DeadLetters => OutputFiles::new(folder.join(WORK), file.name()),
    }
}

/// Opens an output of a container for a new incarnation, within the limits `bounds`. Returns the
/// file, and the position at which the incarnation's output starts.
pub(super) fn open(folder: &Path, file: LogFile, bounds: &OutputBounds) -> Result<(File, u64)> {
    let files = files(folder, file);
    let opened = files.open(bounds);
    let opened = opened.and_then(|file| Ok((file, files.stored_range()?.1)));
    opened.map_err(|error| cannot(ErrorCode::WriteFailed, "write", &files.path(), error))
}

/// Returns the parameters with which a container's process limits its output.
pub(crate) fn start(folder: &Path, bounds: OutputBounds) -> OutputStart {
    OutputStart {
        stdout: files(folder, LogFile::Stdout).path(),
        stderr: files(folder, LogFile::Stderr).path(),
        bounds,
    }
}

/// Returns the last lines that a container wrote to standard error from a position on, omitting
/// unreadable ones.
pub(crate) fn last_words(folder: &Path, from: u64) -> Vec<String> {
    let files = files(folder, LogFile::Stderr);
    let lines = ardea_output::last_lines(&files, from, LAST_WORDS);
    lines.iter().map(|line| shown(line)).collect()
}

/// Makes an untrusted line safe for a terminal.
fn shown(line: &str) -> String {
    line.chars()
        .map(|letter| match letter {
            '\t' => ' ',
            letter if is_invisible(letter) => '�',
            letter => letter,
        })
        .collect()
}

/// Reads a piece of a container's output.
pub(crate) fn piece(folder: &Path, request: &LogRequest) -> Result<LogPiece> {
    let files = files(folder, request.file);
    let path = files.path();
    // During a rotation there is no file at the path for a moment.
    if !path.exists() && files.sizes().is_empty() {
        let what = format!("there is no {}", path.display());
        return Err(Error::new(ErrorCode::NoSuchContainer, what)
            .hint("the container has never run there, or its output was removed"));
    }
    let wanted = match request.range {
        LogRange::From { position } => ReadFrom::From(position),
        LogRange::Tail { .. } => ReadFrom::Last,
    };
    let most = u64::from(request.most_bytes.min(LogPiece::MOST_BYTES));
    let read = files.read(wanted, most);
    let read = read.map_err(|error| cannot(ErrorCode::ReadFailed, "read", &path, error))?;
    let mut piece = LogPiece {
        position: read.at,
        bytes: read.bytes,
        end: read.end,
    };
    if let LogRange::Tail { lines } = request.range {
        let skipped = before_last_lines(&piece.bytes, lines as usize);
        piece.bytes.drain(..skipped);
        piece.position += skipped as u64;
    }
    Ok(piece)
}

/// Returns the offset at which the last `lines` lines begin.
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
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn folder_with(text: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("stdout.log"), text).expect("written");
        folder
    }

    #[test]
    fn the_last_lines_and_what_follows_them_are_read() {
        let folder = folder_with(b"one\ntwo\nthree\n");
        let tail = piece(folder.path(), &LogRequest::tail(LogFile::Stdout, 2)).expect("read");
        assert_eq!((tail.position, &tail.bytes[..]), (4, &b"two\nthree\n"[..]));
        let bounds = OutputBounds::default();
        let (mut file, _) = open(folder.path(), LogFile::Stdout, &bounds).expect("opened");
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
    fn a_reader_goes_on_behind_a_rotation_and_learns_what_was_left_out() {
        let folder = folder_with(b"first\n");
        let bounds = OutputBounds {
            file_bytes: 4,
            files: 2,
        };
        let write = |text: &[u8]| {
            let (mut file, from) = open(folder.path(), LogFile::Stdout, &bounds).expect("opened");
            file.write_all(text).expect("written");
            from
        };
        assert_eq!(write(b"second\n"), 6);
        let read = |from| piece(folder.path(), &LogRequest::from(LogFile::Stdout, from));
        assert_eq!(read(6).expect("read").bytes, b"second\n");
        assert_eq!(write(b"third\n"), 13);
        let piece = read(2).expect("read");
        assert_eq!((piece.position, piece.end), (6, 19));
        assert_eq!(piece.bytes, b"second\nthird\n");
    }

    #[test]
    fn last_words_are_of_this_life_and_harmless() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "before\nnow\x1b[2J\n";
        std::fs::write(folder.path().join("stderr.log"), text).expect("written");
        assert_eq!(last_words(folder.path(), 7), ["now\u{fffd}[2J"]);
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
            prop_assert_eq!(tail.end, text.len() as u64);
        }
    }
}
