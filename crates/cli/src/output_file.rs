//! A file that appears when it is complete, or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::interrupts::Interrupts;

/// Lets `write` fill `path`, `-` being standard output.
///
/// A file is written under another name beside it and renamed at the end: an error or Ctrl-C leaves what was there before.
/// A path that is no regular file (a device, a named pipe) is written to as it is.
pub fn write_whole<T>(
    path: &Path,
    interrupts: &Interrupts,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if path == Path::new("-") {
        return write(&mut io::stdout().lock());
    }
    let failed = |error: io::Error| Failure::write(path.display().to_string(), error);
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return write(
            &mut fs::OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(failed)?,
        );
    }
    let unfinished = Unfinished(beside(path));
    let file = File::create(&unfinished.0).map_err(failed)?;
    let watching = interrupts.watch();
    let mut stoppable = Stoppable { file, interrupts };
    let outcome = write(&mut stoppable);
    if interrupts.count() > 0 {
        return Err(Failure::Interrupted);
    }
    let result = outcome?;
    fs::rename(&unfinished.0, path).map_err(failed)?;
    drop(watching);
    Ok(result)
}

/// A name in the same folder that nothing else uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.unfinished", std::process::id()));
    path.with_file_name(name)
}

/// Removes the file when it goes, unless it has been renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the rename there is none of this name.
        let _ = fs::remove_file(&self.0);
    }
}

/// A file that takes no more once there was an interrupt.
struct Stoppable<'a> {
    file: File,
    interrupts: &'a Interrupts,
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupts.count() > 0 {
            return Err(io::Error::other("interrupted"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
