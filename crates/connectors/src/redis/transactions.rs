//! Commands of an exactly-once sink, grouped by epoch and buffered until their epoch is committed.
//!
//! # Exactly-once protocol
//!
//! The commands of an epoch are complete when its snapshot is taken, and are part of the snapshot.
//! When the epoch is committed, its commands are sent in one transaction that also sets a *marker*
//! to the epoch's number. A transaction whose marker is already set is not executed. So after a
//! failure the restored instance sends the same transaction again, and the marker shows whether it
//! has been executed.
//!
//! A marker belongs to one attempt of one instance, because attempts restored from the same
//! checkpoint, or from none, reuse epoch numbers. A restored attempt sends the remaining
//! transactions of the previous attempt under the previous marker, and then uses its own marker. A
//! previous attempt that is still running may send its last transactions late. Both attempts send
//! the same transactions with the same marker, so each is executed once. Therefore a previous
//! marker expires only a week after the first commit of the restored attempt.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ardea_core::{
    Epoch, Error, ErrorCode, Instance, PendingCommit, Progress, RemovedKeys, RestoredEntry,
    RestoredState, Result, SnapshotRequest, SnapshotWriter,
};

use crate::redis::commands::Commands;
use crate::sink_worker::QueuedRecords;

/// State name. Each attempt has an entry with the hash tag, and an entry for each part of its
/// commands that are not executed yet.
const STATE: &str = "transactions";
/// Size in bytes at which a part of an epoch's commands is complete.
const PART: usize = 32 << 10;

/// An attempt of an instance of the sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SinkAttempt {
    /// Index of the instance.
    index: u32,
    /// Random number that identifies the attempt.
    number: u64,
}

impl SinkAttempt {
    fn begin(index: u32) -> SinkAttempt {
        let what = (SystemTime::now(), process::id(), index);
        SinkAttempt {
            index,
            number: RandomState::new().hash_one(what),
        }
    }

    fn key(self) -> Vec<u8> {
        let mut key = self.index.to_be_bytes().to_vec();
        key.extend_from_slice(&self.number.to_be_bytes());
        key
    }

    fn part_key(self, epoch: Epoch, part: usize) -> Vec<u8> {
        let mut key = self.key();
        key.extend_from_slice(&epoch.0.to_be_bytes());
        key.extend_from_slice(&(part as u32).to_be_bytes());
        key
    }

    /// Parses a state key: the attempt, and for a part its epoch and number.
    fn of_key(key: &[u8]) -> Option<(SinkAttempt, Option<(Epoch, u32)>)> {
        let (index, rest) = key.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let life = SinkAttempt {
            index: u32::from_be_bytes(*index),
            number: u64::from_be_bytes(*number),
        };
        if rest.is_empty() {
            return Some((life, None));
        }
        let (epoch, rest) = rest.split_first_chunk()?;
        let part = u32::from_be_bytes(rest.try_into().ok()?);
        let epoch = Epoch(u64::from_be_bytes(*epoch));
        Some((life, Some((epoch, part))))
    }

    fn marker(self, key: &str) -> String {
        format!("{key}:{}:{:016x}", self.index, self.number)
    }
}

/// The commands of an epoch.
struct Batch {
    attempt: SinkAttempt,
    epoch: Epoch,
    parts: Vec<Arc<Commands>>,
    is_sent: bool,
}

/// Commands to be executed together, unless their marker shows that they have been executed.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) marker: String,
    pub(crate) epoch: Epoch,
    pub(crate) parts: Vec<Arc<Commands>>,
}

/// Kind of a snapshot entry.
enum EntryKind {
    Gone,
    Attempt,
    Part(Arc<Commands>),
}

/// The commands of one instance, from encoding to execution.
pub(crate) struct Transactions {
    /// Prefix of the markers' keys.
    key: String,
    /// Hash tag in `key`; empty if there is none.
    tag: String,
    instance: Instance,
    attempt: SinkAttempt,
    /// Current epoch: complete parts, and the one being filled.
    parts: Vec<Arc<Commands>>,
    gathering: Commands,
    /// Batches of ended epochs, oldest first.
    batches: VecDeque<Batch>,
    undecided: PendingCommit,
    /// Restored parts, until the restore is finished.
    restored: Vec<(SinkAttempt, Epoch, u32, Commands)>,
    /// Epoch from which this attempt was restored.
    since: Option<Epoch>,
    /// Earlier attempts that this attempt takes over, until its first commit.
    before: Vec<SinkAttempt>,
    gone: RemovedKeys,
    writing: VecDeque<(Vec<u8>, EntryKind)>,
}

