//! Tests of all kinds of steps with and without serialization.

use std::fmt::Debug;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_aggregate::{
    all_with_max, average, collect_list, collect_map, count, distinct_count, distinct_count_approx,
    max_by_key, median, quantiles_relative, sum, top_n,
};
use ardea_connectors::collections::items;
use ardea_connectors::for_each::for_each;
use ardea_core::{Bounded, Parallelism, Routing, Sink, Timestamp};
use ardea_engine::{
    ExecutionMode, Job, JobConfig, MicroBatchConfig, Node, NodeConfig, Parallelisms,
};
use ardea_pipeline::{
    EarlyFiring, Either, JoinInterval, Local, Pipeline, Stream, Timed, WatermarkPolicy, Window,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::detour::detour;
use crate::sites;

/// An event as it could be read from a file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Seen {
    Sale {
        who: String,
        second: i64,
        amount: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<&'static str>,
    },
    Visit {
        who: String,
        second: i64,
    },
}

impl Seen {
    fn who(&self) -> String {
        let (Seen::Sale { who, .. } | Seen::Visit { who, .. }) = self;
        who.clone()
    }

    fn second(&self) -> i64 {
        let (Seen::Sale { second, .. } | Seen::Visit { second, .. }) = self;
        *second
    }

    fn amount(&self) -> f64 {
        match self {
            Seen::Sale { amount, .. } => *amount,
            Seen::Visit { .. } => 0.0,
        }
    }
}

fn seen() -> impl Strategy<Value = Vec<Seen>> {
    let who = || prop::sample::select(vec!["ann", "bob", "cleo", ""]).prop_map(String::from);
    let note = prop::option::of(prop::sample::select(vec!["cash", "card"]));
    let sale =
        (who(), -50i64..50, -5i32..5, note).prop_map(|(who, second, amount, note)| Seen::Sale {
            who,
            second,
            amount: f64::from(amount) / 10.0,
            note,
        });
    let visit = (who(), -50i64..50).prop_map(|(who, second)| Seen::Visit { who, second });
    prop::collection::vec(prop_oneof![sale, visit], 0..80)
}

fn nodes() -> impl Strategy<Value = NodeConfig> {
    // The records of a micro-batch, if the job runs in micro-batches.
    let batch = prop::option::of(1u64..60);
    let numbers = (1u32..4, 1usize..20, 1usize..4, any::<bool>(), batch);
    numbers.prop_map(|(threads, chunk, queue, fuse, batch)| NodeConfig {
        mode: batch.map_or(ExecutionMode::Continuous, |_| ExecutionMode::MicroBatch),
        micro_batch: MicroBatchConfig {
            epoch: Duration::from_millis(1),
            records: batch.and_then(NonZeroU64::new),
            ..MicroBatchConfig::default()
        },
        chunk_records: NonZeroUsize::new(chunk).unwrap(),
        queue_chunks: NonZeroUsize::new(queue).unwrap(),
        fuse,
        pin: false,
        ..NodeConfig::with_threads(threads)
    })
}

type Events = Stream<Seen, Bounded, Timed>;

/// A job over some events, with a text per result.
struct Case {
    name: &'static str,
    job: fn(&Pipeline, Vec<Seen>, Sink<String>),
    /// True if its records stay in their process.
    is_local: bool,
}

fn read(p: &Pipeline, events: Vec<Seen>) -> Events {
    p.read_from(items(events)).with_timestamps(
        |event| Timestamp::from_secs(event.second()),
        WatermarkPolicy::out_of_order(Duration::from_secs(200)),
    )
}

fn text<T: Debug + Send + 'static, E>(stream: Stream<T, Bounded, E>, sink: Sink<String>) {
    stream.map(|record| format!("{record:?}")).write_to(sink);
}

const TEN: Duration = Duration::from_secs(10);

