//! If a job is configured so, a failed instance is restarted while the others go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ardea_core::{
    Dag, Edge, Error, ErrorCode, Inbox, Ordinal as Lane, Outbox, Processor, Progress, Result,
    Routing, Timestamp, Watermark,
};
use ardea_engine::{JobConfig, JobStatus, OnInstanceFailure};

use crate::processors::{Journal, Saw, emit, node, numbers, over, room, until, vertex};

fn restarting() -> JobConfig {
    JobConfig {
        on_failure: OnInstanceFailure::Restart { at_most: 1_000 },
        ..JobConfig::named("test")
    }
}

/// Forwards numbers, and fails at those for which `fails` is true: by an error if even, by a panic
/// if odd.
struct Fails {
    fails: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl Processor for Fails {
    fn process(&mut self, _: Lane, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let room = room(outbox)?;
        for (value, time) in inbox.rows::<u64>()?.drain_front(room) {
            if (self.fails)(value) {
                assert!(value % 2 == 0, "odd");
                return Err(Error::new(ErrorCode::UserError, "even"));
            }
            emit(outbox, value, time)?;
        }
        Ok(())
    }
}

#[test]
fn an_instance_that_fails_is_made_anew_and_says_what_it_lost() {
    for fails in [4_000, 4_001] {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let source = dag.vertex(numbers("source", 2, 10_000));
        let step = dag.vertex(vertex("step", 2, move |_| Fails {
            fails: Arc::new(move |value| value == fails),
        }));
        let sink = dag.vertex(journal.vertex("sink", 2));
        dag.edge(Edge::between(source, step).routing(Routing::keyed(|n: &u64| *n)));
        dag.edge(Edge::between(step, sink).routing(Routing::keyed(|n: &u64| *n)));
        let node = node(2);
        let job = node.submit(&dag, restarting()).unwrap();
        let status = over(&job);
        assert!(matches!(status, JobStatus::Completed), "{status}");
        let failures = job.take_failures();
        assert_eq!(failures.len(), 1);
        let failure = &failures[0];
        assert_eq!((&*failure.vertices[0], failure.restarts), ("step", 1));
        assert_eq!(failure.error.vertex().unwrap().1, failure.instance);
        let came = journal.records();
        // The failing record, and those that the instance was processing.
        let missing = 10_000 - came.len();
        assert!(
            (1..=48).contains(&missing),
            "{missing} are lost, {failure:?}"
        );
        assert!(!came.contains(&fails));
        assert!(
            came.windows(2).all(|pair| pair[0] < pair[1]),
            "none came twice"
        );
        assert_eq!(journal.count(|saw| *saw == Saw::EdgeDone(0)), 2);
        assert!(job.take_failures().is_empty());
        // The counters of the restarted instance continued.
        assert_eq!(job.sum("step", |m| m.records_in), 10_000);
    }
}

/// Writes its creation to the journal, fails once at its first watermark, and records watermarks
/// and ends of inputs.
struct Hears {
    journal: Journal,
    fails: Arc<AtomicBool>,
}

impl Processor for Hears {
    fn process(&mut self, _: Lane, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        inbox.rows::<u64>()?.clear();
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.journal.note(0, Saw::Watermark(watermark.0));
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn on_edge_done(&mut self, input: Lane, _: &mut Outbox) -> Result<Progress> {
        self.journal.note(0, Saw::EdgeDone(input.0));
        let fails = self.fails.swap(false, Ordering::SeqCst);
        assert!(!fails, "at the first end");
        Ok(Progress::DONE)
    }
}

#[test]
fn one_that_is_made_anew_hears_of_the_time_and_the_ends_that_were_before() {
    let journal = Journal::default();
    let fails = Arc::new(AtomicBool::new(true));
    let go_on = Arc::new(AtomicBool::new(false));
    let mut dag = Dag::new();
    let short = dag.vertex(numbers("short", 1, 10));
    let wait = Arc::clone(&go_on);
    let long = dag.vertex(crate::processors::source("long", 1, move |_| {
        let wait = Arc::clone(&wait);
        let mut said = false;
        move |outbox: &mut Outbox, _: &ardea_core::InstanceContext| {
            if !std::mem::replace(&mut said, true) {
                outbox.watermark(Watermark(Timestamp::from_micros(5)));
            }
            let done = wait.load(Ordering::SeqCst);
            Ok(Progress { made: done, done })
        }
    }));
    let (heard, once) = (journal.clone(), Arc::clone(&fails));
    let join = dag.vertex(vertex("join", 1, move |_| Hears {
        journal: heard.clone(),
        fails: Arc::clone(&once),
    }));
    dag.edge(Edge::between(short, join));
    dag.edge(Edge::from_ordinals((long, Lane(0)), (join, Lane(1))));
    let node = node(2);
    let job = node.submit(&dag, restarting()).unwrap();
    let first_end = || journal.count(|saw| *saw == Saw::EdgeDone(0));
    let time = || {
        journal
            .of(0)
            .contains(&Saw::Watermark(Timestamp::from_micros(5)))
    };
    until("it has been told again", || first_end() == 2 && time());
    go_on.store(true, Ordering::SeqCst);
    assert!(matches!(over(&job), JobStatus::Completed));
    // The watermark is delivered to the new processor whether it had risen before the failure or
    // not.
    let saw = journal.of(0);
    let failed = saw.iter().position(|s| *s == Saw::EdgeDone(0)).unwrap();
    let told = &saw[failed + 1..];
    assert!(
        told[..2].contains(&Saw::Watermark(Timestamp::from_micros(5))),
        "{told:?}"
    );
    assert!(told[..2].contains(&Saw::EdgeDone(0)), "{told:?}");
    assert_eq!(
        told[2..],
        [Saw::EdgeDone(1), Saw::Watermark(Timestamp::MAX)]
    );
}

#[test]
fn a_source_that_fails_begins_anew_and_one_that_can_not_be_made_is_tried_again() {
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let journal = Journal::default();
    let mut dag = Dag::new();
    let supply = move |_| -> Result<Box<dyn Processor>> {
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Box::new(Short {
                has_spoken: false,
                fails: true,
            })),
            1 => Err(Error::new(ErrorCode::Network, "nobody is there")),
            _ => Ok(Box::new(Short {
                has_spoken: false,
                fails: false,
            })),
        }
    };
    let one = ardea_core::Parallelism::ONE;
    let source = dag.vertex(ardea_core::Vertex::new("source", Arc::new(supply)).parallelism(one));
    let sink = dag.vertex(journal.vertex("sink", 2));
    dag.edge(Edge::between(source, sink));
    let node = node(2);
    let job = node.submit(&dag, restarting()).unwrap();
    assert!(matches!(over(&job), JobStatus::Completed));
    assert_eq!(made.load(Ordering::SeqCst), 3);
    assert_eq!(job.take_failures().len(), 2);
    assert_eq!(journal.records(), [1, 1]);
}

