//! Opens a file for reading, and undoes its compression; also in the middle, where an earlier life had come to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use rustix::fs::OFlags;

use super::checked::Checked;
use super::fingerprint::{Fingerprint, Mark};
use super::list::cannot_read;
use super::part_file::Compression;
use crate::decompressed::{Decompressed, damage};
use crate::place::Place;
use crate::ready::InTurns;

/// An open file, as it is on the disk.
pub(super) enum Raw {
    Plain(Checked),
    /// A pipe or a device.
    Stream(InTurns<File>),
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Raw::Plain(file) => file.read(buffer),
            Raw::Stream(stream) => stream.read(buffer),
        }
    }
}

/// An open file.
pub(super) struct Input {
    pub reader: Decompressed<Raw>,
    /// A pipe or a device: what has been read is to be handed on before the next read.
    pub may_wait: bool,
    /// The file's identity, if that was asked for and it is a plain one.
    pub fingerprint: Option<Fingerprint>,
    /// The mark of a plain file.
    pub mark: Option<Mark>,
}

impl Input {
    /// The mark of a plain file of which no more is read: up to where it was read if that
    /// `is_whole`, otherwise to its end.
    pub fn mark_of_read(&mut self, is_whole: bool) -> Option<Mark> {
        let Raw::Plain(checked) = self.reader.raw()? else {
            return None;
        };
        let length = is_whole.then(|| checked.position());
        // Without it the file counts as it was when it was opened.
        Mark::of_read(checked.file(), length).ok()
    }
}

/// Opens `path`. Gzip and zstd are known by their first bytes, and a file that is named `.gz` or `.zst` must have them.
/// The file's identity is taken down if it `is_kept`.
pub(super) fn open(path: &Path, is_kept: bool) -> Result<Input> {
    let failed = |error| cannot_read(path, error);
    let file = open_at_once(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let may_wait = !metadata.is_file();
    let mut fingerprint = None;
    let reader = if may_wait {
        Raw::Stream(InTurns(file))
    } else {
        if is_kept {
            fingerprint = Some(Fingerprint::of(&file).map_err(failed)?);
        }
        Raw::Plain(Checked::new(file, 0).map_err(failed)?)
    };
    Ok(Input {
        reader: Decompressed::new(reader).promised(Compression::of_name(path)),
        may_wait,
        fingerprint,
        mark: (!may_wait).then(|| Mark::of(&metadata)),
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

/// The place in a file up to which an earlier life has read it.
pub(super) struct Resumption<'a> {
    pub is_packed: bool,
    pub place: &'a Place,
    /// The file's identity then.
    pub fingerprint: Option<Fingerprint>,
}

/// Opens `path` at a place up to which an earlier life has read it. A compressed file is unpacked from its beginning up to there, as long as
/// `go_on` says so; after that there is nothing.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] also if another file has the name by now: by its [`Fingerprint`], or since it is shorter than that, or
/// has other bytes before the place.
pub(super) fn open_at(
    path: &Path,
    resumption: &Resumption<'_>,
    go_on: impl Fn() -> bool,
) -> Result<Option<Input>> {
    let Resumption {
        is_packed, place, ..
    } = *resumption;
    let failed = |error| cannot_read(path, error);
    let mut input = open(path, true)?;
    if input.may_wait {
        return Err(changed(path, "it is no plain file any more"));
    }
    if let Some(fingerprint) = resumption.fingerprint {
        let file = open_at_once(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length < fingerprint.length() {
            let why = format!(
                "it had {} bytes when it was opened first, and has {length} by now",
                fingerprint.length()
            );
            return Err(changed(path, &why));
        }
        if !fingerprint.is_of(&file).map_err(failed)? {
            return Err(changed(path, "another file has this name by now"));
        }
    }
    // From where it can be compared.
    let from = place.offset.saturating_sub(place.before.len() as u64);
    // At the beginning its first bytes say whether it is compressed: none need have been read when
    // the place was noted.
    if !is_packed && place.offset > 0 {
        let file = open_at_once(path).map_err(failed)?;
        let checked = Checked::new(file, from).map_err(failed)?;
        input.reader = Decompressed::plain(Raw::Plain(checked));
    }
    let mut left = if is_packed { from } else { 0 };
    while left > 0 {
        if !go_on() {
            return Ok(None);
        }
        let mut some = (&mut input.reader).take(left.min(STRIDE));
        let skipped = io::copy(&mut some, &mut io::sink());
        match skipped.map_err(|error| broken(path, &error))? {
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
        Err(error) => Err(broken(path, &error)),
    }
}

fn shorter(path: &Path, place: &Place) -> Error {
    let why = format!(
        "{} bytes of it had been read, and it has less by now",
        place.offset
    );
    changed(path, &why)
}

/// The error of a read on the way to the place.
fn broken(path: &Path, error: &io::Error) -> Error {
    let damage = damage(error);
    if damage.is_permanent {
        return changed(path, &damage.told);
    }
    Error::new(ErrorCode::ReadFailed, cannot_read_on(path))
        .because(damage.told)
        .hint("check that the file may be read, and that its disk or network can be reached")
}

fn cannot_read_on(path: &Path) -> String {
    format!("cannot read on in {}", path.display())
}

fn changed(path: &Path, why: &str) -> Error {
    Error::new(ErrorCode::ReadFailed, cannot_read_on(path))
        .because(why)
        .hint("put the file back that was being read, or start the job without the snapshot")
        .permanent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{gzip, says, zstd};

    fn opened(path: &Path, is_packed: bool, place: &Place, goes_on: bool) -> Result<Option<Input>> {
        let resumption = Resumption {
            is_packed,
            place,
            fingerprint: None,
        };
        open_at(path, &resumption, || goes_on)
    }

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
                let input = opened(&path, is_packed, &place, true).unwrap();
                let mut rest = String::new();
                input.unwrap().reader.read_to_string(&mut rest).unwrap();
                assert!(rest == text[offset..], "from byte {offset}");
            }
            let end = place(&text, text.len());
            let stopped = opened(&path, is_packed, &end, false).unwrap();
            assert_eq!(stopped.is_none(), is_packed);
        }
    }

    #[test]
    fn an_error_of_the_disk_on_the_way_to_the_place_is_not_permanent() {
        // A read of its first bytes fails with EIO.
        let path = Path::new("/proc/self/mem");
        for is_packed in [true, false] {
            let place = place("one\ntwo\n", 4);
            let error = opened(path, is_packed, &place, true).err().unwrap();
            assert!(
                says(&error, &["cannot read on in", "os error 5"]),
                "{error}"
            );
            assert!(!error.is_permanent(), "{error}");
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
            let error = opened(&path, is_packed, &place, true).err().expect(why);
            assert_eq!(error.code(), ErrorCode::ReadFailed);
            assert!(says(&error, &["file", why]), "{error}");
        };
        refused(b"one\n", false, "8 bytes of it had been read");
        refused(&gzip(b"one\n"), true, "8 bytes of it had been read");
        refused(b"one\ntoo\nthree\n", false, "another one");
        refused(&gzip(b"uno\ndos\ntres\n"), true, "another one");
        fs::remove_file(&path).unwrap();
        crate::testing::named_pipe(&path);
        let error = opened(&path, false, &place, true).err().unwrap();
        assert!(says(&error, &["no plain file"]), "{error}");
    }
}