const CASES: &[Case] = &[
    Case {
        name: "tumbling windows in two stages",
        job: |p, events, sink| {
            let of = (
                count(),
                sum(Seen::amount),
                max_by_key(Seen::second),
                distinct_count(Seen::who),
            );
            let late_too = read(p, events)
                .key_by(Seen::who)
                .window(Window::tumbling(TEN))
                .aggregate_and_late("sales", of);
            let late = late_too.1.map(|event| format!("late {event:?}"));
            let results = late_too.0.map(|window| {
                let (count, sum, last, kinds) = window.value;
                let last = last.map(|last| last.second());
                format!(
                    "{:?} {count} {sum} {last:?} {kinds}",
                    (window.start, window.key)
                )
            });
            results.merge(late).write_to(sink)
        },
        is_local: false,
    },
    Case {
        name: "sliding and session windows, and all of them",
        job: |p, events, sink| {
            let (first, rest) = read(p, events).tee();
            let (second, third) = rest.tee();
            let sliding = Window::sliding(TEN, TEN / 5);
            let sliding = first.key_by(Seen::who).window(sliding);
            let sliding = sliding.aggregate(
                "sliding",
                quantiles_relative(Seen::amount, [0.1, 0.9], 0.01).unwrap(),
            );
            let session = second.key_by(Seen::who).window(Window::session(TEN / 2));
            let session = session.aggregate("session", count());
            let all = third.window_all(Window::tumbling(TEN));
            let all = all.aggregate("all", all_with_max(Seen::second));
            let texts = sliding.map(|window| format!("{window:?}"));
            let texts = texts.merge(session.map(|window| format!("{window:?}")));
            let all = all.map(|window| (window.end, window.value.len(), window.value[0].second()));
            texts
                .merge(all.map(|window| format!("{window:?}")))
                .write_to(sink)
        },
        is_local: false,
    },
    Case {
        name: "windows with corrections and a trigger",
        job: |p, events, sink| {
            let (first, second) = read(p, events).tee();
            let window = Window::tumbling(TEN).allowed_lateness(TEN);
            let corrected = first
                .key_by(Seen::who)
                .window(window)
                .aggregate("corrected", count());
            let early = second.key_by(Seen::who).window(Window::tumbling(TEN));
            let early = early
                .early(EarlyFiring::each_records(2).unwrap())
                .aggregate("early", count());
            text(corrected.merge(early), sink)
        },
        is_local: false,
    },
    Case {
        name: "groups to the end, and the best of them",
        job: |p, events, sink| {
            let (first, second) = read(p, events).tee();
            let sketches = (
                median(Seen::amount),
                distinct_count_approx(Seen::second),
                collect_map(Seen::second, average(Seen::amount)),
            );
            let (names, counts) = first.key_by(Seen::who).aggregate("counts", count()).tee();
            let best = counts.key_by(|_| ()).aggregate(
                "best",
                top_n(2, |(who, count): &(String, u64)| (*count, who.clone())),
            );
            let sketches = second.key_by(Seen::who).aggregate("sketches", sketches);
            let sketches = sketches.map(|(who, (median, distinct, of_seconds))| {
                let seconds: i64 = of_seconds.keys().sum();
                format!("{who} {} {distinct} {seconds}", median.is_some())
            });
            let texts = names.map(|name| format!("{name:?}"));
            texts
                .merge(best.map(|best| format!("{best:?}")))
                .merge(sketches)
                .write_to(sink)
        },
        is_local: false,
    },
    Case {
        name: "states, timers, distinct records and rolling sums",
        job: |p, events, sink| {
            let (first, rest) = read(p, events).tee();
            let (second, third) = rest.tee();
            let counted = first.key_by(Seen::who).map_stateful(
                "counted",
                || 0,
                |count, who, _| {
                    *count += 1;
                    format!("{who} {count}")
                },
            );
            let silent = second.key_by(Seen::who).process(
                "silent",
                || 0,
                |count, _, _, time, context| {
                    *count += 1;
                    context.set_event_timer(time + TEN);
                },
                |count, who, _, context| context.emit(format!("{who} silent after {count}")),
            );
            let distinct = third.key_by(Seen::who).distinct("who");
            let distinct = distinct.map(|event| event.who());
            let texts = counted.merge(
                distinct
                    .key_by(|who| who.len())
                    .rolling("so far", count())
                    .map(|lengths| format!("{lengths:?}")),
            );
            texts.merge(silent).write_to(sink)
        },
        is_local: false,
    },
    Case {
        name: "joins by key and window, by key and time, and to the end",
        job: |p, events, sink| {
            let (sales, visits) = read(p, events).partition_map(|event| match event {
                Seen::Sale { .. } => Either::Left(event),
                Seen::Visit { .. } => Either::Right((event.who(), event.second())),
            });
            let (sales, rest) = sales.tee();
            let (sales2, sales3) = rest.tee();
            let (visits, rest) = visits.tee();
            let (visits2, visits3) = rest.tee();
            let joined = sales.key_by(Seen::who).window(Window::tumbling(TEN)).join(
                "joined",
                visits.key_by(|visit| visit.0.clone()),
                |sale, visit| format!("{} {visit:?}", sale.second()),
            );
            let within = JoinInterval::between(Duration::ZERO, TEN);
            let near = sales2.key_by(Seen::who).interval_join_outer(
                "near",
                visits2.key_by(|visit| visit.0.clone()),
                within,
                |sale, visit| format!("{} near {visit:?}", sale.second()),
            );
            let grouped = sales3.key_by(Seen::who).co_group(
                "grouped",
                visits3.key_by(|visit| visit.0.clone()),
                count(),
                collect_list(),
            );
            let grouped = grouped.map(|(who, (sales, mut visits))| {
                visits.sort();
                format!("{who} {sales} {visits:?}")
            });
            joined.merge(near).merge(grouped).write_to(sink)
        },
        is_local: false,
    },
    Case {
        name: "tables, news, spreading and sorting",
        job: |p, events, sink| {
            let table = vec![("ann", 30), ("bob", 40)];
            let ages = p.read_from(items(table));
            let news = p.read_from(items(vec![2.0f64]));
            let spread = read(p, events)
                .rebalance()
                .map(|event| (event.who(), event.second(), event.amount()))
                .hash_join_outer(
                    "ages",
                    ages,
                    |event| event.0.clone(),
                    |(who, _)| who.to_string(),
                    |event, age| (event.clone(), age.copied()),
                )
                .with_broadcast(
                    "factor",
                    news,
                    || 1.0,
                    |factor, news| *factor = news,
                    |event, factor| (event, *factor),
                );
            text(
                spread.sort_by_key("sorted", |((event, age), _)| {
                    (event.1, event.0.clone(), *age)
                }),
                sink,
            )
        },
        is_local: false,
    },
    Case {
        name: "what stays in its process",
        job: |p, events, sink| {
            let local = read(p, events).map(Local).key_by(|event| event.who());
            let first = local.map_stateful(
                "local",
                || 0,
                |count, _, event| {
                    *count += 1;
                    (*count, event.0)
                },
            );
            text(first.map(|(count, event)| (count, event.who())), sink)
        },
        is_local: true,
    },
];

