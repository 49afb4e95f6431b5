//! Tests of sinks made of functions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_core::{
    Error, ErrorCode, Guarantee, InstanceContext, ManualClock, OutboxRuntime, SnapshotRequest,
    StateChunk,
};
use ardea_testkit::{CapturedEpoch, ExternalHarness, ProcessorTest, TestRandom};

use super::*;
use crate::testing::{Fed, context, error_contains, stateful_context};

/// A store with transactions.
#[derive(Default)]
struct Store {
    /// Prepared records by instance and epoch.
    prepared: BTreeMap<(u32, u64), Vec<u64>>,
    committed: BTreeMap<(u32, u64), Vec<u64>>,
    /// Calls of `commit` that found their transaction committed.
    repeated: u32,
    batches: Vec<Vec<u64>>,
    /// The number of calls that fail from now on.
    failures: u32,
    /// The function that fails; empty for all.
    failing: &'static str,
    aborts: u32,
}

type Shared = Arc<Mutex<Store>>;

impl Store {
    fn fail(&mut self, call: &str) -> UserResult<()> {
        match self.failures {
            0 => Ok(()),
            _ if !["", call].contains(&self.failing) => Ok(()),
            _ => {
                self.failures -= 1;
                Err(Error::new(ErrorCode::Network, "away").transient().into())
            }
        }
    }

    fn published(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.committed.values().flatten().copied().collect();
        all.sort_unstable();
        all
    }
}

/// An open connection to a store.
struct Connection {
    store: Shared,
    instance: Instance,
    staged: Vec<u64>,
}

impl Connection {
    fn write(&mut self, batch: &[u64]) -> UserResult<()> {
        let mut store = self.store.lock().unwrap();
        store.fail("write")?;
        self.staged.extend(batch);
        store.batches.push(batch.to_vec());
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) -> UserResult<(u32, u64)> {
        let mut store = self.store.lock().unwrap();
        store.fail("prepare")?;
        let handle = (self.instance.index, epoch.0);
        store
            .prepared
            .insert(handle, std::mem::take(&mut self.staged));
        Ok(handle)
    }

    fn commit(&mut self, handle: (u32, u64)) -> UserResult<()> {
        let mut store = self.store.lock().unwrap();
        store.fail("commit")?;
        match store.prepared.remove(&handle) {
            Some(records) => {
                let former = store.committed.insert(handle, records);
                assert_eq!(former, None, "a transaction number is used twice");
            }
            None => {
                assert!(store.committed.contains_key(&handle), "{handle:?} is lost");
                store.repeated += 1;
            }
        }
        Ok(())
    }

    fn abort(&mut self) -> UserResult<()> {
        let mut store = self.store.lock().unwrap();
        store.fail("abort")?;
        store.aborts += 1;
        let instance = self.instance;
        store
            .prepared
            .retain(|(index, _), _| !instance.owns((*index).into()));
        Ok(())
    }
}

fn written(store: &Shared) -> SinkBuilder<SinkWrite<u64, Connection>> {
    let store = Arc::clone(store);
    SinkBuilder::new("store")
        .open(move |instance| {
            store.lock().unwrap().fail("open")?;
            Ok(Connection {
                store: Arc::clone(&store),
                instance,
                staged: Vec::new(),
            })
        })
        .write(Connection::write)
}

fn exactly_once(store: &Shared) -> SinkBuilder<SinkCommit<u64, Connection, (u32, u64)>> {
    written(store)
        .prepare(Connection::prepare)
        .commit(|connection, handle| connection.commit(*handle))
        .abort(Connection::abort)
}

/// Returns a context with a clock, in a job with state or without.
fn timed_context(guarantee: Guarantee) -> (InstanceContext, ManualClock) {
    let hand = ManualClock::new();
    let context = InstanceContext {
        clock: hand.clock(),
        guarantee,
        ..context("store")
    };
    (context, hand)
}

#[test]
fn a_sink_declares_its_delivery_guarantee() {
    let store = Shared::default();
    let of = |sink: Sink<u64>| sink.into_parts().1.delivery();
    assert_eq!(of(written(&store).build()), Some(Delivery::AtLeastOnce));
    assert_eq!(
        of(written(&store).idempotent().build()),
        Some(Delivery::Idempotent)
    );
    assert_eq!(
        of(exactly_once(&store).build()),
        Some(Delivery::ExactlyOnce)
    );
}

#[test]
fn batches_are_in_order_and_not_larger_than_configured() {
    let store = Shared::default();
    Fed::start(written(&store).batch_records(2))
        .feed(1..=5)
        .unwrap();
    assert_eq!(
        store.lock().unwrap().batches,
        [vec![1, 2], vec![3, 4], vec![5]]
    );
}

