//! An error or a panic of user code ends its job only, and the error names the vertex, the instance
//! and the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ardea_core::{
    Dag, Edge, Epoch, Error, ErrorCode, Inbox, InstanceContext, Isolation, Ordinal as Lane, Outbox,
    Processor, Progress, RecordGuard, Result, Routing, Timestamp, Vertex, Watermark,
};
use ardea_engine::{JobConfig, JobHandle, JobStatus, Node};

use crate::processors::{
    Journal, Saw, completes, endless, node, numbers, over, relay, source, until, vertex,
};

/// The place of a failure in a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Panics on this value, under a guard, while it drains the inbox.
    PanicAt(u64),
    /// Returns an error for this value, which it leaves in the inbox.
    ErrorAt(u64),
    Init,
    Watermark,
    EdgeDone,
    Complete,
    Epoch,
    Wake,
}

struct Faulty {
    fault: Fault,
    closed: Arc<AtomicUsize>,
}

impl Faulty {
    fn maybe(&self, place: Fault) {
        assert!(self.fault != place, "told to fail");
    }
}

impl Processor for Faulty {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.maybe(Fault::Init);
        if self.fault == Fault::Wake {
            context.waker.wake();
        }
        Ok(())
    }

    fn process(&mut self, _: Lane, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<u64>()?;
        if let Fault::ErrorAt(bad) = self.fault
            && let Some(index) = rows.values().iter().position(|value| *value == bad)
        {
            rows.discard_front(index);
            return Err(Error::new(ErrorCode::UserError, "cannot deal with this"));
        }
        let mut guard = RecordGuard::new();
        let mut lane = outbox.lane::<u64>(Lane::FIRST)?;
        // Three at a time, so that the failure is not always in the first call for a chunk.
        for (value, time) in rows.drain_front(lane.room().min(3)) {
            assert!(self.fault != Fault::PanicAt(value), "value {value}");
            lane.push(value, time);
            guard.advance();
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.maybe(Fault::Watermark);
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.maybe(Fault::Epoch);
        Ok(Progress::DONE)
    }

    fn on_edge_done(&mut self, _: Lane, _: &mut Outbox) -> Result<Progress> {
        self.maybe(Fault::EdgeDone);
        Ok(Progress::DONE)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.maybe(Fault::Complete);
        Ok(Progress::DONE)
    }

    fn on_wake(&mut self, _: &mut Outbox) -> Result<()> {
        self.maybe(Fault::Wake);
        Ok(())
    }

    fn close(&mut self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn faulty(fault: Fault, instances: u32, closed: &Arc<AtomicUsize>) -> Vertex {
    let closed = Arc::clone(closed);
    vertex("faulty", instances, move |_| Faulty {
        fault,
        closed: Arc::clone(&closed),
    })
}

fn error_of(job: &JobHandle) -> Error {
    match over(job) {
        JobStatus::Failed(error) => error,
        other => panic!("the job {other}"),
    }
}

/// Runs a source of 1,000 numbers, a faulty vertex and a sink; returns the error.
fn run(node: &Node, fault: Fault, routing: Routing, instances: u32) -> Error {
    let closed = Arc::default();
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", instances, 1_000));
    let middle = dag.vertex(faulty(fault, instances, &closed));
    let sink = dag.vertex(journal.vertex("sink", instances));
    dag.edge(Edge::between(source, middle).routing(routing));
    dag.edge(Edge::between(middle, sink).routing(Routing::Forward));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    if fault == Fault::Epoch {
        job.end_epoch();
    }
    let error = error_of(&job);
    assert_eq!(
        closed.load(Ordering::SeqCst),
        instances as usize,
        "{fault:?}"
    );
    assert_eq!(journal.count(|saw| *saw == Saw::Closed), instances as usize);
    assert_eq!(
        job.join().unwrap_err().to_string(),
        error.to_string(),
        "whoever joins is told the same"
    );
    error
}

#[test]
fn a_panic_is_laid_to_its_record() {
    let node = node(2);
    // In the source's order, value n is record n / 2 of instance n % 2.
    let error = run(&node, Fault::PanicAt(777), Routing::Forward, 2);
    assert_eq!(error.code(), ErrorCode::UserPanic);
    assert_eq!(error.vertex(), Some(("faulty", 1)));
    assert_eq!(error.record(), Some((0, 388)));
    assert!(error.to_string().contains("value 777"), "{error}");
    let error = run(&node, Fault::PanicAt(123), Routing::AllToOne, 1);
    assert_eq!(error.record(), Some((0, 123)));
}

#[test]
fn an_error_is_laid_to_the_record_that_was_left() {
    let error = run(&node(2), Fault::ErrorAt(600), Routing::Forward, 3);
    assert_eq!(error.code(), ErrorCode::UserError);
    assert_eq!(error.vertex(), Some(("faulty", 0)));
    assert_eq!(error.record(), Some((0, 200)));
}

#[test]
fn a_fault_in_any_callback_is_laid_to_its_vertex_and_to_no_record() {
    let node = node(2);
    for fault in [
        Fault::Init,
        Fault::Watermark,
        Fault::EdgeDone,
        Fault::Complete,
        Fault::Wake,
    ] {
        let error = run(&node, fault, Routing::Forward, 1);
        assert_eq!(error.vertex(), Some(("faulty", 0)), "{fault:?}");
        assert_eq!(error.record(), None, "{fault:?}");
    }
}

#[test]
fn a_fault_at_an_epochs_end_fails_the_job() {
    let closed = Arc::default();
    let mut dag = Dag::new();
    let source = dag.vertex(endless("source", 1));
    let middle = dag.vertex(faulty(Fault::Epoch, 1, &closed));
    let sink = dag.vertex(relay("sink", 1));
    dag.edge(Edge::between(source, middle));
    dag.edge(Edge::between(middle, sink));
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.end_epoch();
    let error = error_of(&job);
    assert_eq!(error.vertex(), Some(("faulty", 0)));
    assert_eq!(error.record(), None);
}

#[test]
fn a_panic_in_a_routing_names_the_output_and_the_record_on_it() {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 1, 1_000));
    let sink = dag.vertex(journal.vertex("sink", 2));
    dag.edge(
        Edge::between(source, sink).routing(Routing::keyed(|n: &u64| {
            assert!(*n != 321, "no key");
            *n
        })),
    );
    let node = node(2);
    let error = error_of(&node.submit(&dag, JobConfig::default()).unwrap());
    assert_eq!(error.vertex(), Some(("source", 0)));
    assert_eq!(error.record(), None, "it is no record of an input");
    let text = error.to_string();
    assert!(text.contains("record 321 of output 0"), "{text}");
}

