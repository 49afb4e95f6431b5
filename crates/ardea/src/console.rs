//! The console of a program that runs jobs in its own process: progress, Ctrl-C, a summary, and
//! exit codes.
//!
//! [`Supervisor::run`] runs a job from its start to its summary. `ardea run` and
//! [`ardea::main`](crate::main) both use it.
//!
//! * `supervise` runs a job without a guarantee, `checkpointed_run` one with a guarantee;
//! * `interrupts` counts Ctrl-C and SIGTERM, `keyboard` reads keys below live tables;
//! * `progress` and `status_line` show the line of a running job, from `graph_view` and `rates`;
//! * `config_sources` reads settings, `settings_check` validates them, `run_settings` holds those
//!   of a run;
//! * `measuring` sends metrics to sinks, `page` serves the web page; `dead_letters` opens the file
//!   or topic of dead letters;
//! * `summary` describes the job at its end, `failure` and `error_report` its errors and exit code;
//! * `format_number` formats numbers, `columns` tables; `stdout` prints results, `words` reads
//!   arguments.
//!
//! # Invariants
//!
//! * Standard output carries results and JSON only; everything else goes to standard error.
//! * A closed reader of standard output (`… | head`) is a normal end.

mod checkpointed_run;
pub mod columns;
pub(crate) mod config_sources;
pub(crate) mod dead_letters;
mod error_report;
mod failure;
pub mod format_number;
mod graph_view;
mod interrupts;
mod keyboard;
mod measuring;
#[cfg(feature = "cluster")]
mod page;
mod progress;
mod rates;
mod run_settings;
mod settings_check;
mod status_line;
mod stdout;
mod summary;
mod supervise;
mod words;

use std::sync::Arc;

use ardea_engine::Job;

use crate::connect::live_table::Screen;

pub use config_sources::{run_resolver, run_schema};
pub use error_report::{error_json, error_text, exit_code};
pub use failure::{Failure, MessageKind, print_error, print_notice};
pub use interrupts::{InterruptGuard, Interrupts};
pub use keyboard::Keyboard;
pub use run_settings::RunSettings;
#[cfg(feature = "cluster")]
pub(crate) use settings_check::{OTLP, SINKS, checked, refused};
pub use status_line::{GAP, LineDisplay, StatusLine, can_redraw, terminal_columns};
pub use stdout::{print, print_json};
pub use words::words;

/// A runner of jobs in this process, with its reporting options.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// The counter of Ctrl-C and SIGTERM.
    pub interrupts: Interrupts,
    /// True if the summary is a JSON object on standard output and notices are JSON objects on
    /// standard error.
    pub json: bool,
    /// True if neither progress nor a summary is shown.
    pub quiet: bool,
    /// True if the summary lists every step.
    pub verbose: bool,
    /// True if progress is shown even if standard error is no terminal.
    pub progress: bool,
}

impl Supervisor {
    /// Runs a job until it ends. If the settings name a guarantee, the job is restarted after
    /// failures.
    ///
    /// # Errors
    /// * The job's own failure.
    /// * [`Failure::Drained`] after a first Ctrl-C before the end of the input: drained, or, with a
    ///   guarantee, stopped with a checkpoint.
    /// * [`Failure::NothingGood`] if all records of a job that came to its own end were bad.
    /// * [`Failure::StopTimedOut`] after a first Ctrl-C, if the last checkpoint could not be made
    ///   in time.
    /// * [`Failure::Interrupted`] after a second Ctrl-C.
    /// * [`Failure::ReaderGone`] if the reader of standard output has closed it.
    pub fn run(&self, job: Arc<dyn Job>, settings: RunSettings) -> Result<(), Failure> {
        if self.json {
            Screen::of_process().to_standard_error();
        }
        for warning in &settings.warnings {
            print_notice(MessageKind::Warning, warning, self.json);
        }
        match settings.survival.clone() {
            Some(survival) => checkpointed_run::run(job, settings, survival, self),
            None => supervise::run(&*job, settings, self),
        }
    }
}
