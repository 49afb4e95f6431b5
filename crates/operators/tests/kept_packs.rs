//! Tests of checkpoints of slices in packs: complete for any outcome of snapshots, and bounded in
//! size.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{collect_list, count};
use ardea_core::{
    Epoch, Guarantee, Instance, InstanceContext, ManualClock, PARTITION_COUNT, PartitionId,
    Processor, RestoredState, SnapshotRequest, SnapshotWriter, StateChunk,
};
use ardea_operators::*;
use ardea_testkit::{Harness, Timestamp};
use proptest::prelude::*;

mod entries;
mod integers;
mod json;
mod unpacked;

use entries::{Entries, chunk_of};
use integers::integers;
use json::json;
use unpacked::unpacked;

type Pair = (u16, i64);
type Results<R> = Vec<(WindowResult<u16, R>, Timestamp)>;

fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

fn key(pair: &Pair) -> u16 {
    pair.0
}

fn spec(length: u64, slide: u64, lateness: u64) -> WindowSpec {
    let [length, slide, lateness] = [length, slide, lateness].map(Duration::from_secs);
    let spec = WindowSpec::sliding(length, slide).unwrap();
    spec.allowed_lateness(lateness)
}

fn counts(spec: WindowSpec) -> impl Processor {
    SlidingWindowP::new(spec, Arc::new(FoldOne::new(key, count()))).with_codecs(json(), json())
}

fn integer_counts(spec: WindowSpec) -> impl Processor {
    SlidingWindowP::new(spec, Arc::new(FoldOne::new(key, count()))).with_codecs(integers(), json())
}

fn lists(spec: WindowSpec) -> impl Processor {
    SlidingWindowP::new(spec, Arc::new(FoldOne::new(key, collect_list())))
        .with_codecs(json(), json())
}

/// Random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// An input of a vertex.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Record(Pair),
    Watermark(i64),
}

/// The instances of a vertex and their outputs.
struct Vertex<R> {
    instances: Vec<Harness>,
    /// The delay of watermarks per instance.
    lags: Vec<i64>,
    results: Results<R>,
}

impl<R: Send + 'static> Vertex<R> {
    fn begin<P: Processor + 'static>(make: &impl Fn() -> P, count: u32, state: &Entries) -> Self {
        let chunk = chunk_of(state);
        let begin = |index| {
            let instance = Instance {
                index,
                parallelism: count,
            };
            let hand = ManualClock::new();
            let context = InstanceContext {
                instance,
                guarantee: Guarantee::ExactlyOnce,
                clock: hand.clock(),
                ..InstanceContext::detached("tested")
            };
            let mut new = Harness::with_context(make(), 1, 2, context, hand).unwrap();
            let mut position = 0;
            while position < chunk.byte_len() {
                let mut some = RestoredState::new(&chunk, &mut position, instance, 3);
                new.step(|p, _| p.state().restore(&mut some)).unwrap();
            }
            while !new
                .step(|p, _| p.state().on_restored(Epoch(1)))
                .unwrap()
                .done
            {}
            new
        };
        Vertex {
            instances: (0..count).map(begin).collect(),
            lags: vec![0; count as usize],
            results: Vec::new(),
        }
    }

    fn hear(&mut self, next: Happens) {
        match next {
            Happens::Record(pair) => {
                let owner = PartitionId::of(&pair.0).owner(self.instances.len() as u32);
                let owner = &mut self.instances[owner as usize];
                owner.push(0, pair, at(pair.1));
                owner.read(0).unwrap();
            }
            Happens::Watermark(n) => {
                for (of, lag) in self.instances.iter_mut().zip(&self.lags) {
                    of.watermark(at(n - lag)).unwrap();
                }
            }
        }
        self.collect();
    }

    fn each(&mut self, what: impl FnMut(&mut Harness)) {
        self.instances.iter_mut().for_each(what);
    }

    fn collect(&mut self) {
        for instance in &mut self.instances {
            self.results.extend(instance.take(0));
        }
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) {
        self.each(|of| {
            of.barrier(snapshot.epoch).unwrap();
            of.step(|p, _| p.state().take_snapshot(snapshot)).unwrap();
        });
        self.collect();
    }

    /// Writes the next part of the snapshot with limited room in each of `calls`. Returns true if
    /// it is complete.
    fn write(&mut self, chunk: &mut [StateChunk], room: usize, calls: usize) -> bool {
        let mut are_done = true;
        for (of, chunk) in self.instances.iter_mut().zip(chunk) {
            let mut write = || {
                let limit = chunk.byte_len().saturating_add(room);
                let progress = of.step(|p, _| {
                    p.state()
                        .write_snapshot(&mut SnapshotWriter::new(chunk, limit))
                });
                progress.unwrap().done
            };
            are_done &= (0..calls).any(|_| write());
        }
        are_done
    }

    fn tell(&mut self, epoch: Epoch, is_committed: bool) {
        self.each(|of| {
            let tell = |p: &mut dyn Processor| match is_committed {
                true => p.state().on_checkpoint_committed(epoch),
                false => p.state().on_checkpoint_aborted(epoch),
            };
            while !of.step(|p, _| tell(p)).unwrap().done {}
        });
    }

    fn end(mut self) -> Results<R> {
        self.each(|of| {
            of.watermark(Timestamp::MAX).unwrap();
            of.complete().unwrap();
        });
        self.collect();
        self.results
    }
}

