//! The execution mode of a job: continuous, or in micro-batches.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{Error, ErrorCode, Result};

/// The mode in which a job processes its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExecutionMode {
    /// Each record flows on at once.
    #[default]
    Continuous,
    /// Sources divide their records into micro-batches. Each instance processes the records of a
    /// micro-batch in a fixed order, and the watermark at its end. So its output follows from its
    /// input alone.
    MicroBatch,
    /// Micro-batches if all steps are deterministic and the latency budget allows them, else
    /// continuous.
    Auto,
}

/// The length of micro-batches, and their recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MicroBatchConfig {
    /// The time after which a source ends a micro-batch: longer ones cost less, shorter ones make
    /// results visible earlier.
    pub epoch: Duration,
    /// The number of records, over all outputs of a source, after which an instance ends a
    /// micro-batch earlier; no limit if `None`. A
    /// limit bounds memory. Sources of different rates then wait for each other.
    pub records: Option<NonZeroU64>,
    /// The folder to which steps record their micro-batches, for [`replay`](crate::replay); not
    /// recorded if `None`. Recording costs an encoding, a decoding and a write per chunk.
    pub record: Option<PathBuf>,
    /// The maximum size of an instance's recording in bytes; older micro-batches are dropped first.
    pub record_bytes: u64,
    /// The maximum size of the output that a worker of a cluster keeps in memory for other workers
    /// that may be restored alone; zero if none is. Beyond it the whole job is restored.
    pub kept_bytes: u64,
}

impl Default for MicroBatchConfig {
    fn default() -> Self {
        MicroBatchConfig {
            epoch: Duration::from_millis(5),
            records: None,
            record: None,
            record_bytes: 64 << 20,
            kept_bytes: 64 << 20,
        }
    }
}

pub(super) const MODE: Setting = Setting {
    key: "mode",
    kind: Kind::Choice(&["continuous", "micro-batch", "auto"]),
    default: "continuous",
    about: "whether records flow at once or in micro-batches; auto is micro-batches if all steps are deterministic and the latency budget allows them",
    trades: "micro-batches give the same output for the same input, and add up to one micro-batch of latency",
};

pub(super) const EPOCH: Setting = Setting {
    key: "micro_batch.epoch",
    kind: Kind::Duration {
        least: Duration::from_micros(100),
        most: Duration::from_secs(60),
    },
    default: "5ms",
    about: "with mode=micro-batch: after which time a source ends a micro-batch",
    trades: "longer ones cost less, shorter ones make results visible earlier",
};

pub(super) const RECORDS: Setting = Setting {
    key: "micro_batch.records",
    kind: Kind::CountOrAuto {
        least: 1,
        most: 1 << 40,
    },
    default: "auto",
    about: "with mode=micro-batch: after how many records a source ends a micro-batch earlier; auto is no limit",
    trades: "fewer need less memory, and let fast sources wait for slow ones",
};

pub(super) const RECORD: Setting = Setting {
    key: "micro_batch.record",
    kind: Kind::Text,
    default: "off",
    about: "with mode=micro-batch: a folder to which steps record their micro-batches for `replay`, or off",
    trades: "replay finds steps that are not deterministic; recording costs much of the throughput",
};

pub(super) const RECORD_BYTES: Setting = Setting {
    key: "micro_batch.record_bytes",
    kind: Kind::Bytes {
        least: 64 << 10,
        most: 1 << 44,
    },
    default: "64MiB",
    about: "with micro_batch.record: how much the recording of an instance may take on disk; the oldest micro-batches are dropped first",
    trades: "more retains older micro-batches",
};

pub(super) const KEPT_BYTES: Setting = Setting {
    key: "micro_batch.kept_bytes",
    kind: Kind::Bytes {
        least: 0,
        most: 1 << 44,
    },
    default: "64MiB",
    about: "with mode=micro-batch on a cluster: how much output since the last checkpoint a worker keeps in memory, to restore another worker alone; 0 always restores the whole job",
    trades: "more covers longer checkpoint intervals, and takes memory",
};

impl ExecutionMode {
    /// Returns the word for this mode in settings.
    pub fn name(self) -> &'static str {
        match self {
            ExecutionMode::Continuous => "continuous",
            ExecutionMode::MicroBatch => "micro-batch",
            ExecutionMode::Auto => "auto",
        }
    }

    /// Reads the setting `mode`.
    pub(super) fn from_settings(resolved: &Resolved) -> Result<Self> {
        Ok(match resolved.choice(MODE.key)? {
            "micro-batch" => ExecutionMode::MicroBatch,
            "auto" => ExecutionMode::Auto,
            _ => ExecutionMode::Continuous,
        })
    }
}

impl MicroBatchConfig {
    /// Reads the settings of micro-batches.
    pub(super) fn from_settings(resolved: &Resolved) -> Result<Self> {
        let records = resolved.count_or_auto(RECORDS.key)?;
        let record = Some(resolved.text(RECORD.key)?).filter(|it| !matches!(*it, "off" | ""));
        Ok(MicroBatchConfig {
            epoch: resolved.duration(EPOCH.key)?,
            records: records.and_then(NonZeroU64::new),
            record: record.map(PathBuf::from),
            record_bytes: resolved.bytes(RECORD_BYTES.key)?,
            kept_bytes: resolved.bytes(KEPT_BYTES.key)?,
        })
    }

    /// Refuses micro-batches without length.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.epoch.is_zero() {
            return Err(
                Error::new(ErrorCode::InvalidConfig, "micro_batch.epoch is zero")
                    .hint("set it to a few milliseconds"),
            );
        }
        Ok(())
    }
}
