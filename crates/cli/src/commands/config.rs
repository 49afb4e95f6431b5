//! `ardea config`: every setting, its value, and its origin.

use std::io::{self, IsTerminal};
use std::path::Path;

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_rest::ClusterSettings;
use serde_json::json;

use super::settings_check;
use crate::args::ConfigArgs;
use crate::stdout;

/// Prints all settings: a table with their trade-offs, or a list of objects.
pub fn run(args: &ConfigArgs, context: &Context) -> Result<(), Failure> {
    // Settings with which no job could be run or submitted are refused here as well. The user's
    // folder is irrelevant for this check.
    context.node_config(None)?;
    let resolved = context.settings_of(args.cluster.as_deref())?;
    let cluster = ClusterSettings::from_settings(&resolved, Some(Path::new("/")))?;
    settings_check::check(&resolved, &cluster, context)?;
    let report = resolved.report();
    if context.json {
        return stdout::print_json(&json!(report));
    }
    // The short table is for programs that read columns, the long one for a terminal.
    let text = if io::stdout().is_terminal() {
        format!("{report:#}")
    } else {
        report.to_string()
    };
    stdout::print(&text)
}
