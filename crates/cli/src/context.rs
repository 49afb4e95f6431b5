//! The context of a command: the global options, and the listener of Ctrl-C.

use ardea::cluster::Modules;
use ardea::console::{Interrupts, RunSettings, Supervisor};
use ardea::job::{read_settings_over, resolver, schema};
use ardea_config::{ConfigFile, Flag, Resolved};
use ardea_connectors::live_table::Screen;
use ardea_engine::{NodeConfig, allowed_cores};
use ardea_rest::ClusterSettings;

use crate::args::{ClusterArgs, Global};
use crate::failure::Failure;

/// The options of every command, and the counter of interrupts.
pub struct Context {
    global: Global,
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
    pub fn new(global: Global) -> Result<Self, Failure> {
        let screen = Screen::of_process();
        if global.json {
            screen.to_standard_error();
        }
        if let Some(period) = global.tables_every {
            screen.print_every(period);
        }
        Ok(Context {
            interrupts: Interrupts::listen()?,
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            progress: global.progress,
            global,
        })
    }

    /// Resolves all settings from `--set`, the environment and the configuration file, for the
    /// cluster named `cluster` if given.
    pub fn settings_of(&self, cluster: Option<&str>) -> Result<Resolved, Failure> {
        self.settings_with(cluster.map(cluster_flag))
    }

    /// Returns the settings of the node, with `threads` if given.
    pub fn node_config(&self, threads: Option<u32>) -> Result<NodeConfig, Failure> {
        if let Some(threads) = threads {
            check_threads(threads)?;
        }
        let flag = threads.map(|it| Flag::of_option("--threads", format!("threads={it}")));
        let config = NodeConfig::from_settings(&self.settings_with(flag)?)?;
        check_threads(config.threads.get())?;
        Ok(config)
    }

    /// Returns the settings of a run in this process, with the node configuration `node`.
    pub fn run_settings(&self, node: NodeConfig) -> Result<RunSettings, Failure> {
        let settings = self.settings_with(None)?;
        Ok(RunSettings::of(&settings, node, &Modules::builtin())?)
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

    /// Returns the settings of the cluster that the options `place` and the settings name.
    pub fn cluster(&self, place: &ClusterArgs) -> Result<ClusterSettings, Failure> {
        Ok(self.of_cluster(place)?.1)
    }

    /// Returns all settings, and the settings of the cluster that the options `place` and the
    /// settings name.
    pub fn of_cluster(&self, place: &ClusterArgs) -> Result<(Resolved, ClusterSettings), Failure> {
        self.of_cluster_over(None, place)
    }

    /// Like [`of_cluster`](Self::of_cluster), with a base file that all other sources override.
    pub fn of_cluster_over(
        &self,
        base: Option<ConfigFile>,
        place: &ClusterArgs,
    ) -> Result<(Resolved, ClusterSettings), Failure> {
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

    fn settings_with(&self, more: Option<Flag>) -> Result<Resolved, Failure> {
        let schema = schema();
        let flags = self.flags(more);
        Ok(resolver(&schema, self.global.config.as_deref())?
            .flags(flags)
            .resolve()?)
    }
}

/// Returns `--cluster` as a flag.
fn cluster_flag(name: &str) -> Flag {
    Flag::of_option("--cluster", format!("cluster.name={name}"))
}

/// Refuses an implausible number of threads before anything is started. More threads than cores are
/// accepted: they share the cores.
pub fn check_threads(threads: u32) -> Result<(), Failure> {
    const ALWAYS_FINE: usize = 64;
    let cores = allowed_cores().len();
    let most = (4 * cores).max(ALWAYS_FINE);
    if threads as usize <= most {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "{threads} threads are too many: at most {most} make sense for the {cores} cores that this process may use"
        ),
        "leave --threads (or the setting `threads`) out for one thread a core",
    ))
}
