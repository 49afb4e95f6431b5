//! Values of one process at one moment.

use std::time::Duration;

use ardea_core::{Result, Timestamp};

use crate::{Labels, MetricName, MetricsConfig, Value, wire};

/// One named, labelled value.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// What it is called.
    pub name: MetricName,
    /// What tells it apart from others of this name, beside the labels of its process.
    pub labels: Labels,
    /// The value.
    pub value: Value,
}

/// Values of one process at one moment.
///
/// As bytes each name and each set of labels is there once: a batch of 20 instances with 20 values each has about 3 KB.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// Labels of the process: they belong to each sample. For a worker `job` and `container`.
    pub process: Labels,
    /// When the process was started, on its clock: another time is another process, whose counters begin at zero.
    pub started: Timestamp,
    /// When the values were read, on the clock of the process.
    pub at: Timestamp,
    /// How often the process tells its metrics, as `metrics.every` says: the next batch is to be expected then.
    pub every: Duration,
    /// The values.
    pub samples: Vec<Sample>,
}

impl Batch {
    /// Without samples yet, of a process that tells its metrics as often as is the default.
    pub fn new(process: Labels, started: Timestamp, at: Timestamp) -> Self {
        Batch {
            process,
            started,
            at,
            every: MetricsConfig::default().every,
            samples: Vec::new(),
        }
    }

    /// Of a process that tells its metrics so often.
    pub fn every(self, every: Duration) -> Self {
        Batch { every, ..self }
    }

    /// Adds a sample. Samples that share labels should share one [`Labels`] by cloning it.
    pub fn push(&mut self, name: impl Into<MetricName>, labels: &Labels, value: Value) {
        self.samples.push(Sample {
            name: name.into(),
            labels: labels.clone(),
            value,
        });
    }

    /// As bytes, for [`decode`](Self::decode).
    ///
    /// # Errors
    /// [`BrokenBatch`](ardea_core::ErrorCode::BrokenBatch) if it is larger than [`MOST_BATCH_BYTES`](crate::MOST_BATCH_BYTES).
    pub fn encode(&self) -> Result<Vec<u8>> {
        wire::encode(self)
    }

    /// From the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`BrokenBatch`](ardea_core::ErrorCode::BrokenBatch) if they are none, too many, or of another version. Whatever they
    /// are, no more than about thirty times their size is reserved.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        wire::decode(bytes)
    }
}
