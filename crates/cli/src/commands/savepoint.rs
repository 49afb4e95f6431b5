//! `ardea savepoint`: writes all state of a job with a guarantee to a folder, or inspects a
//! savepoint.

use std::path::{Path, absolute};
use std::time::Duration;

use ardea::job::SavepointReport;
use ardea::recovery::{SAVEPOINT_TIMEOUT, address_of, savepoint};
use ardea_core::{Error, ErrorCode};
use ardea_rest::{Phase, SavepointRequest};

use crate::args::{SavepointArgs, SavepointCommand};
use crate::cluster_connection::{ClusterConnection, is_of_a_cluster};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::stdout;

/// The time limit for writing all of a job's state; a host that hangs is detected earlier.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Writes a savepoint, or shows the contents of one.
pub fn run(args: &SavepointArgs, context: &Context) -> Result<(), Failure> {
    if let Some(SavepointCommand::Inspect { place, check }) = &args.command {
        return print_report(&SavepointReport::read(place, *check)?, context);
    }
    let what = args.what.as_deref().unwrap_or(Path::new(""));
    let to = args.to.as_deref().unwrap_or(Path::new(""));
    let saved = match is_of_a_cluster(&args.place, what) {
        true => ask(args, what, to, context)?,
        false => SavepointReport::written(to, savepoint(what, to, SAVEPOINT_TIMEOUT)?),
    };
    print_report(&saved, context)
}

/// Requests the savepoint from the host that leads the job.
fn ask(
    args: &SavepointArgs,
    what: &Path,
    to: &Path,
    context: &Context,
) -> Result<SavepointReport, Failure> {
    let to = match address_of(to) {
        Some(_) => to.to_path_buf(),
        None => absolute(to).map_err(|error| {
            let what = format!("{} is not a valid path", to.display());
            Error::new(ErrorCode::InvalidConfig, what).because(error)
        })?,
    };
    let job = what.to_string_lossy();
    let cluster = ClusterConnection::of_job_or_folder(&args.place, what, context)?;
    print_wait_reason(&cluster, &job, context)?;
    let client = cluster.client.clone().timeout(WRITE_TIMEOUT);
    let request = SavepointRequest {
        to: to.to_string_lossy().into_owned(),
    };
    let saved = cluster.wait_for(client.savepoint(&job, &request))?;
    Ok(SavepointReport::from_response(&to, saved.manifest)?)
}

/// Prints a notice if the job can't end an epoch now, so that the savepoint has to wait.
fn print_wait_reason(
    cluster: &ClusterConnection,
    job: &str,
    context: &Context,
) -> Result<(), Failure> {
    let now = cluster.wait_for(cluster.client.describe(job))?.summary;
    let is = match now.phase {
        Phase::Reading => "read by its leader",
        Phase::Starting | Phase::Recovering | Phase::Updating | Phase::Impossible => {
            now.phase.as_str()
        }
        _ => return Ok(()),
    };
    if !context.quiet && !context.json {
        let why = now.reason.map(|why| format!(": {why}")).unwrap_or_default();
        print_error(&format!(
            "the savepoint the savepoint waits: {job} is {is}{why}\n"
        ));
    }
    Ok(())
}

fn print_report(saved: &SavepointReport, context: &Context) -> Result<(), Failure> {
    match context.json {
        true => stdout::print_json(&saved.to_json()),
        false => stdout::print(&saved.to_string()),
    }
}
