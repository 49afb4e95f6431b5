//! Tests that correct snapshots survive any failure, and that incorrect ones are detected.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use ardea_core::{
    Bounded, Checkpointed, Epoch, Inbox, Instance, InstanceContext, Ordinal, Outbox, PartitionId,
    Processor, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter, Source, Watermark,
    supplier,
};
use ardea_testkit::{Expected, ProcessorTest, SourceTest, TestInput, Timestamp};

/// The fault of a [`Sums`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// Remembers nothing.
    Forgets,
    /// Writes the current state instead of the state at the time of the snapshot.
    WritesLater,
    /// Omits changes from the next snapshot if they were in an earlier one whose outcome is
    /// unknown.
    TrustsEverySnapshot,
    /// Omits removed keys.
    KeepsSilent,
    /// Writes keys without a partition.
    HasNoPartitions,
    /// Emits its sums at the end, and again when the end is replayed.
    EndsTwice,
    /// Restores only half of the entries.
    TakesHalf,
    /// No fault: a new processor takes over its memory.
    HandsOver,
    /// Hands over only part of its memory.
    HandsOverHalf,
}

/// Sums numbers by key. Emits and resets a sum above 50; emits the rest at the end.
struct Sums {
    flaw: Flaw,
    sums: BTreeMap<u64, u64>,
    /// Keys changed since the last commit, with the first snapshot that contains the change.
    changed: BTreeMap<u64, Epoch>,
    epoch: Epoch,
    frozen: BTreeMap<u64, Option<u64>>,
    rest: Option<Vec<(u64, u64)>>,
}

