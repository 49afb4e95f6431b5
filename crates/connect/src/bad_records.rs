//! What a source or sink does with a record it can't decode or encode.

use std::sync::Arc;

use ardea_core::{DeadLetter, DeadLetters, InstanceContext, InstanceMetrics, OnError, Result};

/// A policy, and where it sends what it sets aside. Starts with nowhere to send to, until `init` brings the context.
#[derive(Clone)]
pub(crate) struct BadRecords {
    policy: OnError,
    vertex: Arc<str>,
    letters: Arc<DeadLetters>,
    metrics: Arc<InstanceMetrics>,
}

impl BadRecords {
    pub fn new(policy: OnError) -> Self {
        BadRecords {
            policy,
            vertex: Arc::from(""),
            letters: Arc::default(),
            metrics: Arc::default(),
        }
    }

    pub fn attach(&mut self, context: &InstanceContext) {
        self.vertex = Arc::clone(&context.vertex);
        self.letters = Arc::clone(&context.dead_letters);
        self.metrics = Arc::clone(&context.metrics);
    }

    /// Counts a bad record and deals with it as the policy says.
    #[cold]
    pub fn report(&self, origin: impl FnOnce() -> String, raw: &[u8], reason: &str) -> Result<()> {
        self.metrics.count_bad(1);
        self.letters.handle(self.policy, || DeadLetter {
            vertex: self.vertex.to_string(),
            origin: origin(),
            raw: raw.to_vec(),
            reason: reason.to_string(),
        })
    }
}
