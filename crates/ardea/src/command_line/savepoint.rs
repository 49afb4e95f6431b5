//! `savepoint`: writes all state of a job with a guarantee to a folder, or inspects a
//! savepoint.

use std::path::{Path, absolute};
use std::time::Duration;

use ardea_checkpoint::local::{SAVEPOINT_TIMEOUT, address_of};
use ardea_core::{Error, ErrorCode};
use ardea_rest::{Phase, SavepointRequest};

use super::{ClusterConnection, Context, SavepointArgs, SavepointCommand, is_of_a_cluster};
use crate::console::{Failure, print_error};
use crate::job::SavepointReport;

/// The time limit for writing all of a job's state; a host that hangs is detected earlier.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Writes a savepoint, or shows the contents of one.
///
/// # Errors
/// Errors of the folders or of the cluster.
pub fn savepoint(args: &SavepointArgs, context: &Context) -> Result<(), Failure> {
    if let Some(SavepointCommand::Inspect { place, check }) = &args.command {
        let report = SavepointReport::read(place, *check)?;
        return context.print(&report, || report.to_json());
    }
    // The argument parser requires both.
    let what = args.what.as_deref().unwrap_or(Path::new(""));
    let to = args.to.as_deref().unwrap_or(Path::new(""));
    let saved = match is_of_a_cluster(&args.place, what) {
        true => request(args, what, to, context)?,
        false => {
            let manifest = ardea_checkpoint::local::savepoint(what, to, SAVEPOINT_TIMEOUT)?;
            SavepointReport::written(to, manifest)
        }
    };
    context.print_unless_quiet(&saved, || saved.to_json())
}

/// Requests the savepoint from the host that leads the job.
fn request(
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
    let body = SavepointRequest {
        to: to.to_string_lossy().into_owned(),
    };
    let saved = cluster.wait_for(client.savepoint(&job, &body))?;
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
        print_error(&format!("the savepoint waits: {job} is {is}{why}\n"));
    }
    Ok(())
}
