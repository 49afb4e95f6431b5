//! Buffer of an exactly-once sink. It stores messages until their epoch is committed, and is part
//! of the checkpoint.

use std::collections::VecDeque;
use std::time::Instant;

use ardea_core::instance_state::{PeerInstances, key_of, put, written_by};
use ardea_core::{
    BadRecords, Epoch, Error, ErrorCode, InstanceContext, PendingCommit, Progress, RemovedKeys,
    RestoredEntry, RestoredState, Result, SmallSnapshot, SnapshotRequest, SnapshotWriter,
};
use serde::{Deserialize, Serialize};

use super::batch::{Batch, Block, BufferedMessage, EpochBuffer};
use super::limits::Limits;
use super::transactions::{SLICE, Transactions, Writer};
use crate::kafka::settings::Settings;

/// State name of the writer's metadata.
const WRITER: &str = "writer";
/// State name of the unsent blocks.
const UNSENT: &str = "unsent";

/// Metadata of an instance in the snapshot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SinkState {
    instances: u32,
    run: u64,
    /// Latest epoch whose messages are known to be in the topic.
    published: Option<Epoch>,
}

/// A writer of an earlier attempt whose batches must be sent.
struct RestoredWriter {
    index: u32,
    kept: SinkState,
    batches: Vec<Batch>,
    /// State keys of all blocks of this writer.
    keys: Vec<Vec<u8>>,
    transactions: Option<Transactions>,
    is_asked: bool,
}

/// Buffered messages of an exactly-once sink, sent when their epochs are committed.
pub(super) struct ExactlyOnceBuffer {
    settings: Settings,
    context: InstanceContext,
    limits: Limits,
    /// Id of this run. It is part of the name under which the run stores its mark (the latest epoch
    /// in the topic).
    run: u64,
    published: Option<Epoch>,
    filling: EpochBuffer,
    /// Batches of ended epochs, oldest first.
    waiting: VecDeque<Batch>,
    /// Number of waiting batches that are being sent.
    sending: usize,
    undecided: PendingCommit,
    transactions: Option<Transactions>,
    gone: RemovedKeys,
    draft: SmallSnapshot,
    /// Blocks of the snapshot still to be written.
    unwritten: VecDeque<(Vec<u8>, Block)>,
    siblings: PeerInstances<SinkState>,
    restored: Vec<(u32, Epoch, u32, Block)>,
    restored_writers: Option<Vec<RestoredWriter>>,
}

impl ExactlyOnceBuffer {
    pub fn new(settings: &Settings, context: &InstanceContext) -> Self {
        ExactlyOnceBuffer {
            settings: settings.clone(),
            context: context.clone(),
            limits: Limits::new(settings, &context.job),
            run: ardea_core::unique_number(),
            published: None,
            filling: EpochBuffer::default(),
            waiting: VecDeque::new(),
            sending: 0,
            undecided: PendingCommit::default(),
            transactions: None,
            gone: RemovedKeys::default(),
            draft: SmallSnapshot::default(),
            unwritten: VecDeque::new(),
            siblings: PeerInstances::default(),
            restored: Vec::new(),
            restored_writers: None,
        }
    }

    /// Returns true if the size limits of messages are known. Otherwise requests the limits, which
    /// blocks for at most a second.
    pub fn is_ready(&mut self) -> Result<bool> {
        self.limits.are_known()
    }

    /// Returns true if a message with this many bytes of key and value can be sent.
    pub fn fits(&self, bytes: usize) -> bool {
        self.limits.fits(bytes)
    }

    /// Adds a message, which is sent when the current epoch is committed.
    pub fn push(&mut self, message: BufferedMessage<'_>) -> Result<()> {
        self.filling.push(message)
    }