/// The collected results of a job.
#[derive(Clone, Default)]
struct Found(Arc<Mutex<Vec<String>>>);

impl Found {
    fn sink(&self) -> Sink<String> {
        let found = Arc::clone(&self.0);
        for_each(move |text| found.lock().unwrap().push(text))
    }

    fn sorted(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        all.sort();
        all
    }
}

impl Case {
    fn pipeline(&self, events: &[Seen]) -> (Pipeline, Found) {
        let (p, found) = (Pipeline::new(self.name), Found::default());
        (self.job)(&p, events.to_vec(), found.sink());
        (p, found)
    }

    /// Returns the results in one process.
    fn plain(&self, events: &[Seen], node: &NodeConfig) -> Vec<String> {
        let (p, found) = self.pipeline(events);
        p.run_with(node.clone()).unwrap();
        found.sorted()
    }

    /// Returns the results, and the number of serialized records on each edge with a codec.
    fn detoured(&self, events: &[Seen], node: &NodeConfig) -> (Vec<String>, Vec<u64>) {
        let (p, found) = self.pipeline(events);
        let node = Node::start(node.clone()).unwrap();
        let (dag, counts) = detour(&p.to_dag(node.config().threads).unwrap());
        let job = node.submit(&dag, JobConfig::named(self.name)).unwrap();
        job.join().unwrap();
        let counts = counts.into_iter().flatten();
        (
            found.sorted(),
            counts.map(|count| count.load(Ordering::Relaxed)).collect(),
        )
    }

