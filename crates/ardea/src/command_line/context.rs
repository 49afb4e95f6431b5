//! The context of a command: the options of every command, and the listener of Ctrl-C.

use std::fmt::Display;
use std::sync::Arc;

use ardea_config::{ConfigFile, Flag, Resolved};
use ardea_connectors::live_table::Screen;
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{Job, NodeConfig, allowed_cores};
use ardea_rest::ClusterSettings;
use serde_json::{Value, json};

use super::{ClusterArgs, GlobalOptions};
use crate::cluster::Modules;
use crate::console::{
    Failure, Interrupts, RunSettings, Supervisor, print, print_error, print_json,
};
use crate::job::{read_settings_over, resolver, schema};

/// The options of every command, and the counter of interrupts.
#[derive(Debug)]
pub struct Context {
    global: GlobalOptions,
    /// The modules of this program.
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
    pub fn new(global: GlobalOptions, modules: Modules) -> Result<Self, Failure> {
        let screen = Screen::of_process();
        if global.json {
            screen.to_standard_error();
        }
        if let Some(period) = global.tables_every {
            screen.print_every(period);
        }
        Ok(Context {
            interrupts: Interrupts::listen()?,
            modules,
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            progress: global.progress,
            global,
        })
    }

    /// Resolves all settings from `--set`, the environment and the configuration file, for the
    /// cluster named `cluster` if given.
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid setting, with the place where it is set.
    pub fn settings_of(&self, cluster: Option<&str>) -> Result<Resolved> {
        self.settings_with(cluster.map(cluster_flag))
    }

    /// Returns the settings of the node, with `threads` if given.
    ///
    /// # Errors
    /// As [`settings_of`](Self::settings_of), and for too many threads.
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
        let settings = RunSettings::of(&self.settings_of(None)?, node, &self.modules)?;
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

    /// Returns the settings of the cluster that the options `place` and the settings name.
    ///
    /// # Errors
    /// As [`settings_of`](Self::settings_of).
    pub fn cluster(&self, place: &ClusterArgs) -> Result<ClusterSettings> {
        Ok(self.of_cluster(place)?.1)
    }

    /// Returns all settings, and the settings of the cluster that the options `place` and the
    /// settings name.
    ///
    /// # Errors
    /// As [`settings_of`](Self::settings_of).
    pub fn of_cluster(&self, place: &ClusterArgs) -> Result<(Resolved, ClusterSettings)> {
        self.of_cluster_over(None, place)
    }

    /// Like [`of_cluster`](Self::of_cluster), with a base file that all other sources override.
    ///
    /// # Errors
    /// As [`settings_of`](Self::settings_of).
    pub fn of_cluster_over(
        &self,
        base: Option<ConfigFile>,
        place: &ClusterArgs,
    ) -> Result<(Resolved, ClusterSettings)> {
        let flags = self.flags(place.cluster.as_deref().map(cluster_flag));
        let config = self.global.config.as_deref();
        let (resolved, _, mut cluster) = read_settings_over(base, config, &flags)?;
        cluster.api = place.at.clone().or(cluster.api);
        Ok((resolved, cluster))
    }

    /// Returns `--set` and `--config` as options for another program.
    pub fn settings_options(&self) -> Vec<String> {
        let set = self.global.set.iter();
        let mut options: Vec<String> = set.map(|set| format!("--set={set}")).collect();
        let config = self.global.config.iter();
        options.extend(config.map(|path| format!("--config={}", path.display())));
        options
    }

    /// Returns the flags of `--set`, followed by `more`.
    fn flags(&self, more: Option<Flag>) -> Vec<Flag> {
        let set = self.global.set.iter().cloned().map(Flag::from);
        set.chain(more).collect()
    }

    fn settings_with(&self, more: Option<Flag>) -> Result<Resolved> {
        let schema = schema();
        let resolver = resolver(&schema, self.global.config.as_deref())?;
        resolver.flags(self.flags(more)).resolve()
    }
}

/// Returns `--cluster` as a flag.
fn cluster_flag(name: &str) -> Flag {
    Flag::of_option("--cluster", format!("cluster.name={name}"))
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
