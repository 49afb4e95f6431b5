//! `ardea plan` for clusters: how a job of one runs, and how one would be packed.

use std::path::Path;

use ardea_core::{Error, ErrorCode};
use ardea_rest::Plans;
use serde_json::json;

use crate::args::PlanArgs;
use crate::commands::submit::{Own, become_program, shared_options};
use crate::context::Context;
use crate::failure::Failure;
use crate::reach::Reached;
use crate::stdout;

/// Prints the plans of a job of a cluster, which has its arguments and threads already.
pub fn running(
    job: &str,
    rest: &[String],
    args: &PlanArgs,
    context: &Context,
) -> Result<(), Failure> {
    let cluster = Reached::of_job(&args.place, job, context)?;
    let plans = cluster.ask(cluster.client.plans(job))?;
    if let Some(first) = rest.first() {
        return Err(Failure::usage(
            format!(
                "{job:?} is a cluster's job, which has its arguments: none such as {first:?} is taken"
            ),
            format!("`ardea plan {job}` shows how it runs"),
        ));
    }
    without_threads(args)?;
    print(&plans, context)
}

/// Refuses a number of threads, which counts where a job runs in one process.
fn without_threads(args: &PlanArgs) -> Result<(), Failure> {
    match args.job.threads {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "--threads is of jobs that run in one process, and this plan is that of a cluster",
            "leave it out: how many instances there are is said by the job",
        )),
    }
}

/// Prints the plans of a job of a cluster; what `unknown` says if no cluster is up, or none that knows it better.
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

/// Whether a cluster's error says more than that there is no such job or no such cluster.
fn tells_more(error: &Error) -> bool {
    match error.code() {
        ErrorCode::Network => false,
        ErrorCode::NoSuchJob => {
            // It has one of a similar name, or had this one; else all that it says is where its jobs are listed.
            let hint = error.what_next();
            hint.is_some_and(|hint| !hint.starts_with("`ardea list"))
        }
        _ => true,
    }
}

/// Prints how a topology in a file, a job that comes with ardea, or a program that is a job would be packed.
pub fn packed(
    file: &Path,
    rest: &[String],
    args: &PlanArgs,
    context: &Context,
) -> Result<(), Failure> {
    without_threads(args)?;
    if args.place.at.is_some() {
        return Err(Failure::usage(
            "--at names the interface of a cluster, and none is asked how something would be packed",
            "leave it out; --cluster NAME packs it with the settings of that cluster",
        ));
    }
    let Some(own) = Own::find(file, rest)? else {
        let options = shared_options(&args.place, context);
        return Err(become_program(file, "plan", &options, rest));
    };
    let prepared = own.prepared(&None, &[], &args.place, context)?;
    print(&prepared.plans(), context)
}

fn print(plans: &Plans, context: &Context) -> Result<(), Failure> {
    match context.json {
        true => stdout::print_json(&json!(plans)),
        false => stdout::print(&plans.to_string()),
    }
}
