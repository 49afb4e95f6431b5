//! What each command does: a file a command.

pub mod bench;
mod completions;
mod config;
mod demo;
mod generate;
mod jobs;
mod plan;
mod query;
mod run;
mod version;

pub use demo::JOB as DEMO_JOB;
pub use jobs::usage;

use crate::args::{Command, NexmarkCommand};
use crate::context::Context;
use crate::failure::Failure;

/// Does what was asked for.
pub fn run(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args, context),
        Command::Run(args) => run::run(&args, context),
        Command::Jobs => jobs::run(context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Bench(command) => bench::run(&command, context),
        Command::Nexmark(NexmarkCommand::Generate(args)) => generate::run(&args, context),
        Command::Nexmark(NexmarkCommand::Run(args)) => query::run(args, context),
        Command::Config => config::run(context),
        Command::Completions { shell } => completions::run(shell),
        Command::Version => version::run(context),
    }
}
