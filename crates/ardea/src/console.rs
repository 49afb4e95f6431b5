//! The console of a program that runs jobs in its own process: progress, Ctrl-C, a summary, and
//! exit codes.
//!
//! [`Supervisor::run`] runs a job from its start to its summary. `ardea run` and
//! [`ardea::main`](crate::main) are both made of it.
//!
//! * `supervise` follows a job without a guarantee, `surviving` one with a guarantee;
//! * `interrupts` counts Ctrl-C and SIGTERM, `keyboard` reads keys below live tables;
//! * `progress` and `status_line` show the line of a running job; `shape` and `rates` are what it
//!   reads;
//! * `run_settings` is what settings say of a run; `measuring` tells metrics to sinks;
//! * `summary` describes the job at its end, `failure` its exit code;
//! * `figures` formats numbers, `columns` tables, `stdout` prints results.
//!
//! # Invariants
//!
//! * Standard output carries results and JSON only; everything else goes to standard error.
//! * A closed reader of standard output (`… | head`) is a normal end.

pub mod columns;
mod failure;
pub mod figures;
mod interrupts;
mod keyboard;
mod measuring;
mod progress;
mod rates;
mod run_settings;
mod shape;
mod status_line;
mod stdout;
mod summary;
mod supervise;
mod surviving;

use std::sync::Arc;

use ardea_connectors::live_table::Screen;
use ardea_engine::Job;

pub use crate::job::words::words;
pub use failure::{Failure, Notice, print_error, print_notice};
pub use interrupts::{Interrupts, Passing};
pub use keyboard::Keyboard;
pub use run_settings::RunSettings;
pub use status_line::{GAP, Showing, StatusLine, can_redraw, terminal_columns};
pub use stdout::{print, print_json};

/// Runs jobs in this process, and reports on them.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// Ctrl-C and SIGTERM.
    pub interrupts: Interrupts,
    /// The summary is a JSON object on standard output, notices are JSON objects on standard error.
    pub json: bool,
    /// Neither progress nor a summary is shown.
    pub quiet: bool,
    /// The summary lists every step.
    pub verbose: bool,
    /// Progress is shown even if standard error is no terminal.
    pub progress: bool,
}

impl Supervisor {
    /// Listens for interrupts, and reports nothing but a summary.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses the thread or the handler.
    pub fn listen() -> Result<Self, Failure> {
        Ok(Supervisor {
            interrupts: Interrupts::listen()?,
            json: false,
            quiet: false,
            verbose: false,
            progress: false,
        })
    }

    /// Runs a job until it ends, one way or the other. If the settings name a guarantee it is
    /// restarted after failures.
    ///
    /// # Errors
    /// * The job's own failure.
    /// * [`Failure::Drained`] after a first Ctrl-C that came before the end: drained, or, with a
    ///   guarantee, stopped with a snapshot.
    /// * [`Failure::NothingGood`] if all records of a job that came to its own end were bad.
    /// * [`Failure::StopTimedOut`] after a first Ctrl-C, if the last snapshot could not be made in
    ///   time.
    /// * [`Failure::Interrupted`] after a second Ctrl-C.
    /// * [`Failure::ReaderGone`] if the reader of standard output has closed it.
    pub fn run(&self, job: Arc<dyn Job>, settings: RunSettings) -> Result<(), Failure> {
        if self.json {
            Screen::of_process().to_standard_error();
        }
        for warning in &settings.warnings {
            print_notice(Notice::Warning, warning, self.json);
        }
        match settings.survival.clone() {
            Some(survival) => surviving::run(job, settings, survival, self),
            None => supervise::run(&*job, settings, self),
        }
    }
}
