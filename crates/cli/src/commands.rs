//! The implementations of the commands, one file each.

mod access;
#[cfg(feature = "bench")]
pub mod bench;
mod cluster;
mod completions;
mod components;
mod config;
mod control;
mod describe;
mod diff;
mod examples;
mod generate;
mod inspect;
mod instance;
mod list;
mod logs;
mod map;
mod metastore;
mod metrics;
mod plan;
mod python_job;
mod query;
mod replay;
mod replicas;
mod run;
mod settings_check;
mod submit;
mod top;
mod version;
mod why;

pub use examples::usage;
pub use submit::work;

use ardea::command_line;
use ardea::command_line::Context;
use ardea::console::Failure;

use crate::args::{Command, InstanceCommands, MetastoreCommand, NexmarkCommand};

/// Runs a command.
pub fn run(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => ardea_demo::run(&args, context),
        Command::Run(args) => run::run(&args, context),
        Command::Examples => examples::run(context),
        Command::Inspect(args) => inspect::run(&args, context),
        Command::Instance(InstanceCommands::Check(args)) => instance::check(&args, context),
        Command::Components(args) => components::run(&args, context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Submit(args) => submit::run(&args, context),
        Command::List(place) => list::run(&place, context),
        Command::Describe(args) => describe::run(&args, context),
        Command::Resume(args) => control::resume(&args, context),
        Command::Pause(args) => control::pause(&args, context),
        Command::Kill(args) => control::kill(&args, context),
        Command::Restart(args) => control::restart(&args, context),
        Command::Upgrade(args) => submit::upgrade(&args, context),
        Command::Rescale(args) => control::rescale(&args, context),
        Command::Logs(args) => logs::run(&args, context),
        Command::Metrics(args) => metrics::run(&args, context),
        Command::Top(args) => top::run(&args, context),
        Command::Why(args) => why::run(&args, context),
        Command::Checkpoints(args) => command_line::checkpoints(&args, context),
        Command::Recover(args) => control::recover(&args, context),
        Command::Savepoint(args) => command_line::savepoint(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::Replay(args) => replay::run(&args, context),
        Command::Replicas(args) => replicas::run(&args, context),
        Command::Cluster(command) => cluster::run(command, context),
        Command::Token(command) => access::run_token(command, context),
        Command::Audit(args) => access::run_audit(&args, context),
        Command::Map(command) => map::run(command, context),
        Command::Metastore(MetastoreCommand::Dump(args)) => metastore::dump(&args, context),
        Command::Metastore(MetastoreCommand::Remove(args)) => metastore::remove(&args, context),
        #[cfg(feature = "bench")]
        Command::Bench(command) => bench::run(&command, context),
        #[cfg(not(feature = "bench"))]
        Command::Bench { .. } => Err(Failure::usage(
            "this program was built without benchmarks",
            "in a checkout: `make bench ARGS=\"…\"`, or `make install ARGS=\"--features bench\"`",
        )),
        Command::Nexmark(NexmarkCommand::Generate(args)) => generate::run(&args, context),
        Command::Nexmark(NexmarkCommand::Run(args)) => query::run(args, context),
        Command::Config(args) => config::run(&args, context),
        Command::Completions { shell } => completions::run(shell),
        Command::Version => version::run(context),
    }
}
