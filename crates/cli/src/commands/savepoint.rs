//! `ardea savepoint`: writes all state of a job that survives to a folder of its own, or looks at one.

use std::path::{Path, absolute};
use std::time::Duration;

use ardea::job::SavedJob;
use ardea::recovery::{SAVING, address_of, savepoint};
use ardea_core::{Error, ErrorCode};
use ardea_rest::{Phase, SavepointRequest};

use crate::args::{SavepointArgs, SavepointCommand};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::{Reached, is_of_a_cluster};
use crate::stdout;

/// How long writing all of a job's state may take; a host that hangs is noticed meanwhile.
const WRITTEN_WITHIN: Duration = Duration::from_secs(3_600);

/// Writes one, or shows what is in one.
pub fn run(args: &SavepointArgs, context: &Context) -> Result<(), Failure> {
    if let Some(SavepointCommand::Inspect { place, check }) = &args.command {
        return tell(&SavedJob::look(place, *check)?, context);
    }
    let what = args.what.as_deref().unwrap_or(Path::new(""));
    let to = args.to.as_deref().unwrap_or(Path::new(""));
    let saved = match is_of_a_cluster(&args.place, what) {
        true => ask(args, what, to, context)?,
        false => SavedJob::written(to, savepoint(what, to, SAVING)?),
    };
    tell(&saved, context)
}

/// Has the host that leads the job write it.
fn ask(
    args: &SavepointArgs,
    what: &Path,
    to: &Path,
    context: &Context,
) -> Result<SavedJob, Failure> {
    let to = match address_of(to) {
        Some(_) => to.to_path_buf(),
        None => absolute(to).map_err(|error| {
            let what = format!("{} is no path", to.display());
            Error::new(ErrorCode::InvalidConfig, what).because(error)
        })?,
    };
    let job = what.to_string_lossy();
    let cluster = Reached::of_job_or_folder(&args.place, what, context)?;
    say_what_it_waits_for(&cluster, &job, context)?;
    let client = cluster.client.clone().patience(WRITTEN_WITHIN);
    let request = SavepointRequest {
        to: to.to_string_lossy().into_owned(),
    };
    let saved = cluster.ask(client.savepoint(&job, &request))?;
    Ok(SavedJob::told(&to, saved.manifest)?)
}

/// Says so if no epoch of the job can end now: it does when the job runs again.
fn say_what_it_waits_for(cluster: &Reached, job: &str, context: &Context) -> Result<(), Failure> {
    let now = cluster.ask(cluster.client.describe(job))?.summary;
    let is = match now.phase {
        Phase::Reading => "read by its master",
        Phase::Starting | Phase::Recovering | Phase::Updating | Phase::Impossible => {
            now.phase.as_str()
        }
        _ => return Ok(()),
    };
    if !context.quiet && !context.json {
        let why = now.reason.map(|why| format!(": {why}")).unwrap_or_default();
        print_error(&format!("waits: {job} is {is}{why}\n"));
    }
    Ok(())
}

fn tell(saved: &SavedJob, context: &Context) -> Result<(), Failure> {
    match context.json {
        true => stdout::print_json(&saved.to_json()),
        false => stdout::print(&saved.to_string()),
    }
}
