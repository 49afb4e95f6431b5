//! `ardea logs`: what the processes of a job have written.

use ardea_api::{LogLine, LogQuery};
use ardea_packing::ContainerId;
use serde_json::json;

use crate::args::LogsArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::reach::Reached;
use crate::stdout;

/// Prints the lines as they come, each behind where it is from unless all are from one file.
pub fn run(args: &LogsArgs, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of(&args.job.place, context)?;
    let query = LogQuery {
        container: args.container.map(ContainerId),
        source: args.source,
        tail: Some(args.tail),
        follow: args.follow,
    };
    let mut lines = cluster.ask(cluster.client.logs(&args.job.job, &query))?;
    let is_one_file = args.container.is_some() && args.source.is_some();
    while let Some(line) = cluster.ask(lines.next())? {
        match context.json {
            true => stdout::print_json(&json!(line))?,
            false => stdout::print(&shown(&line, is_one_file))?,
        }
    }
    Ok(())
}

fn shown(line: &LogLine, is_one_file: bool) -> String {
    let LogLine {
        container,
        source,
        text,
    } = line;
    match is_one_file {
        true => format!("{text}\n"),
        false => format!("{container} {}  {text}\n", source.as_str()),
    }
}
