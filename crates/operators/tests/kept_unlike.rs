//! Tests of rescales of instances with different watermarks: each window is emitted exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{collect_list, count};
use ardea_core::{
    Epoch, Guarantee, Instance, InstanceContext, ManualClock, PartitionId, Processor,
    RestoredState, SnapshotRequest, SnapshotWriter, StateChunk,
};
use ardea_operators::*;
use ardea_testkit::{Harness, Timestamp};
use proptest::prelude::*;

mod json;

use json::json;

type Pair = (u16, i64);
type Listed = WindowResult<u16, Vec<Pair>>;

fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

fn key(pair: &Pair) -> u16 {
    pair.0
}

/// The instances of a vertex.
struct Vertex {
    instances: Vec<Harness>,
}

impl Vertex {
    /// Starts `count` instances from this state.
    fn begin<P: Processor + 'static>(make: &dyn Fn() -> P, count: u32, state: &StateChunk) -> Self {
        let begin = |index| {
            let hand = ManualClock::new();
            let instance = Instance {
                index,
                parallelism: count,
            };
            let context = InstanceContext {
                instance,
                guarantee: Guarantee::ExactlyOnce,
                clock: hand.clock(),
                ..InstanceContext::detached("tested")
            };
            let mut new = Harness::with_context(make(), 1, 1, context, hand).unwrap();
            let mut position = 0;
            while position < state.byte_len() {
                let mut entries = RestoredState::new(state, &mut position, instance, 3);
                new.step(|p, _| p.state().restore(&mut entries)).unwrap();
            }
            if !state.is_empty() {
                while !new
                    .step(|p, _| p.state().on_restored(Epoch(1)))
                    .unwrap()
                    .done
                {}
            }
            new
        };
        Vertex {
            instances: (0..count).map(begin).collect(),
        }
    }

    fn owner(&mut self, key: u16) -> usize {
        PartitionId::of(&key).owner(self.instances.len() as u32) as usize
    }

    fn record(&mut self, pair: Pair) {
        let owner = self.owner(pair.0);
        self.instances[owner].push(0, pair, at(pair.1));
        self.instances[owner].read(0).unwrap();
    }

    /// Returns the state of all instances.
    fn hand_over(&mut self) -> StateChunk {
        let mut chunk = StateChunk::default();
        for from in &mut self.instances {
            from.barrier(Epoch(1)).unwrap();
            from.step(|p, _| p.state().take_snapshot(SnapshotRequest::full(Epoch(1))))
                .unwrap();
            loop {
                let limit = chunk.byte_len() + 50;
                let mut writer = SnapshotWriter::new(&mut chunk, limit);
                if from
                    .step(|p, _| p.state().write_snapshot(&mut writer))
                    .unwrap()
                    .done
                {
                    break;
                }
            }
        }
        chunk
    }

    fn results<U: Send + 'static>(&mut self) -> Vec<U> {
        let all = self.instances.iter_mut();
        all.flat_map(|instance| instance.values::<U>(0)).collect()
    }

    fn late(&self) -> u64 {
        self.instances
            .iter()
            .map(|instance| instance.metrics().late)
            .sum()
    }
}

/// An execution attempt of a vertex: its parallelism, records and watermarks.
#[derive(Clone, Debug)]
struct Life {
    count: u32,
    /// Keys, and event times relative to the watermark of the key's partition.
    records: Vec<(u16, i64)>,
    /// Per instance, its watermark relative to the lowest of all.
    ahead: Vec<i64>,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let records = prop::collection::vec((0u16..12, 0i64..12), 0..30);
    let life = (1u32..4, records, prop::collection::vec(0i64..25, 3));
    let life = life.prop_map(|(count, records, ahead)| Life {
        count,
        records,
        ahead,
    });
    prop::collection::vec(life, 1..5)
}

/// Runs `make` through its attempts. No record is late for its own partition. Returns all results
/// and all records.
fn live<P, U>(make: &dyn Fn() -> P, lives: &[Life]) -> (Vec<U>, Vec<Pair>)
where
    P: Processor + 'static,
    U: Send + 'static,
{
    live_with_old_records(make, lives, 0)
}

