//! Instances start, stop and move while records flow, and no record is lost or duplicated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ardea_core::{
    Dag, Edge, InstanceContext, Outbox, Processor, Progress, Result, Routing, Timestamp, Vertex,
    VertexId, Watermark,
};
use ardea_engine::Layout;
use proptest::prelude::*;

use crate::processors::{Journal, Saw, emit, room, source, until, vertex};
use crate::sites::{AnyWhere, Sites, place, placement};

/// Numbers that are emitted once, over all instances of a source, until `enough` is set.
#[derive(Clone, Default)]
pub struct Claims {
    next: Arc<AtomicU64>,
    enough: Arc<AtomicBool>,
    /// True if no watermarks are emitted.
    is_timeless: bool,
}

impl Claims {
    /// Returns a source; each number is its own event time.
    pub fn source(&self, name: &str, instances: u32) -> Vertex {
        let claims = self.clone();
        source(name, instances, move |_| {
            let claims = claims.clone();
            move |outbox: &mut Outbox, context: &InstanceContext| claims.emit(outbox, context)
        })
    }

    fn emit(&self, outbox: &mut Outbox, context: &InstanceContext) -> Result<Progress> {
        if self.enough.load(Ordering::SeqCst) {
            return Ok(Progress::DONE);
        }
        let count = room(outbox)?.min(8) as u64;
        let first = self.next.fetch_add(count, Ordering::SeqCst);
        for number in first..first + count {
            emit(outbox, number, Timestamp::from_micros(number as i64))?;
        }
        let time = Timestamp::from_micros((first + count) as i64);
        if !self.is_timeless {
            outbox.watermark(Watermark(time));
        }
        outbox.wake_at(context.clock.now() + Duration::from_micros(100));
        Ok(Progress::NONE)
    }

