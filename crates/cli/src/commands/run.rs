//! `ardea run`: runs a job by its name.

use crate::args::JobArgs;
use crate::commands::jobs;
use crate::context::Context;
use crate::failure::Failure;
use crate::{stdout, supervise};

/// Runs the job, or explains it if its arguments ask for that.
pub fn run(args: &JobArgs, context: &Context) -> Result<(), Failure> {
    let (name, rest) = args.split();
    named(name, rest, args.threads, context)
}

/// Runs the job of this name.
pub fn named(
    name: &str,
    args: &[String],
    threads: Option<u32>,
    context: &Context,
) -> Result<(), Failure> {
    let job = jobs::find(name)?;
    if jobs::asks_for_help(args) {
        return stdout::print(&jobs::usage(job));
    }
    let config = context.node_config(threads)?;
    let pipeline = (job.build)(args)?;
    supervise::run(&pipeline, config, context)
}