/// Works like [`live`] with records that are up to `back` older than the watermark of their
/// partition, and not late either.
fn live_with_old_records<P, U>(
    make: &dyn Fn() -> P,
    lives: &[Life],
    back: i64,
) -> (Vec<U>, Vec<Pair>)
where
    P: Processor + 'static,
    U: Send + 'static,
{
    let (mut state, mut least) = (StateChunk::default(), 0);
    let mut told: BTreeMap<u16, i64> = BTreeMap::new();
    let (mut results, mut records) = (Vec::new(), Vec::new());
    for (number, life) in lives.iter().enumerate() {
        let mut vertex = Vertex::begin(make, life.count, &state);
        if number > 0 {
            for instance in &mut vertex.instances {
                instance.watermark(at(least)).unwrap();
            }
            let again = vertex.results::<U>();
            assert!(
                back > 0 || again.is_empty(),
                "with the watermark repeated, attempt {number}"
            );
            results.extend(again);
        }
        let marks: Vec<_> = life.ahead.iter().map(|ahead| least + ahead).collect();
        let half = life.records.len() / 2;
        for (index, (key, time)) in life.records.iter().enumerate() {
            if index == half {
                for (at_instance, instance) in vertex.instances.iter_mut().enumerate() {
                    if marks[at_instance] > least {
                        instance.watermark(at(marks[at_instance])).unwrap();
                    }
                }
            }
            let owner = vertex.owner(*key);
            let now = told.entry(*key).or_insert(0);
            if index >= half {
                *now = marks[owner].max(*now);
            }
            let pair = (*key, *now + time - back);
            records.push(pair);
            vertex.record(pair);
        }
        if life.records.is_empty() {
            for (at_instance, instance) in vertex.instances.iter_mut().enumerate() {
                if marks[at_instance] > least {
                    instance.watermark(at(marks[at_instance])).unwrap();
                }
            }
        }
        for key in 0..12 {
            let mark = marks[vertex.owner(key)];
            let now = told.entry(key).or_insert(0);
            *now = mark.max(*now);
        }
        least = marks[..life.count as usize]
            .iter()
            .copied()
            .min()
            .unwrap_or(least);
        assert_eq!(vertex.late(), 0, "attempt {number}");
        state = vertex.hand_over();
        results.extend(vertex.results::<U>());
    }
    let mut vertex = Vertex::begin(make, 1, &state);
    for mark in [least, least + 7, least + 40] {
        vertex.instances[0].watermark(at(mark)).unwrap();
    }
    vertex.instances[0].watermark(Timestamp::MAX).unwrap();
    vertex.instances[0].complete().unwrap();
    results.extend(vertex.results::<U>());
    (results, records)
}

