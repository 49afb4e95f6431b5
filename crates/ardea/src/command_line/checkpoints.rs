//! `checkpoints`: the checkpoints of a job with a guarantee, in its folder or on its cluster.

use std::time::Duration;

use super::{CheckpointsArgs, ClusterConnection, Context, is_of_a_cluster};
use crate::console::Failure;
use crate::job::CheckpointListing;

/// The time limit for reading all of a job's state; a host that hangs is detected earlier.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Prints the checkpoints of a job.
///
/// # Errors
/// The first damage, newest checkpoint first; errors of the folder or of the cluster.
pub fn checkpoints(args: &CheckpointsArgs, context: &Context) -> Result<(), Failure> {
    let kept = match is_of_a_cluster(&args.place, &args.what) {
        true => request(args, context)?,
        false => CheckpointListing::look(&args.what, args.check)?,
    };
    context.print(&kept, || kept.to_json())?;
    kept.damage().map_or(Ok(()), |error| Err(error.into()))
}

fn request(args: &CheckpointsArgs, context: &Context) -> Result<CheckpointListing, Failure> {
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
