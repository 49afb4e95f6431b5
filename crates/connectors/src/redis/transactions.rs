//! The commands of a sink that carries them out exactly once: gathered by epochs, and held until their epoch is committed.
//!
//! # Why nothing is lost and nothing is carried out twice
//!
//! The commands of an epoch are sealed when its cut is taken, and are part of the cut. When the epoch is committed they go to the server in
//! one transaction, which also sets a *marker* to the epoch's number, if the marker is not there already. So after a failure it does not
//! matter whether they had been carried out: whoever gets them back sends the same transaction, and the marker tells.
//!
//! A marker belongs to one life of one instance, since numbers of epochs are used again by lives that go on from the same snapshot, or from
//! none. Who takes over from a life sends what that left under its marker, and begins one of its own. An earlier life that does not know
//! yet that it is over may send its last transactions late: those are the ones that its successor has, so one of both finds the marker.
//! The markers of earlier lives are therefore left for a week behind the first commit of their successor.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ardea_core::{
    Cut, CutWriter, Epoch, Error, ErrorCode, GoneKeys, Instance, Progress, RestoredEntry,
    RestoredState, Result, Undecided,
};

use crate::redis::commands::Commands;

/// The name of the state: of each life an entry with the hash tag, and one for each part of its
/// commands that have not been carried out.
const STATE: &str = "transactions";
/// With so many bytes a part is whole.
const PART: usize = 32 << 10;

/// A life of an instance of the sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Life {
    /// Which instance it was.
    index: u32,
    /// Drawn by lot.
    number: u64,
}

