//! Results on standard output.

use std::io::{self, Write};

use serde_json::Value;

use super::failure::Failure;

/// Prints a result unchanged.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::write("to standard output", error))
}

/// Prints a result as one line of JSON.
pub fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}
