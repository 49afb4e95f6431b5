//! `ardea savepoint`: writes all state of a job that survives to a folder of its own, or looks at one.

use std::path::Path;

use ardea::job::SavedJob;
use ardea::recovery::{SAVING, savepoint};

use crate::args::{SavepointArgs, SavepointCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::stdout;

/// Writes one, or shows what is in one.
pub fn run(args: &SavepointArgs, context: &Context) -> Result<(), Failure> {
    if let Some(SavepointCommand::Inspect { place, check }) = &args.command {
        return tell(&SavedJob::look(place, *check)?, context);
    }
    let folder = args.folder.as_deref().unwrap_or(Path::new(""));
    let to = args.to.as_deref().unwrap_or(Path::new(""));
    tell(
        &SavedJob::written(to, savepoint(folder, to, SAVING)?),
        context,
    )
}

fn tell(saved: &SavedJob, context: &Context) -> Result<(), Failure> {
    match context.json {
        true => stdout::print_json(&saved.to_json()),
        false => stdout::print(&saved.to_string()),
    }
}
