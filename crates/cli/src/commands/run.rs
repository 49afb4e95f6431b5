//! `ardea run`: runs a job by its name, or a topology from a file.

use std::path::Path;

use ardea::command_line::{ClusterArgs, Context};
use ardea::console::Failure;

use crate::args::RunArgs;
use crate::commands::examples;
use crate::{stdout, topology_file};

/// Runs the job, or prints its help if its arguments contain `--help`.
pub fn run(run: &RunArgs, context: &Context) -> Result<(), Failure> {
    let (args, ui) = (&run.job, run.ui.as_deref());
    let (name, rest) = args.split();
    let path = Path::new(name);
    if topology_file::is_one(path) {
        let topology = topology_file::read(path)?;
        let config = context.node_config(args.threads)?;
        let cluster = context.cluster(&ClusterArgs::default())?;
        topology_file::check_instances(&topology, &cluster.instances)?;
        return context.run_job_with_page(topology, config, ui);
    }
    named(name, rest, (args.threads, ui), context)
}

/// Runs the job of this name.
fn named(
    name: &str,
    args: &[String],
    (threads, ui): (Option<u32>, Option<&str>),
    context: &Context,
) -> Result<(), Failure> {
    let job = examples::find(name)?;
    if examples::asks_for_help(args) {
        return stdout::print(&examples::usage(job));
    }
    let config = context.node_config(threads)?;
    let pipeline = (job.build)(args)?;
    context.run_job_with_page(pipeline, config, ui)
}