#[test]
fn the_contract_is_kept_in_every_schedule() {
    for failures in [0, 3] {
        let store = Shared::default();
        let SinkBuilder {
            settings,
            functions,
        } = exactly_once(&store).batch_records(3);
        ProcessorTest::new(move || {
            *store.lock().unwrap() = Store {
                failures,
                ..Store::default()
            };
            let transactions = Some(functions.transactions.clone());
            BatchWriteP::new(settings.clone(), functions.write.clone(), transactions)
        })
        .input::<u64>((0..20).collect::<Vec<_>>())
        .run();
    }
}

#[test]
fn transactions_survive_failures_in_every_schedule() {
    let SinkBuilder {
        settings,
        functions,
    } = SinkBuilder::new("s")
        .open(|_| Ok(()))
        .write(|(), _: &[u64]| Ok(()))
        .prepare(|(), epoch| Ok(epoch.0))
        .commit(|(), _| Ok(()));
    ProcessorTest::new(move || {
        let transactions = Some(functions.transactions.clone());
        BatchWriteP::new(settings.clone(), functions.write.clone(), transactions)
    })
    .keyed_input::<u64, u64>((0..20).collect::<Vec<_>>(), |n| *n)
    .survives()
    .run();
}

#[test]
fn a_transient_error_leaves_the_records_in_the_inbox_until_the_retry() {
    let store = Shared::default();
    store.lock().unwrap().failures = 2;
    let (context, hand) = timed_context(Guarantee::None);
    let mut fed = Fed::new(written(&store), context).unwrap();
    assert!(!fed.offer([1, 2]).unwrap());
    assert_eq!(fed.outbox.take_wake_at(), Some(Duration::from_millis(100)));
    assert!(!fed.again().unwrap(), "the time has not come");
    assert_eq!(fed.outbox.take_wake_at(), Some(Duration::from_millis(100)));
    assert_eq!(store.lock().unwrap().failures, 1);
    hand.advance(Duration::from_millis(100));
    assert!(!fed.again().unwrap());
    assert_eq!(fed.outbox.take_wake_at(), Some(Duration::from_millis(300)));
    hand.advance(Duration::from_millis(200));
    assert!(fed.again().unwrap());
    assert_eq!(store.lock().unwrap().batches, [[1, 2]]);
}

#[test]
fn an_outage_beyond_the_limit_and_any_other_error_fail_the_job() {
    let store = Shared::default();
    store.lock().unwrap().failures = u32::MAX;
    let (context, hand) = timed_context(Guarantee::None);
    let sink = written(&store).retry_limit(Duration::from_secs(1));
    let mut fed = Fed::new(sink, context).unwrap();
    assert!(!fed.offer([1]).unwrap());
    let error = loop {
        hand.advance(Duration::from_millis(500));
        if let Err(error) = fed.again() {
            break error;
        }
    };
    assert_eq!(error.code(), ErrorCode::UserError);
    assert!(
        error_contains(&error, &["cannot open the sink for 1s", "away"]),
        "{error}"
    );

    let sink = SinkBuilder::new("s")
        .open(|_| Ok(()))
        .write(|(), _: &[u64]| Err("no table".into()));
    let error = Fed::start(sink).offer([1, 2, 3]).unwrap_err();
    assert!(
        error_contains(&error, &["ARD-202: cannot write 3 records: no table"]),
        "{error}"
    );
}

#[test]
fn records_are_published_when_their_epoch_or_a_later_one_is_committed() {
    let store = Shared::default();
    let mut fed = Fed::new(exactly_once(&store), stateful_context(0, 1)).unwrap();
    fed.feed([1])
        .unwrap()
        .snapshot(SnapshotRequest::full(Epoch(1)))
        .unwrap();
    // The first epoch is aborted.
    fed.feed([2])
        .unwrap()
        .snapshot(SnapshotRequest::full(Epoch(2)))
        .unwrap();
    fed.feed([3]).unwrap();
    assert!(store.lock().unwrap().published().is_empty());
    fed.commit(Epoch(2)).unwrap();
    assert_eq!(store.lock().unwrap().published(), [1, 2]);
    fed.finish().unwrap();
    let last = SnapshotRequest {
        is_last: true,
        ..SnapshotRequest::full(Epoch(3))
    };
    fed.snapshot(last).unwrap();
    assert!(fed.awaits_commit());
    fed.commit(Epoch(4)).unwrap();
    assert!(!fed.awaits_commit());
    assert_eq!(store.lock().unwrap().published(), [1, 2, 3]);
}

#[test]
fn a_job_without_checkpoints_publishes_at_once_also_after_transient_errors() {
    let store = Shared::default();
    let (context, hand) = timed_context(Guarantee::None);
    let mut fed = Fed::new(exactly_once(&store), context).unwrap();
    fed.feed([1, 2]).unwrap();
    assert_eq!(store.lock().unwrap().published(), [1, 2]);
    for (call, record) in ["write", "prepare", "commit"].into_iter().zip(3..) {
        {
            let mut store = store.lock().unwrap();
            (store.failures, store.failing) = (2, call);
        }
        let _ = fed.offer([record]).unwrap();
        for _ in 0..2 {
            hand.advance(Duration::from_secs(2));
            fed.again().unwrap();
            fed.wake().unwrap();
        }
        assert_eq!(store.lock().unwrap().failures, 0, "{call}");
    }
    fed.finish().unwrap();
    assert_eq!(store.lock().unwrap().published(), [1, 2, 3, 4, 5]);
    assert!(!fed.awaits_commit());
}

