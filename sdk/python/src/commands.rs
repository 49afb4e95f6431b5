//! The command line of a job, and its processes on a cluster.

use std::ffi::OsString;
use std::path::PathBuf;

use ardea::cluster::{HOST_START_VARIABLE, Modules, set_host_command};
use ardea::command_line::{self, ProgramFile};
use ardea_engine::Job;
use pyo3::prelude::*;

use crate::failure::{RaisedException, raise};
use crate::lowering::compile;
use crate::plan::Plan;

/// Runs the command `words` of a job, or its worker in a container of a cluster. Returns the exit
/// code.
///
/// `script` is the file that a container runs as the job's program, and `name` its name there.
/// `host` is the command line of hosts.
#[pyfunction]
pub(crate) fn main(
    py: Python<'_>,
    words: Vec<OsString>,
    plan: &str,
    objects: Vec<Py<PyAny>>,
    script: PathBuf,
    name: String,
    host: Vec<OsString>,
) -> PyResult<u8> {
    let compiled = Plan::parse(plan).and_then(|plan| {
        compile(
            py,
            plan,
            objects,
            RaisedException::new(is_process_of_cluster()),
        )
    });
    let pipeline = compiled.map_err(|error| raise(py, &error, None))?.pipeline;
    Ok(run_command(py, words, pipeline, (script, name), host))
}

/// Runs a command of a job, as [`main`] does. `program` is the file and its name in a container.
pub(crate) fn run_command<J: Job + Clone + 'static>(
    py: Python<'_>,
    words: Vec<OsString>,
    job: J,
    program: (PathBuf, String),
    host: Vec<OsString>,
) -> u8 {
    set_host_command(host);
    let (path, name) = program;
    let file = ProgramFile::Script { path, name };
    let describe = move |_: &[String]| Ok(job.clone());
    py.detach(move || command_line::main_of(&file, words, Modules::builtin(), describe))
}

/// Runs this process as a host of a cluster, with the command line of further hosts. Returns the
/// exit code.
#[pyfunction]
pub(crate) fn host(py: Python<'_>, host: Vec<OsString>) -> u8 {
    set_host_command(host);
    py.detach(|| {
        let modules = Modules::builtin();
        let outcome = command_line::run_as_process_of_cluster(&modules, |_| Ok(()));
        command_line::exit_code(outcome.unwrap_or(Ok(())), false)
    })
}

/// Returns true if this process was started as a host or container of a cluster.
#[pyfunction]
pub(crate) fn is_process_of_cluster() -> bool {
    let is_worker = !matches!(ardea::job::as_worker(), Ok(None));
    is_worker || std::env::var_os(HOST_START_VARIABLE).is_some()
}

/// Returns the job's own arguments in a command line.
#[pyfunction]
pub(crate) fn job_arguments(py: Python<'_>, words: Vec<OsString>) -> PyResult<Vec<String>> {
    command_line::job_arguments(words).map_err(|error| raise(py, &error, None))
}