/// Emits one record, and then ends or fails.
struct Short {
    has_spoken: bool,
    fails: bool,
}

impl Processor for Short {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !self.has_spoken {
            emit(outbox, 1, Timestamp::MIN)?;
            self.has_spoken = true;
            return Ok(Progress::MADE);
        }
        match self.fails {
            true => Err(Error::new(ErrorCode::ReadFailed, "the rest is not there")),
            false => Ok(Progress::DONE),
        }
    }
}

#[test]
fn cancelling_ends_a_job_whose_instances_go_on_failing() {
    let mut dag = Dag::new();
    dag.vertex(vertex("source", 2, |_| Broken));
    let node = node(1);
    let job = node.submit(&dag, restarting()).unwrap();
    until("it has failed again", || {
        job.take_failures().iter().any(|f| f.restarts > 2)
    });
    job.cancel();
    assert!(matches!(over(&job), JobStatus::Cancelled));
    assert_eq!(node.tasklets(), 0);
}

struct Broken;
impl Processor for Broken {
    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        Err(Error::new(ErrorCode::UserError, "always"))
    }
}

#[test]
fn an_instance_that_fails_too_often_in_a_row_fails_the_job_with_what_it_failed_of() {
    let mut dag = Dag::new();
    dag.vertex(vertex("source", 1, |_| Broken));
    let node = node(1);
    let config = JobConfig {
        on_failure: OnInstanceFailure::Restart { at_most: 2 },
        ..JobConfig::named("test")
    };
    let job = node.submit(&dag, config).unwrap();
    let JobStatus::Failed(error) = over(&job) else {
        panic!("it goes on: {}", job.status());
    };
    assert_eq!(error.code(), ErrorCode::RestartLimitReached);
    assert_eq!(error.vertex(), Some(("source", 0)));
    let text = error.to_string();
    assert!(
        text.contains("3 times in a row") && text.contains("always"),
        "{text}"
    );
    assert_eq!(job.take_failures().len(), 2);
    assert_eq!(node.tasklets(), 0);
}