/// Returns each window of each key with a record, and its records.
fn windows(records: &[Pair], length: i64, slide: i64) -> BTreeMap<(u16, i64), Vec<Pair>> {
    let mut windows: BTreeMap<_, Vec<Pair>> = BTreeMap::new();
    for pair in records {
        let first = pair.1.div_euclid(slide) * slide + slide;
        for end in (first..first + length).step_by(slide as usize) {
            windows.entry((pair.0, end)).or_default().push(*pair);
        }
    }
    windows.values_mut().for_each(|held| held.sort());
    windows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn sliding_windows_come_once(lives in lives(), slices in 1u64..5, slide in 1u64..6) {
        let (length, slide) = (Duration::from_secs(slices * slide), Duration::from_secs(slide));
        let spec = WindowSpec::sliding(length, slide).unwrap();
        let fold = Arc::new(FoldOne::new(key, collect_list()));
        let make = move || SlidingWindowP::new(spec, Arc::clone(&fold)).with_codecs(json(), json());
        let (results, records) = live::<_, Listed>(&make, &lives);
        let expected = windows(&records, length.as_secs() as i64, slide.as_secs() as i64);
        prop_assert_eq!(results.len(), expected.len());
        let mut came = BTreeMap::new();
        for mut result in results {
            prop_assert_eq!(result.firing, Firing::OnTime);
            result.value.sort();
            came.insert((result.key, result.end.as_millis() / 1_000), result.value);
        }
        prop_assert_eq!(came, expected);
    }

    #[test]
    fn counts_that_are_deducted_come_once(lives in lives(), slices in 1u64..5, slide in 1u64..6) {
        let (length, slide) = (Duration::from_secs(slices * slide), Duration::from_secs(slide));
        // Lateness retains slices for longer, and changes no result here.
        let spec = WindowSpec::sliding(length, slide).unwrap().allowed_lateness(Duration::from_secs(5));
        let fold = Arc::new(FoldOne::new(key, count()));
        let make = move || SlidingWindowP::new(spec, Arc::clone(&fold)).with_codecs(json(), json());
        let (results, records) = live::<_, WindowResult<u16, u64>>(&make, &lives);
        let expected = windows(&records, length.as_secs() as i64, slide.as_secs() as i64);
        prop_assert_eq!(results.len(), expected.len());
        let came = results.iter().map(|r| ((r.key, r.end.as_millis() / 1_000), r.value));
        let expected: BTreeMap<_, _> = expected.into_iter().map(|(at, held)| (at, held.len() as u64)).collect();
        prop_assert_eq!(came.collect::<BTreeMap<_, _>>(), expected);
    }

    #[test]
    fn sessions_come_once(lives in lives(), gap in 1u64..8) {
        let spec = SessionSpec::gap(Duration::from_secs(gap)).unwrap();
        let fold = Arc::new(FoldOne::new(key, collect_list()));
        let make = move || SessionWindowP::new(spec, Arc::clone(&fold)).with_codecs(json());
        let (results, mut records) = live::<_, Listed>(&make, &lives);
        let mut came: Vec<Pair> = results.into_iter().flat_map(|result| result.value).collect();
        came.sort();
        records.sort();
        prop_assert_eq!(came, records);
    }

    #[test]
    fn a_table_kept_from_changes_holds_the_sessions_of_all_lives(lives in lives(), gap in 1u64..8) {
        let spec = SessionSpec::gap(Duration::from_secs(gap)).unwrap();
        let spec = spec.allowed_lateness(Duration::from_secs(8));
        let fold = Arc::new(FoldOne::new(key, count()));
        let make = move || SessionWindowP::new(spec, Arc::clone(&fold)).changes().with_codecs(json());
        let (changes, mut records) = live_with_old_records::<_, WindowChange<u16, u64>>(&make, &lives, 8);
        let mut table = BTreeMap::new();
        for change in changes {
            let row = (*change.key(), change.start().as_millis() / 1_000);
            match change {
                WindowChange::Upsert(result) => {
                    table.insert(row, (result.end.as_millis() / 1_000, result.value));
                }
                WindowChange::Delete { end, .. } => {
                    let deleted = table.remove(&row).map(|(deleted_end, _)| deleted_end);
                    prop_assert_eq!(deleted, Some(end.as_millis() / 1_000));
                }
            }
        }
        records.sort();
        let mut expected: Vec<((u16, i64), (i64, u64))> = Vec::new();
        for (key, time) in records {
            let reach = time + gap as i64;
            match expected.last_mut() {
                Some(((same, _), (end, count))) if *same == key && time < *end => {
                    (*end, *count) = (reach, *count + 1);
                }
                _ => expected.push(((key, time), (reach, 1))),
            }
        }
        prop_assert_eq!(table.into_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_record_is_late_if_it_is_for_the_partition_of_its_key() {
    let (slow, fast) = (0u16.., 0u16..);
    let slow = slow
        .into_iter()
        .find(|key| PartitionId::of(key).index() < 512)
        .unwrap();
    let fast = fast
        .into_iter()
        .find(|key| PartitionId::of(key).index() >= 512)
        .unwrap();
    let spec = WindowSpec::tumbling(Duration::from_secs(10)).unwrap();
    let fold = Arc::new(FoldOne::new(key, count()));
    let make = move || SlidingWindowP::new(spec, Arc::clone(&fold)).with_codecs(json(), json());
    let mut two = Vertex::begin(&make, 2, &StateChunk::default());
    two.record((slow, 5));
    two.record((fast, 5));
    two.instances[0].watermark(at(3)).unwrap();
    two.instances[1].watermark(at(20)).unwrap();
    let state = two.hand_over();
    assert_eq!(two.results::<WindowResult<u16, u64>>().len(), 1);
    let mut one = Vertex::begin(&make, 1, &state);
    one.instances[0].watermark(at(3)).unwrap();
    one.record((fast, 6));
    one.record((slow, 6));
    assert_eq!(one.late(), 1);
    one.instances[0].watermark(at(30)).unwrap();
    let results = one.results::<WindowResult<u16, u64>>();
    let results: Vec<_> = results.iter().map(|r| (r.key, r.value)).collect();
    assert_eq!(results, [(slow, 2)]);
}
