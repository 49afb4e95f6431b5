//! `ardea plan` for clusters: the plan of a job on a cluster, or the packing plan that a job would
//! have.

use std::path::Path;

use ardea::command_line::{self, ClusterConnection, Context};
use ardea::console::Failure;
use ardea_core::{Error, ErrorCode};
use serde_json::json;

use crate::args::{PlanArgs, PythonArgs};
use crate::commands::python_job;
use crate::commands::submit::{become_program, builtin_job, shared_options};

/// Prints the plans of a job of a cluster. Refuses job arguments and `--threads`, which a submitted
/// job already has.
pub fn running(
    job: &str,
    rest: &[String],
    args: &PlanArgs,
    context: &Context,
) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.place, job, context)?;
    let plans = cluster.wait_for(cluster.client.plans(job))?;
    without_arguments(job, rest)?;
    without_threads(args)?;
    context.print(&plans, || json!(plans))
}

/// Prints the measured traffic of a job of a cluster.
pub fn traffic(
    job: &str,
    rest: &[String],
    args: &PlanArgs,
    context: &Context,
) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.place, job, context)?;
    let traffic = cluster.wait_for(cluster.client.traffic(job))?;
    without_arguments(job, rest)?;
    without_threads(args)?;
    context.print(&traffic, || json!(traffic))
}

/// Refuses arguments of a job of a cluster.
fn without_arguments(job: &str, rest: &[String]) -> Result<(), Failure> {
    match rest.first() {
        None => Ok(()),
        Some(first) => Err(Failure::usage(
            format!(
                "{job:?} is a job of a cluster, which already has its arguments: {first:?} is not accepted"
            ),
            format!("`ardea plan {job}` shows how it runs"),
        )),
    }
}

/// Refuses `--threads`, which applies only to jobs that run in one process.
fn without_threads(args: &PlanArgs) -> Result<(), Failure> {
    match args.job.threads {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "--threads is for jobs that run in one process, and this plan is for a cluster",
            "leave it out: the job sets the number of instances",
        )),
    }
}

/// Prints the plans of a job of a cluster; fails with `unknown` if no cluster is up, or if the job
/// is not known there.
pub fn running_or(
    job: &str,
    rest: &[String],
    unknown: Failure,
    args: &PlanArgs,
    context: &Context,
) -> Result<(), Failure> {
    match running(job, rest, args, context) {
        Err(Failure::Error(error)) if !tells_more(&error) => Err(unknown),
        told => told,
    }
}

/// Returns true if a cluster's error has more information than that there is no such job or
/// cluster.
fn tells_more(error: &Error) -> bool {
    match error.code() {
        ErrorCode::Network => false,
        ErrorCode::NoSuchJob => {
            // The hint has a similar name, or reports that the job has ended; otherwise it only
            // refers to the list.
            let hint = error.hint_text();
            hint.is_some_and(|hint| !hint.starts_with("`ardea list"))
        }
        _ => true,
    }
}

/// Prints the packing plan that a topology in a file, a job that comes with ardea, or a job program
/// would have.
pub fn packed(
    file: &Path,
    rest: &[String],
    args: &PlanArgs,
    context: &Context,
) -> Result<(), Failure> {
    without_threads(args)?;
    if args.place.at.is_some() {
        return Err(Failure::usage(
            "--at names the interface of a cluster, but packing a job contacts none",
            "leave it out; --cluster NAME packs it with the settings of that cluster",
        ));
    }
    let Some(own) = builtin_job(file, rest)? else {
        let options = shared_options(&args.place, context);
        return Err(match python_job::is_one(file) {
            true => {
                let python = PythonArgs::default();
                python_job::become_interpreter(file, &python, "plan", &options, rest)
            }
            false => become_program(file, "plan", &options, rest),
        });
    };
    command_line::plan(&own, &args.place, context)
}
