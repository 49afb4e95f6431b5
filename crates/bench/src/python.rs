//! Programs in Python, for comparison with other systems.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The environment variable with the Python interpreter that has the packages.
const PYTHON: &str = "ARDEA_BENCH_PYTHON";

/// Runs a program; returns the JSON that it prints. Returns `None` if there is no such Python, or
/// if the program fails.
pub(crate) fn run(
    program: &str,
    arguments: impl IntoIterator<Item: Into<OsString>>,
) -> Option<Value> {
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
    let answer = Command::new(python)
        .args(["-c", program])
        .args(arguments.into_iter().map(Into::into))
        .stderr(Stdio::null())
        .output()
        .ok()?;
    serde_json::from_slice(&answer.stdout).ok()
}
