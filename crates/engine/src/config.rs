//! Settings of a node and of a job.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{DEFAULT_CHUNK_RECORDS, DeadLetters, Error, ErrorCode, Guarantee, Result};

use crate::Cuts;
use crate::StatePlace;
use crate::cores::allowed_cores;

/// How a node uses its machine. Every setting says what it trades.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Cooperative threads; by default one for each core that this process may use. Fewer leave cores to other work.
    pub threads: NonZeroU32,
    /// Whether each cooperative thread stays on one core: steadier tails, but a busy neighbour on that core is felt.
    pub pin: bool,
    /// Records a chunk: larger ones cost less a record, smaller ones stay in the first cache.
    pub chunk_records: NonZeroUsize,
    /// Chunks a queue between two tasklets: larger ones ride out pauses, smaller ones bound memory and delay.
    pub queue_chunks: NonZeroUsize,
    /// How long a tasklet works before others on its thread get their turn.
    pub slice: Duration,
    /// How long a thread that has nothing to do looks for work before it sleeps: longer wakes faster and burns more.
    pub spin: Duration,
    /// How often a source is asked again that had nothing and named no time.
    pub idle_poll: Duration,
    /// Whether processors joined by forward edges share a tasklet. Off only to measure what it gains.
    pub fuse: bool,
    /// Where keyed state lies: in memory it is quickest, on disk it may be larger than memory.
    pub state: StatePlace,
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
            fuse: true,
            state: StatePlace::Memory,
        }
    }
}

impl NodeConfig {
    /// The defaults, with this many cooperative threads (at least one).
    pub fn with_threads(threads: u32) -> Self {
        NodeConfig {
            threads: NonZeroU32::new(threads).unwrap_or(NonZeroU32::MIN),
            ..NodeConfig::default()
        }
    }
}

/// How one job runs.
#[derive(Clone, Debug, Default)]
pub struct JobConfig {
    /// The job's name, for people.
    pub name: String,
    /// Where records go that could not be dealt with; by default they are counted and the latest kept as a sample.
    pub dead_letters: Arc<DeadLetters>,
    /// What comes of an error, or a panic, of one of its instances.
    pub on_failure: OnInstanceFailure,
    /// What it promises of its records when something fails. Decides what the end of an epoch means for inputs: with
    /// [`AtLeastOnce`](Guarantee::AtLeastOnce) no input waits for another. With [`None`](Guarantee::None) no cut is taken.
    pub guarantee: Guarantee,
    /// Where cuts go, and where its state comes from.
    pub cuts: Cuts,
}

/// What comes of an error, or a panic, of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnInstanceFailure {
    /// The job fails, and all its instances end.
    #[default]
    FailJob,
    /// The instance is made anew, with those that share its tasklet, after 10 ms at first and up to 5 s when it goes on failing. Its queues
    /// stay; the records that it had taken out of them and not dealt with are lost. For jobs that send again what was lost, such as
    /// topologies with acks. See [`JobHandle::take_failures`](crate::JobHandle::take_failures).
    Restart {
        /// How often in a row: an instance that fails once more, each time within ten seconds, fails the job after all.
        at_most: u32,
    },
}

impl JobConfig {
    /// Refuses what can't be kept.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.guarantee.keeps_state() && self.on_failure != OnInstanceFailure::FailJob {
            let what = format!(
                "the job {:?} promises {}, which an instance that is made anew without its state would break",
                self.name, self.guarantee
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("leave it to the job's recovery to make instances anew"));
        }
        Ok(())
    }

    /// The defaults, under this name.
    pub fn named(name: impl Into<String>) -> Self {
        JobConfig {
            name: name.into(),
            ..JobConfig::default()
        }
    }
}
