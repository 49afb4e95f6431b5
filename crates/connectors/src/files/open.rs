//! Opening of files for reading, with decompression, from the beginning or from a restored
//! position.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, JobSignals, Result};
use rustix::fs::OFlags;

#[cfg(feature = "s3")]
use super::bucket::ReadAhead;
use super::checked::Checked;
use super::fingerprint::{FileIdentity, Fingerprint};
use super::list::cannot_read;
use super::location::{BlockingReader, FileStore, SourceFile};
use super::part_file::Compression;
use super::read::block_reader::{BlockPositions, BlockReader};
use super::read::blocks::FileBlocks;
use super::read::packed_blocks::PackedBlockReader;
use crate::decompressed::{Decompressed, damage};
use crate::fd_poll::CancellablePoll;
use crate::stream_position::StreamPosition;

/// An open file before decompression.
pub(super) enum Raw {
    Plain(Checked),
    /// Some blocks of a plain file.
    Blocks(BlockReader),
    /// Some blocks of a compressed file.
    PackedBlocks(Box<PackedBlockReader>),
    /// A pipe or a device.
    Stream(CancellablePoll<File>),
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Raw::Plain(file) => file.read(buffer),
            Raw::Blocks(blocks) => blocks.read(buffer),
            Raw::PackedBlocks(blocks) => blocks.read(buffer),
            Raw::Stream(stream) => stream.read(buffer),
        }
    }
}

/// An open file.
pub(super) struct Input {
    pub reader: Decompressed<Raw>,
    /// True for a pipe or a device, whose reads may wait. Records read so far are emitted before
    /// the next read.
    pub may_wait: bool,
    /// The fingerprint of a plain file, if requested.
    pub fingerprint: Option<Fingerprint>,
    /// The identity of a plain file for later comparison.
    pub mark: Option<FileIdentity>,
}

impl Input {
    /// Returns the identity of a plain file that is not read any further. Its content hash covers
    /// the bytes read if `is_whole`, otherwise the whole file.
    pub fn mark_of_read(&mut self, is_whole: bool) -> Option<FileIdentity> {
        let Raw::Plain(checked) = self.reader.raw()? else {
            return None;
        };
        let length = is_whole.then(|| checked.position());
        // On an error the caller keeps the identity determined at opening.
        FileIdentity::of_read(checked.local().ok()?, length).ok()
    }
}

/// A file before its content is read.
enum OpenFile {
    Plain(SourceFile),
    /// A pipe or a device.
    Special(File),
}

/// Opens the files of a storage for reading. Waits for objects until the job is cancelled.
#[derive(Clone, Debug)]
pub(super) struct FileOpener {
    pub store: FileStore,
    pub signals: Arc<JobSignals>,
}

impl FileOpener {
    /// Returns an opener of files of the local file system.
    pub fn local() -> Self {
        FileOpener {
            store: FileStore::Local,
            signals: Arc::default(),
        }
    }

    /// Opens a file or an object. `blocks` are those that are read of a shared file.
    fn open_file(&self, path: &Path, blocks: Option<&FileBlocks>) -> Result<OpenFile> {
        match &self.store {
            FileStore::Local => {
                // The system reads local files ahead.
                let _ = blocks;
                let failed = |error| cannot_read(path, error);
                let file = open_at_once(path).map_err(failed)?;
                Ok(match file.metadata().map_err(failed)?.is_file() {
                    true => OpenFile::Plain(SourceFile::Local(file)),
                    false => OpenFile::Special(file),
                })
            }
            #[cfg(feature = "s3")]
            FileStore::Bucket(bucket) => {
                let ahead = match blocks {
                    None => ReadAhead::Next,
                    Some(blocks) if blocks.is_packed => {
                        ReadAhead::of_packed_blocks(blocks.block_bytes)
                    }
                    Some(blocks) => ReadAhead::of_blocks(blocks.block_bytes),
                };
                let object = bucket.open(path, ahead, &self.signals)?;
                Ok(OpenFile::Plain(SourceFile::Object(Arc::new(object))))
            }
        }
    }

