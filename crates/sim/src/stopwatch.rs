//! Measurement of the masters' cpu time and message sizes.

use std::collections::HashMap;
use std::time::Duration;

use ardea_coordination::control::ToWorker;
use ardea_core::thread_cpu_time;

/// A measurement that does not influence the simulation.
#[derive(Debug, Default)]
pub struct Stopwatch {
    encodes: bool,
    shared: HashMap<String, u64>,
    /// The cpu time spent in the masters' state machines.
    pub in_masters: Duration,
    /// The maximum cpu time of one event.
    pub longest: Duration,
    /// The number of events.
    pub events: u64,
    /// The cpu time spent on encoding messages to workers, if measured.
    pub encoding: Duration,
    /// The total length of the messages to workers.
    pub bytes: u64,
    /// The number of messages to workers.
    pub messages: u64,
}

impl Stopwatch {
    pub(crate) fn new(encodes: bool) -> Self {
        Stopwatch {
            encodes,
            ..Stopwatch::default()
        }
    }

    pub(crate) fn master<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let begin = thread_cpu_time();
        let result = run();
        let took = thread_cpu_time().saturating_sub(begin);
        self.in_masters += took;
        self.longest = self.longest.max(took);
        self.events += 1;
        result
    }

    /// Encodes a message as a driver would: messages shared by many workers only once.
    pub(crate) fn encode(&mut self, message: &ToWorker) {
        self.messages += 1;
        if !self.encodes {
            return;
        }
        let shared = match message {
            ToWorker::Plan { epoch, version, .. } => Some(format!("{epoch:?} {version:?}")),
            ToWorker::Peers { from, to, .. } => Some(format!("{from:?} {to:?}")),
            _ => None,
        };
        let known = shared
            .as_ref()
            .and_then(|key| self.shared.get(key).copied());
        let length = known.unwrap_or_else(|| {
            let begin = thread_cpu_time();
            let length = serde_json::to_vec(message).map_or(0, |bytes| bytes.len() as u64);
            self.encoding += thread_cpu_time().saturating_sub(begin);
            length
        });
        if let Some(key) = shared {
            self.shared.insert(key, length);
        }
        self.bytes += length;
    }
}
