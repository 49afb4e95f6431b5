//! `ardea config`: every setting, its value, and where that came from.

use std::io::{self, IsTerminal};
use std::path::Path;

use ardea::cluster::Modules;
use ardea::job::{check_scheduler, check_settings};
use ardea_api::ClusterSettings;
use ardea_core::Error;
use serde_json::json;

use crate::args::ConfigArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::stdout;

/// Prints all settings: a table with what each trades, or a list of objects.
pub fn run(args: &ConfigArgs, context: &Context) -> Result<(), Failure> {
    // What no job could be run or submitted with is refused here as well. Where the user's own folder is doesn't matter to that.
    context.node_config(None)?;
    let resolved = context.settings_of(args.cluster.as_deref())?;
    let cluster = ClusterSettings::from_settings(&resolved, Some(Path::new("/")))?;
    let modules = Modules::builtin();
    check_settings(&resolved, &cluster, &modules).map_err(known_elsewhere)?;
    check_scheduler(&resolved, &modules).map_err(known_elsewhere)?;
    let report = resolved.report();
    if context.json {
        return stdout::print_json(&json!(report));
    }
    // The short table for programs that read columns, the long one for people.
    let text = if io::stdout().is_terminal() {
        format!("{report:#}")
    } else {
        report.to_string()
    };
    stdout::print(&text)
}

/// A name that is none of those to choose from may be one that a program brings along.
fn known_elsewhere(error: Error) -> Error {
    match error.what_next().filter(|hint| hint.contains("choose ")) {
        Some(hint) => {
            let hint =
                format!("{hint}; parts of a program's own are known to that: `PROGRAM plan`");
            error.hint(hint)
        }
        None => error,
    }
}
