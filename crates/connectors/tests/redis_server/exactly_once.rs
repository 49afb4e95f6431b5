//! Tests of an exactly-once sink that is killed at any time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ardea_connectors::redis::{Commands, RedisSink, write};
use ardea_core::{
    Chunk, Epoch, Guarantee, Inbox, Instance, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RestoredState, Rows, Sink, SnapshotRequest, SnapshotWriter, StateChunk, StateEntry,
    Timestamp,
};
use ardea_engine::{JobConfig, Node, NodeConfig};

use super::{ask, own_server, shared_server, url};

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }
}

/// A checkpoint of the sink, and the number of records at that time.
#[derive(Clone, Default)]
struct SinkCheckpoint {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    read: u64,
    epoch: Epoch,
}

/// The sink of one instance, driven like in a job with checkpoints.
struct SinkHarness {
    processor: Box<dyn Processor>,
    context: InstanceContext,
    outbox: Outbox,
    inbox: Inbox,
    read: u64,
    told: Option<Epoch>,
}

/// Repeats a call until it is done.
fn until_done(mut call: impl FnMut() -> ardea_core::Result<Progress>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !call().unwrap().done {
        assert!(Instant::now() < deadline, "it is never done");
        std::thread::yield_now();
    }
}

impl SinkHarness {
    fn begin(sink: Sink<u64>, kept: Option<&SinkCheckpoint>) -> SinkHarness {
        let (_, supplier, ..) = sink.into_parts();
        let mut processor = supplier.supply(Instance::ONLY).unwrap();
        let context = InstanceContext {
            guarantee: Guarantee::ExactlyOnce,
            ..InstanceContext::detached("redis")
        };
        processor.init(&context).unwrap();
        if let Some(kept) = kept {
            let mut chunk = StateChunk::default();
            for (key, value) in &kept.entries {
                let (state, partition, value) = ("transactions", None, Some(&value[..]));
                chunk
                    .push(StateEntry {
                        state,
                        partition,
                        key,
                        value,
                    })
                    .unwrap();
            }
            let mut position = 0;
            while position < chunk.byte_len() {
                let mut state = RestoredState::new(&chunk, &mut position, Instance::ONLY, 3);
                processor.state().restore(&mut state).unwrap();
            }
            until_done(|| processor.state().on_restored(kept.epoch));
        }
        SinkHarness {
            processor,
            context,
            outbox: Outbox::new(0, 16),
            inbox: Inbox::default(),
            read: kept.map_or(0, |kept| kept.read),
            told: kept.map(|kept| kept.epoch),
        }
    }

    fn read(&mut self, count: u64) {
        let numbers = self.read..self.read + count;
        let rows: Rows<u64> = numbers.map(|n| (n, Timestamp::MIN)).collect();
        self.inbox.fill(Chunk::new(rows));
        self.read += count;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.inbox.is_empty() {
            assert!(Instant::now() < deadline, "it reads nothing");
            let (inbox, outbox) = (&mut self.inbox, &mut self.outbox);
            self.processor
                .process(Ordinal::FIRST, inbox, outbox)
                .unwrap();
        }
    }

    /// Ends an epoch; returns its checkpoint.
    fn end_epoch(
        &mut self,
        epoch: Epoch,
        before: &SinkCheckpoint,
        lot: &mut Random,
    ) -> SinkCheckpoint {
        let (processor, outbox) = (&mut self.processor, &mut self.outbox);
        until_done(|| processor.on_epoch(epoch, outbox));
        let snapshot = SnapshotRequest {
            since: self.told.filter(|_| lot.below(4) > 0),
            ..SnapshotRequest::full(epoch)
        };
        processor.state().take_snapshot(snapshot).unwrap();
        let mut chunk = StateChunk::default();
        until_done(|| {
            let limit = chunk.byte_len() + 1;
            processor
                .state()
                .write_snapshot(&mut SnapshotWriter::new(&mut chunk, limit))
        });
        let mut entries = if snapshot.is_full() {
            BTreeMap::new()
        } else {
            before.entries.clone()
        };
        for entry in &chunk {
            match entry.value {
                Some(value) => entries.insert(entry.key.to_vec(), value.to_vec()),
                None => entries.remove(entry.key),
            };
        }
        let read = self.read;
        SinkCheckpoint {
            entries,
            read,
            epoch,
        }
    }

    fn committed(&mut self, epoch: Epoch) {
        let processor = &mut self.processor;
        until_done(|| processor.state().on_checkpoint_committed(epoch));
        self.told = Some(epoch);
    }
}

impl Drop for SinkHarness {
    fn drop(&mut self) {
        self.processor.close();
    }
}

/// Adds each number to a sum, and appends it to a list.
fn counting(url: &str, name: &'static str) -> Sink<u64> {
    let commands = move |n: &u64, commands: &mut Commands| {
        let (sum, all) = (format!("{name} sum"), format!("{name} all"));
        commands
            .incr_by(sum, *n as i64)
            .command("RPUSH", &[&all, n]);
    };
    exactly_once(write(url, commands))
}

fn exactly_once<F>(sink: RedisSink<u64, F>) -> Sink<u64>
where
    F: Fn(&u64, &mut Commands) + Send + Sync + 'static,
{
    sink.exactly_once().build()
}

fn assert_each_counted_once(url: &str, name: &str, read: u64) {
    let sum: u64 = ask(url, &["GET", &format!("{name} sum")]);
    assert_eq!(sum, read * (read - 1) / 2);
    let all: Vec<u64> = ask(url, &["LRANGE", &format!("{name} all"), "0", "-1"]);
    assert!(all.into_iter().eq(0..read), "in order");
}

