//! Settings of a node and of a job.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{DEFAULT_CHUNK_RECORDS, DeadLetters, Error, ErrorCode, Guarantee, Result};

use crate::executor::cores::allowed_cores;
use crate::{ModeChoice, SnapshotIo};

mod execution_mode;
mod settings;
mod state_backend_config;

pub use execution_mode::{ExecutionMode, MicroBatchConfig};
pub use settings::NODE_SETTINGS;
pub use state_backend_config::StateBackendConfig;

/// The settings of a node. Each field names its trade-off.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Number of cooperative threads; by default one per core that this process may use. Fewer
    /// leave cores to other programs.
    pub threads: NonZeroU32,
    /// Pin each cooperative thread to a core: steadier tail latencies, but another busy process on
    /// that core is noticeable.
    pub pin: bool,
    /// Records per chunk: larger chunks cost less per record, smaller ones stay in the L1 cache.
    pub chunk_records: NonZeroUsize,
    /// Chunks per queue between two tasklets: larger queues bridge pauses, smaller ones bound
    /// memory and latency.
    pub queue_chunks: NonZeroUsize,
    /// Time for which a tasklet runs before others on its thread get their turn.
    pub slice: Duration,
    /// Maximum time for which an idle thread spins before it sleeps: a longer time wakes the thread
    /// faster and burns more CPU.
    pub spin: Duration,
    /// Poll interval of a source that had no data and requested no wake-up.
    pub idle_poll: Duration,
    /// Latency budget: the maximum time for which a source, the network or the receiving end of a
    /// network edge gathers records while few come, so that they pass through the job together.
    /// Zero passes each record on at once. At high rates it has no effect. An edge may have
    /// [its own](ardea_core::Edge::latency).
    pub latency: Duration,
    /// Chain processors joined by forward edges into one tasklet. Switched off only to measure the
    /// gain.
    pub fuse: bool,
    /// Location of keyed state: memory is fastest, disk may be larger than memory.
    pub state: StateBackendConfig,
    /// Execution mode of jobs: records flow at once, or in micro-batches.
    pub mode: ExecutionMode,
    /// The length of micro-batches.
    pub micro_batch: MicroBatchConfig,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            threads: NonZeroU32::new(allowed_cores().len() as u32).unwrap_or(NonZeroU32::MIN),
            pin: true,
            chunk_records: NonZeroUsize::new(DEFAULT_CHUNK_RECORDS).unwrap_or(NonZeroUsize::MIN),
            queue_chunks: NonZeroUsize::new(16).unwrap_or(NonZeroUsize::MIN),
            slice: Duration::from_micros(100),
            spin: Duration::from_micros(10),
            idle_poll: Duration::from_millis(10),
            latency: Duration::from_micros(500),
            fuse: true,
            state: StateBackendConfig::Memory,
            mode: ExecutionMode::Continuous,
            micro_batch: MicroBatchConfig::default(),
        }
    }
}

impl NodeConfig {
    /// Returns the default settings with `threads` cooperative threads, at least one.
    pub fn with_threads(threads: u32) -> Self {
        NodeConfig {
            threads: NonZeroU32::new(threads).unwrap_or(NonZeroU32::MIN),
            ..NodeConfig::default()
        }
    }
}

/// The settings of one job.
#[derive(Clone, Debug, Default)]
pub struct JobConfig {
    /// The name of the job, for display.
    pub name: String,
    /// Receiver of records that could not be processed; by default they are counted, and the latest
    /// are retained as a sample.
    pub dead_letters: Arc<DeadLetters>,
    /// Reaction to an error or a panic of an instance.
    pub on_failure: OnInstanceFailure,
    /// The processing guarantee. With [`AtLeastOnce`](Guarantee::AtLeastOnce) inputs do not align
    /// barriers; with [`None`](Guarantee::None) no snapshot is taken.
    pub guarantee: Guarantee,
    /// Destination of snapshots, and source of restored state.
    pub snapshots: SnapshotIo,
}

/// The reaction to an error or a panic of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnInstanceFailure {
    /// The job fails, and all its instances end.
    #[default]
    FailJob,
    /// The instance is restarted, with those that share its tasklet, after 10 ms at first and up to
    /// 5 s after repeated failures. Its queues remain, but records that it had taken from them and
    /// not processed are lost. For jobs that replay lost records, such as topologies with acks. See
    /// [`JobHandle::take_failures`](crate::JobHandle::take_failures).
    Restart {
        /// Maximum number of consecutive restarts, each within ten seconds of the last; the next
        /// failure fails the job.
        at_most: u32,
    },
}

impl JobConfig {
    /// Refuses invalid combinations of settings.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.guarantee.keeps_state() && self.on_failure != OnInstanceFailure::FailJob {
            let what = format!(
                "the job {:?} has the guarantee {}, which restarting a single instance without its state would break",
                self.name, self.guarantee
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("leave restarts to the job's recovery settings"));
        }
        Ok(())
    }

    /// Refuses settings that do not go with the execution mode.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`].
    pub(crate) fn check_mode(&self, mode: &ModeChoice) -> Result<()> {
        if mode.batches.is_some() && self.on_failure != OnInstanceFailure::FailJob {
            let what = format!(
                "the job {:?} restarts single instances, which would lose parts of its micro-batches",
                self.name
            );
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("set mode=continuous"));
        }
        Ok(())
    }

    /// Returns the default settings of a job named `name`.
    pub fn named(name: impl Into<String>) -> Self {
        JobConfig {
            name: name.into(),
            ..JobConfig::default()
        }
    }
}
