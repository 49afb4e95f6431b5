//! `ardea run`: runs a job by its name, or a topology from a file.

use std::path::Path;

use crate::args::{JobArgs, Where};
use crate::commands::jobs;
use crate::context::Context;
use crate::failure::Failure;
use crate::{stdout, supervise, topology_file};

/// Runs the job, or explains it if its arguments ask for that.
pub fn run(args: &JobArgs, context: &Context) -> Result<(), Failure> {
    let (name, rest) = args.split();
    let path = Path::new(name);
    if topology_file::is_one(path) {
        let topology = topology_file::read(path)?;
        let config = context.node_config(args.threads)?;
        let cluster = context.cluster(&Where::default())?;
        topology_file::check_instances(&topology, &cluster.instances)?;
        return supervise::run(&topology, config, context);
    }
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