    /// Returns a reader that waits for the bytes of an object.
    pub fn blocking<R: Read>(&self, reader: R) -> impl Read + use<'_, R> {
        BlockingReader {
            reader,
            go_on: || !self.signals.is_cancelled(),
        }
    }

    /// Opens `path`. Gzip and zstd are detected by the first bytes, and a file named `.gz` or
    /// `.zst` must be compressed. Computes the fingerprint if `is_kept`.
    pub fn open(&self, path: &Path, is_kept: bool) -> Result<Input> {
        let failed = |error| cannot_read(path, error);
        let packing = Compression::of_name(path);
        let file = match self.open_file(path, None)? {
            OpenFile::Plain(file) => file,
            OpenFile::Special(file) => {
                let raw = Raw::Stream(CancellablePoll(file));
                return Ok(Input {
                    reader: Decompressed::new(raw).promised(packing),
                    may_wait: true,
                    fingerprint: None,
                    mark: None,
                });
            }
        };
        let fingerprint = match is_kept {
            true => Some(file.fingerprint().map_err(failed)?),
            false => None,
        };
        let mark = mark_of(&file).map_err(failed)?;
        let raw = Raw::Plain(Checked::new(file, 0).map_err(failed)?);
        Ok(Input {
            reader: Decompressed::new(raw).promised(packing),
            may_wait: false,
            fingerprint,
            mark,
        })
    }

    /// Opens `path` at a position reached by an earlier attempt. A compressed file is decompressed
    /// from its beginning up to that position. Returns `None` if the job is cancelled meanwhile.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the file cannot be read or was replaced: its [`Fingerprint`]
    /// differs, it is shorter, or the bytes before the position differ.
    pub fn open_at(&self, path: &Path, resumption: &Resumption<'_>) -> Result<Option<Input>> {
        let Resumption {
            is_packed, place, ..
        } = *resumption;
        let failed = |error| cannot_read(path, error);
        let mut input = self.open(path, true)?;
        if input.may_wait {
            return Err(changed(path, NO_PLAIN_FILE));
        }
        if let Some(Raw::Plain(checked)) = input.reader.raw() {
            let file = checked.file();
            if let Some(fingerprint) = &resumption.fingerprint {
                check_identity(path, file, fingerprint)?;
            }
        }
        // Reading starts with the bytes that are compared.
        let from = place.offset.saturating_sub(place.before.len() as u64);
        // At offset 0 the format is detected from the first bytes: none need have been read when
        // the position was stored.
        if !is_packed && place.offset > 0 {
            let OpenFile::Plain(file) = self.open_file(path, None)? else {
                return Err(changed(path, NO_PLAIN_FILE));
            };
            let checked = Checked::new(file, from).map_err(failed)?;
            input.reader = Decompressed::plain(Raw::Plain(checked));
        }
        let mut reader = self.blocking(&mut input.reader);
        let mut left = if is_packed { from } else { 0 };
        while left > 0 {
            if self.signals.is_cancelled() {
                return Ok(None);
            }
            let mut some = (&mut reader).take(left.min(STRIDE));
            let skipped = io::copy(&mut some, &mut io::sink());
            match skipped.map_err(|error| broken(path, &error))? {
                0 => return Err(shorter(path, place)),
                count => left -= count,
            }
        }
        let mut before = vec![0; place.before.len()];
        let read = reader.read_exact(&mut before);
        drop(reader);
        match read {
            Ok(()) if before == place.before => Ok(Some(input)),
            Ok(()) => Err(changed(path, REWRITTEN)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(shorter(path, place)),
            Err(error) => Err(broken(path, &error)),
        }
    }

    /// Opens an instance's blocks of a plain file. Also returns their positions in the file.
    /// Computes the fingerprint if `is_kept`.
    ///
    /// # Errors
    /// As [`open_at`](Self::open_at); `fingerprint` is that of an earlier attempt.
    pub fn open_blocks(
        &self,
        path: &Path,
        blocks: FileBlocks,
        fingerprint: Option<&Fingerprint>,
        is_kept: bool,
    ) -> Result<(Input, Arc<BlockPositions>)> {
        let failed = |error| cannot_read(path, error);
        let OpenFile::Plain(file) = self.open_file(path, Some(&blocks))? else {
            return Err(changed(path, NO_PLAIN_FILE));
        };
        if let Some(fingerprint) = fingerprint {
            check_identity(path, &file, fingerprint)?;
        }
        // The fingerprint identifies a compressed file: its content cannot be compared cheaply.
        for stride in blocks.strides.iter().filter(|_| !blocks.is_packed) {
            let mut before = vec![0; stride.before.len()];
            let from = stride.from.saturating_sub(before.len() as u64);
            match file.read_exact_at(&mut before, from) {
                Ok(()) if before == stride.before => {}
                Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                    return Err(failed(error));
                }
                Ok(()) | Err(_) => return Err(changed(path, REWRITTEN)),
            }
        }
        let own = match is_kept {
            true => Some(file.fingerprint().map_err(failed)?),
            false => None,
        };
        let mark = mark_of(&file).map_err(failed)?;
        let (raw, positions) = match blocks.is_packed {
            true => {
                let reader = PackedBlockReader::new(file, path, blocks).map_err(failed)?;
                let positions = reader.positions();
                (Raw::PackedBlocks(Box::new(reader)), positions)
            }
            false => {
                let reader = BlockReader::new(file, path, blocks).map_err(failed)?;
                let positions = reader.positions();
                (Raw::Blocks(reader), positions)
            }
        };
        let input = Input {
            reader: Decompressed::plain(raw),
            may_wait: false,
            fingerprint: own,
            mark,
        };
        Ok((input, positions))
    }
}