    fn given(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Waits until this many more numbers are emitted.
    fn flow(&self, more: u64) {
        let before = self.given();
        until("records flow", || self.given() >= before + more);
    }

    /// Waits until some more numbers are emitted, if there is a source at the moment.
    fn trickle(&self) {
        let (before, start) = (self.given(), Instant::now());
        until("some have come, or none comes", || {
            self.given() > before + 50 || start.elapsed() > Duration::from_millis(3)
        });
    }
}

/// A job over several sites that the test rearranges while it runs, as a leader would.
struct Changing {
    sites: Sites,
    dag: Dag,
    counts: Vec<u32>,
    places: Vec<Vec<u32>>,
}

type Instance = (VertexId, u32);

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Changing {
    fn start(dag: Dag, sites: u32, counts: &[u32], choose: impl FnMut() -> u32) -> Self {
        let places = place(&dag, counts, choose);
        let mut sites = Sites::new(sites, 1);
        sites.deploy(&dag, &places);
        Changing {
            sites,
            dag,
            counts: counts.to_vec(),
            places,
        }
    }

    /// Returns the next placement for this parallelism. `choose` returns a site, and true if an
    /// instance that could stay must move.
    fn next_places(
        &self,
        counts: &[u32],
        mut choose: impl FnMut() -> (u32, bool),
    ) -> Vec<Vec<u32>> {
        let mut next = place(&self.dag, counts, || choose().0);
        for chain in ardea_engine::chains(&self.dag).unwrap() {
            let before = &self.places[chain[0].index()];
            let count = counts[chain[0].index()] as usize;
            for (instance, site) in before.iter().enumerate().take(count) {
                if !choose().1 {
                    for vertex in &chain {
                        next[vertex.index()][instance] = *site;
                    }
                }
            }
        }
        next
    }

    /// Applies a layout at every site, and waits until all are settled.
    fn tell(&self, routes: &[Vec<u32>], next: &[Vec<u32>], runs: impl Fn(Instance, u32) -> bool) {
        let vertices = (0..self.counts.len()).map(VertexId::of_index);
        let all: Vec<Instance> = vertices
            .flat_map(|vertex| (0..64).map(move |index| (vertex, index)))
            .collect();
        for (site, part) in self.sites.parts.iter().enumerate() {
            let run = all.iter().copied().filter(|id| runs(*id, site as u32));
            let layout = Layout::new(run, placement(site, routes)).towards(placement(site, next));
            part.rewire(layout).unwrap();
        }
        for part in &self.sites.parts {
            assert!(part.wait_settled(PATIENCE), "a change hangs");
        }
    }

    fn change(&mut self, next: Vec<Vec<u32>>, between: impl FnMut()) {
        self.change_and_kill(next, between, None);
    }

    /// Like `change`, but also restarts a site after the routing has been switched.
    fn change_and_kill(
        &mut self,
        next: Vec<Vec<u32>>,
        mut between: impl FnMut(),
        killed: Option<u32>,
    ) {
        let at = |places: &[Vec<u32>], (vertex, index): Instance| {
            places[vertex.index()].get(index as usize).copied()
        };
        let before = std::mem::replace(&mut self.places, next.clone());
        let was_at = |id, site| at(&before, id) == Some(site);
        let is_at = |id, site| at(&next, id) == Some(site);
        // A moved instance stops at its old site; a new one starts.
        self.tell(&before, &next, |id, site| match at(&before, id) {
            Some(old) => old == site && at(&next, id).is_none_or(|new| new == site),
            None => is_at(id, site),
        });
        between();
        let stopped = |id, site| was_at(id, site) && at(&next, id).is_none();
        self.tell(&before, &next, |id, site| {
            is_at(id, site) || stopped(id, site)
        });
        between();
        self.tell(&next, &next, |id, site| {
            is_at(id, site) || stopped(id, site)
        });
        between();
        if let Some(site) = killed {
            let next = placement(site as usize, &next);
            self.sites.replace(site as usize, &self.dag, next);
        }
        self.tell(&next, &next, is_at);
        self.counts = next.iter().map(|sites| sites.len() as u32).collect();
    }
}

fn edge(from: VertexId, to: VertexId, routing: Routing) -> Edge {
    Edge::between(from, to)
        .routing(routing)
        .capacity(3.try_into().unwrap())
        .codec(Arc::new(AnyWhere))
}

/// Returns a graph of a source, a step and a sink, with the journals of the latter.
fn graph(claims: &Claims, routings: [Routing; 2], counts: [u32; 3]) -> (Dag, Journal, Journal) {
    let (middle, end) = (Journal::default(), Journal::default());
    let mut dag = Dag::new();
    let [first, second] = routings;
    let source = dag.vertex(claims.source("source", counts[0]));
    let step = dag.vertex(middle.attempts("step", counts[1]));
    let sink = dag.vertex(end.attempts("sink", counts[2]));
    dag.edge(edge(source, step, first));
    dag.edge(edge(step, sink, second));
    (dag, middle, end)
}

/// Checks that every number arrived exactly once.
fn check(claims: &Claims, journals: &[&Journal]) {
    let every: Vec<u64> = (0..claims.given()).collect();
    for journal in journals {
        let came = journal.records();
        let twice = came.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!((came.len(), twice), (every.len(), 0));
        assert_eq!(came, every);
    }
}

fn routing(number: u8) -> Routing {
    match number {
        0 => Routing::keyed(|n: &u64| n % 97),
        1 => Routing::custom(|n: &u64| *n as u32 / 3),
        2 => Routing::AllToOne,
        3 => Routing::RoundRobin,
        _ => Routing::LocalOrRoundRobin,
    }
}

#[test]
fn a_step_that_doubles_and_halves_loses_nothing_and_disturbs_nobody_else() {
    let claims = Claims::default();
    let keyed = || Routing::keyed(|n: &u64| n % 97);
    let (dag, middle, end) = graph(&claims, [keyed(), keyed()], [2, 2, 2]);
    let mut turn = 0;
    let mut job = Changing::start(dag, 3, &[2, 2, 2], || {
        turn += 1;
        turn % 3
    });
    for count in [4, 8, 4, 2, 1, 2] {
        claims.flow(2_000);
        let mut turn = 0;
        let next = job.next_places(&[2, count, 2], || {
            turn += 1;
            (turn % 3, false)
        });
        job.change(next, || claims.trickle());
    }
    claims.flow(2_000);
    claims.enough.store(true, Ordering::SeqCst);
    job.sites.complete();
    check(&claims, &[&middle, &end]);
    check_time(&middle);
    check_time(&end);
    let lives = |journal: &Journal| journal.count(|saw| *saw == Saw::Closed);
    // Each instance was started once, and ended once; unmoved ones were not touched.
    assert_eq!((lives(&middle), lives(&end)), (2 + 2 + 4 + 1, 2));
}

#[test]
fn consumers_that_come_near_and_go_away_are_preferred_as_long_as_they_are_near() {
    let claims = Claims::default();
    let routings = [Routing::LocalOrRoundRobin, Routing::AllToOne];
    let (dag, middle, end) = graph(&claims, routings, [1, 2, 1]);
    let mut job = Changing::start(dag, 2, &[1, 2, 1], || 0);
    let mut near = Vec::new();
    for (steps, is_shared) in [([0, 1], false), ([1, 1], true), ([1, 0], false)] {
        job.change(vec![vec![0], steps.to_vec(), vec![0]], || claims.trickle());
        let from = claims.given();
        claims.flow(1_000);
        near.push((from..claims.given(), is_shared));
    }
    claims.enough.store(true, Ordering::SeqCst);
    job.sites.complete();
    check(&claims, &[&middle, &end]);
    for (numbers, is_shared) in near {
        let lives = (0..).map(|life| (middle.of(life), middle.records_of(life)));
        let lives = lives.take_while(|(saw, _)| !saw.is_empty());
        let met = lives.filter(|(_, records)| records.iter().any(|n| numbers.contains(n)));
        assert_eq!(met.count(), 1 + usize::from(is_shared), "{numbers:?}");
    }
}

/// A source of numbers whose `close` blocks until it is released.
struct Lingering {
    claims: Claims,
    context: InstanceContext,
    door: Arc<Door>,
}

#[derive(Default)]
struct Door {
    is_closing: AtomicBool,
    may_close: AtomicBool,
}

impl Processor for Lingering {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.claims.emit(outbox, &self.context)
    }

