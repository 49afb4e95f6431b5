//! `ardea checkpoints`: the checkpoints of a job with a guarantee, in its folder or on its cluster.

use std::time::Duration;

use ardea::job::CheckpointListing;

use crate::args::CheckpointsArgs;
use crate::cluster_connection::{ClusterConnection, is_of_a_cluster};
use crate::context::Context;
use crate::failure::Failure;
use crate::stdout;

/// The time limit for reading all of a job's state; a host that hangs is detected earlier.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Prints the checkpoints of a job; fails if one is damaged.
pub fn run(args: &CheckpointsArgs, context: &Context) -> Result<(), Failure> {
    let kept = match is_of_a_cluster(&args.place, &args.what) {
        true => ask(args, context)?,
        false => CheckpointListing::look(&args.what, args.check)?,
    };
    match context.json {
        true => stdout::print_json(&kept.to_json())?,
        false => stdout::print(&kept.to_string())?,
    }
    kept.damage().map_or(Ok(()), |error| Err(error.into()))
}

fn ask(args: &CheckpointsArgs, context: &Context) -> Result<CheckpointListing, Failure> {
    let job = args.what.to_string_lossy();
    let cluster = ClusterConnection::of_job_or_folder(&args.place, &args.what, context)?;
    let seen = match args.check {
        false => cluster.wait_for(cluster.client.checkpoints(&job))?,
        true => {
            let client = cluster.client.clone().timeout(CHECK_TIMEOUT);
            cluster.wait_for(client.check_checkpoints(&job))?
        }
    };
    Ok(CheckpointListing::of(seen))
}
