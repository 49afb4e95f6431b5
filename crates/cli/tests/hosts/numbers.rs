//! The job: spouts that number what they emit and remember what was acked, a bolt in the middle, and a sink that records.
//!
//! A spout that is started again goes on with what was not acked when it died, as one that reads a log of records would.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ardea::Result;
use ardea::core::{Error, ErrorCode};
use ardea::topology::*;

use crate::ledger::{Position, PositionFile, Record, stamped};

/// How many spouts.
pub const SPOUTS: u32 = 2;

/// The words after which a command line is the job's.
const COMMANDS: [&str; 4] = ["numbers", "submit", "plan", "run"];

/// Whether this process is one of the job's, or submits it.
pub fn is_meant() -> bool {
    let in_container = std::env::var_os("ARDEA_WORKER").is_some();
    let first = std::env::args().nth(1);
    in_container || first.is_some_and(|first| COMMANDS.contains(&first.as_str()))
}

/// `numbers FOLDER RATE`: a topology with so many numbers a second and spout, recorded in that folder.
pub fn describe(arguments: &[String]) -> Result<Topology> {
    let [_, folder, rate] = arguments else {
        return Err(Error::new(
            ErrorCode::InvalidConfig,
            "write numbers FOLDER RATE",
        ));
    };
    let folder = PathBuf::from(folder);
    let rate: f64 = rate
        .parse()
        .map_err(|_| Error::new(ErrorCode::InvalidConfig, "the rate is a number"))?;
    let mut topology = TopologyBuilder::new("numbers");
    topology.reliability(Reliability::AtLeastOnce);
    topology.message_timeout(Duration::from_secs(5));
    let pending = std::num::NonZeroUsize::new(5_000).unwrap_or(std::num::NonZeroUsize::MIN);
    topology.max_spout_pending(pending);
    let kept = folder.clone();
    topology.spout("numbers", SPOUTS, move || Numbers::new(kept.clone(), rate));
    topology.bolt("pass", 4, || Pass).shuffle("numbers");
    topology
        .bolt("record", 4, move || Sink {
            folder: folder.clone(),
            record: None,
        })
        .fields("pass", ["number"]);
    topology.build()
}

struct Numbers {
    folder: PathBuf,
    rate: f64,
    instance: u32,
    file: Option<PositionFile>,
    at: Position,
    /// The next number to be emitted in this life.
    next: u64,
    /// Acked, above what all are.
    acked: BTreeSet<u64>,
    failed: Vec<u64>,
    begun: Option<Instant>,
    emitted: u64,
    stopped: bool,
    looked: Option<Instant>,
}

impl Numbers {
    fn new(folder: PathBuf, rate: f64) -> Self {
        Numbers {
            folder,
            rate,
            instance: 0,
            file: None,
            at: Position::default(),
            next: 0,
            acked: BTreeSet::new(),
            failed: Vec::new(),
            begun: None,
            emitted: 0,
            stopped: false,
            looked: None,
        }
    }

    /// Every 20 ms: writes how far it is, and sees whether it is to stop.
    fn look(&mut self) -> Outcome {
        let now = Instant::now();
        if self
            .looked
            .is_some_and(|looked| now - looked < Duration::from_millis(20))
        {
            return Ok(());
        }
        self.looked = Some(now);
        self.stopped = self.folder.join("stop").exists();
        self.write()
    }

    fn write(&self) -> Outcome {
        if let Some(file) = &self.file {
            file.write(self.at)?;
        }
        Ok(())
    }

    /// Whether the rate lets it emit one more.
    fn may(&mut self) -> bool {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let due = begun.elapsed().as_secs_f64() * self.rate;
        if due - self.emitted as f64 > self.rate {
            // What could not be emitted while nothing was read is not made up for.
            self.emitted = (due - self.rate / 100.0) as u64;
        }
        (self.emitted as f64) < due
    }
}

impl Spout for Numbers {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.instance = context.instance().index;
        let (file, at) = PositionFile::open(&self.folder, self.instance)?;
        (self.file, self.at) = (Some(file), at);
        self.next = at.acked_below;
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.look()?;
        let number = match self.failed.pop() {
            Some(number) => number,
            // What a former life has emitted is emitted again, whatever came of it.
            None if self.stopped && self.next >= self.at.next => {
                if self.at.acked_below < self.at.next {
                    return Ok(Next::Wait(Duration::from_millis(20)));
                }
                self.write()?;
                return Ok(Next::Done);
            }
            None if !self.may() => return Ok(Next::Wait(Duration::from_millis(2))),
            None => {
                self.emitted += 1;
                self.next += 1;
                self.at.next = self.at.next.max(self.next);
                self.next - 1
            }
        };
        out.emit_tracked(MessageId(number), [stamped(self.instance, number)])?;
        Ok(Next::More)
    }

    fn ack(&mut self, MessageId(number): MessageId) {
        self.acked.insert(number);
        while self.acked.remove(&self.at.acked_below) {
            self.at.acked_below += 1;
        }
    }

    fn fail(&mut self, MessageId(number): MessageId) {
        self.failed.push(number);
    }

    fn close(&mut self) {
        if let Some(file) = &self.file {
            // A position that is too low costs a replay, and nothing else.
            let _ = file.write(self.at);
        }
    }
}

struct Pass;

impl Bolt for Pass {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        out.emit([tuple.int("number")?])?;
        Ok(())
    }
}

struct Sink {
    folder: PathBuf,
    record: Option<Record>,
}

impl Bolt for Sink {
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        let instance = context.instance().index;
        self.record = Some(Record::open(&self.folder, instance)?);
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let number = tuple.int("number")?;
        match &mut self.record {
            Some(record) => record.add(number)?,
            None => return Err(Failure::new("it was not prepared")),
        }
        Ok(())
    }
}