    /// Returns true if the buffer may take more messages, up to `limit` bytes. Returns false above
    /// the limit while messages are being sent or ended epochs wait for their commit. In other
    /// cases waiting would never end, because the barrier of the current epoch is queued behind the
    /// waiting records.
    ///
    /// # Errors
    /// `LimitReached` if uncommitted epochs exceed the limit.
    pub fn has_room(&self, limit: usize) -> Result<bool> {
        let waiting: usize = self.waiting.iter().map(Batch::byte_len).sum();
        let held = waiting + self.filling.byte_len();
        if held < limit {
            return Ok(true);
        }
        let may_make_room = self.undecided.is_pending(self.context.clock.now());
        if self.sending > 0 || waiting > 0 && may_make_room {
            return Ok(false);
        }
        let topic = &self.settings.topic;
        let what = format!(
            "the messages to the Kafka topic {topic} that wait for their epoch to be committed take {held} bytes; the limit is {limit}"
        );
        Err(Error::new(ErrorCode::LimitReached, what).hint(
            "end epochs more often (checkpoints.every), use more instances, or raise the limit (`hold_at_most`); `at_least_once` buffers nothing",
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

    /// Handles an aborted epoch: its messages are sent with those of a later epoch.
    pub fn abort_epoch(&mut self, epoch: Epoch) {
        self.undecided.decide(epoch);
    }

    /// Ends an epoch and takes its snapshot.
    pub fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.undecided
            .begin(snapshot.epoch, self.context.clock.now());
        let batch = self.filling.end(snapshot.epoch);
        if !batch.blocks.is_empty() {
            self.waiting.push_back(batch);
        }
        let index = self.context.instance.index;
        let kept = SinkState {
            instances: self.context.instance.parallelism,
            run: self.run,
            published: self.published,
        };
        let chunk = self.draft.begin();
        put(chunk, WRITER, (index, &[]), &kept)?;
        if !snapshot.is_full() {
            for key in self.gone.iter() {
                let key = |out: &mut Vec<u8>| {
                    out.extend_from_slice(key);
                    Ok(())
                };
                chunk.write_removed(UNSENT, None, key)?;
            }
        }
        self.gone.freeze(snapshot.epoch);
        self.unwritten.clear();
        let is_new = |batch: &&Batch| snapshot.since.is_none_or(|since| batch.epoch > since);
        for batch in self.waiting.iter().filter(is_new) {
            let blocks = (0u32..).zip(&batch.blocks);
            let blocks = blocks.map(|(n, block)| (key(index, batch.epoch, n), block.clone()));
            self.unwritten.extend(blocks);
        }
        Ok(())
    }

    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
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

    /// Handles a committed epoch: sends its messages and those of all earlier epochs. Returns done
    /// when all these messages are in the topic.
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
                self.gone.add(key(index, batch.epoch, n));
            }
        }
        self.sending = 0;
        // More batches may be due now.
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

    /// Finishes the restore: sends the restored messages that are not in the topic yet, since their
    /// epochs are committed. Returns done when all restored messages are in the topic.
    pub fn resume(&mut self, bad: &BadRecords) -> Result<Progress> {
        let mut heirs = match self.restored_writers.take() {
            Some(heirs) => heirs,
            None => self.find_restored_writers()?,
        };
        if !heirs.is_empty() && !self.limits.are_known()? {
            self.restored_writers = Some(heirs);
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
            heir.keys.into_iter().for_each(|key| self.gone.add(key));
        }
        let done = heirs.is_empty();
        self.restored_writers = Some(heirs);
        Ok(Progress { made: true, done })
    }

    /// Returns the restored writers that this instance is responsible for.
    fn find_restored_writers(&mut self) -> Result<Vec<RestoredWriter>> {
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
            RestoredWriter {
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

    /// Fences a restored writer and sends its messages that are not in the topic; returns true when
    /// all are in the topic.
    fn settle(&self, heir: &mut RestoredWriter, bad: &BadRecords) -> Result<bool> {
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
            // Batches up to the mark are already in the topic.
            heir.batches.retain(|batch| Some(batch.epoch) > mark);
            heir.kept.published = heir.kept.published.max(mark);
            heir.is_asked = true;
        }
        publish_for_a_while(transactions, &heir.batches, bad)
    }
}

/// Continues a transaction until it is done or a time slice has passed.
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

/// Returns the state key of a block.
fn key(instance: u32, epoch: Epoch, number: u32) -> Vec<u8> {
    let rest = [&epoch.0.to_be_bytes()[..], &number.to_be_bytes()].concat();
    key_of(instance, &rest)
}

/// Returns the instance, epoch and number of a block.
fn place_of(entry: &RestoredEntry<'_>) -> Result<(u32, Epoch, u32)> {
    let (instance, rest) = written_by(entry)?;
    let place = rest.split_first_chunk().and_then(|(epoch, number)| {
        let number = u32::from_be_bytes(number.try_into().ok()?);
        Some((instance, Epoch(u64::from_be_bytes(*epoch)), number))
    });
    place.ok_or_else(|| Error::new(ErrorCode::BadRecord, "a block has an invalid key"))
}
