//! Opens a file for reading, and undoes its compression.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ardea_core::Result;
use flate2::bufread::MultiGzDecoder;
use rustix::fs::OFlags;

use super::list::cannot_read;
use crate::ready::InTurns;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// An open file, and whether reading it may have to wait.
pub(super) struct Input {
    pub reader: Box<dyn Read + Send>,
    /// A pipe or a device: what has been read is to be handed on before the next read.
    pub may_wait: bool,
}

/// Opens `path`. Gzip and zstd are known by their first bytes, and a file that is named `.gz` or `.zst` must have them.
///
/// Pipes and devices are read as they are.
pub(super) fn open(path: &Path) -> Result<Input> {
    let failed = |error| cannot_read(path, error);
    let mut file = open_at_once(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Ok(Input {
            reader: Box::new(InTurns(file)),
            may_wait: true,
        });
    }
    let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
    file.by_ref()
        .take(ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut magic)
        .map_err(failed)?;
    let suffix = path.extension().unwrap_or_default();
    let (gzip, zstd) = (magic.starts_with(&GZIP_MAGIC), magic == ZSTD_MAGIC);
    let whole = Cursor::new(magic).chain(file);
    let reader: Box<dyn Read + Send> = if gzip || (suffix == "gz" && !zstd) {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(
            64 << 10,
            whole,
        )))
    } else if zstd || suffix == "zst" {
        Box::new(zstd::Decoder::new(whole).map_err(failed)?)
    } else {
        Box::new(whole)
    };
    Ok(Input {
        reader,
        may_wait: false,
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

/// Whether a failed read is the fault of the file's content (compressed data that is cut off or damaged) rather than of
/// the system.
pub(super) fn is_damage(error: &io::Error) -> bool {
    error.raw_os_error().is_none()
}
