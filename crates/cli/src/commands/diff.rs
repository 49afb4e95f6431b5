//! `ardea diff`: checks whether another program can restore each state of a job.

use std::path::Path;
use std::process::Command;

use ardea::command_line::{Context, compare, stored_states};
use ardea::console::Failure;
use ardea::job::program_states;
use ardea::recovery::SavedStateSchema;
use ardea_core::{Error, ErrorCode};

use crate::args::DiffArgs;
use crate::commands::examples;
use crate::topology_file;

/// Prints the comparison; fails if a state can't be restored.
pub fn run(args: &DiffArgs, context: &Context) -> Result<(), Failure> {
    let old = stored_states(&args.old, &args.place, context)?;
    let new = new_states(&args.new, &args.args)?;
    // The output names a program by its job, and not by its file name.
    let is_program = Path::new(&args.new).is_file();
    let name = if is_program { &new.job } else { &args.new };
    compare((&args.old, &old), (name, &new), context)
}

/// Returns the states of the new job, from a folder or from a program.
fn new_states(name: &str, args: &[String]) -> Result<SavedStateSchema, Failure> {
    let path = Path::new(name);
    if path.is_dir() {
        return Ok(SavedStateSchema::of_program(path)?);
    }
    if topology_file::is_one(path) {
        let what = format!("{name} is a topology file, whose states cannot be compared");
        return Err(Error::new(ErrorCode::WrongState, what)
            .hint("name a job program, or a folder")
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
