//! `ardea snapshots`: what a job that survives has left in its folder, or on its cluster.

use std::time::Duration;

use ardea::job::KeptJob;

use crate::args::SnapshotsArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::reach::{Reached, is_of_a_cluster};
use crate::stdout;

/// How long reading all of a job's state may take; a host that hangs is noticed meanwhile.
const CHECKED_WITHIN: Duration = Duration::from_secs(3_600);

/// Prints the snapshots of a job; fails if something is damaged.
pub fn run(args: &SnapshotsArgs, context: &Context) -> Result<(), Failure> {
    let kept = match is_of_a_cluster(&args.place, &args.what) {
        true => ask(args, context)?,
        false => KeptJob::look(&args.what, args.check)?,
    };
    match context.json {
        true => stdout::print_json(&kept.to_json())?,
        false => stdout::print(&kept.to_string())?,
    }
    kept.damage().map_or(Ok(()), |error| Err(error.into()))
}

fn ask(args: &SnapshotsArgs, context: &Context) -> Result<KeptJob, Failure> {
    let job = args.what.to_string_lossy();
    let cluster = Reached::of_job_or_folder(&args.place, &args.what, context)?;
    let seen = match args.check {
        false => cluster.ask(cluster.client.snapshots(&job))?,
        true => {
            let client = cluster.client.clone().patience(CHECKED_WITHIN);
            cluster.ask(client.check_snapshots(&job))?
        }
    };
    Ok(KeptJob::of(seen))
}