#[test]
fn each_command_counts_once_whenever_the_sink_dies() {
    let Some(url) = shared_server() else { return };
    let sink = || counting(&url, "dying");
    let mut lot = Random(7);
    let (mut committed, mut epoch) = (None::<SinkCheckpoint>, Epoch::default());
    let mut life = SinkHarness::begin(sink(), None);
    while life.read < 4_000 || committed.is_none() {
        life.read(1 + lot.below(60));
        epoch = epoch.next();
        let before = committed.clone().unwrap_or_default();
        let kept = life.end_epoch(epoch, &before, &mut lot);
        let is_committed = lot.below(3) > 0;
        if is_committed {
            committed = Some(kept);
        }
        match lot.below(5) {
            // Crash, possibly after the commit was received and its transactions were sent.
            0 => {
                if is_committed && lot.below(2) == 0 {
                    let told = life.processor.state().on_checkpoint_committed(epoch);
                    assert!(told.is_ok());
                }
                life = SinkHarness::begin(sink(), committed.as_ref());
            }
            // Neither commit nor abort arrives.
            1 => {}
            _ if is_committed => life.committed(epoch),
            _ => until_done(|| life.processor.state().on_checkpoint_aborted(epoch)),
        }
    }
    let processor = &mut life.processor;
    let outbox = &mut life.outbox;
    until_done(|| processor.complete(outbox));
    epoch = epoch.next();
    let before = committed.unwrap_or_default();
    life.end_epoch(epoch, &before, &mut lot);
    assert!(life.processor.state().awaits_commit() || life.read == before.read);
    life.committed(epoch);
    assert!(!life.processor.state().awaits_commit());
    assert_each_counted_once(&url, "dying", life.read);
}

#[test]
fn each_command_counts_once_whenever_the_server_dies() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    let mut lot = Random(3);
    let mut life = SinkHarness::begin(counting(&url, "killed"), None);
    let mut kept = SinkCheckpoint::default();
    for number in 1..=8 {
        life.read(20_000);
        let epoch = Epoch(number);
        kept = life.end_epoch(epoch, &kept, &mut lot);
        let told = life.processor.state().on_checkpoint_committed(epoch);
        assert!(told.is_ok());
        server.kill();
        server.restart();
        life.committed(epoch);
    }
    assert_each_counted_once(&url, "killed", life.read);
}

#[test]
fn two_lives_that_carry_out_the_same_do_it_once() {
    let Some(url) = shared_server() else { return };
    let mut first = SinkHarness::begin(counting(&url, "two"), None);
    first.read(30_000);
    let kept = first.end_epoch(Epoch(1), &SinkCheckpoint::default(), &mut Random(1));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| drop(SinkHarness::begin(counting(&url, "two"), Some(&kept))));
        }
        first.committed(Epoch(1));
    });
    assert_each_counted_once(&url, "two", 30_000);
}

#[test]
fn commands_that_are_refused_are_dead_letters_and_the_others_are_carried_out() {
    let Some(url) = shared_server() else { return };
    let commands = |n: &u64, commands: &mut Commands| {
        match n {
            3 => commands.command("LPUSH", &[&"refused sum", n]),
            5 => commands.command("NO SUCH COMMAND", &[n]),
            n => commands.incr_by("refused sum", *n as i64),
        };
    };
    let mut life = SinkHarness::begin(exactly_once(write(&url, commands)), None);
    life.read(8);
    life.end_epoch(Epoch(1), &SinkCheckpoint::default(), &mut Random(1));
    life.committed(Epoch(1));
    let mut letters = life.context.dead_letters.sample();
    letters.sort_by(|one, other| one.origin.cmp(&other.origin));
    let origins: Vec<_> = letters.iter().map(|letter| &letter.origin[..]).collect();
    assert_eq!(origins, ["record 3", "record 5"]);
    assert_eq!(ask::<u64>(&url, &["GET", "refused sum"]), 28 - 3 - 5);
}

#[test]
fn nothing_is_seen_before_it_is_committed() {
    let Some(url) = shared_server() else { return };
    let mut life = SinkHarness::begin(counting(&url, "unseen"), None);
    life.read(10);
    life.end_epoch(Epoch(1), &SinkCheckpoint::default(), &mut Random(1));
    life.read(10);
    assert_eq!(ask::<u64>(&url, &["EXISTS", "unseen all"]), 0);
    life.committed(Epoch(1));
    assert_each_counted_once(&url, "unseen", 10);
}

#[test]
fn a_job_that_keeps_no_state_carries_out_at_once() {
    let Some(url) = shared_server() else { return };
    let p = ardea_pipeline::Pipeline::new("at once");
    p.read_from(ardea_connectors::collections::items(super::numbers(100)))
        .write_to(counting(&url, "plain"));
    p.run().unwrap();
    assert_each_counted_once(&url, "plain", 100);
}

#[test]
fn a_command_that_may_not_be_repeated_fails_a_sink_that_is_said_to_be_idempotent() {
    let Some(url) = shared_server() else { return };
    let p = ardea_pipeline::Pipeline::new("idempotent");
    let count = |n: &u64, commands: &mut Commands| {
        commands.incr_by("wrong", *n as i64);
    };
    p.read_from(ardea_connectors::collections::items(super::numbers(3)))
        .write_to(write(&url, count).idempotent());
    let node = Node::start(NodeConfig::default()).unwrap();
    let error = p.submit(&node, JobConfig::default()).unwrap().join();
    let error = error.expect_err("INCRBY is not idempotent").to_string();
    assert!(
        error.contains("INCRBY") && error.contains("exactly_once"),
        "{error}"
    );
}