/// Applies a snapshot to the previous entries.
fn lay_over(entries: &mut Entries, snapshot: SnapshotRequest, chunks: &[StateChunk]) {
    if snapshot.is_full() {
        entries.clear();
    }
    for entry in chunks.iter().flatten() {
        let place = (entry.state.to_string(), entry.partition, entry.key.to_vec());
        match entry.value {
            Some(value) => entries.insert(place, value.to_vec()),
            None => entries.remove(&place),
        };
    }
}

/// A snapshot of a vertex, and the position at which it was taken.
struct Taken {
    snapshot: SnapshotRequest,
    chunks: Vec<StateChunk>,
    is_written: bool,
    next: usize,
    results: usize,
    watermark: Option<i64>,
}

/// Runs a script to its end. Some snapshots are written, some aborted, some committed without
/// notification. After failures, the vertex is restored with another parallelism. Watermarks may be
/// delayed per instance.
fn survive<P, R>(
    make: impl Fn() -> P,
    (script, lag): (&[Happens], u64),
    mut dice: Dice,
) -> Results<R>
where
    P: Processor + 'static,
    R: Send + 'static,
{
    let mut vertex = Vertex::begin(&make, 2, &Entries::new());
    let (mut taken, mut epoch, mut told) = (VecDeque::<Taken>::new(), Epoch(1), None);
    // The entries of the last commit, its parallelism, and the position.
    let (mut entries, mut of_instances, mut mark) = (Entries::new(), 0, (0, 0, None));
    let (mut next, mut watermark) = (0, None);
    while next < script.len() {
        match dice.below(100) {
            0..55 => {
                if let Happens::Watermark(n) = script[next] {
                    watermark = Some(n);
                }
                vertex.hear(script[next]);
                next += 1;
            }
            55..67 => {
                taken.retain(|taken| taken.is_written);
                epoch = epoch.next();
                let since = told.filter(|_| !dice.percent(10));
                let snapshot = since.map_or(SnapshotRequest::full(epoch), |told| {
                    SnapshotRequest::changes(epoch, told)
                });
                vertex.take_snapshot(snapshot);
                taken.push_back(Taken {
                    snapshot,
                    chunks: vec![StateChunk::default(); vertex.instances.len()],
                    is_written: false,
                    next,
                    results: vertex.results.len(),
                    watermark,
                });
            }
            67..85 => {
                if let Some(last) = taken.back_mut().filter(|last| !last.is_written) {
                    let (room, calls) = (1 + dice.below(200), 1 + dice.below(20));
                    last.is_written = vertex.write(&mut last.chunks, room as usize, calls as usize);
                }
            }
            85..97 => {
                let Some(place) = taken.len().checked_sub(1) else {
                    continue;
                };
                let place = dice.below(place as u64 + 1) as usize;
                let (is_written, of) = (taken[place].is_written, taken[place].snapshot.epoch);
                let is_heard = dice.percent(70);
                if is_written && dice.percent(75) {
                    // The commit decides all earlier snapshots.
                    let this = taken.drain(..=place).next_back().unwrap();
                    lay_over(&mut entries, this.snapshot, &this.chunks);
                    of_instances = this.chunks.len();
                    mark = (this.next, this.results, this.watermark);
                    if is_heard {
                        vertex.tell(of, true);
                        told = Some(of);
                    }
                } else {
                    taken.remove(place);
                    if is_heard || !is_written {
                        vertex.tell(of, false);
                    }
                }
            }
            _ => {
                let mut results = std::mem::take(&mut vertex.results);
                let before = mark.2;
                results.truncate(mark.1);
                let count = 1 + dice.below(4);
                vertex = Vertex::begin(&make, count as u32, &entries);
                vertex.results = results;
                vertex.lags.fill_with(|| dice.below(lag + 1) as i64);
                taken.clear();
                (next, watermark) = (mark.0, before);
                // Commits may be notified again. After a rescale, a full snapshot comes first.
                let may_go_on = count as usize == of_instances;
                told = (may_go_on && dice.percent(50)).then_some(epoch);
                if let Some(told) = told {
                    vertex.tell(told, true);
                }
                if let Some(n) = before {
                    vertex.hear(Happens::Watermark(n));
                }
            }
        }
    }
    vertex.end()
}