impl Sums {
    fn new(flaw: Flaw) -> Self {
        Sums {
            flaw,
            sums: BTreeMap::new(),
            changed: BTreeMap::new(),
            epoch: Epoch(0),
            frozen: BTreeMap::new(),
            rest: None,
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

impl Processor for Sums {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut out = outbox.lane::<(u64, u64)>(Ordinal::FIRST)?;
        for ((key, value), time) in inbox.rows::<(u64, u64)>()?.drain_front(out.room()) {
            let sum = self.sums.entry(key).or_default();
            *sum += value;
            if *sum > 50 {
                out.push((key, *sum), time);
                self.sums.remove(&key);
            }
            self.changed.insert(key, self.epoch.next());
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut out = outbox.lane::<(u64, u64)>(Ordinal::FIRST)?;
        if self.flaw == Flaw::EndsTwice {
            let sums = &self.sums;
            let all = || sums.iter().rev().map(|(k, s)| (*k, *s)).collect();
            let rest: &mut Vec<_> = self.rest.get_or_insert_with(all);
            while !out.is_full() {
                let Some(pair) = rest.pop() else {
                    return Ok(Progress::DONE);
                };
                out.push(pair, Timestamp::MIN);
            }
            return Ok(Progress::MADE);
        }
        while !out.is_full() {
            let Some((key, sum)) = self.sums.pop_first() else {
                return Ok(Progress::DONE);
            };
            self.changed.insert(key, self.epoch.next());
            out.push((key, sum), Timestamp::MIN);
        }
        Ok(Progress::MADE)
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        let hands_over = matches!(self.flaw, Flaw::HandsOver | Flaw::HandsOverHalf);
        hands_over.then_some(self as Box<dyn Any + Send>)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Sums {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.epoch = snapshot.epoch;
        let keys: BTreeSet<u64> = match snapshot.is_full() {
            true => self.sums.keys().copied().collect(),
            false => self.changed.keys().copied().collect(),
        };
        self.frozen = keys
            .iter()
            .map(|key| (*key, self.sums.get(key).copied()))
            .collect();
        if self.flaw == Flaw::TrustsEverySnapshot {
            self.changed.clear();
        }
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        while writer.has_room() {
            let Some((key, mut sum)) = self.frozen.pop_first() else {
                return Ok(Progress::DONE);
            };
            if self.flaw == Flaw::WritesLater {
                sum = self.sums.get(&key).copied();
            }
            let partition = Some(PartitionId::of(&key));
            let partition = partition.filter(|_| self.flaw != Flaw::HasNoPartitions);
            let bytes = key.to_le_bytes();
            match sum {
                _ if self.flaw == Flaw::Forgets => {}
                Some(sum) => writer.set("sum", partition, &bytes, &sum.to_le_bytes())?,
                None if self.flaw == Flaw::KeepsSilent => {}
                None => writer.remove("sum", partition, &bytes)?,
            }
        }
        Ok(Progress::MADE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.changed.retain(|_, first| *first > epoch);
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let key = number(entry.key);
            if self.flaw != Flaw::TakesHalf || key.is_multiple_of(2) {
                self.sums.insert(key, number(entry.value));
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.epoch = epoch;
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        self.sums = before.sums;
        if self.flaw == Flaw::HandsOverHalf {
            self.sums.pop_first();
        }
        self.changed = before.changed;
        self.epoch = before.epoch;
        true
    }
}

/// Returns the test of a processor with this flaw.
fn test(flaw: Flaw) -> ProcessorTest {
    let pairs: Vec<(u64, u64)> = (0..60).map(|n| (n % 4, n % 23)).collect();
    let (mut sums, mut expected) = (BTreeMap::new(), Vec::new());
    for (key, value) in &pairs {
        let sum = sums.entry(*key).or_insert(0);
        *sum += value;
        if *sum > 50 {
            expected.push((*key, *sum));
            sums.remove(key);
        }
    }
    expected.extend(sums);
    let at = |n: u64| Timestamp::from_secs(n as i64);
    let events = |pairs: &[(u64, u64)]| {
        let timed: Vec<_> = pairs.iter().map(|pair| (*pair, at(pair.1))).collect();
        timed
    };
    let input = TestInput::new()
        .records(events(&pairs[..25]))
        .watermark(at(24))
        .barrier()
        .records(events(&pairs[25..]));
    ProcessorTest::new(move || Sums::new(flaw))
        .keyed_input(input, |(key, _): &(u64, u64)| *key)
        .output(Expected::ordered(expected))
        .survives()
}

#[test]
fn what_remembers_as_it_should_survives_any_death() {
    for flaw in [Flaw::None, Flaw::HandsOver] {
        let report = test(flaw).run();
        assert!(
            report.runs_with_failures > 100,
            "{}",
            report.runs_with_failures
        );
    }
}

#[test]
fn what_does_not_is_caught() {
    for flaw in [
        Flaw::Forgets,
        Flaw::WritesLater,
        Flaw::TrustsEverySnapshot,
        Flaw::KeepsSilent,
        Flaw::HasNoPartitions,
        Flaw::EndsTwice,
        Flaw::TakesHalf,
        Flaw::HandsOverHalf,
    ] {
        // Only runs with failures detect the flaw.
        let failure = match test(flaw).try_run() {
            Ok(_) => panic!("{flaw:?} was not caught"),
            Err(failure) => failure.to_string(),
        };
        let deadly = [
            "with failures and restores",
            "instances one after the other",
        ];
        let by_death = deadly.iter().any(|words| failure.contains(words));
        assert!(by_death, "{flaw:?}: {failure}");
    }
}

/// A processor without state; it implements no snapshot callbacks.
struct Doubled;

impl Processor for Doubled {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
        for (number, time) in inbox.rows::<u64>()?.drain_front(out.room()) {
            out.push(number * 2, time);
        }
        Ok(())
    }
}

#[test]
fn a_stateless_processor_survives() {
    let input = TestInput::new().values([1, 2]).barrier().values([3]);
    ProcessorTest::new(|| Doubled)
        .keyed_input(input, |number: &u64| *number)
        .output::<u64>([2, 4, 6])
        .survives()
        .run();
}

/// A source of the numbers below 30, each of which belongs to a partition.
struct Counts {
    instance: Instance,
    /// True if it writes its numbers under its own instance, so that no other instance can restore
    /// them.
    is_selfish: bool,
    own: Vec<u64>,
    /// The number of its numbers that it has emitted.
    emitted: usize,
    /// Each of its numbers, and whether it is still to be emitted.
    written: Vec<(u64, bool)>,
    restored: Option<Vec<u64>>,
}

impl Counts {
    fn new(instance: Instance, is_selfish: bool) -> Self {
        let owner = |number: &u64| PartitionId::of(number).owner(instance.parallelism);
        Counts {
            instance,
            is_selfish,
            own: (0..30)
                .filter(|number| owner(number) == instance.index)
                .collect(),
            emitted: 0,
            written: Vec::new(),
            restored: None,
        }
    }
}

impl Processor for Counts {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
        // A few at a time, so that a failure can come in between.
        for number in self.own[self.emitted..].iter().take(3.min(out.room())) {
            out.push(*number, Timestamp::MIN);
            self.emitted += 1;
        }
        Ok(Progress {
            made: true,
            done: self.emitted == self.own.len(),
        })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Counts {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        let own = self.own.iter().copied().enumerate();
        self.written = own
            .map(|(at, number)| (number, at >= self.emitted))
            .collect();
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        while writer.has_room() {
            let Some((number, is_left)) = self.written.pop() else {
                return Ok(Progress::DONE);
            };
            let (partition, name) = match self.is_selfish {
                true => (None, self.instance.index as u8),
                false => (Some(PartitionId::of(&number)), 0),
            };
            let key = [number as u8, name];
            match is_left {
                true => writer.set("left", partition, &key, b"")?,
                false => writer.remove("left", partition, &key)?,
            }
        }
        Ok(Progress::MADE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let is_own = !self.is_selfish || u32::from(entry.key[1]) == self.instance.index;
            let restored = self.restored.get_or_insert_default();
            restored.extend(is_own.then_some(u64::from(entry.key[0])));
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.own = self.restored.take().unwrap_or_default();
        self.own.sort_unstable();
        Ok(Progress::DONE)
    }
}

fn test_of_counts(is_selfish: bool) -> SourceTest {
    let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(Counts::new(instance, is_selfish)))
    };
    SourceTest::supplied(Arc::new(supply))
        .output(Expected::ordered(0..30u64))
        .survives()
}

/// The source ignores its instance, as a source with parallelism one may.
#[test]
fn a_source_is_tested_as_several_instances_only_if_it_says_that_it_is() {
    let source = || {
        let counts = supplier(|| Counts::new(Instance::ONLY, false));
        Source::<u64, Bounded>::new("counts", counts)
    };
    let test = |source| {
        SourceTest::of(source)
            .output(Expected::ordered(0..30u64))
            .survives()
    };
    let report = test(source()).run();
    assert!(
        report.runs_with_failures > 30,
        "{}",
        report.runs_with_failures
    );
    let failure = test(source().parallelism(2)).try_run().err().unwrap();
    assert!(failure.to_string().contains("instances"), "{failure}");
    test(source().parallelism(2)).single_instance().run();
}

#[test]
fn a_source_that_hands_over_what_is_left_survives_also_as_several_instances() {
    let report = test_of_counts(false).run();
    assert!(
        report.runs_with_failures > 30,
        "{}",
        report.runs_with_failures
    );
}

#[test]
fn a_source_whose_instances_find_only_their_own_is_caught() {
    let failure = match test_of_counts(true).try_run() {
        Ok(_) => panic!("it was not caught"),
        Err(failure) => failure.to_string(),
    };
    assert!(
        failure.contains("instances one after the other"),
        "{failure}"
    );
}

/// Adds the sum of broadcast numbers to each keyed one. The first instance writes the broadcast
/// sum, under a partition if the flaw is set.
struct Added {
    has_partition: bool,
    writes: bool,
    told: u64,
    frozen: Option<u64>,
}

impl Processor for Added {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.writes = context.instance.index == 0;
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
        let rows = inbox.rows::<u64>()?;
        if input == Ordinal::SECOND {
            self.told += rows.drain_front(usize::MAX).map(|(n, _)| n).sum::<u64>();
            return Ok(());
        }
        for (number, time) in rows.drain_front(out.room()) {
            out.push(number + self.told, time);
        }
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Added {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.frozen = Some(self.told).filter(|_| self.writes);
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let partition = Some(PartitionId::of(&7u64)).filter(|_| self.has_partition);
        match self.frozen.take() {
            Some(told) => writer.set("told", partition, b"", &told.to_le_bytes())?,
            None => return Ok(Progress::DONE),
        }
        Ok(Progress::MADE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        state.for_each(|entry| self.told = number(entry.value));
        Ok(())
    }
}

fn added(has_partition: bool) -> ProcessorTest {
    let expected = (0..20u64).map(|n| n + if n < 10 { 100 } else { 300 });
    let (one, ten) = (std::iter::repeat_n(1, 1), std::iter::repeat_n(0, 10));
    ProcessorTest::new(move || Added {
        has_partition,
        writes: true,
        told: 0,
        frozen: None,
    })
    .keyed_input::<u64, _>((0..20).collect::<Vec<_>>(), |n| *n)
    .broadcast_input(vec![100u64, 200])
    .interleave(one.clone().chain(ten).chain(one))
    .output(Expected::ordered(expected))
    .survives()
}

#[test]
fn what_came_to_all_has_to_come_back_to_all() {
    assert!(added(false).run().runs_with_failures > 100);
    let failure = match added(true).try_run() {
        Ok(_) => panic!("it was not caught"),
        Err(failure) => failure.to_string(),
    };
    assert!(
        failure.contains("instances one after the other"),
        "{failure}"
    );
}
