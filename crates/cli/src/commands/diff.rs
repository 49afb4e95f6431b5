//! `ardea diff`: what becomes of each state of a job when another program goes on from it.

use std::path::Path;
use std::process::Command;

use ardea::job::{Comparison, remembered, told_states};
use ardea::recovery::{Dropping, KeptStates};
use ardea_core::{Error, ErrorCode};

use crate::args::DiffArgs;
use crate::commands::jobs;
use crate::context::Context;
use crate::failure::Failure;
use crate::reach::{Reached, is_of_a_cluster};
use crate::{stdout, topology_file};

/// Compares, and fails where something is impossible.
pub fn run(args: &DiffArgs, context: &Context) -> Result<(), Failure> {
    let old = of_old(args, context)?;
    let new = of_new(&args.new, &args.args)?;
    let dropping = Dropping::listed(context.settings_of(None)?.text("recovery.drop")?);
    let place = args.old.display().to_string();
    // A program is its job, whatever its file is called.
    let is_program = Path::new(&args.new).is_file();
    let name = if is_program { &new.job } else { &args.new };
    let found = Comparison::of((&place, &old), (name, &new), &dropping);
    match context.json {
        true => stdout::print_json(&found.to_json())?,
        false => stdout::print(&found.to_string())?,
    }
    Ok(found.check()?)
}

/// What the old one has kept: a folder has it written down, of a job of a cluster that says it.
fn of_old(args: &DiffArgs, context: &Context) -> Result<KeptStates, Failure> {
    if !is_of_a_cluster(&args.place, &args.old) {
        return Ok(KeptStates::look(&args.old)?);
    }
    let job = args.old.to_string_lossy();
    let cluster = Reached::of_job_or_folder(&args.place, &args.old, context)?;
    let told = cluster.ask(cluster.client.states(&job))?;
    Ok(told_states(told)?)
}

/// What the new one remembers: a folder has it written down, a program says it.
fn of_new(name: &str, args: &[String]) -> Result<KeptStates, Failure> {
    let path = Path::new(name);
    if path.is_dir() {
        return Ok(KeptStates::of_program(path)?);
    }
    if topology_file::is_one(path) {
        let what = format!("{name} is a topology, in which no state goes on");
        return Err(Error::new(ErrorCode::WrongState, what)
            .hint("topologies have acks instead of a guarantee; name a program that is a job, or a folder")
            .into());
    }
    if path.is_file() {
        return of_program(path, args);
    }
    let job = jobs::find(name)?;
    Ok(remembered(&(job.build)(args)?)?)
}

/// Asks a program that is a job; nothing of the job runs.
fn of_program(program: &Path, args: &[String]) -> Result<KeptStates, Failure> {
    let failed = |why: String| {
        let what = format!("{} does not say what it remembers", program.display());
        Error::new(ErrorCode::ReadFailed, what)
            .because(why)
            .hint("name a program that is a job, with the job's own arguments behind it")
    };
    let whole = program.canonicalize().unwrap_or_else(|_| program.into());
    let asked = Command::new(whole)
        .arg("states")
        .arg("--")
        .args(args)
        .output();
    let output = asked.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, told.trim())).into());
    }
    Ok(serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?)
}
