//! Origins of a source's records, for a downstream step that has to set one aside.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Consecutive records of a source that were read from consecutive lines, each from one line.
#[derive(Clone, Debug)]
pub struct OriginRun {
    /// The position of the first record: the number of records that the source emitted before it.
    pub position: u64,
    /// The origin of the records: a file, a peer.
    pub stream: Arc<str>,
    /// The line of the first record, from one.
    pub line: u64,
}

/// The latest runs of the sources of a job. Only sources that read lines and have one instance add
/// runs.
///
/// Each update and each lookup takes a lock; a file without bad or blank lines is one run.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{OriginRun, Origins};
///
/// let origins = Origins::default();
/// origins.add("lines", [OriginRun { position: 0, stream: Arc::from("in.csv"), line: 2 }]);
/// assert_eq!(origins.of("lines", 40).as_deref(), Some("in.csv:42"));
/// assert_eq!(origins.of("numbers", 40), None);
/// ```
#[derive(Debug, Default)]
pub struct Origins(Mutex<HashMap<String, VecDeque<OriginRun>>>);

impl Origins {
    /// The maximum number of runs per source.
    const RUNS: usize = 1_000;

    /// Adds the next runs of the source `vertex`.
    pub fn add(&self, vertex: &str, runs: impl IntoIterator<Item = OriginRun>) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = sources.entry(vertex.to_string()).or_default();
        kept.extend(runs);
        let too_many = kept.len().saturating_sub(Self::RUNS);
        kept.drain(..too_many);
    }

    /// Returns the origin of the record at this position of a source's output, such as `in.csv:42`,
    /// if still known.
    pub fn of(&self, vertex: &str, position: u64) -> Option<String> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = sources.get(vertex)?;
        let behind = kept.partition_point(|run| run.position <= position);
        let run = kept.get(behind.checked_sub(1)?)?;
        let line = run.line + (position - run.position);
        Some(format!("{}:{line}", run.stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_runs_are_known_and_older_ones_are_forgotten() {
        let origins = Origins::default();
        for number in 0..2_000 {
            let run = OriginRun {
                position: number * 10,
                stream: Arc::from(format!("file {number}")),
                line: 1,
            };
            origins.add("lines", [run]);
        }
        assert_eq!(origins.of("lines", 19_995).as_deref(), Some("file 1999:6"));
        assert_eq!(origins.of("lines", 10_000).as_deref(), Some("file 1000:1"));
        assert_eq!(origins.of("lines", 9_999), None);
    }
}
