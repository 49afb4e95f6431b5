//! The settings of a run in this process.

use std::sync::Arc;

use ardea_checkpoint::local::FaultTolerance;
use ardea_config::Resolved;
use ardea_connectors::dead_letters::DeadLetterConfig;
use ardea_core::{DeadLetters, Result};
use ardea_engine::NodeConfig;
use ardea_metrics::{MetricsConfig, MetricsSinks};

use crate::cluster::Modules;
use crate::job::{check_here, open_dead_letters};

/// The settings of a run in this process: its threads, its guarantee, and the destinations of its
/// metrics and dead letters.
#[derive(Clone, Debug)]
pub struct RunSettings {
    pub(super) node: NodeConfig,
    pub(super) survival: Option<FaultTolerance>,
    pub(super) metrics: MetricsConfig,
    pub(super) sinks: MetricsSinks,
    pub(super) warnings: Vec<String>,
    dead_letters: Option<DeadLetterConfig>,
}

impl RunSettings {
    /// Reads the settings of a run with the configuration `node` and the metrics sinks of
    /// `modules`.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid value, with the place
    /// where it is set.
    pub fn of(resolved: &Resolved, node: NodeConfig, modules: &Modules) -> Result<Self> {
        check_here(resolved, modules)?;
        let survival = FaultTolerance::from_settings(resolved)?;
        let mut warnings = Vec::new();
        if survival.is_none() && resolved.non_defaults().contains_key("checkpoints.folder") {
            warnings.push(
                "checkpoints.folder means nothing without a guarantee: --set guarantee=exactly-once"
                    .to_string(),
            );
        }
        Ok(RunSettings {
            node,
            survival,
            metrics: MetricsConfig::from_settings(resolved)?,
            sinks: modules.sinks.clone(),
            warnings,
            dead_letters: DeadLetterConfig::from_settings(resolved)?,
        })
    }

    /// Opens the dead letters of a job.
    pub(super) fn open_dead_letters(&self, job: &str) -> Result<Arc<DeadLetters>> {
        open_dead_letters(self.dead_letters.as_ref(), job).map(Arc::new)
    }
}