#[test]
fn handles_of_a_failed_attempt_are_aborted_and_never_committed() {
    let store = Shared::default();
    let sink = || Fed::new(exactly_once(&store), stateful_context(0, 1)).unwrap();
    let mut first = sink();
    let kept = first
        .feed([1])
        .unwrap()
        .snapshot(SnapshotRequest::full(Epoch(1)))
        .unwrap();
    first
        .feed([2])
        .unwrap()
        .snapshot(SnapshotRequest::full(Epoch(2)))
        .unwrap();
    drop(first);
    let mut second = sink();
    second.give_back(Epoch(1), &kept).unwrap();
    assert_eq!(store.lock().unwrap().published(), [1]);
    assert_eq!(
        store.lock().unwrap().prepared,
        BTreeMap::new(),
        "removed by `abort`"
    );
    second
        .feed([20])
        .unwrap()
        .snapshot(SnapshotRequest::full(Epoch(2)))
        .unwrap();
    second.commit(Epoch(2)).unwrap();
    drop(second);
    // The checkpoint of the first epoch contains its handle although it is committed.
    let mut third = sink();
    third.give_back(Epoch(1), &kept).unwrap();
    let store = store.lock().unwrap();
    assert_eq!((store.published(), store.repeated), (vec![1, 20], 1));
    assert_eq!(store.aborts, 3);
}

#[test]
fn a_handle_of_another_type_and_a_sink_without_transactions_are_refused() {
    let store = Shared::default();
    let mut before = Fed::new(exactly_once(&store), stateful_context(0, 1)).unwrap();
    let kept = before
        .feed([1])
        .unwrap()
        .snapshot(SnapshotRequest::full(Epoch(1)))
        .unwrap();
    let refused = |sink: Sink<u64>, kept: &StateChunk| {
        let mut after = Fed::new(sink, stateful_context(0, 1)).unwrap();
        after.give_back(Epoch(1), kept).unwrap_err()
    };
    let other = written(&store)
        .prepare(|_, _| Ok(String::new()))
        .commit(|_, _| Ok(()));
    let error = refused(other.build(), &kept);
    assert_eq!(error.code(), ErrorCode::BadRecord);
    assert!(
        error_contains(&error, &["handle of a transaction", "invalid type"]),
        "{error}"
    );
    assert_eq!(
        refused(written(&store).build(), &kept).code(),
        ErrorCode::InvalidJob
    );
}

/// Runs attempts that fail at random moments, with changing parallelism, and checks the published
/// records.
fn run_with_failures(seed: u64) {
    let (mut random, store) = (TestRandom::new(seed), Shared::default());
    let (_, supplier, ..) = exactly_once(&store).batch_records(7).build().into_parts();
    let mut kept: Option<(CapturedEpoch, u64)> = None;
    for _ in 0..12 {
        let parallelism = 1 + random.below(3) as u32;
        let (mut epoch, mut next) = (Epoch(0), 0);
        let state = kept.as_ref().map(|(state, written)| {
            (epoch, next) = (state.epoch, *written);
            state
        });
        let begin = |index| {
            let instance = Instance { index, parallelism };
            ExternalHarness::begin(&supplier, "job", instance, state)
        };
        let mut instances: Vec<_> = (0..parallelism).map(begin).collect();
        for _ in 0..=random.below(6) {
            for instance in &mut instances {
                let count = random.below(10) as u64;
                instance.write(next..next + count);
                next += count;
            }
            epoch = epoch.next();
            // The increments of several instances cannot be merged.
            let is_full = parallelism > 1 || random.below(2) == 0;
            let states = instances.iter_mut().map(|it| it.end_epoch(epoch, is_full));
            let state = CapturedEpoch::merge(states.collect::<Vec<_>>());
            // A failure may come before all instances are notified of the commit.
            let notified = match random.below(4) {
                0 => {
                    instances.iter_mut().for_each(|it| it.abort(epoch));
                    continue;
                }
                1 => continue,
                2 => random.below(instances.len()),
                _ => instances.len(),
            };
            let all = instances.len();
            instances
                .iter_mut()
                .take(notified)
                .for_each(|it| it.commit(&state));
            kept = Some((state, next));
            if notified < all {
                break;
            }
        }
    }
    if let Some((state, next)) = &kept {
        drop(ExternalHarness::begin(
            &supplier,
            "job",
            Instance::ONLY,
            Some(state),
        ));
        let store = store.lock().unwrap();
        assert!(store.published().into_iter().eq(0..*next), "seed {seed}");
        assert_eq!(store.prepared, BTreeMap::new(), "seed {seed}");
    }
}

#[test]
fn each_record_is_published_once_whatever_fails() {
    (0..30).for_each(run_with_failures);
}