/// Returns the identity of a local file.
fn mark_of(file: &SourceFile) -> io::Result<Option<FileIdentity>> {
    let Some(file) = file.local() else {
        return Ok(None);
    };
    Ok(Some(FileIdentity::of(&file.metadata()?)))
}

/// Opens a file without blocking. A named pipe without a writer becomes readable when it has one.
pub(super) fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    if !fs::metadata(path)?.is_file() {
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    }
    options.open(path)
}

/// The number of bytes decompressed between two checks for cancellation.
const STRIDE: u64 = 1 << 20;

/// The position up to which an earlier attempt has read a file.
pub(super) struct Resumption<'a> {
    pub is_packed: bool,
    pub place: &'a StreamPosition,
    /// The fingerprint of the file in the earlier attempt.
    pub fingerprint: Option<Fingerprint>,
}

/// Checks that a file is the one that an earlier attempt has read.
fn check_identity(path: &Path, file: &SourceFile, fingerprint: &Fingerprint) -> Result<()> {
    let failed = |error| cannot_read(path, error);
    let length = file.length().map_err(failed)?;
    if length < fingerprint.length() {
        let why = format!(
            "it had {} bytes when it was opened first, and has {length} by now",
            fingerprint.length()
        );
        return Err(changed(path, &why));
    }
    if !file.has_fingerprint(fingerprint).map_err(failed)? {
        return Err(changed(path, "another file has this name by now"));
    }
    Ok(())
}

/// The reason for refusing a pipe or a device.
const NO_PLAIN_FILE: &str = "it is no plain file any more";

/// The reason for refusing a file whose content before the position has changed.
const REWRITTEN: &str = "its content up to where it had been read is another one";

fn shorter(path: &Path, place: &StreamPosition) -> Error {
    let why = format!(
        "{} bytes of it had been read, and it has less by now",
        place.offset
    );
    changed(path, &why)
}

/// Returns the error of a read before the position.
fn broken(path: &Path, error: &io::Error) -> Error {
    let damage = damage(error);
    if damage.is_permanent {
        return changed(path, &damage.reason);
    }
    Error::new(ErrorCode::ReadFailed, cannot_read_on(path))
        .because(damage.reason)
        .hint("check that the file may be read, and that its disk or network can be reached")
}

fn cannot_read_on(path: &Path) -> String {
    format!("cannot read on in {}", path.display())
}

fn changed(path: &Path, why: &str) -> Error {
    Error::new(ErrorCode::ReadFailed, cannot_read_on(path))
        .because(why)
        .hint("put the file back that was being read, or start the job without the checkpoint")
        .permanent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{error_contains, gzip, zstd};

    fn opened(
        path: &Path,
        is_packed: bool,
        place: &StreamPosition,
        goes_on: bool,
    ) -> Result<Option<Input>> {
        let resumption = Resumption {
            is_packed,
            place,
            fingerprint: None,
        };
        let opener = FileOpener::local();
        if !goes_on {
            opener.signals.cancel();
        }
        opener.open_at(path, &resumption)
    }

    fn place(text: &str, offset: usize) -> StreamPosition {
        StreamPosition {
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
        // Reading its first bytes fails with EIO.
        let path = Path::new("/proc/self/mem");
        for is_packed in [true, false] {
            let place = place("one\ntwo\n", 4);
            let error = opened(path, is_packed, &place, true).err().unwrap();
            assert!(
                error_contains(&error, &["cannot read on in", "os error 5"]),
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
            assert!(error_contains(&error, &["file", why]), "{error}");
        };
        refused(b"one\n", false, "8 bytes of it had been read");
        refused(&gzip(b"one\n"), true, "8 bytes of it had been read");
        refused(b"one\ntoo\nthree\n", false, "another one");
        refused(&gzip(b"uno\ndos\ntres\n"), true, "another one");
        fs::remove_file(&path).unwrap();
        crate::testing::named_pipe(&path);
        let error = opened(&path, false, &place, true).err().unwrap();
        assert!(error_contains(&error, &["no plain file"]), "{error}");
    }
}
