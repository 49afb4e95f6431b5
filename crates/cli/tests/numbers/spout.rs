//! The spout: it emits consecutive numbers, and records which were acked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ardea::topology::*;

use super::ledger::{Position, PositionFile, stamped};

/// A spout of numbers from 0 on, stamped with the instance. After a restart it continues with the
/// numbers that were not acked before, like a spout that reads a log.
pub struct Numbers {
    folder: PathBuf,
    rate: f64,
    instance: u32,
    file: Option<PositionFile>,
    at: Position,
    /// The next number to emit in this attempt.
    next: u64,
    /// The acked numbers above the position below which all are acked.
    acked: BTreeSet<u64>,
    failed: Vec<u64>,
    begun: Option<Instant>,
    emitted: u64,
    is_enough: bool,
    looked: Option<Instant>,
}

impl Numbers {
    /// Creates a spout that emits `rate` numbers per second, with its records in `folder`.
    pub fn new(folder: PathBuf, rate: f64) -> Self {
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
            is_enough: false,
            looked: None,
        }
    }

    /// Writes the spout's position and checks for the file `enough`, every 20 ms.
    fn look(&mut self) -> Outcome {
        let now = Instant::now();
        if self
            .looked
            .is_some_and(|looked| now - looked < Duration::from_millis(20))
        {
            return Ok(());
        }
        self.looked = Some(now);
        self.is_enough = self.folder.join("enough").exists();
        self.write()
    }

    fn write(&self) -> Outcome {
        if let Some(file) = &self.file {
            file.write(self.at)?;
        }
        Ok(())
    }

    /// Returns true if the rate permits one more number.
    fn may(&mut self) -> bool {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let due = begun.elapsed().as_secs_f64() * self.rate;
        if due - self.emitted as f64 > self.rate {
            // Numbers that could not be emitted during a standstill are not made up for.
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
            // Numbers of an earlier attempt are emitted again, acked or not.
            None if self.is_enough && self.next >= self.at.next => {
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

    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        match self.failed.is_empty() {
            true => Ok(Next::Done),
            false => self.next_tuple(out),
        }
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
            // A position that is too low only costs a replay.
            let _ = file.write(self.at);
        }
    }
}