impl Transactions {
    /// Creates the buffer of an instance of a sink whose marker keys begin with `key` and contain
    /// the hash tag `tag`.
    pub(crate) fn new(key: String, tag: String, instance: Instance) -> Self {
        Transactions {
            key,
            tag,
            instance,
            attempt: SinkAttempt::begin(instance.index),
            parts: Vec::new(),
            gathering: Commands::default(),
            batches: VecDeque::new(),
            undecided: PendingCommit::default(),
            restored: Vec::new(),
            since: None,
            before: Vec::new(),
            gone: RemovedKeys::default(),
            writing: VecDeque::new(),
        }
    }

    /// Adds commands to the current epoch.
    pub(crate) fn gather(&mut self, commands: &mut Commands) {
        self.gathering.append(commands);
        if self.gathering.len() >= PART {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        if !self.gathering.is_empty() {
            let part = std::mem::take(&mut self.gathering);
            self.parts.push(Arc::new(part));
        }
    }

    /// Returns true if the buffer may take more commands, up to `limit` bytes. `now` is the time on
    /// the instance's clock. Returns false above the limit while transactions are being executed or
    /// ended epochs wait for their commit. In other cases waiting would never end, because the
    /// barrier of the current epoch is queued behind the waiting records.
    ///
    /// # Errors
    /// `LimitReached` if uncommitted epochs exceed the limit.
    pub(crate) fn has_room(&self, limit: usize, now: Duration) -> Result<bool> {
        let parts = self.batches.iter().flat_map(|batch| &batch.parts);
        let parts = parts.chain(&self.parts).map(|part| part.len());
        let held = parts.sum::<usize>() + self.gathering.len();
        if held < limit {
            return Ok(true);
        }
        let may_make_room = self.is_pending() && self.undecided.is_pending(now);
        if self.is_under_way() || may_make_room {
            return Ok(false);
        }
        let what = format!(
            "the commands for Redis that wait for their epoch to be committed take {held} bytes; the limit is {limit}"
        );
        Err(Error::new(ErrorCode::LimitReached, what).hint(
            "end epochs more often (checkpoints.every), use more instances, or raise the limit (`hold_at_most`)",
        ))
    }

    /// Returns true if there are transactions not executed yet.
    pub(crate) fn is_pending(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Returns true if transactions have been handed to the worker and are not finished.
    pub(crate) fn is_under_way(&self) -> bool {
        self.batches.front().is_some_and(|batch| batch.is_sent)
    }

    /// Handles an aborted epoch: its commands are executed with those of a later epoch.
    pub(crate) fn abort_epoch(&mut self, epoch: Epoch) {
        self.undecided.decide(epoch);
    }

    /// Ends the current epoch and takes its snapshot. `now` is the time on the instance's clock.
    pub(crate) fn take_snapshot(&mut self, snapshot: SnapshotRequest, now: Duration) {
        self.undecided.begin(snapshot.epoch, now);
        self.end_part();
        if !self.parts.is_empty() {
            self.batches.push_back(Batch {
                attempt: self.attempt,
                epoch: snapshot.epoch,
                parts: std::mem::take(&mut self.parts),
                is_sent: false,
            });
        }
        self.writing.clear();
        if !snapshot.is_full() {
            let gone = self.gone.iter().map(|key| (key.to_vec(), EntryKind::Gone));
            self.writing.extend(gone);
        }
        self.gone.freeze(snapshot.epoch);
        self.writing
            .push_back((self.attempt.key(), EntryKind::Attempt));
        for batch in &self.batches {
            let parts = batch.parts.iter().enumerate();
            self.writing.extend(parts.map(|(number, part)| {
                let key = batch.attempt.part_key(batch.epoch, number);
                (key, EntryKind::Part(Arc::clone(part)))
            }));
        }
    }

    /// Continues writing the snapshot.
    pub(crate) fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let before = self.writing.len();
        while writer.has_room()
            && let Some((key, said)) = self.writing.pop_front()
        {
            match said {
                EntryKind::Gone => writer.remove(STATE, None, &key)?,
                EntryKind::Attempt => writer.set(STATE, None, &key, self.tag.as_bytes())?,
                EntryKind::Part(part) => {
                    let put_key = |out: &mut Vec<u8>| {
                        out.extend_from_slice(&key);
                        Ok(())
                    };
                    writer.write(STATE, None, put_key, |out| {
                        part.encode(out);
                        Ok(())
                    })?;
                }
            }
        }
        Ok(Progress {
            made: self.writing.len() < before,
            done: self.writing.is_empty(),
        })
    }

    /// Handles a committed epoch; returns the transactions to execute, and the keys of the markers
    /// that are to expire in a week.
    pub(crate) fn commit(&mut self, epoch: Epoch) -> (Vec<Transaction>, Vec<String>) {
        self.gone.commit(epoch);
        self.undecided.decide(epoch);
        let mut before = Vec::new();
        if self.since.is_some_and(|since| since < epoch) {
            before = std::mem::take(&mut self.before);
        }
        let markers = before.iter().map(|life| life.marker(&self.key)).collect();
        (self.due(epoch), markers)
    }

    fn due(&mut self, epoch: Epoch) -> Vec<Transaction> {
        let key = &self.key;
        let due = self.batches.iter_mut();
        let due = due.filter(|batch| batch.epoch <= epoch && !batch.is_sent);
        let send = |batch: &mut Batch| {
            batch.is_sent = true;
            Transaction {
                marker: batch.attempt.marker(key),
                epoch: batch.epoch,
                parts: batch.parts.clone(),
            }
        };
        due.map(send).collect()
    }

    /// Removes the transactions handed to the worker, after their execution.
    pub(crate) fn note_carried_out(&mut self) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.is_sent) {
            for number in 0..batch.parts.len() {
                self.gone.add(batch.attempt.part_key(batch.epoch, number));
            }
        }
    }

    /// Restores the entry of an attempt if the attempt is assigned to this instance, which depends
    /// on its instance index.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        if entry.state != STATE {
            return Err(RestoredState::unknown(entry));
        }
        let (life, part) = SinkAttempt::of_key(entry.key).ok_or_else(damaged)?;
        if !self.instance.owns(life.index.into()) {
            return Ok(());
        }
        match part {
            None => {
                if entry.value != self.tag.as_bytes() {
                    return Err(self.retagged(entry.value));
                }
                self.gone.add(life.key());
                self.before.push(life);
            }
            Some((epoch, part)) => {
                let commands = Commands::decode(entry.value).ok_or_else(damaged)?;
                self.restored.push((life, epoch, part, commands));
            }
        }
        Ok(())
    }

    /// Returns the error of a changed hash tag, with which earlier markers would not be found.
    fn retagged(&self, before: &[u8]) -> Error {
        let what = format!(
            "a sink whose hash tag was {:?} cannot continue with {:?}",
            String::from_utf8_lossy(before),
            self.tag
        );
        Error::new(ErrorCode::InvalidJob, what).hint("leave `hash_tag` as it was")
    }

    /// Finishes the restore from the committed `epoch`; returns the transactions to execute.
    pub(crate) fn resume(&mut self, epoch: Epoch) -> Vec<Transaction> {
        self.since = Some(epoch);
        let mut parts = std::mem::take(&mut self.restored);
        parts.sort_by_key(|(life, epoch, part, _)| (life.index, life.number, *epoch, *part));
        for (life, epoch, _, commands) in parts {
            let part = Arc::new(commands);
            match self.batches.back_mut() {
                Some(batch) if (batch.attempt, batch.epoch) == (life, epoch) => {
                    batch.parts.push(part)
                }
                _ => self.batches.push_back(Batch {
                    attempt: life,
                    epoch,
                    parts: vec![part],
                    is_sent: false,
                }),
            }
        }
        self.due(epoch)
    }
}

