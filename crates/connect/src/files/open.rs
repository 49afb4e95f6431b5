//! Opens a file for reading, and undoes its compression; also in the middle, where an earlier life had come to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use rustix::fs::OFlags;

use super::list::cannot_read;
use super::part_file::Compression;
use crate::decompressed::Decompressed;
use crate::place::Place;
use crate::ready::InTurns;

/// An open file, and whether reading it may have to wait.
pub(super) struct Input {
    pub reader: Decompressed<Box<dyn Read + Send>>,
    /// A pipe or a device: what has been read is to be handed on before the next read.
    pub may_wait: bool,
}

/// Opens `path`. Gzip and zstd are known by their first bytes, and a file that is named `.gz` or `.zst` must have them.
pub(super) fn open(path: &Path) -> Result<Input> {
    let failed = |error| cannot_read(path, error);
    let file = open_at_once(path).map_err(failed)?;
    let may_wait = !file.metadata().map_err(failed)?.is_file();
    let reader: Box<dyn Read + Send> = if may_wait {
        Box::new(InTurns(file))
    } else {
        Box::new(file)
    };
    Ok(Input {
        reader: Decompressed::new(reader).promised(Compression::of_name(path)),
        may_wait,
    })
}

/// Opens a file without waiting: a named pipe that has no writer yet is readable when it has one.
pub(super) fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    if !fs::metadata(path)?.is_file() {
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    }
    options.open(path)
}

/// How much is unpacked at a time on the way to a place.
const STRIDE: u64 = 1 << 20;

/// Opens `path` at a place up to which an earlier life has read it. A compressed file is unpacked from its beginning up to there, as long as
/// `go_on` says so; after that there is nothing.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] also if the file is shorter than that by now, or what comes before the place is not what came before it then.
pub(super) fn open_at(
    path: &Path,
    is_packed: bool,
    place: &Place,
    go_on: impl Fn() -> bool,
) -> Result<Option<Input>> {
    let mut input = open(path)?;
    if input.may_wait {
        return Err(changed(path, "it is no plain file any more"));
    }
    // From where it can be compared.
    let from = place.offset.saturating_sub(place.before.len() as u64);
    if !is_packed {
        let failed = |error| cannot_read(path, error);
        let mut file = open_at_once(path).map_err(failed)?;
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        input.reader = Decompressed::plain(Box::new(file));
    }
    let mut left = if is_packed { from } else { 0 };
    while left > 0 {
        if !go_on() {
            return Ok(None);
        }
        let mut some = (&mut input.reader).take(left.min(STRIDE));
        let skipped = io::copy(&mut some, &mut io::sink());
        match skipped.map_err(|error| cannot_read(path, error))? {
            0 => return Err(shorter(path, place)),
            count => left -= count,
        }
    }
    let mut before = vec![0; place.before.len()];
    match input.reader.read_exact(&mut before) {
        Ok(()) if before == place.before => Ok(Some(input)),
        Ok(()) => Err(changed(
            path,
            "its content up to where it had been read is another one",
        )),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(shorter(path, place)),
        Err(error) => Err(cannot_read(path, error)),
    }
}

fn shorter(path: &Path, place: &Place) -> Error {
    let why = format!(
        "{} bytes of it had been read, and it has less by now",
        place.offset
    );
    changed(path, &why)
}

fn changed(path: &Path, why: &str) -> Error {
    let what = format!("cannot read on in {}", path.display());
    Error::new(ErrorCode::ReadFailed, what)
        .because(why)
        .hint("put the file back that was being read, or start the job without the snapshot")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{gzip, says, zstd};

    fn place(text: &str, offset: usize) -> Place {
        Place {
            offset: offset as u64,
            line: 1,
            before: text.as_bytes()[offset.saturating_sub(5)..offset].to_vec(),
        }
    }

    #[test]
    fn a_file_goes_on_at_its_place_packed_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let text: String = (0..400_000).map(|n| format!("{n}\n")).collect();
        for (is_packed, content) in [
            (false, text.as_bytes().to_vec()),
            (true, gzip(text.as_bytes())),
            (true, zstd(text.as_bytes())),
        ] {
            fs::write(&path, content).unwrap();
            for offset in [0, 3, 70, text.len() - 1, text.len()] {
                let place = place(&text, offset);
                let input = open_at(&path, is_packed, &place, || true).unwrap();
                let mut rest = String::new();
                input.unwrap().reader.read_to_string(&mut rest).unwrap();
                assert!(rest == text[offset..], "from byte {offset}");
            }
            let end = place(&text, text.len());
            let stopped = open_at(&path, is_packed, &end, || false).unwrap();
            assert_eq!(stopped.is_none(), is_packed);
        }
    }

    #[test]
    fn a_file_that_is_shorter_or_another_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let text = "one\ntwo\nthree\n";
        let place = place(text, 8);
        let refused = |content: &[u8], is_packed, why: &str| {
            fs::write(&path, content).unwrap();
            let error = open_at(&path, is_packed, &place, || true).err().expect(why);
            assert_eq!(error.code(), ErrorCode::ReadFailed);
            assert!(says(&error, &["file", why]), "{error}");
        };
        refused(b"one\n", false, "8 bytes of it had been read");
        refused(&gzip(b"one\n"), true, "8 bytes of it had been read");
        refused(b"one\ntoo\nthree\n", false, "another one");
        refused(&gzip(b"uno\ndos\ntres\n"), true, "another one");
        fs::remove_file(&path).unwrap();
        crate::testing::named_pipe(&path);
        let error = open_at(&path, false, &place, || true).err().unwrap();
        assert!(says(&error, &["no plain file"]), "{error}");
    }
}
