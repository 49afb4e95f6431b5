//! Jobs that are spread over containers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_core::{
    ChunkCodec, Clock, Dag, Edge, Error, ErrorCode, Inbox, Instance, Isolation, Ordinal, Outbox,
    Parallelism, Processor, Progress, Result, Routing, Timestamp, Vertex, VertexId, Watermark,
};
use ardea_engine::{Job, Parallelisms, Program};
use ardea_network::exchange::{RowsCodec, Wire};

/// The results of a job.
pub type Results<T> = Arc<Mutex<Vec<T>>>;

/// Emits the numbers below `total` that belong to its instance, each with its own event time.
struct Numbers {
    instance: Instance,
    total: u64,
    next: u64,
    /// The numbers processed in a millisecond; `None`: as many as there is room for.
    pace: Option<u64>,
    clock: Clock,
}

impl Processor for Numbers {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let end = match self.pace {
            Some(pace) => {
                outbox.wake_at(self.clock.now() + Duration::from_millis(1));
                self.total.min(self.next + pace)
            }
            None => self.total,
        };
        let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
        while self.next < end && !lane.is_full() {
            if self.instance.owns(self.next) {
                lane.push(self.next, Timestamp::from_micros(self.next as i64));
            }
            self.next += 1;
        }
        if self.next > 0 {
            outbox.watermark(Watermark(Timestamp::from_micros(self.next as i64 - 1)));
        }
        Ok(Progress {
            made: self.pace.is_none(),
            done: self.next >= self.total,
        })
    }
}

/// Sums numbers by their last two digits, and emits the sums at the end.
#[derive(Default)]
struct Sums {
    sums: BTreeMap<u64, u64>,
    watermark: Option<Watermark>,
}

impl Processor for Sums {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<u64>()?;
        for (number, time) in rows.drain_front(usize::MAX) {
            let at = Watermark(time);
            assert!(
                self.watermark.is_none_or(|watermark| at > watermark),
                "{number} is late"
            );
            *self.sums.entry(number % 100).or_default() += number;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.watermark = Some(watermark);
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<(u64, u64)>(Ordinal::FIRST)?;
        while !lane.is_full() {
            let Some(sum) = self.sums.pop_first() else {
                return Ok(Progress::DONE);
            };
            lane.push(sum, Timestamp::MIN);
        }
        Ok(Progress::MADE)
    }
}

/// Collects records.
struct Collect<T>(Results<T>);

impl<T: Send + 'static> Processor for Collect<T> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let values = rows.drain_front(usize::MAX).map(|(value, _)| value);
        self.0.lock().unwrap().extend(values);
        Ok(())
    }
}

/// A job of numbers, their sums by two digits, and a list of the sums.
pub struct Adding {
    pub total: u64,
    pub pace: Option<u64>,
    /// The vertices whose instances run in separate processes.
    pub isolated: Vec<String>,
    pub results: Results<(u64, u64)>,
}

impl Adding {
    pub fn new(total: u64) -> Adding {
        Adding {
            total,
            pace: None,
            isolated: Vec::new(),
            results: Results::default(),
        }
    }

    /// Returns the results, sorted.
    pub fn results(&self) -> Vec<(u64, u64)> {
        let mut sums = BTreeMap::new();
        for (digits, sum) in self.results.lock().unwrap().iter() {
            // An instance that has moved has summed in two containers.
            *sums.entry(*digits).or_default() += sum;
        }
        sums.into_iter().collect()
    }
}

pub fn wire<T: Wire>() -> Arc<dyn ChunkCodec> {
    Arc::new(RowsCodec::<T>::wire())
}

pub fn add(dag: &mut Dag, parallelism: &Parallelisms, vertex: Vertex) -> VertexId {
    add_isolated(dag, parallelism, vertex, &[])
}

pub fn add_isolated(
    dag: &mut Dag,
    parallelism: &Parallelisms,
    vertex: Vertex,
    isolated: &[String],
) -> VertexId {
    let vertex = match isolated.iter().any(|name| **name == **vertex.name()) {
        true => vertex.isolation(Isolation::Process),
        false => vertex,
    };
    let count = parallelism.get(&**vertex.name()).copied().unwrap_or(1);
    let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    dag.vertex(vertex.parallelism(Parallelism::Exactly(count)))
}