#[test]
fn records_of_another_type_than_the_consumer_reads_are_refused_by_name() {
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 1, 10));
    let sink = dag.vertex(vertex("sink", 1, |_| WantsText));
    dag.edge(Edge::between(source, sink));
    let node = node(1);
    let error = error_of(&node.submit(&dag, JobConfig::default()).unwrap());
    assert_eq!(error.code(), ErrorCode::TypeMismatch);
    assert_eq!(error.vertex(), Some(("sink", 0)));
}

struct WantsText;
impl Processor for WantsText {
    fn process(&mut self, _: Lane, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        inbox.rows::<String>().map(|rows| rows.clear())
    }
}

#[test]
fn other_jobs_on_the_node_do_not_notice() {
    let node = node(1);
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(endless("source", 1));
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, sink));
    let other = node.submit(&dag, JobConfig::named("other")).unwrap();
    for _ in 0..20 {
        run(&node, Fault::PanicAt(40), Routing::RoundRobin, 2);
    }
    let before = journal.len();
    until("the other job goes on", || journal.len() > before + 100);
    assert!(!other.status().is_over());
}

/// Panics in calls whose panics are suppressed.
struct Spiteful;
impl Processor for Spiteful {
    fn process(&mut self, _: Lane, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        inbox.rows::<u64>().map(|rows| rows.clear())
    }
    fn close(&mut self) {
        panic!("in close");
    }
}
impl Drop for Spiteful {
    fn drop(&mut self) {
        panic!("in the processor's drop");
    }
}