impl Life {
    fn begin(index: u32) -> Life {
        let what = (SystemTime::now(), process::id(), index);
        Life {
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

    /// The life of an entry, and of a part the epoch and the number.
    fn of_key(key: &[u8]) -> Option<(Life, Option<(Epoch, u32)>)> {
        let (index, rest) = key.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let life = Life {
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
    life: Life,
    epoch: Epoch,
    parts: Vec<Arc<Commands>>,
    is_sent: bool,
}

/// Commands that are to be carried out together, unless the marker says that they have been.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) marker: String,
    pub(crate) epoch: Epoch,
    pub(crate) parts: Vec<Arc<Commands>>,
}

/// What an entry of a cut says of its key.
enum Said {
    Gone,
    Life,
    Part(Arc<Commands>),
}

/// The commands of one instance, from when they are written to when they are carried out.
pub(crate) struct Transactions {
    /// What the names of markers begin with.
    key: String,
    /// The hash tag in it; empty if there is none.
    tag: String,
    instance: Instance,
    life: Life,
    /// Of the epoch at hand: whole parts, and the one that is being filled.
    parts: Vec<Arc<Commands>>,
    gathering: Commands,
    /// By epochs, the oldest first.
    batches: VecDeque<Batch>,
    undecided: Undecided,
    /// Parts that came back, until all have.
    restored: Vec<(Life, Epoch, u32, Commands)>,
    /// The epoch from which this life goes on.
    since: Option<Epoch>,
    /// The lives that this one takes over from, until that is committed.
    before: Vec<Life>,
    gone: GoneKeys,
    writing: VecDeque<(Vec<u8>, Said)>,
}

impl Transactions {
    /// For an instance of a sink whose markers begin with `key`, which has this hash tag.
    pub(crate) fn new(key: String, tag: String, instance: Instance) -> Self {
        Transactions {
            key,
            tag,
            instance,
            life: Life::begin(instance.index),
            parts: Vec::new(),
            gathering: Commands::default(),
            batches: VecDeque::new(),
            undecided: Undecided::default(),
            restored: Vec::new(),
            since: None,
            before: Vec::new(),
            gone: GoneKeys::default(),
            writing: VecDeque::new(),
        }
    }

    /// Takes commands of the epoch at hand.
    pub(crate) fn gather(&mut self, commands: &mut Commands) {
        self.gathering.take_from(commands);
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

    /// Whether more commands may be taken, with so many bytes as a limit, at this time of the instance's clock. While some are being carried out, or their epoch has ended
    /// and it has not been told what comes of it, the others wait; otherwise nothing would become of waiting, as the end of the epoch lies behind what waits.
    ///
    /// # Errors
    /// `LimitReached` if those of epochs that are not committed are too many.
    pub(crate) fn has_room(&self, limit: usize, now: Duration) -> Result<bool> {
        let parts = self.batches.iter().flat_map(|batch| &batch.parts);
        let parts = parts.chain(&self.parts).map(|part| part.len());
        let held = parts.sum::<usize>() + self.gathering.len();
        if held < limit {
            return Ok(true);
        }
        let may_make_room = self.is_pending() && self.undecided.is_awaited(now);
        if self.is_under_way() || may_make_room {
            return Ok(false);
        }
        let what = format!(
            "the commands for Redis that wait for their epoch to be committed take {held} bytes, {limit} are the most"
        );
        Err(Error::new(ErrorCode::LimitReached, what).hint(
            "end epochs more often (snapshots.every), use more instances, or raise the limit (`hold_at_most`)",
        ))
    }

    /// Whether there is something to carry out.
    pub(crate) fn is_pending(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Whether something has been handed out to be carried out.
    pub(crate) fn is_under_way(&self) -> bool {
        self.batches.front().is_some_and(|batch| batch.is_sent)
    }

    /// An epoch will not be committed: its commands are carried out with those of a later one.
    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        self.undecided.decide(epoch);
    }

    /// An epoch ends, at this time of the instance's clock: what was gathered belongs to it.
    pub(crate) fn take_cut(&mut self, cut: Cut, now: Duration) {
        self.undecided.begin(cut.epoch, now);
        self.end_part();
        if !self.parts.is_empty() {
            self.batches.push_back(Batch {
                life: self.life,
                epoch: cut.epoch,
                parts: std::mem::take(&mut self.parts),
                is_sent: false,
            });
        }
        self.writing.clear();
        if !cut.is_full() {
            let gone = self.gone.iter().map(|key| (key.to_vec(), Said::Gone));
            self.writing.extend(gone);
        }
        self.gone.freeze(cut.epoch);
        self.writing.push_back((self.life.key(), Said::Life));
        for batch in &self.batches {
            let parts = batch.parts.iter().enumerate();
            self.writing.extend(parts.map(|(number, part)| {
                let key = batch.life.part_key(batch.epoch, number);
                (key, Said::Part(Arc::clone(part)))
            }));
        }
    }

    /// Writes on at the cut.
    pub(crate) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let before = self.writing.len();
        while writer.has_room()
            && let Some((key, said)) = self.writing.pop_front()
        {
            match said {
                Said::Gone => writer.remove(STATE, None, &key)?,
                Said::Life => writer.set(STATE, None, &key, self.tag.as_bytes())?,
                Said::Part(part) => {
                    let put_key = |out: &mut Vec<u8>| {
                        out.extend_from_slice(&key);
                        Ok(())
                    };
                    writer.write(STATE, None, put_key, |out| {
                        part.keep(out);
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

    /// An epoch is committed: what is to be carried out now, and the markers that are needed no longer than a week.
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
                marker: batch.life.marker(key),
                epoch: batch.epoch,
                parts: batch.parts.clone(),
            }
        };
        due.map(send).collect()
    }

    /// All that was handed out has been carried out.
    pub(crate) fn note_carried_out(&mut self) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.is_sent) {
            for number in 0..batch.parts.len() {
                self.gone.note(batch.life.part_key(batch.epoch, number));
            }
        }
    }

    /// Takes an entry back, if it falls to this instance: the lives of instances are dealt out by their numbers.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        if entry.state != STATE {
            return Err(RestoredState::unknown(entry));
        }
        let (life, part) = Life::of_key(entry.key).ok_or_else(damaged)?;
        if !self.instance.owns(life.index.into()) {
            return Ok(());
        }
        match part {
            None => {
                if entry.value != self.tag.as_bytes() {
                    return Err(self.retagged(entry.value));
                }
                self.gone.note(life.key());
                self.before.push(life);
            }
            Some((epoch, part)) => {
                let commands = Commands::of_kept(entry.value).ok_or_else(damaged)?;
                self.restored.push((life, epoch, part, commands));
            }
        }
        Ok(())
    }

    /// Describes a hash tag that is not the one of before: the markers that tell what has been
    /// carried out would not be found.
    fn retagged(&self, before: &[u8]) -> Error {
        let what = format!(
            "a sink whose hash tag was {:?} can't go on with {:?}",
            String::from_utf8_lossy(before),
            self.tag
        );
        Error::new(ErrorCode::InvalidJob, what).hint("leave `hash_tag` as it was")
    }

    /// All of the end of `epoch`, which is committed, has come back: what is to be carried out.
    pub(crate) fn resume(&mut self, epoch: Epoch) -> Vec<Transaction> {
        self.since = Some(epoch);
        let mut parts = std::mem::take(&mut self.restored);
        parts.sort_by_key(|(life, epoch, part, _)| (life.index, life.number, *epoch, *part));
        for (life, epoch, _, commands) in parts {
            let part = Arc::new(commands);
            match self.batches.back_mut() {
                Some(batch) if (batch.life, batch.epoch) == (life, epoch) => batch.parts.push(part),
                _ => self.batches.push_back(Batch {
                    life,
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
    let what = "commands that have not been carried out yet come back damaged";
    Error::new(ErrorCode::BadRecord, what).hint("start from another snapshot")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::StateChunk;

    /// On the instance's clock.
    const NOW: Duration = Duration::from_secs(1);

    fn commands(value: u64) -> Commands {
        let mut commands = Commands::default();
        commands.begin(value);
        commands.incr_by("sum", value as i64);
        commands
    }

    fn written(transactions: &mut Transactions, cut: Cut) -> StateChunk {
        transactions.take_cut(cut, NOW);
        let mut chunk = StateChunk::default();
        loop {
            let limit = chunk.byte_len() + 1;
            let mut writer = CutWriter::new(&mut chunk, limit);
            if transactions.write_cut(&mut writer).unwrap().done {
                return chunk;
            }
        }
    }

    /// Another life, of so many instances, that goes on from what was written.
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
        written(&mut transactions, Cut::full(Epoch(1)));
        transactions.gather(&mut commands(2));
        written(&mut transactions, Cut::full(Epoch(2)));
        transactions.gather(&mut commands(3));
        // The first was given up: it is carried out with the second.
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
        // What is being carried out is waited for, and makes room.
        written(&mut transactions, Cut::full(Epoch(1)));
        transactions.commit(Epoch(1));
        assert!(!transactions.has_room(limit, NOW).unwrap());
        transactions.note_carried_out();
        assert!(transactions.has_room(limit, NOW).unwrap());
    }

    #[test]
    fn a_commit_that_may_come_is_waited_for() {
        let mut transactions = Transactions::new("key".into(), String::new(), Instance::ONLY);
        let limit = 3 * PART;
        // Two epochs together are too much.
        transactions.gather(&mut commands(1));
        written(&mut transactions, Cut::full(Epoch(1)));
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
        written(&mut transactions, Cut::full(Epoch(2)));
        assert!(!transactions.has_room(PART, NOW).unwrap());
        transactions.give_up(Epoch(2));
        assert!(
            transactions.has_room(PART, NOW).is_err(),
            "nobody makes room"
        );
    }

    #[test]
    fn another_life_carries_out_what_is_left_under_the_same_marker() {
        let mut first = Transactions::new("key".into(), String::new(), Instance::ONLY);
        first.gather(&mut commands(1));
        let chunk = written(&mut first, Cut::full(Epoch(1)));
        let (own, _) = first.commit(Epoch(1));
        let (mut second, due) = restored(&chunk, Instance::ONLY, Epoch(1));
        assert_eq!((&due[0].marker, due[0].epoch), (&own[0].marker, Epoch(1)));
        assert_eq!(due[0].parts[0], own[0].parts[0]);

        second.note_carried_out();
        let increment = written(&mut second, Cut::changes(Epoch(2), Epoch(1)));
        let gone = increment.entries().filter(|entry| entry.value.is_none());
        assert_eq!(gone.count(), 2, "the life before, and its part");
        assert!(second.commit(Epoch(1)).1.is_empty(), "that is told again");
        assert_eq!(second.commit(Epoch(2)).1, [own[0].marker.clone()]);
        let increment = written(&mut second, Cut::changes(Epoch(3), Epoch(2)));
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
            let own = written(&mut transactions, Cut::full(Epoch(9)));
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
        let chunk = written(&mut first, Cut::full(Epoch(1)));
        assert!(chunk.len() > 3, "{}", chunk.len());
        let (_, due) = restored(&chunk, Instance::ONLY, Epoch(1));
        let records = due[0].parts.iter().flat_map(|part| part.records().to_vec());
        assert!(records.eq(0..5_000));
    }
}
