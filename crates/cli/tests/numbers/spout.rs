//! The spout: it numbers what it emits, and remembers what was acked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ardea::topology::*;

use super::ledger::{Position, PositionFile, stamped};

/// Numbers from 0 on, stamped with the instance. One that is started again goes on with what was not acked when it died, as a spout that
/// reads a log of records would.
pub struct Numbers {
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
    is_enough: bool,
    looked: Option<Instant>,
}

impl Numbers {
    /// So many a second, written down there.
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

    /// Every 20 ms: writes how far it is, and sees whether it is enough.
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
            // A position that is too low costs a replay, and nothing else.
            let _ = file.write(self.at);
        }
    }
}
