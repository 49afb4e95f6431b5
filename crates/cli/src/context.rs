//! What every command is given: the global options, and who listens to Ctrl-C.

use ardea::cluster::Modules;
use ardea::console::{Interrupts, RunSettings, Supervisor};
use ardea::job::{read_settings_over, resolver, schema};
use ardea_config::{ConfigFile, Flag, Resolved};
use ardea_connectors::live_table::Screen;
use ardea_engine::{NodeConfig, allowed_cores};
use ardea_rest::ClusterSettings;

use crate::args::{Global, Where};
use crate::failure::Failure;

/// The options of every command.
pub struct Context {
    global: Global,
    /// Ctrl-C and SIGTERM.
    pub interrupts: Interrupts,
    /// Results as JSON.
    pub json: bool,
    /// Neither progress nor summary.
    pub quiet: bool,
    /// Every step in a summary.
    pub verbose: bool,
    /// Progress even in a pipe.
    pub progress: bool,
}

impl Context {
    /// Starts listening for interrupts, so that from here on nothing is left half done by one.
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

    /// All settings, from `--set`, the environment and the configuration file; of the cluster of that name, if one is named.
    pub fn settings_of(&self, cluster: Option<&str>) -> Result<Resolved, Failure> {
        self.settings_with(cluster.map(cluster_flag))
    }

    /// The settings of the node, with `threads` if the command was told.
    pub fn node_config(&self, threads: Option<u32>) -> Result<NodeConfig, Failure> {
        if let Some(threads) = threads {
            check_threads(threads)?;
        }
        let flag = threads.map(|it| Flag::of_option("--threads", format!("threads={it}")));
        let config = NodeConfig::from_settings(&self.settings_with(flag)?)?;
        check_threads(config.threads.get())?;
        Ok(config)
    }

    /// The settings of a run in this process, on that node.
    pub fn run_settings(&self, node: NodeConfig) -> Result<RunSettings, Failure> {
        let settings = self.settings_with(None)?;
        Ok(RunSettings::of(&settings, node, &Modules::builtin())?)
    }

    /// What runs and reports on jobs in this process.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor {
            interrupts: self.interrupts.clone(),
            json: self.json,
            quiet: self.quiet,
            verbose: self.verbose,
            progress: self.progress,
        }
    }

    /// The cluster that the options and settings name.
    pub fn cluster(&self, place: &Where) -> Result<ClusterSettings, Failure> {
        Ok(self.of_cluster(place)?.1)
    }

    /// All settings, and the cluster that they and the options name.
    pub fn of_cluster(&self, place: &Where) -> Result<(Resolved, ClusterSettings), Failure> {
        self.of_cluster_over(None, place)
    }

    /// The same over a file that counts after all others.
    pub fn of_cluster_over(
        &self,
        base: Option<ConfigFile>,
        place: &Where,
    ) -> Result<(Resolved, ClusterSettings), Failure> {
        let flags = self.flags(place.cluster.as_deref().map(cluster_flag));
        let config = self.global.config.as_deref();
        let (resolved, _, mut cluster) = read_settings_over(base, config, &flags)?;
        cluster.api = place.at.clone().or(cluster.api);
        Ok((resolved, cluster))
    }

    /// What `--set` and `--config` say, as another program is told.
    pub fn settings_options(&self) -> Vec<String> {
        let set = self.global.set.iter();
        let mut options: Vec<String> = set.map(|set| format!("--set={set}")).collect();
        let config = self.global.config.iter();
        options.extend(config.map(|path| format!("--config={}", path.display())));
        options
    }

    /// What `--set` says, and then this.
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

/// What `--cluster` says.
fn cluster_flag(name: &str) -> Flag {
    Flag::of_option("--cluster", format!("cluster.name={name}"))
}

/// Refuses a number of threads that can only be a slip of the pen, before anything is started. More threads than cores work: they
/// share the cores.
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
