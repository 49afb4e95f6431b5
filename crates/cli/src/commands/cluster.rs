//! `ardea cluster`: starts, stops and shows clusters.

mod drain;
mod start;
mod status;
mod stop;

use ardea::cluster::RunningHost;
use ardea::command_line::Context;
use ardea::console::Failure;
use serde_json::{Value, json};

use crate::args::ClusterCommand;

/// Runs a subcommand.
pub fn run(command: ClusterCommand, context: &Context) -> Result<(), Failure> {
    match command {
        ClusterCommand::Start(args) => start::run(&args, context),
        ClusterCommand::Stop(args) => stop::run(&args, context),
        ClusterCommand::Status(place) => status::run(&place, context),
        ClusterCommand::Drain(args) => drain::run(&args, context),
        ClusterCommand::Undrain(args) => drain::run_undrain(&args, context),
    }
}

/// Returns hosts of this machine as JSON.
fn hosts_json(hosts: &[RunningHost]) -> Value {
    let hosts = hosts.iter().map(
        |host| json!({ "host": host.name, "pid": host.pid, "api": host.api, "job": host.job }),
    );
    hosts.collect()
}