    fn close(&mut self) {
        self.door.is_closing.store(true, Ordering::SeqCst);
        until("it may close", || {
            self.door.may_close.load(Ordering::SeqCst)
        });
    }
}

#[test]
fn a_source_that_moves_has_not_ended_before_its_queues_are_handed_over() {
    let (claims, end, door) = (
        Claims::default(),
        Journal::default(),
        Arc::<Door>::default(),
    );
    let mut dag = Dag::new();
    let make = {
        let (claims, door) = (claims.clone(), Arc::clone(&door));
        move |_| Lingering {
            claims: claims.clone(),
            context: InstanceContext::detached("source"),
            door: Arc::clone(&door),
        }
    };
    let source = dag.vertex(vertex("source", 1, make));
    let sink = dag.vertex(end.attempts("sink", 1));
    dag.edge(edge(source, sink, Routing::AllToOne));
    let mut job = Changing::start(dag, 2, &[1, 1], || 0);
    claims.flow(100);
    let moved = vec![vec![1], vec![0]];
    let layout = Layout::new([(sink, 0)], placement(0, &job.places));
    let leaves = layout.towards(placement(0, &moved));
    job.sites.parts[0].rewire(leaves).unwrap();
    until("it closes", || door.is_closing.load(Ordering::SeqCst));
    assert!(!job.sites.parts[0].is_settled(), "its queues are its own");
    door.may_close.store(true, Ordering::SeqCst);
    job.change(moved, || claims.trickle());
    claims.flow(100);
    claims.enough.store(true, Ordering::SeqCst);
    job.sites.complete();
    check(&claims, &[&end]);
}

/// Checks that in each instance the watermark rises to its end, no record is late, and one end
/// follows.
fn check_time(journal: &Journal) {
    for life in 0.. {
        let saw = journal.of(life);
        if saw.is_empty() {
            return;
        }
        let mut time = Timestamp::MIN;
        for event in &saw {
            match *event {
                Saw::Watermark(next) => {
                    assert!(next > time, "{next:?} after {time:?}");
                    time = next;
                }
                Saw::Record { value, .. } => {
                    assert!(
                        Timestamp::from_micros(value as i64) >= time,
                        "{value} at {time:?}"
                    );
                }
                _ => {}
            }
        }
        assert_eq!(time, Timestamp::MAX);
        let ends = saw.iter().filter(|event| matches!(event, Saw::EdgeDone(_)));
        assert_eq!(ends.count(), 1);
        assert_eq!(saw[saw.len() - 2..], [Saw::Complete, Saw::Closed]);
    }
}

#[test]
fn a_site_that_is_started_again_goes_on_and_the_others_are_not_touched() {
    let claims = Claims::default();
    let keyed = || Routing::keyed(|n: &u64| n % 97);
    let (dag, middle, end) = graph(&claims, [keyed(), keyed()], [1, 2, 1]);
    let places = vec![vec![0], vec![0, 1], vec![0]];
    let mut job = Changing::start(dag, 2, &[1, 2, 1], || 0);
    job.change(places.clone(), || claims.trickle());
    claims.flow(2_000);
    job.sites.replace(1, &job.dag, placement(1, &places));
    let reborn = middle.len();
    until("it works again", || middle.len() > reborn + 1_000);
    claims.flow(2_000);
    claims.enough.store(true, Ordering::SeqCst);
    job.sites.complete();
    let came = end.records();
    assert!(
        came.windows(2).all(|pair| pair[0] < pair[1]),
        "none came twice"
    );
    let last = came.iter().rev().take(1_000).rev().copied();
    assert!(
        last.eq(claims.given() - 1_000..claims.given()),
        "all come again"
    );
    // The closed steps: the first, the moved, the killed and its replacement; and one sink.
    let lives = |journal: &Journal| journal.count(|saw| *saw == Saw::Closed);
    assert_eq!((lives(&middle), lives(&end)), (4, 1));
}

