//! A source of recorded data: as fast as the job reads it, or as a replay in time.

use std::collections::VecDeque;
use std::io::BufRead;
use std::time::Duration;

use ardea::Result;
use ardea::connect::format::{Csv, Decode};
use ardea::core::{
    BadRecords, Clock, InstanceContext, Ordinal, Outbox, Processor, Progress, SourceControl,
};
use ardea::prelude::{OnError, Timestamp};
use serde::de::DeserializeOwned;

use super::Data;

/// The longest time until the next check of a record's due time.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// The largest number of rows read in a call, so that a stopping job does not wait for the whole
/// file.
const ROWS: usize = 4_096;

/// A source that reads all rows of a file, and then emits them.
///
/// The steps `.sort_by_key(…)` and `.replay(…)` do the same after any source, but a drained job
/// still processes all records that these steps have read. A drain of this source ends the replay
/// at its current position.
pub(super) struct RecordedP<T> {
    data: Data,
    name: &'static str,
    pace: Option<ReplaySpeed<T>>,
    bad: BadRecords,
    clock: Clock,
    state: State,
    records: VecDeque<T>,
}

enum State {
    NotBegun,
    Reading(Box<Reading>),
    /// All rows have been read.
    Read,
}

struct Reading {
    file: Box<dyn BufRead + Send>,
    csv: Csv,
    line: u64,
}

struct ReplaySpeed<T> {
    time: fn(&T) -> Timestamp,
    speed: f64,
    /// The recorded time and the clock at the first record.
    origin: Option<(Timestamp, Duration)>,
}