fn damaged() -> Error {
    let what = "the restored commands of a sink are damaged";
    Error::new(ErrorCode::BadRecord, what).hint("start from another checkpoint")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::StateChunk;

    /// Time on the instance's clock.
    const NOW: Duration = Duration::from_secs(1);

    fn commands(value: u64) -> Commands {
        let mut commands = Commands::default();
        commands.begin(value);
        commands.incr_by("sum", value as i64);
        commands
    }

    fn written(transactions: &mut Transactions, snapshot: SnapshotRequest) -> StateChunk {
        transactions.take_snapshot(snapshot, NOW);
        let mut chunk = StateChunk::default();
        loop {
            let limit = chunk.byte_len() + 1;
            let mut writer = SnapshotWriter::new(&mut chunk, limit);
            if transactions.write_snapshot(&mut writer).unwrap().done {
                return chunk;
            }
        }
    }

    /// Restores a later attempt, with its parallelism, from a snapshot.
    fn restored(
        chunk: &StateChunk,
        instance: Instance,
        epoch: Epoch,
    ) -> (Transactions, Vec<Transaction>) {
        let mut next = Transactions::new("key".into(), String::new(), instance);
        let mut position = 0;
        for entry in RestoredState::new(chunk, &mut position, instance, usize::MAX) {
            next.restore(&entry).unwrap();
        }
        let due = next.resume(epoch);
        (next, due)
    }

    #[test]
    fn commands_are_handed_out_when_their_epoch_is_committed_and_not_before() {
        let mut transactions = Transactions::new("key".into(), String::new(), Instance::ONLY);
        transactions.gather(&mut commands(1));
        written(&mut transactions, SnapshotRequest::full(Epoch(1)));
        transactions.gather(&mut commands(2));
        written(&mut transactions, SnapshotRequest::full(Epoch(2)));
        transactions.gather(&mut commands(3));
        // The first epoch was aborted: its commands are executed with the second.
        let (due, _) = transactions.commit(Epoch(2));
        let epochs: Vec<_> = due.iter().map(|due| due.epoch.0).collect();
        assert_eq!(epochs, [1, 2]);
        assert_eq!(due[1].parts[0].records(), [2]);
        assert!(
            transactions.commit(Epoch(2)).0.is_empty(),
            "it may be told twice"
        );
        transactions.note_carried_out();
        assert!(!transactions.is_pending());
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut transactions = Transactions::new("key".into(), String::new(), Instance::ONLY);
        let limit = 3 * PART;
        let fill = |transactions: &mut Transactions| {
            while transactions.has_room(limit, NOW).unwrap_or_default() {
                transactions.gather(&mut commands(1));
            }
        };
        fill(&mut transactions);
        let error = transactions.has_room(limit, NOW).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitReached);
        // The sink waits for transactions being executed, which free space.
        written(&mut transactions, SnapshotRequest::full(Epoch(1)));
        transactions.commit(Epoch(1));
        assert!(!transactions.has_room(limit, NOW).unwrap());
        transactions.note_carried_out();
        assert!(transactions.has_room(limit, NOW).unwrap());
    }

    #[test]
    fn a_commit_that_may_come_is_waited_for() {
        let mut transactions = Transactions::new("key".into(), String::new(), Instance::ONLY);
        let limit = 3 * PART;
        // Two epochs together exceed the limit.
        transactions.gather(&mut commands(1));
        written(&mut transactions, SnapshotRequest::full(Epoch(1)));
        while transactions.has_room(limit, NOW).unwrap() {
            transactions.gather(&mut commands(2));
        }
        transactions.commit(Epoch(1));
        transactions.note_carried_out();
        let error = transactions.has_room(PART, NOW).unwrap_err();
        assert_eq!(
            error.code(),
            ErrorCode::LimitReached,
            "of the epoch at hand alone"
        );
        written(&mut transactions, SnapshotRequest::full(Epoch(2)));
        assert!(!transactions.has_room(PART, NOW).unwrap());
        transactions.abort_epoch(Epoch(2));
        assert!(
            transactions.has_room(PART, NOW).is_err(),
            "nothing frees space"
        );
    }

    #[test]
    fn another_life_carries_out_what_is_left_under_the_same_marker() {
        let mut first = Transactions::new("key".into(), String::new(), Instance::ONLY);
        first.gather(&mut commands(1));
        let chunk = written(&mut first, SnapshotRequest::full(Epoch(1)));
        let (own, _) = first.commit(Epoch(1));
        let (mut second, due) = restored(&chunk, Instance::ONLY, Epoch(1));
        assert_eq!((&due[0].marker, due[0].epoch), (&own[0].marker, Epoch(1)));
        assert_eq!(due[0].parts[0], own[0].parts[0]);

        second.note_carried_out();
        let increment = written(&mut second, SnapshotRequest::changes(Epoch(2), Epoch(1)));
        let gone = increment.entries().filter(|entry| entry.value.is_none());
        assert_eq!(gone.count(), 2, "the life before, and its part");
        assert!(second.commit(Epoch(1)).1.is_empty(), "that is told again");
        assert_eq!(second.commit(Epoch(2)).1, [own[0].marker.clone()]);
        let increment = written(&mut second, SnapshotRequest::changes(Epoch(3), Epoch(2)));
        assert_eq!(increment.len(), 1, "its own life");
    }

    #[test]
    fn other_numbers_of_instances_share_what_is_left() {
        let mut chunk = StateChunk::default();
        for index in 0..5 {
            let instance = Instance {
                index,
                parallelism: 5,
            };
            let mut transactions = Transactions::new("key".into(), String::new(), instance);
            transactions.gather(&mut commands(index.into()));
            let own = written(&mut transactions, SnapshotRequest::full(Epoch(9)));
            own.entries().for_each(|entry| chunk.push(entry).unwrap());
        }
        let mut records = Vec::new();
        for index in 0..2 {
            let (_, due) = restored(
                &chunk,
                Instance {
                    index,
                    parallelism: 2,
                },
                Epoch(9),
            );
            records.extend(due.iter().flat_map(|due| due.parts[0].records().to_vec()));
        }
        records.sort_unstable();
        assert_eq!(records, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn large_epochs_are_several_parts_in_order() {
        let mut first = Transactions::new("key".into(), String::new(), Instance::ONLY);
        for n in 0..5_000 {
            first.gather(&mut commands(n));
        }
        let chunk = written(&mut first, SnapshotRequest::full(Epoch(1)));
        assert!(chunk.len() > 3, "{}", chunk.len());
        let (_, due) = restored(&chunk, Instance::ONLY, Epoch(1));
        let records = due[0].parts.iter().flat_map(|part| part.records().to_vec());
        assert!(records.eq(0..5_000));
    }
}
