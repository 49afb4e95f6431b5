//! Which messages have been read, and which of them may be acknowledged.
//!
//! The server delivers again what it has no acknowledgement of. So every message that has been read is remembered, from then until the server is known
//! to have its acknowledgement: it tells below which number it has all. The cut holds those numbers, in runs; whoever goes on from it
//! knows what was read, and that it was committed. A server that is killed may come back having forgotten acknowledgements of which it had told, and deliver those
//! messages once more: so the highest number that was forgotten here is remembered.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::instance_state::{put, value};
use ardea_core::{CutDraft, CutWriter, Epoch, Progress, RestoredState, Result};
use serde::{Deserialize, Serialize};

use super::position::Known;

/// The name of the state.
const STATE: &str = "read";

/// What is to become of a message that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is new.
    Read,
    /// It has been read, and is not committed.
    Keep,
    /// It has been read and committed.
    Acknowledge,
}

/// What is handed over: numbers of messages, from first to last.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    runs: Vec<(u64, u64)>,
    /// Earlier versions did not write it.
    #[serde(default)]
    floor: u64,
    /// When the stream was created, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<i64>,
}

/// Messages that were read and are not known to be acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By number, whether it is committed.
    read: BTreeMap<u64, bool>,
    /// All up to this that are not among these have been read and committed, or were never to be read.
    floor: u64,
    /// Read since the last cut.
    fresh: Vec<u64>,
    /// Of cuts whose epochs may yet be committed, the oldest first.
    cuts: VecDeque<(Epoch, Vec<u64>)>,
    draft: CutDraft,
    /// When the stream was created that was read, in nanoseconds since 1970.
    pub created: Option<i64>,
}

impl Ledger {
    /// Returns what is known of the stream.
    pub fn known(&self) -> Known {
        Known {
            created: self.created,
            floor: self.floor,
            runs: self.runs(),
        }
    }

    /// Returns the numbers of all messages that were read, from first to last.
    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for number in self.read.keys().copied() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        runs
    }

    /// A message has come.
    pub fn judge(&mut self, number: u64) -> Verdict {
        match self.read.get(&number) {
            Some(true) => Verdict::Acknowledge,
            Some(false) => Verdict::Keep,
            None if number <= self.floor => Verdict::Acknowledge,
            None => {
                self.read.insert(number, false);
                self.fresh.push(number);
                Verdict::Read
            }
        }
    }

    /// Whether something was read that is not committed.
    pub fn is_pending(&self) -> bool {
        !self.fresh.is_empty() || self.cuts.iter().any(|(_, numbers)| !numbers.is_empty())
    }

    pub fn take_cut(&mut self, epoch: Epoch) -> Result<()> {
        self.cuts
            .push_back((epoch, std::mem::take(&mut self.fresh)));
        let kept = Kept {
            runs: self.runs(),
            floor: self.floor,
            created: self.created,
        };
        put(self.draft.begin(), STATE, (0, &[]), &kept)
    }

    pub fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    /// An epoch is committed: which messages may be acknowledged.
    pub fn commit(&mut self, epoch: Epoch) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some((_, numbers)) = self.cuts.pop_front_if(|(of, _)| *of <= epoch) {
            for number in &numbers {
                self.read.insert(*number, true);
            }
            all.extend(numbers);
        }
        all
    }

    /// The server has acknowledgements of all messages up to this one.
    pub fn forget(&mut self, floor: u64) {
        // Only what has been acknowledged here: should somebody else have done so, the message is still one that was read.
        while let Some(first) = self.read.first_entry() {
            if *first.key() > floor || !*first.get() {
                break;
            }
            self.floor = *first.key();
            first.remove();
        }
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            let Kept {
                runs,
                floor,
                created,
            } = value(&entry)?;
            self.created = created.or(self.created);
            self.floor = self.floor.max(floor);
            for (first, last) in runs {
                self.read
                    .extend((first..=last).map(|number| (number, true)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Instance, StateChunk};

    fn cut(ledger: &mut Ledger, epoch: u64) -> StateChunk {
        ledger.take_cut(Epoch(epoch)).unwrap();
        let mut chunk = StateChunk::default();
        let mut writer = CutWriter::new(&mut chunk, usize::MAX);
        assert!(ledger.write_cut(&mut writer).unwrap().done);
        chunk
    }

    fn restored(chunk: &StateChunk) -> Ledger {
        let mut ledger = Ledger::default();
        let mut position = 0;
        let mut state = RestoredState::new(chunk, &mut position, Instance::ONLY, usize::MAX);
        ledger.restore(&mut state).unwrap();
        ledger
    }

    #[test]
    fn a_message_is_read_once_and_acknowledged_when_it_is_committed() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.judge(7), Verdict::Read);
        assert_eq!(ledger.judge(7), Verdict::Keep);
        let chunk = cut(&mut ledger, 1);
        assert_eq!(ledger.judge(9), Verdict::Read);
        assert_eq!(ledger.commit(Epoch(1)), [7]);
        assert_eq!(ledger.judge(7), Verdict::Acknowledge);
        assert!(ledger.is_pending(), "the other");

        // Another life, which goes on from there.
        let mut next = restored(&chunk);
        assert_eq!(next.judge(7), Verdict::Acknowledge);
        assert_eq!(next.judge(9), Verdict::Read);
        assert_eq!(next.judge(8), Verdict::Read);
        cut(&mut next, 2);
        assert_eq!(next.commit(Epoch(2)), [9, 8]);
        assert!(!next.is_pending());
    }

    #[test]
    fn what_the_server_knows_to_be_acknowledged_is_forgotten() {
        let mut ledger = Ledger::default();
        for number in 1..=100 {
            ledger.judge(number);
        }
        cut(&mut ledger, 1);
        ledger.commit(Epoch(1));
        for number in 101..=110 {
            ledger.judge(number);
        }
        ledger.forget(60);
        assert_eq!(ledger.judge(61), Verdict::Acknowledge);
        assert_eq!(ledger.read.len(), 50);
        assert_eq!(
            ledger.judge(60),
            Verdict::Acknowledge,
            "the server has forgotten that it knew"
        );
        // What is not committed stays, whatever the server says.
        ledger.forget(200);
        assert_eq!(ledger.read.len(), 10);
        let mut next = restored(&cut(&mut ledger, 2));
        assert_eq!(next.read.len(), 10);
        assert_eq!(next.judge(7), Verdict::Acknowledge);
        assert_eq!(next.judge(111), Verdict::Read);
    }
}
