//! `ardea replay`: runs recorded micro-batches of a job that comes with ardea again, or those of a
//! topology in a file.

use std::path::Path;

use ardea::command_line::{Context, replay};
use ardea::console::Failure;

use crate::args::ReplayArgs;
use crate::commands::examples;
use crate::topology_file;

/// Replays the micro-batches, and prints whether the output is the same.
pub fn run(args: &ReplayArgs, context: &Context) -> Result<(), Failure> {
    let path = Path::new(&args.job);
    if topology_file::is_one(path) {
        return replay(&topology_file::read(path)?, &args.options, context);
    }
    if path.is_file() {
        let what = format!("{} is a file, and no topology file", path.display());
        let hint = format!(
            "a job program replays its own recordings: {} replay --vertex {}",
            path.display(),
            args.options.vertex
        );
        return Err(Failure::usage(what, hint));
    }
    let job = examples::find(&args.job)?;
    let pipeline = (job.build)(&args.args)?;
    replay(&pipeline, &args.options, context)
}
