//! The extension module of the Python package `ardea`.
//!
//! Python describes a job as a `plan`: steps as plain data, beside the functions that they call.
//! This crate compiles the plan to a pipeline of columns, and runs it with the ordinary engine.
//!
//! In reading order:
//!
//! * `plan`: the form of plans;
//! * `lowering`: the pipeline of a plan; `connectors`: its sources and sinks of other systems;
//! * `function`: the interface of steps that call functions; `python_function`: functions in
//!   the interpreter of this process; `process_function`, `keyed_process`: in processes of their
//!   own, with `user_metrics`; `function_step`, `keyed_step`: their processors;
//! * `row_reader`, `row_writer`: records as objects of Python, and back;
//! * `topology`: topologies of spouts and bolts;
//! * `run`: a run in this process; `commands`: the command line of a job, and its processes on
//!   a cluster; `failure`: errors as exceptions.
//!
//! # Invariants
//!
//! * Expressions, windows and files never need the interpreter.
//! * A step acquires the interpreter once per batch.
//! * An exception of a function reaches the caller of `run` with its traceback.
#![forbid(unsafe_code)]

mod commands;
mod connectors;
mod failure;
mod function;
mod function_step;
mod keyed_process;
mod keyed_step;
mod lowering;
mod plan;
mod process_function;
mod python_function;
mod row_reader;
mod row_writer;
mod run;
mod topology;
mod user_metrics;

use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3_arrow::PyRecordBatch;

use failure::raise;
use row_reader::RowReader;

/// Returns the records of a batch: dictionaries, or the bytes of objects.
#[pyfunction]
fn rows_of<'py>(py: Python<'py>, batch: &PyRecordBatch) -> PyResult<Bound<'py, PyList>> {
    let batch = batch.as_ref();
    let reader = RowReader::new(batch.schema_ref()).map_err(|error| raise(py, &error, None))?;
    reader.read(py, batch)
}

/// The extension module.
#[pymodule]
mod _ardea {
    use pyo3::prelude::*;

    #[pymodule_export]
    use pyo3_arrow::PyRecordBatch;

    #[pymodule_export]
    use super::commands::{host, is_process_of_cluster, job_arguments, main};

    #[pymodule_export]
    use super::connectors::built_with;

    #[pymodule_export]
    use super::process_function::serve_function;

    #[pymodule_export]
    use super::rows_of;

    #[pymodule_export]
    use super::run::run;

    #[pymodule_export]
    use super::topology::{main_topology, run_topology};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
