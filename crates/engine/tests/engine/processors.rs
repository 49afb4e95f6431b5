//! Small processors for the tests, and the journal of events that they write.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_core::{
    Dag, Epoch, Inbox, Instance, InstanceContext, Marker, Ordinal, Outbox, Parallelism, Processor,
    Progress, Result, Timestamp, Vertex, Watermark,
};
use ardea_engine::{JobConfig, JobHandle, JobStatus, Node, NodeConfig};

/// Long enough for any machine; only a failing test waits for it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A node without pinning, as many tests run at once, and with small chunks, so that there are
/// many.
pub fn config(threads: u32) -> NodeConfig {
    NodeConfig {
        pin: false,
        chunk_records: 16.try_into().unwrap(),
        ..NodeConfig::with_threads(threads)
    }
}

pub fn node(threads: u32) -> Node {
    Node::start(config(threads)).unwrap()
}

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Waits until the job is over.
pub fn over(job: &JobHandle) -> JobStatus {
    let status = job.wait(TIMEOUT);
    assert!(status.is_over(), "the job {:?} hangs", job.name());
    status
}

/// Runs a job that must complete.
pub fn completes(node: &Node, dag: &Dag) -> JobHandle {
    let job = node.submit(dag, JobConfig::named("test")).unwrap();
    let status = over(&job);
    assert!(matches!(status, JobStatus::Completed), "{status}");
    job
}

/// A vertex of `instances` instances.
pub fn vertex<P: Processor + 'static>(
    name: &str,
    instances: u32,
    make: impl Fn(Instance) -> P + Send + Sync + 'static,
) -> Vertex {
    let supply = move |instance| -> Result<Box<dyn Processor>> { Ok(Box::new(make(instance))) };
    let count = NonZeroU32::new(instances).unwrap();
    Vertex::new(name, Arc::new(supply)).parallelism(Parallelism::Exactly(count))
}

/// An event of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saw {
    Record { input: u16, value: u64 },
    Watermark(Timestamp),
    Epoch(Epoch),
    EdgeDone(u16),
    Complete,
    Closed,
}

/// The events of a vertex's instances, in order.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<(u32, Saw)>>>);

impl Journal {
    pub fn note(&self, instance: u32, saw: Saw) {
        self.0.lock().unwrap().push((instance, saw));
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns the events of one instance.
    pub fn of(&self, instance: u32) -> Vec<Saw> {
        let all = self.0.lock().unwrap();
        let own = all.iter().filter(|(i, _)| *i == instance);
        own.map(|(_, saw)| *saw).collect()
    }

    /// Returns the records of one instance, in order.
    pub fn records_of(&self, instance: u32) -> Vec<u64> {
        let value = |saw: Saw| match saw {
            Saw::Record { value, .. } => Some(value),
            _ => None,
        };
        self.of(instance).into_iter().filter_map(value).collect()
    }

    /// Returns all records, sorted.
    pub fn records(&self) -> Vec<u64> {
        let mut values: Vec<u64> = self
            .0
            .lock()
            .unwrap()
            .iter()
            .filter_map(|(_, saw)| match saw {
                Saw::Record { value, .. } => Some(*value),
                _ => None,
            })
            .collect();
        values.sort_unstable();
        values
    }

    pub fn count(&self, what: impl Fn(&Saw) -> bool) -> usize {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(_, saw)| what(saw)).count()
    }

    /// Like [`vertex`](Self::vertex), but writes under a new number for each created processor, to
    /// distinguish successive attempts of an instance and instances in several places.
    pub fn attempts(&self, name: &str, instances: u32) -> Vertex {
        let journal = self.clone();
        let next = AtomicU32::new(0);
        vertex(name, instances, move |_| Relay {
            journal: Some(journal.clone()),
            index: next.fetch_add(1, Ordering::SeqCst),
        })
    }

    /// Returns a vertex that forwards its records to all outputs, and writes its events here.
    pub fn vertex(&self, name: &str, instances: u32) -> Vertex {
        let journal = self.clone();
        vertex(name, instances, move |instance| Relay {
            journal: Some(journal.clone()),
            index: instance.index,
        })
    }
}

/// Returns a vertex that forwards its records to all outputs.
pub fn relay(name: &str, instances: u32) -> Vertex {
    vertex(name, instances, |instance| Relay {
        journal: None,
        index: instance.index,
    })
}