    /// Returns the results over several sites. The parallelism of keyed steps and the places of
    /// instances are given by `choose`.
    fn spread(
        &self,
        events: &[Seen],
        node: &NodeConfig,
        sites: u32,
        mut choose: impl FnMut() -> u32,
    ) -> Vec<String> {
        let (p, found) = self.pipeline(events);
        let dag = p.program(&Parallelisms::new()).unwrap().dag;
        // One vertex of each chain sets the parallelism of all.
        let mut numbers = Parallelisms::new();
        for edge in dag.edges() {
            if matches!(edge.wanted_routing(), Routing::Keyed(_)) {
                let name = dag.get(edge.target().0).name().to_string();
                numbers.insert(name.clone(), 1 + choose() % 3);
                if p.program(&numbers).is_err() {
                    numbers.remove(&name);
                }
            }
        }
        let dag = p.program(&numbers).unwrap().dag;
        sites::run(&dag, sites, node, choose);
        found.sorted()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn results_are_the_same_with_and_without_a_detour(events in seen(), node in nodes()) {
        for case in CASES {
            let (detoured, _) = case.detoured(&events, &node);
            prop_assert_eq!(case.plain(&events, &node), detoured, "{}", case.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn results_are_the_same_over_several_sites(
        events in seen(), node in nodes(), sites in 1u32..4, choices in prop::collection::vec(any::<u32>(), 20),
    ) {
        // Local records cannot be sent to other sites.
        for case in CASES.iter().filter(|case| !case.is_local) {
            let mut choices = choices.iter().cycle().copied();
            let spread = case.spread(&events, &node, sites, || choices.next().unwrap_or(0));
            prop_assert_eq!(case.plain(&events, &node), spread, "{}", case.name);
        }
    }
}

#[test]
fn records_take_a_detour_in_every_job_but_the_local_one() {
    let events: Vec<Seen> = (0..200)
        .map(|number| match number % 3 {
            0 => Seen::Visit {
                who: format!("user {}", number % 7),
                second: number,
            },
            _ => Seen::Sale {
                who: format!("user {}", number % 7),
                second: number,
                amount: number as f64,
                note: Some("cash"),
            },
        })
        .collect();
    for case in CASES {
        let node = NodeConfig::with_threads(2);
        let (_, counts) = case.detoured(&events, &node);
        // The results of the local case are texts, too.
        let on_the_way = counts
            .split_last()
            .map_or(0, |(_, others)| others.iter().sum());
        assert_eq!(on_the_way == 0, case.is_local, "{}: {counts:?}", case.name);
    }
}

#[test]
fn a_step_of_several_instances_behind_rebalance_gets_its_records_by_detour() {
    let p = Pipeline::new("wide");
    let three = Parallelism::Exactly(3.try_into().unwrap());
    let out = p
        .read_from(items((0..1000u32).collect::<Vec<_>>()))
        .rebalance()
        .parallelism(three)
        .map(|number| number * 2)
        .collect();
    let node = Node::start(NodeConfig::with_threads(2)).unwrap();
    let (dag, counts) = detour(&p.to_dag(node.config().threads).unwrap());
    node.submit(&dag, JobConfig::default())
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(
        out.take_sorted(),
        (0..1000).map(|n| n * 2).collect::<Vec<u32>>()
    );
    let counts: u64 = counts
        .iter()
        .flatten()
        .map(|count| count.load(Ordering::Relaxed))
        .sum();
    assert_eq!(counts, 1000);
}
