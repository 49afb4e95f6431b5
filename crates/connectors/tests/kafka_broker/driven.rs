//! Test harness for one instance of a source or sink.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{
    Chunk, Epoch, Guarantee, Inbox, Instance, InstanceContext, Ordinal, Outbox, OutboxRuntime,
    Processor, ProcessorSupplier, RestoredState, Result, Rows, SnapshotRequest, SnapshotWriter,
    StateChunk, Timestamp,
};

/// Timeout of conditions in tests.
const PATIENCE: Duration = Duration::from_secs(90);

/// One instance of a source or sink, driven by the test.
pub struct Driven {
    pub processor: Box<dyn Processor>,
    pub context: InstanceContext,
    pub outbox: Outbox,
}

impl Driven {
    pub fn new(
        supplier: &Arc<dyn ProcessorSupplier>,
        job: &str,
        (index, parallelism): (u32, u32),
    ) -> Driven {
        let context = InstanceContext {
            job: job.into(),
            instance: Instance { index, parallelism },
            guarantee: Guarantee::ExactlyOnce,
            ..InstanceContext::detached("tested")
        };
        let mut processor = supplier.supply(context.instance).unwrap();
        processor.init(&context).unwrap();
        Driven {
            processor,
            context,
            outbox: Outbox::new(1, 100),
        }
    }

    /// Repeats a call until it returns true.
    fn until(&mut self, mut call: impl FnMut(&mut dyn Processor) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !call(&mut *self.processor)? {
            assert!(Instant::now() < deadline, "it is never done");
        }
        Ok(())
    }

    pub fn restored(mut self, epoch: u64, chunk: &StateChunk) -> Result<Driven> {
        let (mut position, instance) = (0, self.context.instance);
        while position < chunk.byte_len() {
            let mut state = RestoredState::new(chunk, &mut position, instance, 2);
            self.processor.state().restore(&mut state)?;
        }
        self.until(|processor| Ok(processor.state().on_restored(Epoch(epoch))?.done))?;
        Ok(self)
    }

    pub fn snapshot(&mut self, snapshot: SnapshotRequest) -> StateChunk {
        while !self
            .processor
            .on_epoch(snapshot.epoch, &mut self.outbox)
            .unwrap()
            .done
        {}
        self.processor.state().take_snapshot(snapshot).unwrap();
        let mut chunk = StateChunk::default();
        self.until(|processor| {
            let limit = chunk.byte_len() + 1;
            let written = processor
                .state()
                .write_snapshot(&mut SnapshotWriter::new(&mut chunk, limit))?;
            Ok(written.done)
        })
        .unwrap();
        chunk
    }

    pub fn commit(&mut self, epoch: u64) -> Result<()> {
        self.until(|processor| {
            Ok(processor
                .state()
                .on_checkpoint_committed(Epoch(epoch))?
                .done)
        })
    }

    /// Polls a source once; returns true when it is finished.
    pub fn read(&mut self, room: usize, into: &mut Vec<String>) -> bool {
        self.try_read(room, into).unwrap()
    }

    pub fn try_read(&mut self, room: usize, into: &mut Vec<String>) -> Result<bool> {
        self.outbox.set_budget(room);
        let progress = self.processor.complete(&mut self.outbox)?;
        if let Some(mut chunk) = self.outbox.take_chunk(0, Chunk::default) {
            let rows = chunk.rows::<String>().unwrap();
            into.extend(rows.drain_front(usize::MAX).map(|(text, _)| text));
        }
        while self.outbox.take_marker(0).is_some() {}
        Ok(progress.done)
    }

    pub fn write(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.try_write(numbers).unwrap();
    }

    pub fn try_write(&mut self, numbers: impl IntoIterator<Item = u64>) -> Result<()> {
        let rows: Rows<u64> = numbers.into_iter().map(|n| (n, Timestamp::MIN)).collect();
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows));
        let deadline = Instant::now() + PATIENCE;
        while !inbox.is_empty() {
            let outbox = &mut self.outbox;
            self.processor.process(Ordinal::FIRST, &mut inbox, outbox)?;
            assert!(Instant::now() < deadline, "it takes no records");
        }
        Ok(())
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.processor.close();
    }
}

/// Returns one chunk with the entries of all `chunks`.
pub fn together(chunks: &[StateChunk]) -> StateChunk {
    let mut all = StateChunk::default();
    for entry in chunks.iter().flatten() {
        all.push(entry).unwrap();
    }
    all
}
