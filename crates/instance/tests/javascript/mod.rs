//! The examples in JavaScript, for the tests of several crates.

use std::io::Write;
use std::process::{Command, Stdio};

/// The folder of the examples.
pub const JAVASCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/instances/javascript"
);

/// Returns true if Node.js is installed. Otherwise reports that a test is skipped.
pub fn has_node() -> bool {
    let node = Command::new("node")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    let is_there = node.is_ok_and(|status| status.success());
    if !is_there {
        // A closed standard error has no reader.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED examples in JavaScript: there is no node"
        );
    }
    is_there
}
