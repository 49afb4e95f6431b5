//! Opens a file for reading, and undoes its compression.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ardea_core::Result;
use rustix::fs::OFlags;

use super::list::cannot_read;
use super::part_file::Compression;
use crate::decompressed::Decompressed;
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
