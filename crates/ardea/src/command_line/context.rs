//! The context of a command: the options of every command, and the listener of Ctrl-C.

use std::fmt::Display;
use std::sync::Arc;

use ardea_config::{Flag, Resolved};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{Job, NodeConfig, allowed_cores};
use ardea_metrics::MetricsSinks;
use serde_json::{Value, json};

use super::GlobalOptions;
#[cfg(feature = "cluster")]
use crate::cluster::Modules;
use crate::connect::live_table::Screen;
use crate::console::{
    Failure, Interrupts, RunSettings, Supervisor, print, print_error, print_json,
};
#[cfg(not(feature = "cluster"))]
use crate::console::{run_resolver as resolver, run_schema as schema};
#[cfg(feature = "cluster")]
use crate::job::{resolver, schema};

/// The options of every command, and the counter of interrupts.
#[derive(Debug)]
pub struct Context {
    pub(super) global: GlobalOptions,
    /// The modules of this program.
    #[cfg(feature = "cluster")]
    pub modules: Modules,
    /// The counter of Ctrl-C and SIGTERM.
    pub interrupts: Interrupts,
    /// True if results are printed as JSON.
    pub json: bool,
    /// True if neither progress nor a summary is printed.
    pub quiet: bool,
    /// True if a summary lists every step.
    pub verbose: bool,
    /// True if progress is printed even in a pipe.
    pub progress: bool,
}

impl Context {
    /// Starts to listen for interrupts, so that from here on an interrupt leaves no partial
    /// results.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses the thread or the handler.
    pub fn new(global: GlobalOptions) -> Result<Self, Failure> {
        let screen = Screen::of_process();
        if global.json {
            screen.to_standard_error();
        }
        if let Some(period) = global.tables_every {
            screen.print_every(period);
        }
        Ok(Context {
            interrupts: Interrupts::listen()?,
            #[cfg(feature = "cluster")]
            modules: Modules::builtin(),
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            progress: global.progress,
            global,
        })
    }

    /// Returns the settings of the node, with `threads` if given.
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid setting, with the place where it is set, and for too many
    /// threads.
    pub fn node_config(&self, threads: Option<u32>) -> Result<NodeConfig> {
        if let Some(threads) = threads {
            check_threads(threads)?;
        }
        let flag = threads.map(|it| Flag::of_option("--threads", format!("threads={it}")));
        let config = NodeConfig::from_settings(&self.settings_with(flag)?)?;
        check_threads(config.threads.get())?;
        Ok(config)
    }

    /// Runs a job in this process, with the node configuration `node`, until it ends.
    ///
    /// # Errors
    /// As [`Supervisor::run`].
    pub fn run_job(&self, job: impl Job + 'static, node: NodeConfig) -> Result<(), Failure> {
        self.run_job_with_page(job, node, None)
    }

    /// Like [`run_job`](Self::run_job), with the web page of the job at the address `ui`, if given.
    ///
    /// # Errors
    /// As [`run_job`](Self::run_job).
    pub fn run_job_with_page(
        &self,
        job: impl Job + 'static,
        node: NodeConfig,
        ui: Option<&str>,
    ) -> Result<(), Failure> {
        let flag = ui.map(|ui| Flag::of_option("--ui", format!("ui={ui}")));
        let settings = RunSettings::of(&self.settings_with(flag)?, node, &self.sinks())?;
        self.supervisor().run(Arc::new(job), settings)
    }

    /// Returns a supervisor of jobs in this process.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor {
            interrupts: self.interrupts.clone(),
            json: self.json,
            quiet: self.quiet,
            verbose: self.verbose,
            progress: self.progress,
        }
    }

    /// Prints a result: as text, or with `--json` as one line of JSON.
    ///
    /// # Errors
    /// `WriteFailed`, or [`Failure::ReaderGone`].
    pub fn print(&self, text: &impl Display, json: impl FnOnce() -> Value) -> Result<(), Failure> {
        match self.json {
            true => print_json(&json()),
            false => print(&text.to_string()),
        }
    }

    /// Like [`print`](Self::print), but prints no text with `--quiet`.
    ///
    /// # Errors
    /// As [`print`](Self::print).
    pub fn print_unless_quiet(
        &self,
        text: &impl Display,
        json: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        match self.quiet && !self.json {
            true => Ok(()),
            false => self.print(text, json),
        }
    }

    /// Prints what has become of the job, host or other object `name` of this kind: on standard
    /// error unless quiet, or with `--json` as a result.
    ///
    /// # Errors
    /// As [`print`](Self::print).
    pub fn print_outcome(&self, kind: &str, name: &str, what: &str) -> Result<(), Failure> {
        if self.json {
            return print_json(&json!({ kind: name, "outcome": what }));
        }
        if !self.quiet {
            print_error(&format!("{name} {what}\n"));
        }
        Ok(())
    }

    /// Returns the flags of `--set`, followed by `more`.
    pub(super) fn flags(&self, more: Option<Flag>) -> Vec<Flag> {
        let set = self.global.set.iter().cloned().map(Flag::from);
        set.chain(more).collect()
    }

    /// Resolves all settings from `--set`, the environment and the configuration file, with an
    /// additional flag.
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid setting, with the place where it is set.
    pub(super) fn settings_with(&self, more: Option<Flag>) -> Result<Resolved> {
        let schema = schema();
        let resolver = resolver(&schema, self.global.config.as_deref())?;
        resolver.flags(self.flags(more)).resolve()
    }

    /// Returns the metrics sinks of this program.
    fn sinks(&self) -> MetricsSinks {
        #[cfg(feature = "cluster")]
        return self.modules.sinks.clone();
        #[cfg(not(feature = "cluster"))]
        MetricsSinks::builtin()
    }
}

/// Refuses an implausible number of threads before anything is started. More threads than cores are
/// accepted: they share the cores.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] with the largest number.
pub fn check_threads(threads: u32) -> Result<()> {
    const ALWAYS_FINE: usize = 64;
    let cores = allowed_cores().len();
    let most = (4 * cores).max(ALWAYS_FINE);
    if threads as usize <= most {
        return Ok(());
    }
    let what = format!(
        "{threads} threads are too many: at most {most} make sense for the {cores} cores that this process may use"
    );
    Err(Error::new(ErrorCode::InvalidConfig, what)
        .hint("leave --threads (or the setting `threads`) out for one thread a core"))
}
