//! A reader that follows the file written by the replicas, and counts its results.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use ardea_core::{Error, ErrorCode, Result};
use hdrhistogram::Histogram;

use super::load::{KEYS, Load};
use crate::nanoseconds;

/// The time after a replica's death in which results may be late because of it, in microseconds.
const AFTERMATH: i64 = 1_000_000;

/// The results of one window.
#[derive(Clone, Copy, Default, Debug)]
struct WindowSample {
    results: u64,
    records: u64,
    /// The latency of the window's last result, in nanoseconds.
    late: u64,
}

/// The state of a reader of the file.
pub(super) struct Follower {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line that is not complete yet.
    rest: Vec<u8>,
    records: u64,
    window: i64,
    /// Times in microseconds. Windows that end between the first and the second are measured with
    /// both replicas, those until the third with one.
    spans: [i64; 3],
    latencies: [Histogram<u64>; 2],
    windows: BTreeMap<i64, WindowSample>,
}

impl Follower {
    pub(super) fn new(load: &Load, spans: [i64; 3]) -> Result<Self> {
        Ok(Follower {
            path: load.path.clone(),
            file: None,
            rest: Vec::new(),
            records: load.records(),
            window: load.window_micros,
            spans,
            latencies: [nanoseconds()?, nanoseconds()?],
            windows: BTreeMap::new(),
        })
    }

    /// Reads new lines; `now` returns the time of day in microseconds.
    pub(super) fn read(&mut self, now: impl Fn() -> i64) -> Result<()> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(self.cannot(error)),
            }
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let read = file.read_to_end(&mut self.rest);
        read.map_err(|error| self.cannot(error))?;
        let seen_at = now();
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |at| at + 1);
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        for line in text.split(|byte| *byte == b'\n') {
            if !line.is_empty() {
                self.see(line, seen_at)?;
            }
        }
        Ok(())
    }

    fn see(&mut self, line: &[u8], seen_at: i64) -> Result<()> {
        let text = String::from_utf8_lossy(line);
        let mut numbers = text.split(' ').map(str::parse::<i64>);
        let (Some(Ok(end)), Some(Ok(_)), Some(Ok(records)), None) = (
            numbers.next(),
            numbers.next(),
            numbers.next(),
            numbers.next(),
        ) else {
            let what = format!(
                "{} has a line that is not a result: {text:?}",
                self.path.display()
            );
            return Err(Error::new(ErrorCode::BadRecord, what));
        };
        let late = (seen_at - end).max(0).unsigned_abs() * 1_000;
        let [from, middle, until] = self.spans;
        match end {
            end if end >= from && end < middle => self.latencies[0].saturating_record(late),
            end if end >= middle && end < until => self.latencies[1].saturating_record(late),
            _ => {}
        }
        let seen = self.windows.entry(end).or_default();
        seen.results += 1;
        seen.records += records.unsigned_abs();
        seen.late = seen.late.max(late);
        Ok(())
    }

    /// Returns true if the last measured window has a result.
    pub(super) fn is_done(&self) -> bool {
        let last = self.windows.last_key_value();
        last.is_some_and(|(end, _)| *end >= self.spans[2])
    }

    /// Returns the latencies of results with both replicas, and with one.
    pub(super) fn latencies(&self) -> [&Histogram<u64>; 2] {
        self.latencies.each_ref()
    }

    /// Returns the highest latency of windows that ended when a replica was killed or in the second
    /// after it, in nanoseconds.
    pub(super) fn worst_after(&self, killed_at: i64) -> u64 {
        let after = self
            .windows
            .range(killed_at - self.window..killed_at + AFTERMATH);
        after.map(|(_, seen)| seen.late).max().unwrap_or(0)
    }

    /// Returns the number of results in complete windows.
    pub(super) fn results(&self) -> u64 {
        self.whole().map(|(_, seen)| seen.results).sum()
    }

    /// Returns the number of records missing from the results.
    pub(super) fn lost(&self) -> u64 {
        let ends: Vec<i64> = self.whole().map(|(end, _)| *end).collect();
        let (Some(first), Some(last)) = (ends.first(), ends.last()) else {
            return 0;
        };
        let windows = ((last - first) / self.window + 1).unsigned_abs();
        let missing = windows.saturating_sub(ends.len() as u64) * self.records;
        let short = self
            .whole()
            .map(|(_, seen)| self.records.saturating_sub(seen.records));
        missing + short.sum::<u64>()
    }

    /// Returns the number of surplus results, plus the number of records counted more than once.
    pub(super) fn duplicated(&self) -> u64 {
        let more = self.whole().map(|(_, seen)| {
            let results = seen.results.saturating_sub(KEYS);
            results + seen.records.saturating_sub(self.records)
        });
        more.sum()
    }

    /// Returns the complete windows: all but the last.
    fn whole(&self) -> impl Iterator<Item = (&i64, &WindowSample)> {
        let last = self.windows.last_key_value().map(|(end, _)| *end);
        self.windows.range(..last.unwrap_or(i64::MIN))
    }

    fn cannot(&self, error: io::Error) -> Error {
        let what = format!("cannot read {}", self.path.display());
        Error::new(ErrorCode::ReadFailed, what).because(error)
    }
}
