//! `ardea diff`: checks whether another program can restore each state of a job.

use std::path::Path;
use std::process::Command;

use ardea::job::{Comparison, parse_states, program_states};
use ardea::recovery::{AllowedDrops, SavedStateSchema};
use ardea_core::{Error, ErrorCode};

use crate::args::DiffArgs;
use crate::cluster_connection::{ClusterConnection, is_of_a_cluster};
use crate::commands::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::{stdout, topology_file};

/// Prints the comparison; fails if a state can't be restored.
pub fn run(args: &DiffArgs, context: &Context) -> Result<(), Failure> {
    let old = old_states(args, context)?;
    let new = new_states(&args.new, &args.args)?;
    let dropping = AllowedDrops::listed(context.settings_of(None)?.text("recovery.drop")?);
    let place = args.old.display().to_string();
    // The output names a program by its job, and not by its file name.
    let is_program = Path::new(&args.new).is_file();
    let name = if is_program { &new.job } else { &args.new };
    let found = Comparison::of((&place, &old), (name, &new), &dropping);
    match context.json {
        true => stdout::print_json(&found.to_json())?,
        false => stdout::print(&found.to_string())?,
    }
    Ok(found.check()?)
}

/// Returns the stored states of the old job, from its folder or from its cluster.
fn old_states(args: &DiffArgs, context: &Context) -> Result<SavedStateSchema, Failure> {
    if !is_of_a_cluster(&args.place, &args.old) {
        return Ok(SavedStateSchema::look(&args.old)?);
    }
    let job = args.old.to_string_lossy();
    let cluster = ClusterConnection::of_job_or_folder(&args.place, &args.old, context)?;
    let told = cluster.wait_for(cluster.client.states(&job))?;
    Ok(parse_states(told)?)
}

/// Returns the states of the new job, from a folder or from a program.
fn new_states(name: &str, args: &[String]) -> Result<SavedStateSchema, Failure> {
    let path = Path::new(name);
    if path.is_dir() {
        return Ok(SavedStateSchema::of_program(path)?);
    }
    if topology_file::is_one(path) {
        let what = format!("{name} is a topology, which has no state to restore");
        return Err(Error::new(ErrorCode::WrongState, what)
            .hint("topologies have acks instead of a guarantee; name a job program, or a folder")
            .into());
    }
    if path.is_file() {
        return states_of_program(path, args);
    }
    let job = examples::find(name)?;
    Ok(program_states(&(job.build)(args)?)?)
}

/// Runs a job program that prints its state schema; the job itself does not run.
fn states_of_program(program: &Path, args: &[String]) -> Result<SavedStateSchema, Failure> {
    let failed = |why: String| {
        let what = format!("{} does not print its state schema", program.display());
        Error::new(ErrorCode::ReadFailed, what)
            .because(why)
            .hint("name a job program, followed by the job's own arguments")
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
