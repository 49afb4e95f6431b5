//! `ardea version`: the program's version.

use ardea::command_line::Context;
use ardea::console::Failure;
use serde_json::json;

use crate::stdout;

/// Prints name and version.
pub fn run(context: &Context) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if context.json {
        return stdout::print_json(&json!({ "name": "ardea", "version": version }));
    }
    stdout::print(&format!("ardea {version}\n"))
}