impl Job for Adding {
    fn name(&self) -> &str {
        "ferry"
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let mut dag = Dag::new();
        let (total, pace) = (self.total, self.pace);
        let numbers = move |instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(Numbers {
                instance,
                total,
                next: 0,
                pace,
                clock: Clock::system(),
            }))
        };
        let numbers = Vertex::new("numbers", Arc::new(numbers));
        let numbers = add_isolated(&mut dag, parallelism, numbers, &self.isolated);
        let sums = Vertex::new("sums", ardea_core::supplier(Sums::default));
        let sums = add_isolated(&mut dag, parallelism, sums, &self.isolated);
        let results = Arc::clone(&self.results);
        let list = ardea_core::supplier(move || Collect(Arc::clone(&results)));
        let list = Vertex::new("list", list);
        let list = add_isolated(&mut dag, parallelism, list, &self.isolated);
        let by_digits = Routing::keyed(|number: &u64| number % 100);
        dag.edge(
            Edge::between(numbers, sums)
                .routing(by_digits)
                .codec(wire::<u64>()),
        );
        dag.edge(
            Edge::between(sums, list)
                .routing(Routing::AllToOne)
                .codec(wire::<(u64, u64)>()),
        );
        Ok(Program {
            dag,
            side_channels: Vec::new(),
            may_lose_instances: false,
        })
    }
}

/// Emits an infinite sequence, some numbers a millisecond.
struct Ticks {
    next: u64,
    emitted: Arc<AtomicU64>,
    clock: Clock,
}

impl Processor for Ticks {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        outbox.wake_at(self.clock.now() + Duration::from_millis(1));
        let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
        for _ in 0..lane.room().min(20) {
            lane.push(self.next, Timestamp::MIN);
            self.next += 1;
            self.emitted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Progress::NONE)
    }
}

/// Adds the process id to each number.
struct Relay;

impl Processor for Relay {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<u64>()?;
        let mut lane = outbox.lane::<(u64, u64)>(Ordinal::FIRST)?;
        for (number, time) in rows.drain_front(lane.room()) {
            if number == Relaying::POISON {
                return Err(Error::new(ErrorCode::UserError, "the relay chokes on it"));
            }
            lane.push((number, u64::from(std::process::id())), time);
        }
        Ok(())
    }
}

/// A job of numbers that pass through a relay, which adds its process id.
#[derive(Default)]
pub struct Relaying {
    pub first: u64,
    /// The vertices whose instances run in separate processes.
    pub isolated: Vec<String>,
    pub results: Results<(u64, u64)>,
    /// The number of records emitted by the source in this process.
    pub emitted: Arc<AtomicU64>,
}

impl Relaying {
    /// The number at which a relay fails.
    pub const POISON: u64 = u64::MAX / 2;

    /// Returns the number of results.
    pub fn count(&self) -> usize {
        self.results.lock().unwrap().len()
    }

    /// Returns the numbers that have passed through this process.
    pub fn through(&self, process: u32) -> Vec<u64> {
        let results = self.results.lock().unwrap();
        let through = results.iter().filter(|(_, by)| *by == u64::from(process));
        through.map(|(number, _)| *number).collect()
    }
}

impl Job for Relaying {
    fn name(&self) -> &str {
        "ferry"
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let mut dag = Dag::new();
        let next = self.first;
        let emitted = Arc::clone(&self.emitted);
        let ticks = ardea_core::supplier(move || Ticks {
            next,
            emitted: Arc::clone(&emitted),
            clock: Clock::system(),
        });
        let ticks = add(&mut dag, parallelism, Vertex::new("ticks", ticks));
        let relay = ardea_core::supplier(|| Relay);
        let relay = Vertex::new("relay", relay);
        let relay = add_isolated(&mut dag, parallelism, relay, &self.isolated);
        let results = Arc::clone(&self.results);
        let list = ardea_core::supplier(move || Collect(Arc::clone(&results)));
        let list = add(&mut dag, parallelism, Vertex::new("list", list));
        dag.edge(Edge::between(ticks, relay).codec(wire::<u64>()));
        dag.edge(Edge::between(relay, list).codec(wire::<(u64, u64)>()));
        Ok(Program {
            dag,
            side_channels: Vec::new(),
            may_lose_instances: false,
        })
    }
}
