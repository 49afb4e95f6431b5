//! A driver of a window operator, which stores its checkpoints in memory.

use std::sync::Arc;

use ardea_checkpoint::store::{
    BlockConfig, BlockWriter, CheckpointId, MemoryStore, PartitionRange, SnapshotKind,
    SnapshotOwner,
};
use ardea_core::{
    Chunk, DEFAULT_CHUNK_RECORDS, Epoch, Guarantee, Inbox, InstanceContext, Ordinal, Outbox,
    OutboxRuntime, Processor, Result, Rows, SnapshotRequest, SnapshotWriter, StateChunk, Timestamp,
    Watermark,
};
use ardea_operators::WindowResult;

use super::{SLIDE, WindowCosts, WindowsParams};
use crate::state::spread;
use crate::usage::thread_cpu_time;

/// The size of the buffers in which an operator writes a snapshot.
const SNAPSHOT_BUFFER_BYTES: usize = 256 << 10;

/// An operator with its inputs and outputs.
pub(super) struct WindowHarness {
    operator: Box<dyn Processor>,
    inbox: Inbox,
    outbox: Outbox,
    store: Arc<MemoryStore>,
    /// The number of records so far.
    records: u64,
}

impl WindowHarness {
    pub(super) fn new(mut operator: Box<dyn Processor>) -> Result<Self> {
        operator.init(&InstanceContext {
            guarantee: Guarantee::ExactlyOnce,
            ..InstanceContext::detached("windows")
        })?;
        Ok(WindowHarness {
            operator,
            inbox: Inbox::default(),
            outbox: Outbox::new(1, DEFAULT_CHUNK_RECORDS),
            store: Arc::new(MemoryStore::new()),
            records: 0,
        })
    }

    /// Feeds the records of a slide, closes it, and takes a checkpoint.
    pub(super) fn slide(
        &mut self,
        slide: i64,
        params: &WindowsParams,
        measured: &mut WindowCosts,
    ) -> Result<()> {
        let micros = SLIDE.as_micros() as i64;
        self.feed(slide * micros, params, measured)?;
        self.close(Timestamp::from_micros((slide + 1) * micros), measured)?;
        self.checkpoint(Epoch(slide.unsigned_abs() + 1), measured)
    }

    fn feed(
        &mut self,
        start: i64,
        params: &WindowsParams,
        measured: &mut WindowCosts,
    ) -> Result<()> {
        let mut left = params.records;
        while left > 0 {
            let count = left.min(DEFAULT_CHUNK_RECORDS as u64);
            let time = Timestamp::from_micros(start + (params.records - left) as i64 % 1_000_000);
            let numbers = self.records..self.records + count;
            let rows: Rows<u64> = numbers
                .map(|number| (spread(number) % params.keys, time))
                .collect();
            self.inbox.fill(Chunk::new(rows));
            let begun = thread_cpu_time();
            while !self.inbox.is_empty() {
                self.operator
                    .process(Ordinal::FIRST, &mut self.inbox, &mut self.outbox)?;
            }
            measured.adding += thread_cpu_time().saturating_sub(begun);
            self.records += count;
            measured.records += count;
            left -= count;
        }
        Ok(())
    }

    /// Emits the windows that end at `time`.
    fn close(&mut self, time: Timestamp, measured: &mut WindowCosts) -> Result<()> {
        loop {
            let begun = thread_cpu_time();
            let progress = self
                .operator
                .on_watermark(Watermark(time), &mut self.outbox)?;
            measured.closing += thread_cpu_time().saturating_sub(begun);
            while let Some(mut chunk) = self.outbox.take_chunk(0, Chunk::default) {
                let results = chunk.rows::<WindowResult<u64, u64>>()?;
                measured.results += results.len() as u64;
                measured.sum += results.values().iter().map(|it| it.value).sum::<u64>();
            }
            while self.outbox.take_marker(0).is_some() {}
            if progress.done {
                return Ok(());
            }
        }
    }

    /// Writes the changes since the last checkpoint, and stores them as blocks.
    fn checkpoint(&mut self, epoch: Epoch, measured: &mut WindowCosts) -> Result<()> {
        let since = (epoch.0 > 1).then(|| Epoch(epoch.0 - 1));
        let mut blocks = self.block_writer(epoch, since)?;
        let begun = thread_cpu_time();
        self.operator.state().take_snapshot(SnapshotRequest {
            epoch,
            since,
            is_last: false,
        })?;
        measured.writing += thread_cpu_time().saturating_sub(begun);
        let mut chunk = StateChunk::default();
        loop {
            chunk.clear();
            let begun = thread_cpu_time();
            let mut writer = SnapshotWriter::new(&mut chunk, SNAPSHOT_BUFFER_BYTES);
            let progress = self.operator.state().write_snapshot(&mut writer)?;
            let written = thread_cpu_time();
            measured.writing += written.saturating_sub(begun);
            measured.written_bytes += chunk.byte_len() as u64;
            for entry in chunk.entries() {
                match entry.value {
                    Some(value) => blocks.set(entry.state, entry.partition, entry.key, value)?,
                    None => blocks.remove(entry.state, entry.partition, entry.key)?,
                }
            }
            measured.storing += thread_cpu_time().saturating_sub(written);
            if progress.done {
                break;
            }
        }
        let begun = thread_cpu_time();
        measured.stored_bytes += blocks.finish()?.bytes();
        measured.storing += thread_cpu_time().saturating_sub(begun);
        while !self.operator.state().on_checkpoint_committed(epoch)?.done {}
        Ok(())
    }

    fn block_writer(&self, epoch: Epoch, since: Option<Epoch>) -> Result<BlockWriter> {
        let id = |epoch| CheckpointId::new(1, epoch);
        let owner = SnapshotOwner {
            checkpoint: id(epoch),
            vertex: "windows".to_string(),
            instance: 0,
            instances: 1,
        };
        let kind = match since {
            Some(since) => SnapshotKind::Increment { since: id(since) },
            None => SnapshotKind::Full {
                partitions: PartitionRange::ALL,
            },
        };
        let store = Arc::clone(&self.store);
        BlockWriter::new(store, "bench", owner, kind, BlockConfig::default())
    }
}
