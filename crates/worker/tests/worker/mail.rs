//! News beside the graph finds its way between containers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ardea_core::{
    Dag, Edge, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    Result, SideChannel, Timestamp, Vertex, VertexId, Waker,
};
use ardea_engine::{Job, Parallelisms, Program};

use crate::containers::{start, thread};
use crate::jobs::{Results, add, wire};
use crate::master::{Master, PATIENCE, plan};
use crate::spread::runtime;

/// A mailbox for each instance of the first vertex.
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

impl SideChannel for Receipts {
    fn name(&self) -> &str {
        "receipts"
    }

    fn vertices(&self) -> &[VertexId] {
        &self.vertices
    }

    fn carry(&self, _: VertexId, instance: u32, carrier: Waker) {
        let mut boxes = self.boxes.lock().unwrap();
        boxes.entry(instance).or_default().carrier = Some(carrier);
    }

    fn keep(&self, _: VertexId, instance: u32) {
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

    fn rescaled(&self, _: VertexId, _: u32) {}
}

/// Emits numbers, and lists those that it has a receipt for.
struct Sends {
    receipts: Arc<Receipts>,
    instance: u32,
    next: u64,
    results: Results<(u32, u64)>,
}

impl Processor for Sends {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.instance = context.instance.index;
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<(u32, u64)>(Ordinal::FIRST)?;
        for _ in 0..lane.room().min(10) {
            lane.push((self.instance, self.next), Timestamp::MIN);
            self.next += 1;
        }
        let known = self.receipts.take(self.instance).into_iter();
        let known = known.map(|number| (self.instance, number));
        self.results.lock().unwrap().extend(known);
        Ok(Progress::NONE)
    }
}

/// Posts a receipt for whatever comes.
struct Takes(Arc<Receipts>);

impl Processor for Takes {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        for ((from, number), _) in inbox.rows::<(u32, u64)>()?.drain_front(usize::MAX) {
            self.0.post(from, &[number]);
        }
        Ok(())
    }
}

#[derive(Default)]
struct WithReceipts {
    results: Results<(u32, u64)>,
    lost: Arc<AtomicUsize>,
}

impl Job for WithReceipts {
    fn name(&self) -> &str {
        "ferry"
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let mut dag = Dag::new();
        // The channel has to know the vertex, and the vertex the channel: that of the first vertex of a graph is known beforehand.
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
        let sends = ardea_core::supplier(move || Sends {
            receipts: Arc::clone(&for_senders),
            instance: 0,
            next: 0,
            results: Arc::clone(&results),
        });
        let sends = add(&mut dag, parallelism, Vertex::new("sends", sends));
        let for_takers = Arc::clone(&receipts);
        let takes = ardea_core::supplier(move || Takes(Arc::clone(&for_takers)));
        let takes = add(&mut dag, parallelism, Vertex::new("takes", takes));
        dag.edge(Edge::between(sends, takes).codec(wire::<(u32, u64)>()));
        Ok(Program {
            dag,
            side_channels: vec![receipts],
        })
    }
}

struct Nothing;

impl Processor for Nothing {}

#[test]
fn mail_reaches_instances_in_other_containers_and_a_lost_one_is_told() {
    runtime().block_on(async {
        let mut master = Master::start(plan(&[
            (1, &[("sends", 0)]),
            (2, &[("takes", 0), ("takes", 1)]),
            (3, &[("sends", 1)]),
        ]))
        .await;
        let jobs = [(); 3].map(|()| Arc::new(WithReceipts::default()));
        let workers: Vec<_> = jobs
            .iter()
            .zip(1..)
            .map(|(job, container)| {
                let job: Arc<dyn Job> = Arc::<WithReceipts>::clone(job);
                thread(start(container, 1, &master.address), job)
            })
            .collect();
        master.start_reading().await;
        let start = Instant::now();
        let receipts = |job: &WithReceipts| job.results.lock().unwrap().len();
        while receipts(&jobs[0]) < 500 || receipts(&jobs[2]) < 500 {
            assert!(start.elapsed() < PATIENCE, "no receipts come");
            tokio::task::yield_now().await;
        }
        for (job, instance) in [(&jobs[0], 0), (&jobs[2], 1)] {
            let mut got = job.results.lock().unwrap().clone();
            assert!(got.iter().all(|(of, _)| *of == instance));
            got.sort_unstable();
            let count = got.len();
            got.dedup();
            assert_eq!(got.len(), count, "no receipt comes twice");
        }
        master.dismiss(2).await;
        while jobs[0].lost.load(Ordering::SeqCst) == 0 || jobs[2].lost.load(Ordering::SeqCst) == 0 {
            assert!(start.elapsed() < PATIENCE, "the loss is not told");
            tokio::task::yield_now().await;
        }
        master.say_farewell().await;
        for worker in workers {
            worker.join().unwrap().unwrap();
        }
    });
}
