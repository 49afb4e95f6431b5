//! Programs without debug information: they are packed, unpacked and loaded many times.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a stripped copy of `program`, under this name in the folder for test files; an
/// unstripped copy where there is no `strip`.
pub fn stripped(program: &Path, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let part = folder.join(format!("{name}-{}", std::process::id()));
    let strip = Command::new("strip")
        .arg("-o")
        .arg(&part)
        .arg(program)
        .status();
    if !strip.is_ok_and(|status| status.success()) {
        fs::copy(program, &part).expect("there is room");
    }
    let path = folder.join(name);
    // Another test process may be using the old copy; replacing it by a rename does not affect it.
    fs::rename(&part, &path).expect("a copy in its place");
    path
}
