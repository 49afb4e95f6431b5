//! What a sink has to write that each record is in the topic once: it waits for the commit, and outlives the instance.

use std::collections::VecDeque;
use std::time::Instant;

use ardea_core::instance_state::{Siblings, key_of, put, written_by};
use ardea_core::{
    BadRecords, Cut, CutDraft, CutWriter, Epoch, Error, ErrorCode, GoneKeys, InstanceContext,
    Progress, RestoredEntry, RestoredState, Result, Undecided,
};
use serde::{Deserialize, Serialize};

use super::batch::{Batch, Block, Filling, Waiting};
use super::limits::Limits;
use super::transactions::{SLICE, Transactions, Writer};
use crate::kafka::settings::Settings;

/// The name of the state that says who wrote.
const WRITER: &str = "writer";
/// The name of the state with the blocks that have not been sent.
const UNSENT: &str = "unsent";

/// What an instance hands over besides its blocks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Kept {
    instances: u32,
    run: u64,
    /// The latest epoch whose messages are known to be there.
    published: Option<Epoch>,
}

/// A writer that has died, and whose batches are to be sent.
struct Heir {
    index: u32,
    kept: Kept,
    batches: Vec<Batch>,
    /// The keys of all its blocks.
    keys: Vec<Vec<u8>>,
    transactions: Option<Transactions>,
    is_asked: bool,
}

/// The messages of a sink on their way through the commits of their epochs.
pub(super) struct Once {
    settings: Settings,
    context: InstanceContext,
    limits: Limits,
    /// Tells this run's mark from those of others.
    run: u64,
    published: Option<Epoch>,
    filling: Filling,
    /// Of epochs that have ended, the oldest first.
    waiting: VecDeque<Batch>,
    /// How many of those are being sent.
    sending: usize,
    undecided: Undecided,
    transactions: Option<Transactions>,
    gone: GoneKeys,
    draft: CutDraft,
    /// What of the cut has still to be written.
    unwritten: VecDeque<(Vec<u8>, Block)>,
    siblings: Siblings<Kept>,
    restored: Vec<(u32, Epoch, u32, Block)>,
    heirs: Option<Vec<Heir>>,
}

impl Once {
    pub fn new(settings: &Settings, context: &InstanceContext) -> Self {
        Once {
            settings: settings.clone(),
            context: context.clone(),
            limits: Limits::new(settings, &context.job),
            run: ardea_core::unique_number(),
            published: None,
            filling: Filling::default(),
            waiting: VecDeque::new(),
            sending: 0,
            undecided: Undecided::default(),
            transactions: None,
            gone: GoneKeys::default(),
            draft: CutDraft::default(),
            unwritten: VecDeque::new(),
            siblings: Siblings::default(),
            restored: Vec::new(),
            heirs: None,
        }
    }

