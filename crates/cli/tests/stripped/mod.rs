//! Programs without what only debuggers read: they are packed, unpacked and loaded many times.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Such a copy of `program`, of this name in the folder for what tests make; itself where there is no `strip`.
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
    // Another process of tests may use the one that is there: it keeps it.
    fs::rename(&part, &path).expect("a copy in its place");
    path
}
