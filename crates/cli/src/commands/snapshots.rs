//! `ardea snapshots`: what a job that survives has left in its folder.

use ardea::job::KeptJob;

use crate::args::SnapshotsArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::stdout;

/// Prints the snapshots in a folder; fails if something is damaged.
pub fn run(args: &SnapshotsArgs, context: &Context) -> Result<(), Failure> {
    let kept = KeptJob::look(&args.folder, args.check)?;
    match context.json {
        true => stdout::print_json(&kept.to_json())?,
        false => stdout::print(&kept.to_string())?,
    }
    kept.damage().map_or(Ok(()), |error| Err(error.into()))
}
