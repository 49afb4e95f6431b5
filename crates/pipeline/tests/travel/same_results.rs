//! Steps of every kind, with and without a detour.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ardea_aggregate::{
    all_with_max, average, collect_list, collect_map, count, distinct_count, distinct_count_approx,
    max_by_key, median, quantiles_relative, sum, top_n,
};
use ardea_connect::collections::items;
use ardea_core::{Bounded, Error, Parallelism, Timestamp};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::{
    Collected, EarlyFiring, Either, JoinInterval, Local, Pipeline, Stream, Timed, WatermarkPolicy,
    Window,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::detour::detour;

/// As it could have come from a file.
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
    (1u32..4, 1usize..20, 1usize..4, any::<bool>()).prop_map(|(threads, chunk, queue, fuse)| {
        NodeConfig {
            chunk_records: NonZeroUsize::new(chunk).unwrap(),
            queue_chunks: NonZeroUsize::new(queue).unwrap(),
            fuse,
            pin: false,
            ..NodeConfig::with_threads(threads)
        }
    })
}

type Events = Stream<Seen, Bounded, Timed>;
type Results = Collected<String>;

/// A job over some events, and how many of its edges lead to other processes at least.
struct Case {
    name: &'static str,
    job: fn(&Pipeline, Vec<Seen>) -> Results,
}

fn read(p: &Pipeline, events: Vec<Seen>) -> Events {
    p.read_from(items(events)).with_timestamps(
        |event| Timestamp::from_secs(event.second()),
        WatermarkPolicy::out_of_order(Duration::from_secs(200)),
    )
}

fn text<T: Debug + Send + 'static, E>(stream: Stream<T, Bounded, E>) -> Results {
    stream.map(|record| format!("{record:?}")).collect()
}

const TEN: Duration = Duration::from_secs(10);

const CASES: &[Case] = &[
    Case {
        name: "tumbling windows in two stages",
        job: |p, events| {
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
            results.merge(late).collect()
        },
    },
    Case {
        name: "sliding and session windows, and all of them",
        job: |p, events| {
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
                .collect()
        },
    },
    Case {
        name: "windows with corrections and a trigger",
        job: |p, events| {
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
            text(corrected.merge(early))
        },
    },
    Case {
        name: "groups to the end, and the best of them",
        job: |p, events| {
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
                .collect()
        },
    },
    Case {
        name: "states, timers, distinct records and rolling sums",
        job: |p, events| {
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
            texts.merge(silent).collect()
        },
    },
    Case {
        name: "joins by key and window, by key and time, and to the end",
        job: |p, events| {
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
            joined.merge(near).merge(grouped).collect()
        },
    },
    Case {
        name: "tables, news, spreading and sorting",
        job: |p, events| {
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
            text(spread.sort_by_key("sorted", |((event, age), _)| {
                (event.1, event.0.clone(), *age)
            }))
        },
    },
    Case {
        name: "what stays in its process",
        job: |p, events| {
            let local = read(p, events).map(Local).key_by(|event| event.who());
            let first = local.map_stateful(
                "local",
                || 0,
                |count, _, event| {
                    *count += 1;
                    (*count, event.0)
                },
            );
            text(first.map(|(count, event)| (count, event.who())))
        },
    },
];

impl Case {
    /// The results, and how many records took a detour on each edge that has one.
    fn run(
        &self,
        events: &[Seen],
        node: &NodeConfig,
        by_detour: bool,
    ) -> Result<(Vec<String>, Vec<u64>), Error> {
        let p = Pipeline::new(self.name);
        let results = (self.job)(&p, events.to_vec());
        let node = Node::start(node.clone())?;
        let dag = p.to_dag(node.config().threads)?;
        let (detoured, counts) = detour(&dag);
        node.submit(
            if by_detour { &detoured } else { &dag },
            JobConfig::named(self.name),
        )?
        .join()?;
        let counts = counts.into_iter().flatten();
        Ok((
            results.take_sorted(),
            counts.map(|count| count.load(Ordering::Relaxed)).collect(),
        ))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn results_are_the_same_with_and_without_a_detour(events in seen(), node in nodes()) {
        for case in CASES {
            let (plain, _) = case.run(&events, &node, false).unwrap();
            let (detoured, _) = case.run(&events, &node, true).unwrap();
            prop_assert_eq!(&plain, &detoured, "{}", case.name);
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
        let (_, counts) = case.run(&events, &node, true).unwrap();
        let is_local = case.name.contains("stays");
        assert_eq!(
            counts.iter().sum::<u64>() == 0,
            is_local,
            "{}: {counts:?}",
            case.name
        );
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