/// Forwards numbers to all outputs, and writes its events.
struct Relay {
    journal: Option<Journal>,
    index: u32,
}

impl Relay {
    fn note(&self, saw: Saw) {
        if let Some(journal) = &self.journal {
            journal.note(self.index, saw);
        }
    }
}

/// Returns the number of records that all lanes have room for.
pub fn room(outbox: &mut Outbox) -> Result<usize> {
    let mut room = usize::MAX;
    for lane in 0..outbox.lanes() {
        room = room.min(outbox.lane::<u64>(Ordinal(lane as u16))?.room());
    }
    Ok(room)
}

/// Writes a record to all lanes.
pub fn emit(outbox: &mut Outbox, value: u64, time: Timestamp) -> Result<()> {
    for lane in 0..outbox.lanes() {
        outbox.lane::<u64>(Ordinal(lane as u16))?.push(value, time);
    }
    Ok(())
}

impl Processor for Relay {
    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let room = room(outbox)?;
        for (value, time) in inbox.rows::<u64>()?.drain_front(room) {
            self.note(Saw::Record {
                input: input.0,
                value,
            });
            emit(outbox, value, time)?;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.note(Saw::Watermark(watermark.0));
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, epoch: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.note(Saw::Epoch(epoch));
        Ok(Progress::DONE)
    }

    fn on_edge_done(&mut self, input: Ordinal, _: &mut Outbox) -> Result<Progress> {
        self.note(Saw::EdgeDone(input.0));
        Ok(Progress::DONE)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.note(Saw::Complete);
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.note(Saw::Closed);
    }
}

/// Returns a source of the numbers from zero to `end`, distributed over the instances; each is its
/// own event time, in microseconds.
pub fn numbers(name: &str, instances: u32, end: u64) -> Vertex {
    numbers_from(name, instances, 0, end)
}

/// Returns a source of the numbers from `first` to `end`.
pub fn numbers_from(name: &str, instances: u32, first: u64, end: u64) -> Vertex {
    vertex(name, instances, move |instance| Numbers {
        next: first + u64::from(instance.index),
        step: u64::from(instance.parallelism),
        end,
    })
}

struct Numbers {
    next: u64,
    step: u64,
    end: u64,
}

impl Processor for Numbers {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut room = room(outbox)?;
        while room > 0 && self.next < self.end {
            emit(outbox, self.next, Timestamp::from_micros(self.next as i64))?;
            self.next += self.step;
            room -= 1;
        }
        let time = Timestamp::from_micros(self.next as i64);
        outbox.watermark(Watermark(time));
        Ok(Progress::done_if(self.next >= self.end))
    }
}

/// Returns a source that calls `step`, which may have state.
pub fn source<S>(
    name: &str,
    instances: u32,
    make: impl Fn(Instance) -> S + Send + Sync + 'static,
) -> Vertex
where
    S: FnMut(&mut Outbox, &InstanceContext) -> Result<Progress> + Send + 'static,
{
    vertex(name, instances, move |instance| Scripted {
        step: make(instance),
        context: InstanceContext::detached("source"),
    })
}

struct Scripted<S> {
    step: S,
    context: InstanceContext,
}

impl<S> Processor for Scripted<S>
where
    S: FnMut(&mut Outbox, &InstanceContext) -> Result<Progress> + Send,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        (self.step)(outbox, &self.context)
    }
}

/// Returns a source without data that never ends.
pub fn silence(name: &str, instances: u32) -> Vertex {
    source(name, instances, |_| {
        |_: &mut Outbox, _: &InstanceContext| Ok(Progress::NONE)
    })
}

/// Returns a source that emits the same number forever.
pub fn endless(name: &str, instances: u32) -> Vertex {
    source(name, instances, |_| {
        |outbox: &mut Outbox, _: &InstanceContext| {
            for _ in 0..room(outbox)?.min(100) {
                emit(outbox, 7, Timestamp::MIN)?;
            }
            Ok(Progress::MADE)
        }
    })
}

/// Returns a watermark, in microseconds.
pub fn watermark(micros: i64) -> Marker {
    Marker::Watermark(Watermark(Timestamp::from_micros(micros)))
}
