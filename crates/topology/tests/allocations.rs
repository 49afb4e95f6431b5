//! In a steady state, no memory is allocated for tuples and acks between two processes.

use std::alloc::System;
use std::sync::Arc;

use ardea_core::{
    Chunk, ChunkCodec, Inbox, Instance, InstanceContext, Ordinal, Outbox, OutboxRuntime, Processor,
    VertexId, Waker,
};
use ardea_engine::{Job, Parallelisms, Program};
use ardea_topology::{
    Bolt, Collector, MessageId, Next, Outcome, Outputs, Reliability, Spout, SpoutCollector,
    Topology, TopologyBuilder, Tuple,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Emits numbers without end.
struct Numbers(u64);

impl Spout for Numbers {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number", "word"])
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.0 += 1;
        out.emit_tracked(MessageId(self.0), (self.0 as i64, "word"))?;
        Ok(Next::More)
    }
}

/// Ignores all tuples.
struct Ignore;

impl Bolt for Ignore {
    fn execute(&mut self, _: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        Ok(())
    }
}

fn topology() -> Topology {
    let mut builder = TopologyBuilder::new("numbers");
    builder.reliability(Reliability::AtLeastOnce);
    builder.spout("numbers", 1, || Numbers(0));
    builder.bolt("ignore", 1, || Ignore).shuffle("numbers");
    builder.build().unwrap()
}

/// One of the processes, with the only instance of a vertex.
struct Process {
    program: Program,
    processor: Box<dyn Processor>,
    outbox: Outbox,
    inbox: Inbox,
    chunk: Chunk,
    codec: Arc<dyn ChunkCodec>,
}

/// Creates the process of this vertex.
fn process(topology: &Topology, vertex: VertexId) -> Process {
    let program = topology.program(&Parallelisms::new()).unwrap();
    let supplier = program.dag.get(vertex).supplier();
    let mut processor = supplier.supply(Instance::ONLY).unwrap();
    processor.init(&InstanceContext::detached("test")).unwrap();
    let codec = program.dag.edges()[0].wanted_codec().unwrap();
    Process {
        processor,
        outbox: Outbox::new(program.dag.outputs(vertex).len(), 1024),
        inbox: Inbox::default(),
        chunk: Chunk::default(),
        codec: Arc::clone(codec),
        program,
    }
}

/// Transfers some thousand tuples, and their acks back.
fn round_trip(
    spout: &mut Process,
    bolt: &mut Process,
    numbers: VertexId,
    payload: &mut Vec<u8>,
) -> usize {
    let mut tuples = 0;
    let _ = spout.processor.complete(&mut spout.outbox).unwrap();
    let spare = std::mem::take(&mut spout.chunk);
    let mut chunk = match spout.outbox.take_chunk(0, || spare) {
        Some(chunk) => chunk,
        None => return 0,
    };
    while !chunk.is_empty() {
        payload.clear();
        let count = spout.codec.encode(&mut chunk, 4096, payload).unwrap();
        let mut arrived = std::mem::take(&mut bolt.chunk);
        bolt.codec.decode(count, payload, &mut arrived).unwrap();
        bolt.inbox.fill(arrived);
        while !bolt.inbox.is_empty() {
            let (inbox, outbox) = (&mut bolt.inbox, &mut bolt.outbox);
            bolt.processor
                .process(Ordinal::FIRST, inbox, outbox)
                .unwrap();
        }
        bolt.chunk = bolt.inbox.take_empty().unwrap();
        tuples += count;
    }
    spout.chunk = chunk;
    loop {
        payload.clear();
        let side = &bolt.program.side_channels[0];
        if !side.collect(numbers, 0, payload) {
            return tuples;
        }
        let side = &spout.program.side_channels[0];
        side.deliver(numbers, 0, payload).unwrap();
    }
}

#[test]
fn a_steady_state_allocates_nothing_for_tuples_and_acks_between_processes() {
    let topology = topology();
    let dag = topology.to_dag().unwrap();
    let [numbers, ignore] = dag.topological_order().unwrap()[..] else {
        panic!("two vertices");
    };
    let mut spout = process(&topology, numbers);
    let mut bolt = process(&topology, ignore);
    bolt.program.side_channels[0].start_forwarding(numbers, 0, Waker::none());
    let mut payload = Vec::new();
    for _ in 0..1_000 {
        round_trip(&mut spout, &mut bolt, numbers, &mut payload);
    }
    let region = Region::new(ALLOCATOR);
    let mut tuples = 0;
    for _ in 0..1_000 {
        tuples += round_trip(&mut spout, &mut bolt, numbers, &mut payload);
    }
    let change = region.change();
    let allocations = change.allocations + change.reallocations;
    assert!(tuples > 1_000, "{tuples}");
    // Memory grows once more if a slice was longer than any before.
    assert!(allocations < 50, "{allocations} for {tuples} tuples");
}