#[test]
fn panics_in_close_and_drop_do_not_hurt_the_thread() {
    let node = node(1);
    for fuse_with_source in [Routing::Forward, Routing::RoundRobin] {
        let mut dag = Dag::new();
        let source = dag.vertex(numbers("source", 1, 100));
        let sink = dag.vertex(vertex("sink", 1, |_| Spiteful));
        dag.edge(Edge::between(source, sink).routing(fuse_with_source));
        completes(&node, &dag);
    }
}

/// A record whose destructor panics.
struct Mine;
impl Drop for Mine {
    fn drop(&mut self) {
        panic!("in a record's drop");
    }
}

struct Miner;
impl Processor for Miner {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<Mine>(Lane::FIRST)?;
        lane.push(Mine, Timestamp::MIN);
        Ok(Progress::DONE)
    }
}

struct Hoarder;
impl Processor for Hoarder {
    fn process(&mut self, _: Lane, _: &mut Inbox, _: &mut Outbox) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_record_whose_drop_panics_does_not_hurt_the_thread() {
    let node = node(1);
    let mut dag = Dag::new();
    let source = dag.vertex(vertex("source", 1, |_| Miner));
    let sink = dag.vertex(vertex("sink", 2, |_| Hoarder));
    dag.edge(Edge::between(source, sink));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("the mine is laid", || {
        job.sum("source", |m| m.records_out) > 0
    });
    job.cancel();
    over(&job);
    let mut dag = Dag::new();
    dag.vertex(numbers("source", 1, 10));
    completes(&node, &dag);
}

#[test]
fn a_supplier_that_fails_or_panics_leaves_nothing_running() {
    let node = node(2);
    for panics in [false, true] {
        let mut dag = Dag::new();
        let source = dag.vertex(endless("source", 2));
        let thread = dag.vertex(relay("thread", 1).isolation(ardea_core::Isolation::Thread));
        let supply = move |instance: ardea_core::Instance| -> Result<Box<dyn Processor>> {
            assert!(!panics || instance.index == 0, "no more");
            match instance.index {
                0 => Ok(Box::new(Hoarder)),
                _ => Err(Error::new(ErrorCode::ReadFailed, "no such file")),
            }
        };
        let sink = dag.vertex(
            Vertex::new("sink", Arc::new(supply))
                .parallelism(ardea_core::Parallelism::Exactly(2.try_into().unwrap())),
        );
        dag.edge(Edge::between(source, thread));
        dag.edge(Edge::between(thread, sink));
        let error = node.submit(&dag, JobConfig::default()).unwrap_err();
        assert_eq!(error.vertex(), Some(("sink", 1)));
        let code = if panics {
            ErrorCode::UserPanic
        } else {
            ErrorCode::ReadFailed
        };
        assert_eq!(error.code(), code);
        assert_eq!(node.tasklets(), 0, "all places are free again");
    }
}

/// A cause whose destructor panics.
#[derive(Debug)]
struct Unlucky;

impl std::fmt::Display for Unlucky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bad luck")
    }
}

impl std::error::Error for Unlucky {}

impl Drop for Unlucky {
    fn drop(&mut self) {
        panic!("dropping panics too");
    }
}

#[test]
fn a_second_error_whose_destructor_panics_does_not_disturb_the_end() {
    let node = node(1);
    let mut dag = Dag::new();
    dag.vertex(source("first", 1, |_| {
        |_: &mut Outbox, _: &InstanceContext| Err(Error::new(ErrorCode::UserError, "the first"))
    }));
    let second = source("second", 1, |_| {
        |_: &mut Outbox, context: &InstanceContext| {
            until("the first has failed", || context.signals.is_cancelled());
            Err(Error::new(ErrorCode::UserError, "the second").because(Unlucky))
        }
    });
    dag.vertex(second.isolation(Isolation::Thread));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    let error = error_of(&job);
    assert!(error.to_string().contains("the first"), "{error}");
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 1, 10));
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, sink));
    completes(&node, &dag);
    assert_eq!(journal.records().len(), 10, "the node works on");
}