    /// Whether it is known how large messages may be; asked for, a second at most.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.limits.are_known()
    }

    /// Whether a message with so much key and value can be sent.
    pub fn fits(&self, bytes: usize) -> bool {
        self.limits.fits(bytes)
    }

    /// Takes a message, which is sent when the epoch at hand is committed.
    pub fn push(&mut self, message: Waiting<'_>) -> Result<()> {
        self.filling.push(message)
    }

    /// Whether more messages may be taken, with so many bytes as a limit. While some are being sent, or their epoch has ended and it has not been told what comes of it, the
    /// others wait; otherwise nothing would become of waiting, as the end of the epoch lies behind what waits.
    ///
    /// # Errors
    /// `LimitReached` if those of epochs that are not committed are too many.
    pub fn has_room(&self, limit: usize) -> Result<bool> {
        let waiting: usize = self.waiting.iter().map(Batch::byte_len).sum();
        let held = waiting + self.filling.byte_len();
        if held < limit {
            return Ok(true);
        }
        let may_make_room = self.undecided.is_awaited(self.context.clock.now());
        if self.sending > 0 || waiting > 0 && may_make_room {
            return Ok(false);
        }
        let topic = &self.settings.topic;
        let what = format!(
            "the messages to the Kafka topic {topic} that wait for their epoch to be committed take {held} bytes, {limit} are the most"
        );
        Err(Error::new(ErrorCode::LimitReached, what).hint(
            "end epochs more often (snapshots.every), use more instances, or raise the limit (`hold_at_most`); `at_least_once` holds nothing",
        ))
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.filling.is_empty()
    }

    fn writer(&self, index: u32, run: u64) -> Writer {
        let InstanceContext { job, vertex, .. } = &self.context;
        let id = format!("ardea-{job}-{vertex}-{index}");
        Writer {
            group: format!("{id}-{run:016x}"),
            transactional_id: id,
        }
    }

    /// An epoch will not be committed: its messages are sent with those of a later one.
    pub fn give_up(&mut self, epoch: Epoch) {
        self.undecided.decide(epoch);
    }

    /// An epoch has ended, and its cut is taken.
    pub fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.undecided.begin(cut.epoch, self.context.clock.now());
        let batch = self.filling.end(cut.epoch);
        if !batch.blocks.is_empty() {
            self.waiting.push_back(batch);
        }
        let index = self.context.instance.index;
        let kept = Kept {
            instances: self.context.instance.parallelism,
            run: self.run,
            published: self.published,
        };
        let chunk = self.draft.begin();
        put(chunk, WRITER, (index, &[]), &kept)?;
        if !cut.is_full() {
            for key in self.gone.iter() {
                let key = |out: &mut Vec<u8>| {
                    out.extend_from_slice(key);
                    Ok(())
                };
                chunk.write_removed(UNSENT, None, key)?;
            }
        }
        self.gone.freeze(cut.epoch);
        self.unwritten.clear();
        let is_new = |batch: &&Batch| cut.since.is_none_or(|since| batch.epoch > since);
        for batch in self.waiting.iter().filter(is_new) {
            let blocks = (0u32..).zip(&batch.blocks);
            let blocks = blocks.map(|(n, block)| (key(index, batch.epoch, n), block.clone()));
            self.unwritten.extend(blocks);
        }
        Ok(())
    }

    pub fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let drafted = self.draft.write(writer)?;
        if !drafted.done {
            return Ok(drafted);
        }
        let mut made = drafted.made;
        while writer.has_room() {
            let Some((key, block)) = self.unwritten.pop_front() else {
                break;
            };
            writer.set(UNSENT, None, &key, &block)?;
            made = true;
        }
        Ok(Progress {
            made,
            done: self.unwritten.is_empty(),
        })
    }

    /// An epoch is committed: its messages are sent, and all before it. Done when they are there.
    pub fn commit(&mut self, epoch: Epoch, bad: &BadRecords) -> Result<Progress> {
        self.gone.commit(epoch);
        self.undecided.decide(epoch);
        if self.sending == 0 {
            let due = self.waiting.iter().take_while(|batch| batch.epoch <= epoch);
            self.sending = due.count();
        }
        if self.sending == 0 {
            return Ok(Progress::DONE);
        }
        let mut transactions = match self.transactions.take() {
            Some(transactions) => transactions,
            None => {
                if !self.limits.are_known()? {
                    return Ok(Progress::MADE);
                }
                let writer = self.writer(self.context.instance.index, self.run);
                Transactions::new(&self.settings, &self.context.job, writer, &self.limits)?
            }
        };
        let batches = &self.waiting.make_contiguous()[..self.sending];
        let published = publish_for_a_while(&mut transactions, batches, bad);
        self.transactions = Some(transactions);
        if !published? {
            return Ok(Progress::MADE);
        }
        let index = self.context.instance.index;
        for batch in self.waiting.drain(..self.sending) {
            self.published = Some(batch.epoch);
            for (n, _) in (0u32..).zip(&batch.blocks) {
                self.gone.note(key(index, batch.epoch, n));
            }
        }
        self.sending = 0;
        // More may be due by now.
        let more = self
            .waiting
            .front()
            .is_some_and(|batch| batch.epoch <= epoch);
        Ok(Progress {
            made: true,
            done: !more,
        })
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match entry.state {
                WRITER => self.siblings.take(&entry)?,
                UNSENT => {
                    let (index, epoch, n) = place_of(&entry)?;
                    if self.context.instance.owns(index.into()) {
                        let block = Block::new(entry.value.to_vec());
                        self.restored.push((index, epoch, n, block));
                    }
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    /// All has come back: what is not in the topic yet is sent now, as its epoch is committed. Done when it is there.
    pub fn resume(&mut self, bad: &BadRecords) -> Result<Progress> {
        let mut heirs = match self.heirs.take() {
            Some(heirs) => heirs,
            None => self.find_heirs()?,
        };
        if !heirs.is_empty() && !self.limits.are_known()? {
            self.heirs = Some(heirs);
            return Ok(Progress::MADE);
        }
        let Some(mut heir) = heirs.pop() else {
            return Ok(Progress::DONE);
        };
        let is_done = self.settle(&mut heir, bad)?;
        if !is_done {
            heirs.push(heir);
        } else if heir.kept.instances == self.context.instance.parallelism {
            self.run = heir.kept.run;
            let latest = heir.batches.last().map(|batch| batch.epoch);
            self.published = heir.kept.published.max(latest);
            self.transactions = heir.transactions;
            heir.keys.into_iter().for_each(|key| self.gone.note(key));
        }
        let done = heirs.is_empty();
        self.heirs = Some(heirs);
        Ok(Progress { made: true, done })
    }

    /// Whose batches this instance has to see to.
    fn find_heirs(&mut self) -> Result<Vec<Heir>> {
        let Some(all) = self.siblings.all(|kept| kept.instances)? else {
            return Ok(Vec::new());
        };
        let mut blocks = std::mem::take(&mut self.restored);
        blocks.sort_by_key(|(index, epoch, n, _)| (*index, *epoch, *n));
        let own = (0u32..).zip(all);
        let own = own.filter(|(index, _)| self.context.instance.owns((*index).into()));
        let heirs = own.map(|(index, kept)| {
            let mut batches: Vec<Batch> = Vec::new();
            let mut keys = Vec::new();
            for (_, epoch, n, block) in blocks.iter().filter(|(of, ..)| *of == index) {
                keys.push(key(index, *epoch, *n));
                match batches.last_mut().filter(|batch| batch.epoch == *epoch) {
                    Some(batch) => batch.blocks.push(block.clone()),
                    None => batches.push(Batch {
                        epoch: *epoch,
                        blocks: vec![block.clone()],
                    }),
                }
            }
            Heir {
                index,
                kept,
                batches,
                keys,
                transactions: None,
                is_asked: false,
            }
        });
        Ok(heirs.collect())
    }

    /// Takes over from a dead writer, and sends what it had not; true when that is there.
    fn settle(&self, heir: &mut Heir, bad: &BadRecords) -> Result<bool> {
        let transactions = match &mut heir.transactions {
            Some(transactions) => transactions,
            none => {
                let writer = self.writer(heir.index, heir.kept.run);
                let job = &self.context.job;
                none.insert(Transactions::new(
                    &self.settings,
                    job,
                    writer,
                    &self.limits,
                )?)
            }
        };
        if !transactions.fence()? {
            return Ok(false);
        }
        if !heir.is_asked {
            let Some(mark) = transactions.mark()? else {
                return Ok(false);
            };
            if mark.is_none() && heir.kept.published.is_some() {
                return Err(transactions.mark_is_gone());
            }
            // What is there by the mark is there.
            heir.batches.retain(|batch| Some(batch.epoch) > mark);
            heir.kept.published = heir.kept.published.max(mark);
            heir.is_asked = true;
        }
        publish_for_a_while(transactions, &heir.batches, bad)
    }
}

/// Goes on with a transaction until it is done or a moment has passed.
fn publish_for_a_while(
    transactions: &mut Transactions,
    batches: &[Batch],
    bad: &BadRecords,
) -> Result<bool> {
    let begun = Instant::now();
    loop {
        if transactions.publish(batches, bad)? {
            return Ok(true);
        }
        if begun.elapsed() >= SLICE {
            return Ok(false);
        }
    }
}

/// The key of a block.
fn key(instance: u32, epoch: Epoch, number: u32) -> Vec<u8> {
    let rest = [&epoch.0.to_be_bytes()[..], &number.to_be_bytes()].concat();
    key_of(instance, &rest)
}

/// Whose block it is, of which epoch and which one.
fn place_of(entry: &RestoredEntry<'_>) -> Result<(u32, Epoch, u32)> {
    let (instance, rest) = written_by(entry)?;
    let place = rest.split_first_chunk().and_then(|(epoch, number)| {
        let number = u32::from_be_bytes(number.try_into().ok()?);
        Some((instance, Epoch(u64::from_be_bytes(*epoch)), number))
    });
    place.ok_or_else(|| Error::new(ErrorCode::BadRecord, "a block of messages has no place"))
}
