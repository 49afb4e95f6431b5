//! Sources and sinks of columns, driven step by step.

use ardea_core::{
    Bounded, Chunk, Epoch, Guarantee, Inbox, Instance, InstanceContext, Ordinal, Outbox,
    OutboxRuntime, Processor, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateChunk,
};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::sink::ColumnSink;
use crate::stream::ColumnSource;
use crate::{ColumnBatch, write_json_lines};

/// An instance of a source in a job with state, driven step by step.
pub(crate) struct DrivenSource {
    processor: Box<dyn Processor>,
    context: InstanceContext,
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) done: bool,
}

impl DrivenSource {
    pub(crate) fn new(
        source: impl Into<ColumnSource<Bounded>>,
        index: u32,
        parallelism: u32,
        snapshots: &[StateChunk],
    ) -> Self {
        let instance = Instance { index, parallelism };
        let context = InstanceContext {
            instance,
            guarantee: Guarantee::ExactlyOnce,
            ..InstanceContext::detached("read")
        };
        let (_, supplier, ..) = source.into().into_source().into_parts();
        let mut processor = supplier.supply(instance).unwrap();
        processor.init(&context).unwrap();
        restore(&mut *processor, instance, snapshots);
        DrivenSource {
            processor,
            context,
            batches: Vec::new(),
            done: false,
        }
    }

    pub(crate) fn step(&mut self) {
        self.try_step().unwrap();
    }

    pub(crate) fn try_step(&mut self) -> Result<()> {
        let mut outbox = Outbox::new(1, 64);
        self.done = self.processor.complete(&mut outbox)?.done;
        if let Some(mut chunk) = outbox.take_chunk(0, Chunk::default) {
            let batch = chunk.batch::<ColumnBatch>().unwrap().take();
            self.batches.push(batch.into_parts().0);
        }
        Ok(())
    }

    pub(crate) fn run(&mut self) -> &mut Self {
        while !self.done {
            self.step();
        }
        self
    }

    pub(crate) fn snapshot(&mut self) -> StateChunk {
        snapshot_of(&mut *self.processor)
    }

    /// Takes the records as JSON lines.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for batch in self.batches.drain(..) {
            write_json_lines(&batch, &mut lines, |_, _| {}).unwrap();
        }
        let lines = String::from_utf8(lines).unwrap();
        lines.lines().map(String::from).collect()
    }

    pub(crate) fn letters(&self) -> Vec<(String, Vec<u8>)> {
        let letters = self.context.dead_letters.sample().into_iter();
        letters.map(|it| (it.origin, it.raw)).collect()
    }
}

/// An instance of a sink in a job with state, driven step by step.
pub(crate) struct DrivenSink {
    processor: Box<dyn Processor>,
    pub(crate) context: InstanceContext,
    inbox: Inbox,
    outbox: Outbox,
}

impl DrivenSink {
    pub(crate) fn new(
        sink: impl Into<ColumnSink>,
        schema: &SchemaRef,
        (index, parallelism): (u32, u32),
        snapshots: &[StateChunk],
    ) -> Self {
        let instance = Instance { index, parallelism };
        let context = InstanceContext {
            instance,
            guarantee: Guarantee::ExactlyOnce,
            ..InstanceContext::detached("write")
        };
        let (_, supplier, ..) = sink.into().bound(Ok(schema.clone())).into_parts();
        let mut processor = supplier.supply(instance).unwrap();
        processor.init(&context).unwrap();
        restore(&mut *processor, instance, snapshots);
        DrivenSink {
            processor,
            context,
            inbox: Inbox::default(),
            outbox: Outbox::new(0, 64),
        }
    }

    pub(crate) fn feed(&mut self, records: RecordBatch) {
        if records.num_rows() == 0 {
            return;
        }
        self.inbox.fill(Chunk::new(ColumnBatch::untimed(records)));
        let (inbox, outbox) = (&mut self.inbox, &mut self.outbox);
        while !inbox.is_empty() {
            self.processor
                .process(Ordinal::FIRST, inbox, outbox)
                .unwrap();
        }
    }

    /// Ends an epoch.
    pub(crate) fn snapshot(&mut self) -> StateChunk {
        let outbox = &mut self.outbox;
        while !self.processor.on_epoch(Epoch(1), outbox).unwrap().done {}
        snapshot_of(&mut *self.processor)
    }

    /// Ends the input.
    pub(crate) fn finish(&mut self) -> StateChunk {
        while !self.processor.complete(&mut self.outbox).unwrap().done {}
        snapshot_of(&mut *self.processor)
    }

    pub(crate) fn commit(&mut self) {
        let state = self.processor.state();
        while !state.on_checkpoint_committed(Epoch(1)).unwrap().done {}
    }
}

impl Drop for DrivenSink {
    fn drop(&mut self) {
        self.processor.close();
    }
}

fn restore(processor: &mut dyn Processor, instance: Instance, snapshots: &[StateChunk]) {
    for chunk in snapshots {
        let mut position = 0;
        while position < chunk.byte_len() {
            let mut state = RestoredState::new(chunk, &mut position, instance, 3);
            processor.state().restore(&mut state).unwrap();
        }
    }
    while !processor.state().on_restored(Epoch(1)).unwrap().done {}
}

fn snapshot_of(processor: &mut dyn Processor) -> StateChunk {
    let state = processor.state();
    state
        .take_snapshot(SnapshotRequest::full(Epoch(1)))
        .unwrap();
    let mut chunk = StateChunk::default();
    let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
    while !state.write_snapshot(&mut writer).unwrap().done {}
    chunk
}
