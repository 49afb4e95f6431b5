//! Origins of a source's records, for a downstream step that has to set one aside.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Instance;

/// Consecutive records of a source that were read from consecutive lines, each from one line.
#[derive(Clone, Debug)]
pub struct OriginRun {
    /// The position of the first record: the number of records that the source emitted before it.
    pub position: u64,
    /// The origin of the records: a file, a peer.
    pub stream: Arc<str>,
    /// The line of the first record.
    pub line: OriginLine,
}

/// The number of a line, from one.
#[derive(Clone)]
pub enum OriginLine {
    /// The number is known.
    Number(u64),
    /// The number is determined on request, for example by counting the lines before it. The
    /// function returns `None` if this fails.
    Deferred(Arc<dyn Fn() -> Option<u64> + Send + Sync>),
}

impl fmt::Debug for OriginLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OriginLine::Number(line) => line.fmt(f),
            OriginLine::Deferred(_) => f.write_str("deferred"),
        }
    }
}

/// The latest runs of the sources of a job. Only sources that read lines add runs.
///
/// Each update and each lookup takes a lock; a file without bad or blank lines is one run.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Instance, OriginLine, OriginRun, Origins};
///
/// let origins = Origins::default();
/// let run = OriginRun { position: 0, stream: Arc::from("in.csv"), line: OriginLine::Number(2) };
/// origins.add("lines", Instance::ONLY, [run]);
/// assert_eq!(origins.of("lines", Instance::ONLY, 40).as_deref(), Some("in.csv:42"));
/// assert_eq!(origins.of("numbers", Instance::ONLY, 40), None);
/// ```
#[derive(Debug, Default)]
pub struct Origins(Mutex<HashMap<(String, Instance), VecDeque<OriginRun>>>);

impl Origins {
    /// The maximum number of runs per instance of a source.
    const RUNS: usize = 1_000;

    /// Adds the next runs of an instance of the source `vertex`.
    pub fn add(&self, vertex: &str, instance: Instance, runs: impl IntoIterator<Item = OriginRun>) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = sources.entry((vertex.to_string(), instance)).or_default();
        kept.extend(runs);
        let too_many = kept.len().saturating_sub(Self::RUNS);
        kept.drain(..too_many);
    }

    /// Returns the origin of the record at this position of the output of a source's instance, such
    /// as `in.csv:42`, if still known.
    pub fn of(&self, vertex: &str, instance: Instance, position: u64) -> Option<String> {
        let run = self.run(vertex, instance, position)?;
        let first = match &run.line {
            OriginLine::Number(line) => *line,
            OriginLine::Deferred(line) => line()?,
        };
        let line = first + (position - run.position);
        Some(format!("{}:{line}", run.stream))
    }

    fn run(&self, vertex: &str, instance: Instance, position: u64) -> Option<OriginRun> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = sources.get(&(vertex.to_string(), instance))?;
        let behind = kept.partition_point(|run| run.position <= position);
        kept.get(behind.checked_sub(1)?).cloned()
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
                line: OriginLine::Number(1),
            };
            origins.add("lines", Instance::ONLY, [run]);
        }
        let of = |position| origins.of("lines", Instance::ONLY, position);
        assert_eq!(of(19_995).as_deref(), Some("file 1999:6"));
        assert_eq!(of(10_000).as_deref(), Some("file 1000:1"));
        assert_eq!(of(9_999), None);
    }
}