/// Returns records of some keys and watermarks. Unless `are_in_time`, many records are late or
/// nearly so.
fn script(dice: &mut Dice, length: usize, are_in_time: bool) -> Vec<Happens> {
    let mut now = 0;
    let mut happens = |n: usize| {
        now += dice.below(3) as i64 / 2;
        match n % 6 {
            5 => Happens::Watermark((now - dice.below(4) as i64).max(0)),
            _ => {
                let time = (now - dice.below(10) as i64).max(0);
                Happens::Record((dice.below(23) as u16, time))
            }
        }
    };
    let mut script: Vec<Happens> = (0..length).map(&mut happens).collect();
    // Watermarks must increase strictly.
    let mut last = 0;
    script.retain_mut(|next| match next {
        Happens::Watermark(n) => {
            let is_news = *n > last;
            last = last.max(*n);
            is_news
        }
        Happens::Record((_, time)) => {
            if are_in_time {
                *time = last.max(*time);
            }
            true
        }
    });
    script
}

/// Runs a vertex with failures and compares it with one without. `tidy` removes differences that
/// are allowed. With delayed watermarks, all records are in time.
fn goes_on<P, R>(make: impl Fn() -> P, (seed, lag): (u64, u64), tidy: fn(&mut R))
where
    P: Processor + 'static,
    R: Send + 'static + Ord + std::fmt::Debug,
{
    let mut dice = Dice(seed);
    let script = script(&mut dice, 250, lag > 0);
    let mut whole = Vertex::<R>::begin(&make, 1, &Entries::new());
    script.iter().for_each(|next| whole.hear(*next));
    let tidied = |mut results: Results<R>| {
        results.iter_mut().for_each(|(of, _)| tidy(&mut of.value));
        in_order(results)
    };
    let expected = tidied(whole.end());
    let results = survive::<P, R>(make, (&script, lag), dice);
    assert_eq!(tidied(results), expected);
}

/// The parts of results that are compared.
fn in_order<R: Ord>(results: Results<R>) -> Vec<(Timestamp, u16, bool, R)> {
    let mut plain: Vec<_> = results
        .into_iter()
        .map(|(r, _)| (r.start, r.key, r.firing == Firing::OnTime, r.value))
        .collect();
    plain.sort();
    plain
}

