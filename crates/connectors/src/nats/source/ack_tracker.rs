//! Tracking of messages that have been read and of those that may be acknowledged.
//!
//! The server redelivers messages without an acknowledgement. So the number of each message read is
//! stored until the server confirms the acknowledgement. The server reports the number up to which
//! all messages are acknowledged (the floor). The snapshot contains the stored numbers as ranges. A
//! restored attempt treats them as read and committed. A killed server may lose confirmed
//! acknowledgements and redeliver their messages, so the highest discarded number is stored too.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::instance_state::{put, value};
use ardea_core::{Epoch, Progress, RestoredState, Result, SmallSnapshot, SnapshotWriter};
use serde::{Deserialize, Serialize};

use super::position::Known;

/// State name.
const STATE: &str = "read";

/// Handling of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// New: emit it.
    Read,
    /// Read but not committed: wait for the commit.
    Keep,
    /// Read and committed: acknowledge it.
    Acknowledge,
}

/// Snapshot of the tracker: ranges of message numbers, first to last.
#[derive(Debug, Serialize, Deserialize)]
struct AckState {
    runs: Vec<(u64, u64)>,
    /// The highest discarded number; missing in snapshots of earlier versions.
    #[serde(default)]
    floor: u64,
    /// Creation time of the stream, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<i64>,
}

/// Messages read whose acknowledgement is not confirmed.
#[derive(Debug, Default)]
pub(crate) struct AckTracker {
    /// Numbers of messages without a confirmed acknowledgement; true if the message is committed.
    read: BTreeMap<u64, bool>,
    /// Messages up to this number that are not in `read` have been read and committed, or precede
    /// the start of the source.
    floor: u64,
    /// Messages read since the last snapshot.
    fresh: Vec<u64>,
    /// Messages of snapshots whose epoch is neither committed nor aborted, oldest first.
    snapshots: VecDeque<(Epoch, Vec<u64>)>,
    draft: SmallSnapshot,
    /// Creation time of the stream read, in nanoseconds since 1970.
    pub created: Option<i64>,
}

impl AckTracker {
    /// Returns the known state of the stream.
    pub fn known(&self) -> Known {
        Known {
            created: self.created,
            floor: self.floor,
            runs: self.runs(),
        }
    }

    /// Returns the numbers of stored messages as ranges, first to last.
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

    /// Decides how to handle a received message; stores the number of a new message.
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

    /// Returns true if some messages read are not committed yet.
    pub fn is_pending(&self) -> bool {
        !self.fresh.is_empty()
            || self
                .snapshots
                .iter()
                .any(|(_, numbers)| !numbers.is_empty())
    }

    pub fn take_snapshot(&mut self, epoch: Epoch) -> Result<()> {
        self.snapshots
            .push_back((epoch, std::mem::take(&mut self.fresh)));
        let kept = AckState {
            runs: self.runs(),
            floor: self.floor,
            created: self.created,
        };
        put(self.draft.begin(), STATE, (0, &[]), &kept)
    }

    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    /// Handles a committed epoch; returns the messages to acknowledge.
    pub fn commit(&mut self, epoch: Epoch) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some((_, numbers)) = self.snapshots.pop_front_if(|(of, _)| *of <= epoch) {
            for number in &numbers {
                self.read.insert(*number, true);
            }
            all.extend(numbers);
        }
        all
    }

    /// Discards messages up to `floor`, whose acknowledgement the server has confirmed.
    pub fn forget(&mut self, floor: u64) {
        // Only messages acknowledged by this source are discarded. Messages acknowledged by another
        // client must stay deduplicated.
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
            let AckState {
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

    fn snapshot(ledger: &mut AckTracker, epoch: u64) -> StateChunk {
        ledger.take_snapshot(Epoch(epoch)).unwrap();
        let mut chunk = StateChunk::default();
        let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
        assert!(ledger.write_snapshot(&mut writer).unwrap().done);
        chunk
    }

    fn restored(chunk: &StateChunk) -> AckTracker {
        let mut ledger = AckTracker::default();
        let mut position = 0;
        let mut state = RestoredState::new(chunk, &mut position, Instance::ONLY, usize::MAX);
        ledger.restore(&mut state).unwrap();
        ledger
    }

    #[test]
    fn a_message_is_read_once_and_acknowledged_when_it_is_committed() {
        let mut ledger = AckTracker::default();
        assert_eq!(ledger.judge(7), Verdict::Read);
        assert_eq!(ledger.judge(7), Verdict::Keep);
        let chunk = snapshot(&mut ledger, 1);
        assert_eq!(ledger.judge(9), Verdict::Read);
        assert_eq!(ledger.commit(Epoch(1)), [7]);
        assert_eq!(ledger.judge(7), Verdict::Acknowledge);
        assert!(ledger.is_pending(), "the other");

        // A later attempt restored from the snapshot.
        let mut next = restored(&chunk);
        assert_eq!(next.judge(7), Verdict::Acknowledge);
        assert_eq!(next.judge(9), Verdict::Read);
        assert_eq!(next.judge(8), Verdict::Read);
        snapshot(&mut next, 2);
        assert_eq!(next.commit(Epoch(2)), [9, 8]);
        assert!(!next.is_pending());
    }

    #[test]
    fn what_the_server_knows_to_be_acknowledged_is_forgotten() {
        let mut ledger = AckTracker::default();
        for number in 1..=100 {
            ledger.judge(number);
        }
        snapshot(&mut ledger, 1);
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
        // Uncommitted messages stay, regardless of the reported floor.
        ledger.forget(200);
        assert_eq!(ledger.read.len(), 10);
        let mut next = restored(&snapshot(&mut ledger, 2));
        assert_eq!(next.read.len(), 10);
        assert_eq!(next.judge(7), Verdict::Acknowledge);
        assert_eq!(next.judge(111), Verdict::Read);
    }
}
