//! A job whose instances exchange side-channel messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ardea_core::{
    Backchannel, Dag, Edge, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, Result, Timestamp, Vertex, VertexId, Waker,
};
use ardea_engine::{Job, Parallelisms, Program};

use crate::jobs::{Results, add_isolated, wire};

/// A side channel with a mailbox for each instance of the first vertex.
struct Receipts {
    vertices: [VertexId; 1],
    boxes: Mutex<BTreeMap<u32, Mailbox>>,
    lost: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Mailbox {
    numbers: Vec<u64>,
    carrier: Option<Waker>,
}

impl Receipts {
    fn post(&self, instance: u32, numbers: &[u64]) {
        let mut boxes = self.boxes.lock().unwrap();
        let mailbox = boxes.entry(instance).or_default();
        mailbox.numbers.extend(numbers);
        if let Some(carrier) = &mailbox.carrier {
            carrier.wake();
        }
    }

    fn take(&self, instance: u32) -> Vec<u64> {
        let mut boxes = self.boxes.lock().unwrap();
        std::mem::take(&mut boxes.entry(instance).or_default().numbers)
    }
}

impl Backchannel for Receipts {
    fn name(&self) -> &str {
        "receipts"
    }

    fn vertices(&self) -> &[VertexId] {
        &self.vertices
    }

    fn start_forwarding(&self, _: VertexId, instance: u32, carrier: Waker) {
        let mut boxes = self.boxes.lock().unwrap();
        boxes.entry(instance).or_default().carrier = Some(carrier);
    }

    fn stop_forwarding(&self, _: VertexId, instance: u32) {
        let mut boxes = self.boxes.lock().unwrap();
        boxes.entry(instance).or_default().carrier = None;
    }

    fn collect(&self, _: VertexId, instance: u32, out: &mut Vec<u8>) -> bool {
        let numbers = self.take(instance);
        numbers.iter().for_each(|it| out.extend(it.to_le_bytes()));
        !numbers.is_empty()
    }

    fn deliver(&self, _: VertexId, instance: u32, letter: &[u8]) -> Result<()> {
        let (numbers, []) = letter.as_chunks::<8>() else {
            return Err(Error::new(ErrorCode::BadRecord, "no letter"));
        };
        let numbers: Vec<u64> = numbers.iter().map(|it| u64::from_le_bytes(*it)).collect();
        self.boxes
            .lock()
            .unwrap()
            .entry(instance)
            .or_default()
            .numbers
            .extend(numbers);
        Ok(())
    }

    fn process_lost(&self) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }

    fn instance_lost(&self, _: VertexId) {
        self.process_lost();
    }

    fn rescaled(&self, _: VertexId, _: u32) {}
}

/// The bit of a number that confirms a receipt.
const THANKS: u64 = 1 << 63;

/// Emits numbers, lists its receipts, and confirms them.
struct Sends {
    thanks: Vec<(u32, u64)>,
    receipts: Arc<Receipts>,
    instance: u32,
    next: u64,
    most: u64,
    results: Results<(u32, u64)>,
}

impl Processor for Sends {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.instance = context.instance.index;
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let known = self.receipts.take(self.instance);
        let known = known.iter().map(|number| (self.instance, *number));
        self.results.lock().unwrap().extend(known.clone());
        self.thanks
            .extend(known.map(|(of, number)| (of, number | THANKS)));
        let mut lane = outbox.lane::<(u32, u64)>(Ordinal::FIRST)?;
        let thanks = lane.room().min(self.thanks.len());
        for thanks in self.thanks.drain(..thanks) {
            lane.push(thanks, Timestamp::MIN);
        }
        let left = usize::try_from(self.most - self.next).unwrap_or(usize::MAX);
        for _ in 0..lane.room().min(10).min(left) {
            lane.push((self.instance, self.next), Timestamp::MIN);
            self.next += 1;
        }
        Ok(Progress::NONE)
    }
}

/// Posts a receipt for each number, and lists the confirmations.
struct Takes(Arc<Receipts>, Results<(u32, u64)>);

impl Processor for Takes {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        for ((from, number), _) in inbox.rows::<(u32, u64)>()?.drain_front(usize::MAX) {
            match number & THANKS {
                0 => self.0.post(from, &[number]),
                _ => self.1.lock().unwrap().push((from, number & !THANKS)),
            }
        }
        Ok(())
    }
}

#[derive(Default)]
pub struct WithReceipts {
    /// The vertices whose instances run in separate processes.
    pub isolated: Vec<String>,
    /// The count of numbers that each sender emits; infinite if `None`.
    pub most: Option<u64>,
    pub results: Results<(u32, u64)>,
    pub thanks: Results<(u32, u64)>,
    pub lost: Arc<AtomicUsize>,
}

impl Job for WithReceipts {
    fn name(&self) -> &str {
        "ferry"
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let mut dag = Dag::new();
        // Channel and vertex refer to each other, so the id of a graph's first vertex is taken from
        // another graph.
        let first = {
            let mut other = Dag::new();
            let nothing = Vertex::new("sends", ardea_core::supplier(|| Nothing));
            other.vertex(nothing)
        };
        let receipts = Arc::new(Receipts {
            vertices: [first],
            boxes: Mutex::default(),
            lost: Arc::clone(&self.lost),
        });
        let (for_senders, results) = (Arc::clone(&receipts), Arc::clone(&self.results));
        let most = self.most.unwrap_or(THANKS);
        let sends = ardea_core::supplier(move || Sends {
            receipts: Arc::clone(&for_senders),
            thanks: Vec::new(),
            instance: 0,
            next: 0,
            most,
            results: Arc::clone(&results),
        });
        let sends = Vertex::new("sends", sends);
        let sends = add_isolated(&mut dag, parallelism, sends, &self.isolated);
        let (takes, thanks) = (Arc::clone(&receipts), Arc::clone(&self.thanks));
        let takes = ardea_core::supplier(move || Takes(Arc::clone(&takes), Arc::clone(&thanks)));
        let takes = Vertex::new("takes", takes);
        let takes = add_isolated(&mut dag, parallelism, takes, &self.isolated);
        dag.edge(Edge::between(sends, takes).codec(wire::<(u32, u64)>()));
        Ok(Program {
            dag,
            side_channels: vec![receipts],
            may_lose_instances: false,
        })
    }
}

struct Nothing;

impl Processor for Nothing {}
