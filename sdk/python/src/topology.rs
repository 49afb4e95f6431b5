//! Topologies that Python describes: in the form of topology files.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use ardea::components::builtin;
use ardea::topology::Topology;
use pyo3::prelude::*;

use crate::commands::run_command;
use crate::failure::{RaisedException, raise};
use crate::run::run_job;

/// Returns the topology of a description.
fn topology_of(py: Python<'_>, description: &str) -> PyResult<Topology> {
    let topology = builtin().topology(description);
    topology.map_err(|error| raise(py, &error, None))
}

/// Runs a topology until it ends, and returns the state in which it has ended; see
/// [`run`](crate::run::run).
#[pyfunction]
pub(crate) fn run_topology(
    py: Python<'_>,
    description: &str,
    settings: Vec<String>,
    quiet: bool,
) -> PyResult<&'static str> {
    let topology = topology_of(py, description)?;
    let raised = RaisedException::default();
    run_job(py, Arc::new(topology), settings, quiet, &raised)
}

/// Runs the command `words` of a topology; see [`main`](crate::commands::main).
#[pyfunction]
pub(crate) fn main_topology(
    py: Python<'_>,
    words: Vec<OsString>,
    description: &str,
    script: PathBuf,
    name: String,
    host: Vec<OsString>,
) -> PyResult<u8> {
    let topology = topology_of(py, description)?;
    Ok(run_command(py, words, topology, (script, name), host))
}
