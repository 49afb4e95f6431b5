//! A job from files to files with a join, timers and windows, killed repeatedly: each result is
//! published exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::ardea::{ardea, exit_code, finish, run, signal, succeed};

const ORDERS: u64 = 40_000;
const WITHIN: i64 = 900;
const KILLS: u32 = 12;
const STOPS: u32 = 40;

/// A pseudorandom sequence, the same in each run of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The input of a job, and its expected results.
struct Shop {
    folder: PathBuf,
    expected: BTreeMap<&'static str, Vec<String>>,
}

/// Returns results in the form in which they are compared: as sorted lines.
fn sorted(results: impl IntoIterator<Item = Value>) -> Vec<String> {
    let mut lines: Vec<String> = results.into_iter().map(|it| it.to_string()).collect();
    lines.sort_unstable();
    lines
}

fn write_lines(path: &Path, lines: impl IntoIterator<Item = Value>) {
    let lines: Vec<String> = lines.into_iter().map(|it| it.to_string()).collect();
    fs::write(path, lines.join("\n")).unwrap();
}

impl Shop {
    /// Creates a shop with `orders` orders, two thirds of which are paid in time.
    fn open(folder: &Path, orders: u64, random: &mut Random) -> Shop {
        let (mut ordered, mut payments) = (Vec::new(), Vec::new());
        let (mut paid, mut overdue) = (Vec::new(), Vec::new());
        let mut revenue = BTreeMap::<(String, i64), (u64, u64)>::new();
        for order in 0..orders {
            let second = order as i64 / 2 + random.below(4) as i64;
            let customer = format!("c{}", random.below(50));
            ordered.push(json!({ "order": order, "customer": customer, "second": second }));
            let (after, cents) = (random.below(1_350) as i64, 100 + random.below(10_000));
            let at = second + after;
            payments.push((at, json!({ "order": order, "second": at, "cents": cents })));
            if after > WITHIN {
                overdue.push(
                    json!({ "order": order, "customer": customer, "since": second + WITHIN }),
                );
                continue;
            }
            paid.push(
                json!({ "order": order, "customer": customer, "after": after, "cents": cents }),
            );
            let hour = at / 3_600 * 3_600;
            let sum = revenue.entry((customer, hour)).or_default();
            *sum = (sum.0 + 1, sum.1 + cents);
        }
        payments.sort_by_key(|(at, _)| *at);
        write_lines(&folder.join("orders.jsonl"), ordered);
        write_lines(
            &folder.join("payments.jsonl"),
            payments.into_iter().map(|(_, payment)| payment),
        );
        let revenue = revenue.into_iter().map(|((customer, hour), (orders, cents))| {
            json!({ "customer": customer, "hour": hour, "orders": orders, "cents": cents })
        });
        Shop {
            folder: folder.to_path_buf(),
            expected: BTreeMap::from([
                ("paid", sorted(paid)),
                ("overdue", sorted(overdue)),
                ("revenue", sorted(revenue)),
            ]),
        }
    }

    fn at(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let job = [
            "orders",
            &self.at("orders.jsonl"),
            &self.at("payments.jsonl"),
            &self.at("out"),
        ];
        let folder = format!("checkpoints.folder={}", self.at("state"));
        let settings = [
            "guarantee=exactly-once",
            &folder,
            "checkpoints.every=20ms",
            "checkpoints.pause=0s",
        ];
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let before = ["run"].into_iter().chain(more.iter().copied());
        let all = before.chain(settings).chain(job);
        all.map(String::from).collect()
    }

    fn start(&self, more: &[&str]) -> Child {
        let arguments = self.arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        ardea(&arguments).spawn().unwrap()
    }

    /// Returns the published results, by kind of file.
    fn published(&self) -> BTreeMap<&'static str, Vec<String>> {
        let mut published = BTreeMap::new();
        for kind in ["paid", "overdue", "revenue"] {
            let mut results = Vec::<Value>::new();
            for file in fs::read_dir(self.folder.join("out")).unwrap() {
                let path = file.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                if name.starts_with(kind) && name.ends_with(".jsonl") {
                    let text = fs::read_to_string(&path).unwrap();
                    let lines = text.lines();
                    results.extend(lines.map(|line| serde_json::from_str::<Value>(line).unwrap()));
                }
            }
            published.insert(kind, sorted(results));
        }
        published
    }

    /// Checks that all results are published exactly once, and that no partial file is left.
    fn check(&self) {
        let published = self.published();
        for (kind, expected) in &self.expected {
            let found = &published[kind];
            let (known, seen): (BTreeSet<_>, BTreeSet<_>) =
                (expected.iter().collect(), found.iter().collect());
            let lost: Vec<_> = known.difference(&seen).take(5).collect();
            let wrong: Vec<_> = seen.difference(&known).take(5).collect();
            let (is, should) = (found.len(), expected.len());
            assert!(
                found == expected,
                "{kind}: {is} instead of {should}, lost {lost:?}, wrong {wrong:?}"
            );
        }
    }
}

/// Waits for `time`; returns true if the job has ended by then, which it may only after completion.
fn ends_within(child: &mut Child, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "it failed by itself: {status}");
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    false
}

#[test]
fn a_job_that_is_killed_at_any_moment_publishes_each_result_once() {
    let folder = tempfile::tempdir().unwrap();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random(seed);
    let shop = Shop::open(folder.path(), ORDERS, &mut random);
    let mut has_ended = false;
    for life in 0..KILLS {
        // The parallelism changes every few attempts.
        let threads = ["1", "2", "3"][(life / 4) as usize % 3];
        let mut child = shop.start(&["--threads", threads, "-q"]);
        has_ended = ends_within(&mut child, Duration::from_millis(30 + random.below(600)));
        if has_ended {
            break;
        }
        if random.below(3) == 0 {
            signal(&child, Signal::STOP);
            ends_within(&mut child, Duration::from_millis(random.below(100)));
            signal(&child, Signal::CONT);
            ends_within(&mut child, Duration::from_millis(random.below(50)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    if !has_ended {
        let finished = finish(shop.start(&[]));
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
    shop.check();
    succeed(&["checkpoints", &shop.at("state"), "--check"]);
}

#[test]
fn a_job_that_is_stopped_again_and_again_comes_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(u64::from(std::process::id()));
    let shop = Shop::open(folder.path(), ORDERS / 4, &mut random);
    let mut has_ended = false;
    for _ in 0..STOPS {
        let mut child = shop.start(&["-q"]);
        has_ended = ends_within(&mut child, Duration::from_millis(50 + random.below(300)));
        if has_ended {
            break;
        }
        signal(&child, Signal::TERM);
        match exit_code(&mut child) {
            Some(0) => {
                has_ended = true;
                break;
            }
            // More input is left, or the signal came before there was a job or a handler.
            Some(4 | 130) | None => {}
            Some(code) => panic!("it ended with {code}"),
        }
    }
    // On a slow machine it may have been stopped each time before it had made progress.
    if !has_ended {
        let finished = finish(shop.start(&[]));
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
    shop.check();
}

#[test]
fn empty_input_gives_empty_output_and_the_job_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let shop = Shop::open(folder.path(), 0, &mut Random(1));
    let arguments = shop.arguments(&[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let finished = run(&arguments);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let again = run(&arguments);
    assert!(again.err.contains("has completed already"), "{again:?}");
}
