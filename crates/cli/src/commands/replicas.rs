//! `ardea replicas`: the replicas of an active-active job.

use ardea::command_line::Context;
use ardea::connect::active_active::{ReplicaInfo, replicas};
use ardea::console::Failure;
use ardea::console::format_number::{duration, grouped};
use serde_json::{Value, json};

use crate::args::ReplicasArgs;
use crate::columns::table;
use crate::stdout;

/// Prints one line per replica.
pub fn run(args: &ReplicasArgs, context: &Context) -> Result<(), Failure> {
    let replicas = replicas(&args.file)?;
    if context.json {
        return stdout::print_json(&Value::Array(replicas.iter().map(to_json).collect()));
    }
    let rows: Vec<Vec<String>> = replicas.iter().map(row).collect();
    let headings = [
        "copy", "job", "process", "state", "until", ">behind", ">first", ">met",
    ];
    stdout::print(&table(&headings, &rows))
}

fn row(twin: &ReplicaInfo) -> Vec<String> {
    vec![
        twin.number.to_string(),
        twin.job.clone(),
        format!("{} on {}", twin.process, twin.host),
        state(twin).to_string(),
        twin.until
            .map_or_else(String::new, |until| until.to_string()),
        duration(twin.behind),
        grouped(twin.first),
        grouped(twin.met),
    ]
}

fn state(twin: &ReplicaInfo) -> &'static str {
    match twin.is_alive {
        true => "alive",
        false => "gone",
    }
}

fn to_json(twin: &ReplicaInfo) -> Value {
    json!({
        "copy": twin.number,
        "job": twin.job,
        "host": twin.host,
        "process": twin.process,
        "state": state(twin),
        "until": twin.until.map(|until| until.to_string()),
        "behind_ms": twin.behind.as_secs_f64() * 1e3,
        "first": twin.first,
        "met": twin.met,
        "told": twin.reported_at.to_string(),
    })
}