#[test]
fn one_that_leaves_ends_although_a_site_that_sent_to_it_was_started_again() {
    let claims = Claims::default();
    let keyed = || Routing::keyed(|n: &u64| n % 97);
    let (dag, _, end) = graph(&claims, [keyed(), keyed()], [2, 2, 2]);
    let mut turn = 0;
    let mut job = Changing::start(dag, 2, &[2, 2, 2], || {
        turn += 1;
        turn % 2
    });
    for (count, killed) in [(4, 0), (1, 0), (3, 1), (2, 1)] {
        claims.flow(500);
        let mut turn = 0;
        let next = job.next_places(&[2, count, 2], || {
            turn += 1;
            (turn % 2, false)
        });
        job.change_and_kill(next, || claims.trickle(), Some(killed));
    }
    claims.flow(500);
    claims.enough.store(true, Ordering::SeqCst);
    job.sites.complete();
    let came = end.records();
    assert!(
        came.windows(2).all(|pair| pair[0] < pair[1]),
        "none came twice"
    );
}

type Choices = Vec<(u32, bool)>;

#[derive(Clone)]
struct Story {
    sites: u32,
    routings: [u8; 2],
    forward: bool,
    is_timeless: bool,
    counts: [u32; 3],
    /// Parallelism after each change; and for each choice the site, and true if an instance that
    /// could stay must move.
    changes: Vec<([u32; 3], Choices)>,
}

impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Story {
            sites,
            routings,
            forward,
            is_timeless,
            counts,
            changes,
        } = self;
        write!(
            f,
            "Story {{ sites: {sites}, routings: {routings:?}, forward: {forward}, is_timeless: {is_timeless}, counts: {counts:?}, changes: vec!{changes:?} }}"
        )
    }
}

fn story() -> impl Strategy<Value = Story> {
    let counts = || [1u32..=3, 1..=4, 1..=3];
    let choices = prop::collection::vec((0u32..3, prop::bool::weighted(0.3)), 1..=20);
    (
        1u32..=3,
        [0u8..5, 0..5],
        (prop::bool::weighted(0.3), prop::bool::weighted(0.3)),
        counts(),
        prop::collection::vec((counts(), choices), 1..=4),
    )
        .prop_map(
            |(sites, routings, (forward, is_timeless), counts, changes)| Story {
                sites,
                routings,
                forward,
                is_timeless,
                counts,
                changes,
            },
        )
}

fn run(mut story: Story) {
    if story.forward {
        // The step and the sink have the same parallelism.
        story.counts[2] = story.counts[1];
        for (counts, _) in &mut story.changes {
            counts[2] = counts[1];
        }
    }
    let claims = Claims {
        is_timeless: story.is_timeless,
        ..Claims::default()
    };
    let second = match story.forward {
        true => Routing::Forward,
        false => routing(story.routings[1]),
    };
    let routings = [routing(story.routings[0]), second];
    let (dag, middle, end) = graph(&claims, routings, story.counts);
    let mut turn = 0;
    let mut job = Changing::start(dag, story.sites, &story.counts, || {
        turn += 1;
        turn % story.sites
    });
    for (counts, choices) in &story.changes {
        claims.flow(200);
        let mut choices = choices.iter().cycle();
        let next = job.next_places(counts, || {
            let (site, moves) = choices.next().copied().unwrap_or_default();
            (site % story.sites, moves)
        });
        job.change(next, || claims.trickle());
    }
    claims.flow(200);
    claims.enough.store(true, Ordering::SeqCst);
    job.sites.complete();
    check(&claims, &[&middle, &end]);
    check_time(&middle);
    check_time(&end);
}

#[test]
fn one_that_leaves_is_there_until_those_who_came_meanwhile_know_it() {
    // The step that feeds a sink moves to a site where earlier ones had ended long ago, and sends
    // to the old sink until it gets the new routing.
    let choices = [
        (0, false),
        (0, true),
        (1, false),
        (0, false),
        (1, true),
        (2, false),
        (0, false),
        (1, true),
        (0, false),
        (2, true),
        (1, false),
        (1, false),
        (0, true),
        (0, true),
    ];
    for _ in 0..5 {
        run(Story {
            sites: 3,
            routings: [2, 3],
            forward: false,
            is_timeless: true,
            counts: [2, 3, 3],
            changes: vec![([2, 3, 2], choices.to_vec())],
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_moves_every_record_comes_once(story in story()) {
        run(story);
    }
}
