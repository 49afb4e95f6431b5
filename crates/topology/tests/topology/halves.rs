//! Parts of a topology as they run in several processes, connected by the test: chunks as payloads,
//! acks as batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ardea_core::{
    Chunk, Inbox, Instance, InstanceContext, JobSignals, Ordinal, Outbox, OutboxRuntime, Processor,
    Progress, VertexId, Waker, Watermark,
};
use ardea_engine::{Job, Parallelisms, Program};
use ardea_topology::Topology;

/// The program of one process.
pub struct Process(pub Program);

/// One instance in a process, called by the test.
pub struct Driven {
    processor: Box<dyn Processor>,
    inbox: Inbox,
    outbox: Outbox,
    /// Chunks taken out of the first output to make room.
    sent: VecDeque<Chunk>,
    pub signals: Arc<JobSignals>,
    /// The number of wakeups.
    pub woken: Arc<AtomicUsize>,
}

impl Process {
    pub fn of(topology: &Topology) -> Self {
        Process(topology.program(&Parallelisms::new()).unwrap())
    }

    pub fn vertex(&self, name: &str) -> VertexId {
        let ids = self.0.dag.topological_order().unwrap();
        let mut ids = ids.into_iter();
        ids.find(|id| **self.0.dag.get(*id).name() == *name)
            .unwrap()
    }

    /// Starts an instance; `prepare` changes its signals.
    pub fn start(&self, name: &str, index: u32, prepare: impl FnOnce(&JobSignals)) -> Driven {
        let id = self.vertex(name);
        let which = Instance {
            index,
            parallelism: 1,
        };
        let processor = self.0.dag.get(id).supplier().supply(which).unwrap();
        let (signals, woken) = (Arc::new(JobSignals::default()), Arc::default());
        prepare(&signals);
        let count: Arc<AtomicUsize> = Arc::clone(&woken);
        let context = InstanceContext {
            instance: which,
            signals: Arc::clone(&signals),
            waker: Waker::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            }),
            ..InstanceContext::detached(name)
        };
        let outputs = self.0.dag.outputs(id).len();
        let mut driven = Driven {
            processor,
            inbox: Inbox::default(),
            outbox: Outbox::new(outputs, context.chunk_records),
            sent: VecDeque::new(),
            signals,
            woken,
        };
        driven.processor.init(&context).unwrap();
        driven
    }

    /// Takes the chunks on the first output of `from` as payloads, with the number of tuples in
    /// each.
    pub fn encode(&self, name: &str, from: &mut Driven) -> Vec<(usize, Vec<u8>)> {
        let edge = self.0.dag.outputs(self.vertex(name))[0];
        let codec = self.0.dag.edges()[edge.index()].wanted_codec().unwrap();
        let mut payloads = Vec::new();
        from.make_room();
        for mut chunk in from.sent.drain(..) {
            while !chunk.is_empty() {
                let mut payload = Vec::new();
                let count = codec.encode(&mut chunk, 1000, &mut payload).unwrap();
                payloads.push((count, payload));
            }
        }
        payloads
    }

    /// Passes payloads to the only input of an instance of this process.
    pub fn feed(&self, name: &str, to: &mut Driven, payloads: &[(usize, Vec<u8>)]) {
        let edge = self.0.dag.inputs(self.vertex(name))[0];
        let codec = self.0.dag.edges()[edge.index()].wanted_codec().unwrap();
        for (count, payload) in payloads {
            let mut chunk = Chunk::default();
            codec.decode(*count, payload, &mut chunk).unwrap();
            assert_eq!(chunk.len(), *count);
            to.inbox.fill(chunk);
            while !to.inbox.is_empty() {
                let (inbox, outbox) = (&mut to.inbox, &mut to.outbox);
                to.processor.process(Ordinal::FIRST, inbox, outbox).unwrap();
                to.make_room();
            }
        }
    }

    /// Takes the ack batches for an instance of a spout out of this process.
    pub fn collect(&self, spout: &str, instance: u32) -> Vec<Vec<u8>> {
        let channel = &self.0.side_channels[0];
        let mut letters = Vec::new();
        loop {
            let mut letter = Vec::new();
            if !channel.collect(self.vertex(spout), instance, &mut letter) {
                assert!(letter.is_empty());
                return letters;
            }
            letters.push(letter);
        }
    }

    pub fn deliver(&self, spout: &str, instance: u32, letters: &[Vec<u8>]) {
        let channel = &self.0.side_channels[0];
        for letter in letters {
            let vertex = self.vertex(spout);
            channel.deliver(vertex, instance, letter).unwrap();
        }
    }

    /// Makes the instance remote.
    pub fn carry(&self, spout: &str, instance: u32) -> Arc<AtomicUsize> {
        let woken: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&woken);
        let carrier = Waker::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        self.0.side_channels[0].start_forwarding(self.vertex(spout), instance, carrier);
        woken
    }
}

impl Driven {
    pub fn complete(&mut self) -> Progress {
        self.processor.complete(&mut self.outbox).unwrap()
    }

    pub fn wake(&mut self) {
        self.processor.on_wake(&mut self.outbox).unwrap();
    }

    pub fn end_input(&mut self) -> Progress {
        let end = Watermark::END;
        let ended = self.processor.on_watermark(end, &mut self.outbox);
        // The marker would hold back later chunks.
        self.make_room();
        ended.unwrap()
    }

    fn make_room(&mut self) {
        if self.outbox.lanes() > 0 {
            let chunk = self.outbox.take_chunk(0, Chunk::default);
            self.sent.extend(chunk);
            while self.outbox.take_marker(0).is_some() {}
        }
    }

    /// Like `complete`, ignoring the result.
    pub fn call(&mut self) {
        let _ = self.complete();
    }

    pub fn drain(&mut self) -> Progress {
        self.processor.source().on_drain(&mut self.outbox).unwrap()
    }

    pub fn processor(&mut self) -> &mut dyn Processor {
        &mut *self.processor
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.processor.close();
    }
}
