//! `ardea cluster stop`: ends the hosts of a cluster on this machine.

use ardea::cluster::{Launcher, Started};
use ardea_config::nearest;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{ClusterSettings, JobSummary};
use serde_json::json;

use super::hosts_json;
use crate::args::{ClusterStopArgs, Where};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::Reached;
use crate::stdout;
use crate::unattended::Remembered;

/// Tells the hosts to end, and waits until they have.
pub fn run(args: &ClusterStopArgs, context: &Context) -> Result<(), Failure> {
    let mut place = Where {
        cluster: args.cluster.clone(),
        at: None,
    };
    let cluster = context.cluster(&place)?;
    let launcher = Launcher::of(cluster.clone());
    // Whoever names none has misspelt none.
    if cluster.is_named && launcher.running().is_empty() && !cluster.directory.exists() {
        return Err(unknown(&cluster));
    }
    if let Some(host) = launcher.running().first() {
        place.at = Some(host.api.clone());
        let reached = Reached::of(&place, context);
        if args.kill_jobs {
            kill_jobs(reached.as_ref().map_err(Clone::clone)?)?;
        } else if let Ok(reached) = &reached {
            warn_of_jobs(reached, context);
        }
    } else {
        without_host(args, &place, context)?;
    }
    tell(&cluster.name, &launcher.stop()?, context)
}

/// Nothing of a cluster of that name has ever been on this machine.
fn unknown(cluster: &ClusterSettings) -> Failure {
    let above = cluster.directory.parent();
    let entries = above.and_then(|above| std::fs::read_dir(above).ok());
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    let what = format!("there is no cluster {:?} on this machine", cluster.name);
    let hint = match nearest(&cluster.name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!(
            "nothing was ever kept of it in {}",
            cluster.directory.display()
        ),
    };
    Error::new(ErrorCode::WrongCluster, what).hint(hint).into()
}

fn kill_jobs(cluster: &Reached) -> Result<(), Failure> {
    for job in cluster.ask(cluster.client.list())? {
        let killed = cluster.client.kill_submission(&job.name, &job.submission);
        match cluster.ask(killed) {
            // It has come to its end by itself.
            Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => {}
            killed => killed?,
        }
    }
    cluster.wait_until("the end of all jobs", || {
        Ok(cluster.ask(cluster.client.list())?.is_empty())
    })
}

/// Where no host is up on this machine: a host of another one kills the jobs, or they are said to go on.
///
/// # Errors
/// If jobs are to be killed, and there are some that nobody can be told to kill.
fn without_host(args: &ClusterStopArgs, place: &Where, context: &Context) -> Result<(), Failure> {
    let failure = match Reached::of(place, context) {
        Ok(reached) if args.kill_jobs => return kill_jobs(&reached),
        // Others watch them.
        Ok(_) => return Ok(()),
        Err(failure) => failure,
    };
    let is_up_nowhere =
        matches!(&failure, Failure::Error(error) if error.code() == ErrorCode::Network);
    let jobs = match Remembered::instead(place, context, failure) {
        Ok(remembered) => remembered.ask(remembered.cluster.list()),
        // Nothing is kept of it.
        Err(_) if is_up_nowhere => Ok(Vec::new()),
        Err(failure) => Err(failure),
    };
    match jobs {
        Ok(jobs) if args.kill_jobs && !jobs.is_empty() => {
            let what = format!(
                "no host is up that could kill jobs, and these go on: {}",
                names(&jobs)
            );
            let next = "`ardea cluster start`, and then `ardea cluster stop --kill-jobs`";
            Err(Error::new(ErrorCode::Network, what).hint(next).into())
        }
        Ok(jobs) => {
            say_that_they_go_on(&jobs, context);
            Ok(())
        }
        Err(failure) if args.kill_jobs => Err(failure),
        // Nothing was to be killed.
        Err(_) => Ok(()),
    }
}

/// Jobs that go on without a host are worth a word.
fn warn_of_jobs(cluster: &Reached, context: &Context) {
    let jobs = cluster.ask(cluster.client.list()).unwrap_or_default();
    say_that_they_go_on(&jobs, context);
}

fn names(jobs: &[JobSummary]) -> String {
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    names.join(", ")
}

fn say_that_they_go_on(jobs: &[JobSummary], context: &Context) {
    if jobs.is_empty() || context.quiet || context.json {
        return;
    }
    print_error(&format!(
        "these jobs go on, and nobody watches them on this machine until it is started again: {}\n",
        names(jobs)
    ));
}

fn tell(cluster: &str, stopped: &[Started], context: &Context) -> Result<(), Failure> {
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
