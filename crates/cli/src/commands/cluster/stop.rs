//! `ardea cluster stop`: stops the hosts of a cluster on this machine.

use ardea::cluster::{Launcher, RunningHost};
use ardea::command_line::Context;
use ardea::command_line::OfflineCluster;
use ardea::command_line::{ClusterArgs, ClusterConnection};
use ardea::console::{Failure, print_error};
use ardea_config::nearest;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{ClusterSettings, JobSummary};
use serde_json::json;

use super::hosts_json;
use crate::args::ClusterStopArgs;
use crate::stdout;

/// Stops the hosts, and waits until they are gone.
pub fn run(args: &ClusterStopArgs, context: &Context) -> Result<(), Failure> {
    let mut place = ClusterArgs {
        cluster: args.cluster.clone(),
        at: None,
    };
    let cluster = context.cluster(&place)?;
    let launcher = Launcher::of(cluster.clone());
    // Without a given name there is no misspelling to report.
    if cluster.is_named && launcher.running().is_empty() && !cluster.directory.exists() {
        return Err(unknown(&cluster));
    }
    if let Some(host) = launcher.running().first() {
        place.at = Some(host.api.clone());
        let reached = ClusterConnection::of(&place, context);
        if args.kill_jobs {
            kill_jobs(reached.as_ref().map_err(Clone::clone)?)?;
        } else if let Ok(reached) = &reached {
            warn_of_jobs(reached, context);
        }
    } else {
        without_host(args, &place, context)?;
    }
    print_outcome(&cluster.name, &launcher.stop()?, context)
}

/// Returns the error for a cluster that has never been on this machine.
fn unknown(cluster: &ClusterSettings) -> Failure {
    let above = cluster.directory.parent();
    let entries = above.and_then(|above| std::fs::read_dir(above).ok());
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    let what = format!("there is no cluster {:?} on this machine", cluster.name);
    let hint = match nearest(&cluster.name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("it has no folder in {}", cluster.directory.display()),
    };
    Error::new(ErrorCode::WrongCluster, what).hint(hint).into()
}

fn kill_jobs(cluster: &ClusterConnection) -> Result<(), Failure> {
    for job in cluster.wait_for(cluster.client.list())? {
        let killed = cluster.client.kill_submission(&job.name, &job.submission);
        match cluster.wait_for(killed) {
            // The job has ended by itself.
            Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => {}
            killed => killed?,
        }
    }
    cluster.wait_until("the end of all jobs", || {
        Ok(cluster.wait_for(cluster.client.list())?.is_empty())
    })
}

/// Handles the case that no host is up on this machine: requests a host of another machine to kill
/// the jobs, or prints the jobs that remain.
///
/// # Errors
/// If the jobs should be killed, but no host can be reached.
fn without_host(
    args: &ClusterStopArgs,
    place: &ClusterArgs,
    context: &Context,
) -> Result<(), Failure> {
    let failure = match ClusterConnection::of(place, context) {
        Ok(reached) if args.kill_jobs => return kill_jobs(&reached),
        // Other hosts manage the jobs.
        Ok(_) => return Ok(()),
        Err(failure) => failure,
    };
    let is_up_nowhere =
        matches!(&failure, Failure::Error(error) if error.code() == ErrorCode::Network);
    let jobs = match OfflineCluster::after_failure(place, context, failure) {
        Ok(remembered) => remembered.wait_for(remembered.cluster.list()),
        // There are no records of the cluster.
        Err(_) if is_up_nowhere => Ok(Vec::new()),
        Err(failure) => Err(failure),
    };
    match jobs {
        Ok(jobs) if args.kill_jobs && !jobs.is_empty() => {
            let what = format!(
                "no host is up to kill jobs, and these keep running: {}",
                names(&jobs)
            );
            let next = "run `ardea cluster start`, then `ardea cluster stop --kill-jobs`";
            Err(Error::new(ErrorCode::Network, what).hint(next).into())
        }
        Ok(jobs) => {
            print_running_jobs(&jobs, context);
            Ok(())
        }
        Err(failure) if args.kill_jobs => Err(failure),
        // No job was to be killed.
        Err(_) => Ok(()),
    }
}

/// Prints a notice about jobs that keep running without a host here.
fn warn_of_jobs(cluster: &ClusterConnection, context: &Context) {
    let jobs = cluster.wait_for(cluster.client.list()).unwrap_or_default();
    print_running_jobs(&jobs, context);
}

fn names(jobs: &[JobSummary]) -> String {
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    names.join(", ")
}

fn print_running_jobs(jobs: &[JobSummary], context: &Context) {
    if jobs.is_empty() || context.quiet || context.json {
        return;
    }
    print_error(&format!(
        "these jobs keep running, without a host on this machine until the cluster is started again: {}\n",
        names(jobs)
    ));
}

fn print_outcome(cluster: &str, stopped: &[RunningHost], context: &Context) -> Result<(), Failure> {
    if context.json {
        let hosts = hosts_json(stopped);
        return stdout::print_json(&json!({ "cluster": cluster, "stopped": hosts }));
    }
    let what = match stopped.is_empty() {
        false => "is stopped on this machine",
        true => "is not up on this machine",
    };
    if !context.quiet {
        print_error(&format!("cluster {cluster} {what}\n"));
    }
    Ok(())
}
