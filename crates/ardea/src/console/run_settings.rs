//! The settings of a run in this process.

use std::sync::Arc;

use ardea_checkpoint::local::FaultTolerance;
use ardea_config::Resolved;
use ardea_connectors::dead_letters::DeadLetterConfig;
use ardea_core::{DeadLetters, Result};
use ardea_engine::NodeConfig;
use ardea_metrics::{MetricsConfig, MetricsSinks};

use super::{dead_letters, settings_check};

/// The settings of a run in this process: its threads, its guarantee, the destinations of its
/// metrics and dead letters, and its web page.
#[derive(Clone, Debug)]
pub struct RunSettings {
    pub(super) node: NodeConfig,
    pub(super) survival: Option<FaultTolerance>,
    pub(super) metrics: MetricsConfig,
    pub(super) sinks: MetricsSinks,
    #[cfg(feature = "cluster")]
    pub(super) page: Option<super::page::PageConfig>,
    pub(super) warnings: Vec<String>,
    dead_letters: Option<DeadLetterConfig>,
}

impl RunSettings {
    /// Reads the settings of a run with the configuration `node` and the program's metrics sinks.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid value, with the place
    /// where it is set.
    pub fn of(resolved: &Resolved, node: NodeConfig, sinks: &MetricsSinks) -> Result<Self> {
        settings_check::check(resolved, sinks)?;
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
            sinks: sinks.clone(),
            #[cfg(feature = "cluster")]
            page: super::page::PageConfig::from_settings(resolved)?,
            warnings,
            dead_letters: DeadLetterConfig::from_settings(resolved)?,
        })
    }

    /// Opens the dead letters of a job.
    pub(super) fn open_dead_letters(&self, job: &str) -> Result<Arc<DeadLetters>> {
        dead_letters::open(self.dead_letters.as_ref(), job, None).map(Arc::new)
    }
}
