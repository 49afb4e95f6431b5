//! What every command is given: the global options, and who listens to Ctrl-C.

use std::env;
use std::path::Path;

use ardea_connect::live_table::Screen;
use ardea_core::settings::{ConfigFile, Resolved, Resolver, Schema};
use ardea_engine::{NODE_SETTINGS, NodeConfig};

use crate::args::Global;
use crate::failure::Failure;
use crate::interrupts::Interrupts;

/// The options of every command.
pub struct Context {
    global: Global,
    /// Ctrl-C and SIGTERM.
    pub interrupts: Interrupts,
    /// Results as JSON.
    pub json: bool,
    /// Neither progress nor summary.
    pub quiet: bool,
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
            progress: global.progress,
            global,
        })
    }

    /// All settings, from `--set`, the environment and the configuration file.
    pub fn settings(&self) -> Result<Resolved, Failure> {
        self.settings_with(Vec::new())
    }

    /// The settings of the node, with `threads` if the command was told.
    pub fn node_config(&self, threads: Option<u32>) -> Result<NodeConfig, Failure> {
        let threads = threads.map(|threads| format!("threads={threads}"));
        Ok(NodeConfig::from_settings(
            &self.settings_with(threads.into_iter().collect())?,
        )?)
    }

    fn settings_with(&self, flags: Vec<String>) -> Result<Resolved, Failure> {
        let schema = Schema::of(NODE_SETTINGS);
        let file = ConfigFile::find(self.global.config.as_deref(), Path::new("."))?;
        Ok(Resolver::new(&schema)
            .file(file)
            .environment(env::vars_os())
            .flags(self.global.set.iter().cloned().chain(flags))
            .resolve()?)
    }
}
