//! What each command does: a file a command.

pub mod bench;
mod cluster;
mod completions;
mod components;
mod config;
mod control;
mod demo;
mod describe;
mod diff;
mod generate;
mod jobs;
mod list;
mod logs;
mod map;
mod metrics;
mod plan;
mod query;
mod run;
mod savepoint;
mod settings_check;
mod snapshots;
mod state;
mod submit;
mod top;
mod twins;
mod upgrade;
mod version;

pub use cluster::be_host;
pub use demo::JOB as DEMO_JOB;
pub use jobs::usage;
pub use submit::work;

use crate::args::{Command, NexmarkCommand, StateCommand};
use crate::context::Context;
use crate::failure::Failure;

/// Does what was asked for.
pub fn run(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args, context),
        Command::Run(args) => run::run(&args, context),
        Command::Jobs => jobs::run(context),
        Command::Components(args) => components::run(&args, context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Submit(args) => submit::run(&args, context),
        Command::List(place) => list::run(&place, context),
        Command::Describe(args) => describe::run(&args, context),
        Command::Activate(args) => control::activate(&args, context),
        Command::Deactivate(args) => control::deactivate(&args, context),
        Command::Kill(args) => control::kill(&args, context),
        Command::Restart(args) => control::restart(&args, context),
        Command::Update(args) => control::update(&args, context),
        Command::Upgrade(args) => upgrade::run(&args, context),
        Command::Rescale(args) => control::rescale(&args, context),
        Command::Logs(args) => logs::run(&args, context),
        Command::Metrics(args) => metrics::run(&args, context),
        Command::Top(args) => top::run(&args, context),
        Command::Snapshots(args) => snapshots::run(&args, context),
        Command::Recover(args) => control::recover(&args, context),
        Command::Savepoint(args) => savepoint::run(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::Twins(args) => twins::run(&args, context),
        Command::Cluster(command) => cluster::run(command, context),
        Command::Map(command) => map::run(command, context),
        Command::State(StateCommand::Dump(args)) => state::dump(&args, context),
        Command::State(StateCommand::Remove(args)) => state::remove(&args, context),
        Command::Bench(command) => bench::run(&command, context),
        Command::Nexmark(NexmarkCommand::Generate(args)) => generate::run(&args, context),
        Command::Nexmark(NexmarkCommand::Run(args)) => query::run(args, context),
        Command::Config(args) => config::run(&args, context),
        Command::Completions { shell } => completions::run(shell),
        Command::Version => version::run(context),
    }
}
