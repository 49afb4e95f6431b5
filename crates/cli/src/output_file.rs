//! Output files that appear only when complete, and that can be restored to their previous content.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ardea_connectors::files::{Compression, PartFile};
use ardea_core::Error;

use ardea::console::Failure;
use ardea::console::Interrupts;

/// Lets `write` fill `path`; `-` is standard output.
///
/// A file is written as `….part` beside it and renamed at the end: an error or Ctrl-C leaves the
/// previous file unchanged. A path that is no regular file (a device, a named pipe) is written
/// directly.
pub fn write_whole<T>(
    path: &Path,
    interrupts: &Interrupts,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if path == Path::new("-") {
        return write(&mut io::stdout().lock());
    }
    let _watching = interrupts.watch();
    let listener = interrupts.clone();
    let created = PartFile::create(path.to_path_buf(), Compression::of_name(path), move |_| {
        listener.count() == 0
    });
    let mut stoppable = Stoppable {
        file: created?,
        interrupts,
        failed: None,
    };
    let outcome = write(&mut stoppable);
    let Stoppable { file, failed, .. } = stoppable;
    let outcome = match failed {
        _ if interrupts.count() > 0 => Err(Failure::Interrupted),
        Some(error) => Err(error.into()),
        None => outcome,
    };
    match outcome {
        Ok(result) => {
            file.finish(false)?;
            Ok(result)
        }
        Err(failure) => {
            file.discard();
            Err(failure)
        }
    }
}

/// The content of a file before a job overwrites it.
pub struct FileBackup {
    path: PathBuf,
    file: File,
}

impl FileBackup {
    /// Opens the file at `path`; returns `None` if it is no regular file.
    pub fn at(path: &Path) -> Option<Self> {
        let is_file = path != Path::new("-") && fs::metadata(path).ok()?.is_file();
        // The open file stays readable after its name is given to another one.
        let file = is_file.then(|| File::open(path))?.ok()?;
        Some(FileBackup {
            path: path.to_path_buf(),
            file,
        })
    }

    /// Restores the file's previous content.
    pub fn restore(mut self) -> Result<(), Failure> {
        let mut restored = PartFile::create(self.path.clone(), Compression::None, |_| true)?;
        let mut piece = vec![0; 1 << 20];
        loop {
            match self.file.read(&mut piece) {
                Ok(0) => return Ok(restored.finish(false)?),
                Ok(length) => restored.write(&piece[..length])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    restored.discard();
                    let what = format!("the previous content of {}", self.path.display());
                    return Err(Failure::write(what, error));
                }
            }
        }
    }
}

/// A file that refuses writes after an interrupt.
struct Stoppable<'a> {
    file: PartFile,
    interrupts: &'a Interrupts,
    /// The original error, which the writer only sees as an I/O error.
    failed: Option<Error>,
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupts.count() > 0 {
            return Err(io::Error::other("interrupted"));
        }
        match self.file.write(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let told = io::Error::other(error.to_string());
                self.failed = Some(error);
                Err(told)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
