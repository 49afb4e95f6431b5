//! `ardea run`: runs a job by its name, or a topology from a file.

use std::path::Path;

use ardea::command_line::{ClusterArgs, Context};
use ardea::console::Failure;

use crate::args::JobArgs;
use crate::commands::examples;
use crate::{stdout, topology_file};

/// Runs the job, or prints its help if its arguments contain `--help`.
pub fn run(args: &JobArgs, context: &Context) -> Result<(), Failure> {
    let (name, rest) = args.split();
    let path = Path::new(name);
    if topology_file::is_one(path) {
        let topology = topology_file::read(path)?;
        let config = context.node_config(args.threads)?;
        let cluster = context.cluster(&ClusterArgs::default())?;
        topology_file::check_instances(&topology, &cluster.instances)?;
        return context.run_job(topology, config);
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
    let job = examples::find(name)?;
    if examples::asks_for_help(args) {
        return stdout::print(&examples::usage(job));
    }
    let config = context.node_config(threads)?;
    let pipeline = (job.build)(args)?;
    context.run_job(pipeline, config)
}
