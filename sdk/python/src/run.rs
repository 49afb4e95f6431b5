//! A run of a job in this process.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ardea::console::{Failure, Interrupts, RunSettings, Supervisor, run_resolver, run_schema};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{Job, NodeConfig};
use ardea_metrics::MetricsSinks;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::failure::{RaisedException, raise};
use crate::lowering::compile;
use crate::plan::Plan;

/// The interval at which signals of Python are handled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

type Ended = std::result::Result<(), Failure>;

/// The results of a run: the state in which it has ended, and the collected batches.
type RunResult = (&'static str, Vec<Vec<PyRecordBatch>>);

/// Runs the job of a plan until it ends.
///
/// The first Ctrl-C drains it, the second one stops it at once.
#[pyfunction]
pub(crate) fn run(
    py: Python<'_>,
    plan: &str,
    objects: Vec<Py<PyAny>>,
    settings: Vec<String>,
    quiet: bool,
) -> PyResult<RunResult> {
    let compiled =
        Plan::parse(plan).and_then(|plan| compile(py, plan, objects, RaisedException::default()));
    let compiled = compiled.map_err(|error| raise(py, &error, None))?;
    let job: Arc<dyn Job> = Arc::new(compiled.pipeline);
    let state = run_job(py, job, settings, quiet, &compiled.raised)?;
    let collected = compiled.collected.into_iter();
    let collected = collected.map(|batches| batches.take().into_iter().map(PyRecordBatch::new));
    Ok((state, collected.map(Iterator::collect).collect()))
}

/// Runs a job until it ends, and returns the state in which it has ended.
pub(crate) fn run_job(
    py: Python<'_>,
    job: Arc<dyn Job>,
    settings: Vec<String>,
    quiet: bool,
    raised: &RaisedException,
) -> PyResult<&'static str> {
    let settings = run_settings(settings).map_err(|error| raise(py, &error, None))?;
    let interrupts = Interrupts::manual();
    let supervisor = Supervisor {
        interrupts: interrupts.clone(),
        json: false,
        quiet,
        verbose: false,
        progress: false,
    };
    let mut ended = spawn(job, settings, supervisor).map_err(|error| raise(py, &error, None))?;
    let (ended, signal) = wait(py, &mut ended, &interrupts);
    match signal {
        Some(signal) => Err(signal),
        None => state_of(py, ended, raised),
    }
}

/// Reads the settings of a run from `KEY=VALUE`, the environment and the configuration files.
fn run_settings(flags: Vec<String>) -> Result<RunSettings> {
    let schema = run_schema();
    let resolved = run_resolver(&schema, None)?.flags(flags).resolve()?;
    let node = NodeConfig::from_settings(&resolved)?;
    RunSettings::of(&resolved, node, &MetricsSinks::builtin())
}

/// Starts the job on a thread of its own.
fn spawn(
    job: Arc<dyn Job>,
    settings: RunSettings,
    supervisor: Supervisor,
) -> Result<Receiver<Ended>> {
    let (sender, receiver) = channel();
    let spawned = thread::Builder::new()
        .name("ardea-run".into())
        .spawn(move || {
            // The receiver waits for it.
            let _ = sender.send(supervisor.run(job, settings));
        });
    spawned.map(|_| receiver).map_err(|error| {
        Error::new(
            ErrorCode::LimitReached,
            "cannot start the thread that runs the job",
        )
        .because(error)
        .hint("raise the limit of threads (ulimit -u)")
    })
}

/// Waits for the end of the job. Returns the exception of a signal handler other than that of
/// Ctrl-C.
fn wait(
    py: Python<'_>,
    ended: &mut Receiver<Ended>,
    interrupts: &Interrupts,
) -> (Ended, Option<PyErr>) {
    let mut raised = None;
    loop {
        let receiver = &mut *ended;
        match py.detach(move || receiver.recv_timeout(POLL_INTERVAL)) {
            Ok(ended) => {
                // Ctrl-C came too late to change the end.
                let late = py.check_signals().err();
                let late = late.filter(|it| !it.is_instance_of::<PyKeyboardInterrupt>(py));
                return (ended, raised.or(late));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let error = Error::new(ErrorCode::Internal, "the thread of the job is gone")
                    .hint("please report this");
                return (Err(Failure::Error(error)), raised);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(signal) = py.check_signals() {
            interrupts.interrupt();
            if !signal.is_instance_of::<PyKeyboardInterrupt>(py) {
                interrupts.interrupt();
                raised = Some(signal);
            }
        }
    }
}

/// Returns the state in which a run has ended, or the exception of its failure.
fn state_of(py: Python<'_>, ended: Ended, raised: &RaisedException) -> PyResult<&'static str> {
    match ended {
        Ok(()) | Err(Failure::ReaderGone) => Ok("completed"),
        Err(Failure::Drained) => Ok("drained"),
        Err(Failure::StopTimedOut) => Ok("stopped"),
        Err(Failure::Interrupted) => Err(PyKeyboardInterrupt::new_err(())),
        Err(Failure::NothingGood(error)) => Err(raise(py, &error, None)),
        Err(Failure::Error(error)) => {
            let is_of_function = matches!(
                error.code(),
                ErrorCode::UserError | ErrorCode::RestartLimitReached
            );
            let cause = raised.take().filter(|_| is_of_function);
            Err(raise(py, &error, cause))
        }
    }
}
