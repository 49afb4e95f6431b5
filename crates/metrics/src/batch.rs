//! Batches: the metrics of one process at one time.

use std::time::Duration;

use ardea_core::{Result, Timestamp};

use crate::{Labels, MetricName, MetricsConfig, Value, wire};

/// One value of a metric, with the metric's name and labels.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The name of the metric.
    pub name: MetricName,
    /// The labels that distinguish this value from others of the same name, in addition to the
    /// labels of the process.
    pub labels: Labels,
    /// The value of the metric.
    pub value: Value,
}

/// The metrics of one process at one time.
///
/// The encoding contains each name and each set of labels once. A batch of 20 instances with 20
/// values each takes about 3 KB.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// The labels of the process, which apply to all samples. A worker's are `job` and `container`.
    pub process: Labels,
    /// The start time of the process, on the clock of the process. A batch with another start time
    /// comes from another process, whose counters start at zero.
    pub started: Timestamp,
    /// The time at which the values were read, on the clock of the process.
    pub at: Timestamp,
    /// The reporting interval of the process (`metrics.every`), after which the next batch is
    /// expected.
    pub every: Duration,
    /// The samples of all metrics.
    pub samples: Vec<Sample>,
}

impl Batch {
    /// Creates a batch without samples, with the default reporting interval.
    pub fn new(process: Labels, started: Timestamp, at: Timestamp) -> Self {
        Batch {
            process,
            started,
            at,
            every: MetricsConfig::default().every,
            samples: Vec::new(),
        }
    }

    /// Sets the reporting interval.
    pub fn every(self, every: Duration) -> Self {
        Batch { every, ..self }
    }

    /// Adds a sample. Samples with equal labels should share one [`Labels`] by cloning it.
    pub fn push(&mut self, name: impl Into<MetricName>, labels: &Labels, value: Value) {
        self.samples.push(Sample {
            name: name.into(),
            labels: labels.clone(),
            value,
        });
    }

    /// Encodes the batch as bytes for [`decode`](Self::decode).
    ///
    /// # Errors
    /// [`BrokenBatch`](ardea_core::ErrorCode::BrokenBatch) if the encoding is larger than
    /// [`MOST_BATCH_BYTES`](crate::MOST_BATCH_BYTES).
    pub fn encode(&self) -> Result<Vec<u8>> {
        wire::encode(self)
    }

    /// Decodes a batch from the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`BrokenBatch`](ardea_core::ErrorCode::BrokenBatch) if `bytes` is invalid, too long, or of
    /// another version. For any input, the memory allocated is at most about thirty times its size.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        wire::decode(bytes)
    }
}
