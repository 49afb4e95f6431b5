//! `ardea version`: the program's version.

use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::stdout;

/// Prints name and version.
pub fn run(context: &Context) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if context.json {
        return stdout::print_json(&json!({ "name": "ardea", "version": version }));
    }
    stdout::print(&format!("ardea {version}\n"))
}
