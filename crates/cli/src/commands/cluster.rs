//! `ardea cluster`: starts, stops and shows clusters.

mod start;
mod status;
mod stop;

use crate::args::ClusterCommand;
use crate::context::Context;
use crate::failure::Failure;

/// Does what was asked for.
pub fn run(command: ClusterCommand, context: &Context) -> Result<(), Failure> {
    match command {
        ClusterCommand::Start(args) => start::run(&args, context),
        ClusterCommand::Stop(args) => stop::run(&args, context),
        ClusterCommand::Status(place) => status::run(&place, context),
    }
}