impl<T> ReplaySpeed<T> {
    /// Returns the due time of a record on the clock. The first record is due at `now`; at infinite
    /// speed all are.
    fn due(&mut self, record: &T, now: Duration) -> Duration {
        let recorded = (self.time)(record);
        let (first, started) = *self.origin.get_or_insert((recorded, now));
        let seconds = recorded.since(first).as_secs_f64() / self.speed;
        started.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

impl<T: DeserializeOwned + Send + 'static> RecordedP<T> {
    /// Creates a source of all records in the order of the file.
    pub(super) fn new(data: Data, name: &'static str) -> Self {
        RecordedP {
            data,
            name,
            pace: None,
            bad: BadRecords::new(OnError::DeadLetter),
            clock: Clock::system(),
            state: State::NotBegun,
            records: VecDeque::new(),
        }
    }

    /// Creates a source that replays the records in the order of `time`, with `speed` seconds of
    /// recorded time per second.
    pub(super) fn replayed(
        data: Data,
        name: &'static str,
        time: fn(&T) -> Timestamp,
        speed: f64,
    ) -> Self {
        RecordedP {
            pace: Some(ReplaySpeed {
                time,
                speed,
                origin: None,
            }),
            ..RecordedP::new(data, name)
        }
    }

    /// Reads some rows, and sorts all of them at the end of the file.
    fn read(&mut self) -> Result<()> {
        let State::Reading(reading) = &mut self.state else {
            self.state = State::Reading(Box::new(Reading {
                file: self.data.open(self.name)?,
                csv: Csv::new(),
                line: 0,
            }));
            return Ok(());
        };
        let Reading { file, csv, line } = &mut **reading;
        let mut row = Vec::new();
        for _ in 0..ROWS {
            row.clear();
            let length = file.read_until(b'\n', &mut row);
            if length.map_err(|error| self.data.cannot_read(self.name, error))? == 0 {
                self.state = State::Read;
                if let Some(ReplaySpeed { time, .. }) = self.pace {
                    self.records.make_contiguous().sort_by_key(time);
                }
                return Ok(());
            }
            *line += 1;
            let frame = row.strip_suffix(b"\n").unwrap_or(&row);
            let frame = frame.strip_suffix(b"\r").unwrap_or(frame);
            match csv.decode(frame) {
                Ok(record) => self.records.extend(record),
                Err(reason) => {
                    let origin = || format!("{}:{line}", self.data.origin(self.name));
                    self.bad.report(origin, || frame.to_vec(), reason)?;
                }
            }
        }
        Ok(())
    }
}

impl<T: DeserializeOwned + Send + 'static> Processor for RecordedP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.clock = context.clock.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !matches!(self.state, State::Read) {
            self.read()?;
            return Ok(Progress::MADE);
        }
        let now = self.clock.now();
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let mut made = false;
        let mut next = None;
        while !lane.is_full()
            && let Some(record) = self.records.front()
        {
            let due = match &mut self.pace {
                Some(pace) => pace.due(record, now),
                None => now,
            };
            if due > now {
                next = Some(due);
                break;
            }
            if let Some(record) = self.records.pop_front() {
                lane.push(record, Timestamp::MIN);
                made = true;
            }
        }
        if let Some(due) = next {
            outbox.wake_at(due.min(now + MAX_WAIT));
        }
        Ok(match (self.records.is_empty(), made) {
            (true, _) => Progress::DONE,
            (false, true) => Progress::MADE,
            (false, false) => Progress::NONE,
        })
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T: DeserializeOwned + Send + 'static> SourceControl for RecordedP<T> {
    fn is_at_end(&self) -> bool {
        matches!(self.state, State::Read) && self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::time::Instant;

    use ardea::prelude::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn second((second, _): &(i64, char)) -> Timestamp {
        Timestamp::from_secs(*second)
    }

    /// Creates data with one file, `rows.csv.gz`.
    fn data(rows: &str) -> (tempfile::TempDir, Data) {
        let directory = tempfile::tempdir().unwrap();
        let file = fs::File::create(directory.path().join("rows.csv.gz")).unwrap();
        let mut packed = GzEncoder::new(file, Compression::fast());
        packed.write_all(rows.as_bytes()).unwrap();
        packed.finish().unwrap();
        let data = Data::in_directory(directory.path());
        (directory, data)
    }

    #[test]
    fn records_come_in_the_order_of_their_time_and_bad_rows_are_set_aside() {
        let (_directory, data) = data("second,what\n3,c\r\n1,a\nsoon,x\n\n3,d\n2,b");
        let p = Pipeline::new("recorded");
        let out = p
            .read_from(data.replayed("rows.csv.gz", second, f64::INFINITY))
            .collect();
        let node = Node::start(NodeConfig::default()).unwrap();
        let job = p.submit(&node, JobConfig::default()).unwrap();
        job.join().unwrap();
        assert!(matches!(job.status(), JobStatus::Completed));
        assert_eq!(out.take(), [(1, 'a'), (2, 'b'), (3, 'c'), (3, 'd')]);
        let letter = &job.dead_letters().sample()[0];
        assert!(letter.origin.ends_with("rows.csv.gz:4"), "{letter:?}");
        assert_eq!(letter.raw, b"soon,x");
    }

    #[test]
    fn a_replay_that_drains_ends_where_it_is() {
        let (_directory, data) = data("second,what\n0,a\n0,b\n1000000,c\n");
        let p = Pipeline::new("recorded");
        let out = p
            .read_from(data.replayed("rows.csv.gz", second, 1.0))
            .collect();
        let node = Node::start(NodeConfig::default()).unwrap();
        let job = p.submit(&node, JobConfig::default()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while out.len() < 2 {
            assert!(Instant::now() < deadline, "nothing came for 30 seconds");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        job.drain();
        job.join().unwrap();
        assert!(matches!(job.status(), JobStatus::Drained));
        assert_eq!(out.take(), [(0, 'a'), (0, 'b')]);
    }

    #[test]
    fn a_file_that_is_not_there_fails_the_job_and_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let p = Pipeline::new("recorded");
        let data = Data::in_directory(directory.path());
        p.read_from(data.replayed("rows.csv.gz", second, 1.0))
            .collect();
        let error = p.run().unwrap_err();
        assert_eq!(error.code(), ardea::core::ErrorCode::ReadFailed);
        assert!(error.to_string().contains("rows.csv.gz"), "{error}");
    }

    #[test]
    fn what_the_program_carries_is_read_from_its_memory() {
        let p = Pipeline::new("airlines");
        let airlines = p
            .read_from(Data::embedded().csv::<crate::Airline>("airlines.csv.gz"))
            .collect();
        p.run().unwrap();
        assert_eq!(airlines.len(), 16);
    }
}