fn all_go_on(seed: u64, lag: u64) {
    for (length, slide, lateness) in [(8, 8, 0), (30, 30, 0), (8, 8, 9), (12, 3, 0), (12, 3, 7)] {
        let spec = spec(length, slide, lateness);
        goes_on::<_, u64>(|| counts(spec), (seed, lag), |_| {});
        goes_on::<_, u64>(|| integer_counts(spec), (seed ^ 2, lag), |_| {});
        goes_on::<_, Vec<Pair>>(|| lists(spec), (seed ^ 1, lag), |list| list.sort_unstable());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn windows_go_on_whatever_becomes_of_snapshots_and_in_any_number(seed: u64) {
        all_go_on(seed, 0);
    }

    #[test]
    fn windows_continue_if_instances_have_different_watermarks(seed: u64, lag in 1u64..20) {
        all_go_on(seed, lag);
    }
}

#[test]
fn late_records_of_instances_that_came_together_are_kept_apart() {
    let spec = spec(8, 8, 20);
    let own = |instance| {
        let owner = |key: &u16| PartitionId::of(key).owner(2) == instance;
        (0..).find(owner).unwrap()
    };
    let [a, b] = [own(0), own(1)];
    let script = [
        Happens::Record((a, 1)),
        Happens::Record((b, 1)),
        Happens::Watermark(9),
        Happens::Record((a, 2)),
        Happens::Watermark(10),
        Happens::Record((b, 2)),
    ];
    let last = Happens::Record((a, 3));
    let mut whole = Vertex::<u64>::begin(&|| counts(spec), 1, &Entries::new());
    script.iter().for_each(|next| whole.hear(*next));
    whole.hear(last);
    // Both have reopened the slice once. One's records are in a corrected window, the other's are
    // not yet.
    let mut vertex = Vertex::begin(&|| counts(spec), 2, &Entries::new());
    script.iter().for_each(|next| vertex.hear(*next));
    for (count, next) in [(1, Some(last)), (2, None)] {
        let mut entries = Entries::new();
        commit(&mut vertex, &mut entries, 1);
        let results = vertex.results;
        vertex = Vertex::begin(&|| counts(spec), count, &entries);
        vertex.results = results;
        vertex.hear(Happens::Watermark(10));
        next.into_iter().for_each(|next| vertex.hear(next));
    }
    assert_eq!(in_order(vertex.end()), in_order(whole.end()));
}

/// Returns the number of slice entries in packs, and the number of packs.
fn size(entries: &Entries) -> (usize, usize) {
    let packs = entries
        .iter()
        .filter(|(place, _)| place.0.starts_with("slices"));
    let held = packs.clone().map(|(_, pack)| unpacked(pack).len()).sum();
    (held, packs.count())
}

/// Takes, writes and commits a snapshot.
fn commit(vertex: &mut Vertex<u64>, entries: &mut Entries, epoch: u64) -> (usize, usize) {
    let snapshot = match epoch {
        1 => SnapshotRequest::full(Epoch(1)),
        _ => SnapshotRequest::changes(Epoch(epoch), Epoch(epoch - 1)),
    };
    vertex.take_snapshot(snapshot);
    let mut chunks = vec![StateChunk::default(); vertex.instances.len()];
    while !vertex.write(&mut chunks, usize::MAX, 1) {}
    let mut own = Entries::new();
    lay_over(&mut own, SnapshotRequest::full(Epoch(epoch)), &chunks);
    lay_over(entries, snapshot, &chunks);
    vertex.tell(Epoch(epoch), true);
    (size(&own).0, chunks.iter().map(StateChunk::len).sum())
}

#[test]
fn a_checkpoint_of_windows_that_stay_open_for_long_holds_no_more_than_a_few_times_what_there_is() {
    const KEYS: u64 = 2_000;
    let spec = spec(1 << 30, 1 << 30, 0);
    let mut vertex = Vertex::<u64>::begin(&|| counts(spec), 2, &Entries::new());
    let (mut entries, mut dice) = (Entries::new(), Dice(7));
    for key in 0..KEYS {
        vertex.hear(Happens::Record((key as u16, 1)));
    }
    let (mut most, mut most_of_a_snapshot) = (0, 0);
    for epoch in 1..400 {
        // Half of the changes are of few keys.
        for _ in 0..50 {
            let limit = if dice.percent(50) { 20 } else { KEYS };
            vertex.hear(Happens::Record((dice.below(limit) as u16, 1)));
        }
        let (held, _) = commit(&mut vertex, &mut entries, epoch);
        most_of_a_snapshot = most_of_a_snapshot.max(if epoch > 1 { held } else { 0 });
        most = most.max(size(&entries).0);
    }
    assert!(most > 3 * KEYS as usize / 2, "{most}");
    assert!(most < 4 * KEYS as usize, "{most}");
    // 50 changed entries, and at most 256 rewritten ones in each of two instances.
    assert!(most_of_a_snapshot <= 50 + 2 * 256, "{most_of_a_snapshot}");
    let restored = Vertex::<u64>::begin(&|| counts(spec), 3, &entries);
    assert_eq!(in_order(restored.end()), in_order(vertex.end()));
}

#[test]
fn packs_of_slices_that_are_dropped_are_removed_and_nothing_else_says_so() {
    let spec = spec(10, 1, 0);
    let mut vertex = Vertex::<u64>::begin(&|| counts(spec), 2, &Entries::new());
    let mut entries = Entries::new();
    for second in 0..100i64 {
        for key in 0..200 {
            vertex.hear(Happens::Record((key, second)));
        }
        vertex.hear(Happens::Watermark(second));
        let (_, of_snapshot) = commit(&mut vertex, &mut entries, second as u64 + 1);
        let (held, packs) = size(&entries);
        assert!(held <= 12 * 200, "{held}");
        assert!(packs <= 12 * 200, "{packs}");
        // At most one pack per partition, one removal of another, and the watermark.
        assert!(of_snapshot <= 2 * 200 + 2, "{of_snapshot}");
    }
    vertex.each(|of| {
        of.watermark(Timestamp::MAX).unwrap();
        of.complete().unwrap();
    });
    commit(&mut vertex, &mut entries, 101);
    assert_eq!(size(&entries), (0, 0));
}

#[test]
fn a_snapshot_has_an_entry_for_each_partition_however_many_keys_and_slices() {
    let spec = spec(100, 1, 0);
    let mut vertex = Vertex::<u64>::begin(&|| counts(spec), 1, &Entries::new());
    for second in 0..50 {
        for key in 0..3_000 {
            vertex.hear(Happens::Record((key, second)));
        }
    }
    let mut entries = Entries::new();
    let (held, of_snapshot) = commit(&mut vertex, &mut entries, 1);
    assert_eq!(held, 150_000);
    assert!(of_snapshot <= PARTITION_COUNT as usize + 1, "{of_snapshot}");
}

#[test]
fn entries_of_one_key_each_from_before_there_were_packs_are_read_and_removed() {
    let spec = spec(4, 2, 0);
    let mut entries = Entries::new();
    for key in 0..20u16 {
        for slice in [1i64, 2] {
            let mut place = Vec::new();
            ardea_core::Key::write_to(&key, &mut place);
            place.extend_from_slice(&slice.to_le_bytes());
            place.extend_from_slice(&0u32.to_le_bytes());
            let (key_text, count) = (key.to_string(), "7");
            let mut value = Vec::new();
            for part in [key_text.as_bytes(), count.as_bytes()] {
                value.extend_from_slice(&(part.len() as u32).to_le_bytes());
                value.extend_from_slice(part);
            }
            value.push(0);
            let name = "slices of 2000000 us".to_string();
            entries.insert((name, Some(PartitionId::of(&key)), place), value);
        }
    }
    let mut vertex = Vertex::<u64>::begin(&|| counts(spec), 2, &entries);
    vertex.tell(Epoch(1), true);
    vertex.hear(Happens::Record((3, 5)));
    let restored = |entries: &Entries| {
        let restored = Vertex::<u64>::begin(&|| counts(spec), 1, entries);
        in_order(restored.end())
    };
    // Increments continue from them. They remain until their slices are dropped.
    commit(&mut vertex, &mut entries, 2);
    let sums = restored(&entries);
    assert_eq!(sums.len(), 3 * 20);
    let most = sums.iter().map(|(_, _, _, count)| *count).max();
    assert_eq!(most, Some(15));
    vertex.hear(Happens::Record((4, 50)));
    vertex.hear(Happens::Watermark(20));
    commit(&mut vertex, &mut entries, 3);
    let old = entries
        .values()
        .filter(|value| value.starts_with(&[1, 0]) || value.starts_with(&[2, 0]));
    assert_eq!(old.count(), 0);
    assert_eq!(restored(&entries).len(), 2);
}
