//! Tests of failures: they are reported, counted, and isolated from other jobs.

use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::collections::items;
use ardea_connectors::files;
use ardea_core::{Bounded, Clock, ErrorCode, OnError, Timestamp};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::{Firing, Pipeline, Stream, Timed, WatermarkPolicy, Window};

#[test]
fn a_panic_names_step_instance_and_record_and_leaves_other_jobs_alone() {
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    let bad = Pipeline::new("bad");
    let quotients = bad
        .read_from(items((0..100i64).collect::<Vec<_>>()))
        .map(|n| 1 / (n - 73))
        .named("divide")
        .collect();
    let good = Pipeline::new("good");
    let sums = good
        .read_from(items((0..100i64).collect::<Vec<_>>()))
        .map(|n| n * 2)
        .collect();
    let (bad, good) = (
        bad.submit(&node, JobConfig::default()).unwrap(),
        good.submit(&node, JobConfig::default()).unwrap(),
    );
    let error = bad.join().unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserPanic);
    assert_eq!(error.vertex(), Some(("divide", 0)));
    assert_eq!(error.record(), Some((0, 73)), "{error}");
    good.join().unwrap();
    assert_eq!(sums.len(), 100);
    assert!(quotients.len() <= 73);
}

#[test]
fn records_that_user_code_fails_on_go_where_the_step_says() {
    let words = || items(vec!["1", "two", "3", "four"]);
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    for (policy, letters, dropped) in [(OnError::DeadLetter, 2, 0), (OnError::Drop, 0, 2)] {
        let p = Pipeline::new("numbers");
        let out = p
            .read_from(words())
            .try_map(|word| word.parse::<u32>(), policy)
            .collect();
        let job = p.submit(&node, JobConfig::default()).unwrap();
        job.join().unwrap();
        assert_eq!(out.take(), [1, 3]);
        assert_eq!(
            (job.dead_letters().count(), job.dead_letters().dropped()),
            (letters, dropped)
        );
    }
    let p = Pipeline::new("numbers");
    p.read_from(words())
        .try_map(|word| word.parse::<u32>(), OnError::Fail)
        .collect();
    let error = p.run().unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadRecord);
    assert!(error.to_string().contains("two"), "{error}");
}

/// A panic of user code (index out of range, overflow, division by zero) is an error of one record
/// if the step sets bad records aside.
#[test]
fn records_on_which_user_code_panics_go_where_the_step_says() {
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    let p = Pipeline::new("panics");
    let offsets = [10u64, 20, 30];
    let out = p
        .read_from(items((0..100u64).collect::<Vec<_>>()))
        .with_timestamps(
            move |n| Timestamp::from_secs(offsets[(*n % 4) as usize] as i64),
            WatermarkPolicy::out_of_order(Duration::from_secs(60)),
        )
        .try_map(|n| Ok::<_, String>(100 / (n % 8)), OnError::Drop)
        .collect();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    let good = (0..100u64).filter(|n| n % 4 != 3 && n % 8 != 0);
    assert_eq!(out.take(), good.map(|n| 100 / (n % 8)).collect::<Vec<_>>());
    let letters = job.dead_letters();
    assert_eq!((letters.count(), letters.dropped()), (25, 13));
    let first = letters.first().unwrap();
    assert!(first.reason.contains("out of bounds"), "{}", first.reason);
    assert_eq!(job.sum("timestamps", |metrics| metrics.bad), 25);
}

/// For example, a Kafka record with the timestamp -1.
#[test]
fn a_record_without_a_time_of_its_own_does_not_end_a_job_that_uses_native_times() {
    let p = Pipeline::new("native");
    let times = [3, i64::MIN, 12, i64::MAX, 25].map(Timestamp::from_micros);
    let out = p
        .read_from(ardea_connectors::collections::items_with_times(
            times.map(|time| (time.as_micros(), time)),
        ))
        .with_native_timestamps(WatermarkPolicy::in_order())
        .window_all(Window::tumbling(Duration::from_micros(10)))
        .aggregate("counts", count())
        .map(|window| (window.end.as_micros(), window.value))
        .collect();
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    assert_eq!(out.take_sorted(), [(10, 1), (20, 1), (30, 1)]);
    assert_eq!(job.dead_letters().count(), 2);
}

/// A record and its time in microseconds.
type Reading = (String, i64);

/// A function that assigns event times to a stream of readings.
type Timing = fn(&Pipeline, Vec<Reading>, WatermarkPolicy) -> Stream<Reading, Bounded, Timed>;

fn time_of(reading: &Reading) -> Timestamp {
    Timestamp::from_micros(reading.1)
}

/// For example, from a device whose clock is fast.
#[test]
fn a_record_from_the_future_makes_no_other_late_wherever_times_are_taken() {
    let timings: [Timing; 4] = [
        |p, readings, policy| {
            let source = items(readings);
            p.read_from(source).with_timestamps(time_of, policy)
        },
        |p, readings, policy| {
            let timed = readings.into_iter().map(|it| (it.clone(), time_of(&it)));
            let source = ardea_connectors::collections::items_with_times(timed);
            p.read_from(source).with_native_timestamps(policy)
        },
        |p, readings, policy| {
            let texts = readings.into_iter().map(|(who, at)| format!("{who} {at}"));
            let parse = |text: &String| {
                let (who, at) = text.split_once(' ').ok_or("no time")?;
                Ok::<_, String>((who.to_string(), at.parse().map_err(|_| "no number")?))
            };
            p.read_from(items(texts.collect::<Vec<_>>()))
                .try_map(parse, OnError::DeadLetter)
                .flat_map(|reading| [reading])
                .with_timestamps(time_of, policy)
        },
        |p, readings, policy| {
            // Times set by the source, and others set later.
            let timed = readings.into_iter().map(|it| (it, Timestamp::from_secs(1)));
            let source = ardea_connectors::collections::items_with_times(timed);
            p.read_from(source)
                .with_native_timestamps(WatermarkPolicy::in_order())
                .map(|reading| reading)
                .with_timestamps(time_of, policy)
        },
    ];
    let day = WatermarkPolicy::MAX_AHEAD;
    let minute = Duration::from_secs(60);
    let policy = WatermarkPolicy::in_order();
    let cases = [
        (day + minute, policy),
        (day - minute, policy.max_ahead(Some(5 * minute))),
    ];
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    let now = Clock::system().wall();
    for (case, (ahead, policy)) in cases.into_iter().enumerate() {
        for (place, timing) in timings.iter().enumerate() {
            let mut readings: Vec<Reading> = (0..3_000_i64)
                .map(|second| {
                    (
                        "honest".to_string(),
                        (now - 50 * minute).as_micros() + second * 1_000_000,
                    )
                })
                .collect();
            readings.insert(1_000, ("fast".to_string(), (now + ahead).as_micros()));
            let p = Pipeline::new("future");
            let out = timing(&p, readings, policy)
                .window_all(Window::tumbling(minute))
                .aggregate("counts", count())
                .map(|window| window.value)
                .collect();
            let job = p.submit(&node, JobConfig::default()).unwrap();
            job.join().unwrap();
            let all: u64 = out.take().into_iter().sum();
            assert_eq!(all, 3_000, "case {case}, place {place}");
            let letters = job.dead_letters();
            assert_eq!(letters.count(), 1, "case {case}, place {place}");
            let reason = letters.first().unwrap().reason.clone();
            assert!(reason.contains("max_ahead"), "{reason}");
        }
    }
}

#[test]
fn late_records_are_counted_and_can_be_had_as_a_stream() {
    let p = Pipeline::new("late");
    let times = vec![5i64, 30, 7, 31];
    let (windows, late) = p
        .read_from(items(times))
        .with_timestamps(
            |second| Timestamp::from_secs(*second),
            WatermarkPolicy::in_order(),
        )
        .key_by(|_| 0u8)
        .window(Window::tumbling(Duration::from_secs(10)))
        .aggregate_and_late("counts", count());
    let (windows, late) = (windows.map(|window| window.value).collect(), late.collect());
    // One record per chunk, so that the watermark passes between them.
    let node = Node::start(NodeConfig {
        chunk_records: std::num::NonZeroUsize::MIN,
        ..NodeConfig::with_threads(1)
    })
    .unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    assert_eq!(windows.take_sorted(), [1, 2]);
    assert_eq!(late.take(), [7]);
    assert_eq!(job.sum("counts", |metrics| metrics.late), 1);
}

#[test]
fn records_that_are_missing_in_some_of_their_windows_are_counted() {
    // At 31, the windows up to 30 have closed: 25 and 29 are missing in some of theirs. 5 is in no
    // open window.
    for (threads, lateness, in_part, late) in
        [(1, 0, 2, 1), (2, 0, 2, 1), (1, 15, 1, 0), (1, 100, 0, 0)]
    {
        let p = Pipeline::new("late in part");
        let window = Window::sliding(Duration::from_secs(20), Duration::from_secs(10));
        let counts = p
            .read_from(items(vec![15i64, 31, 25, 29, 5, 32]))
            .with_timestamps(
                |second| Timestamp::from_secs(*second),
                WatermarkPolicy::in_order(),
            )
            .key_by(|_| 0u8)
            .window(window.allowed_lateness(Duration::from_secs(lateness)))
            .aggregate("counts", count());
        counts.write_to(ardea_connectors::null::sink());
        let node = Node::start(NodeConfig {
            chunk_records: std::num::NonZeroUsize::MIN,
            ..NodeConfig::with_threads(threads)
        })
        .unwrap();
        let job = p.submit(&node, JobConfig::default()).unwrap();
        job.join().unwrap();
        let sum = |counter: fn(&ardea_core::MetricsSnapshot) -> u64| -> u64 {
            job.metrics()
                .iter()
                .map(|report| counter(&report.metrics))
                .sum()
        };
        let counted = (sum(|it| it.late_in_part), sum(|it| it.late));
        assert_eq!(counted, (in_part, late), "{threads} threads, {lateness} s");
    }
}

#[test]
fn allowed_lateness_corrects_a_result_that_was_already_out() {
    let p = Pipeline::new("corrected");
    let window =
        Window::tumbling(Duration::from_secs(10)).allowed_lateness(Duration::from_secs(100));
    let out = p
        .read_from(items(vec![5i64, 30, 7]))
        .with_timestamps(
            |second| Timestamp::from_secs(*second),
            WatermarkPolicy::in_order(),
        )
        .key_by(|_| 0u8)
        .window(window)
        .aggregate("counts", count())
        .map(|window| {
            (
                window.end.as_millis() / 1000,
                window.firing == Firing::Update,
                window.value,
            )
        })
        .collect();
    p.run_with(NodeConfig {
        chunk_records: std::num::NonZeroUsize::MIN,
        ..NodeConfig::with_threads(1)
    })
    .unwrap();
    assert_eq!(
        out.take_sorted(),
        [(10, false, 1), (10, true, 2), (40, false, 1)]
    );
}

#[test]
fn a_dead_letter_of_a_step_behind_a_file_names_its_line_and_has_the_text_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), b"1\ntwo\n\xff\nfour\n").unwrap();
    std::fs::write(dir.path().join("b"), b"1\n2\nthree\n").unwrap();
    let letters_of = |threads, spread: bool| {
        let p = Pipeline::new("numbers");
        let lines = p.read_from(files::lines(dir.path()).build());
        let lines = if spread { lines.rebalance() } else { lines };
        let numbers = lines
            .try_map(|line| line.parse::<u32>(), OnError::DeadLetter)
            .named("parse")
            .collect();
        let node = Node::start(NodeConfig::with_threads(threads)).unwrap();
        let job = p.submit(&node, JobConfig::default()).unwrap();
        job.join().unwrap();
        assert_eq!(numbers.take_sorted(), [1, 1, 2]);
        let letters = job.dead_letters().sample().into_iter();
        let letters = letters.filter(|letter| letter.vertex == "parse");
        let mut letters: Vec<(String, String)> = letters
            .map(|letter| (letter.origin, String::from_utf8(letter.raw).unwrap()))
            .collect();
        letters.sort();
        letters
    };
    let at = |place: &str| dir.path().join(place).display().to_string();
    let expected = [("a:2", "two"), ("a:4", "four"), ("b:3", "three")];
    for threads in [1, 2] {
        assert_eq!(
            letters_of(threads, false),
            expected.map(|(place, text)| (at(place), text.to_string()))
        );
    }
    // After a redistribution, the origin of a record is unknown, and is not reported.
    for (origin, _) in letters_of(2, true) {
        assert!(origin.contains("from \"rebalance\""), "{origin}");
    }
}

#[test]
fn a_dead_letter_behind_a_file_that_instances_share_names_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in");
    let line = |n: usize| match n % 1_000 {
        7 => "bad".to_string(),
        _ => format!("{n:01000}"),
    };
    let text: Vec<String> = (1..=6_000).map(line).collect();
    std::fs::write(&path, text.join("\n")).unwrap();
    let p = Pipeline::new("numbers");
    let numbers = p
        .read_from(files::lines(&path).build())
        .try_map(|line| line.parse::<u32>(), OnError::DeadLetter)
        .collect();
    let node = Node::start(NodeConfig::with_threads(2)).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    let values = numbers.take();
    assert_eq!(values.len(), 5_994);
    assert!(!values.is_sorted(), "both instances have read");
    let letters = job.dead_letters().sample().into_iter();
    let mut origins: Vec<String> = letters.map(|letter| letter.origin).collect();
    origins.sort_unstable();
    let expected = (0..6).map(|n| format!("{}:{}", path.display(), n * 1_000 + 7));
    let mut expected: Vec<String> = expected.collect();
    expected.sort_unstable();
    assert_eq!(origins, expected);
}

#[test]
fn a_report_beside_the_data_can_be_written_again_and_is_no_data_unless_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.csv"), "1\n2\n").unwrap();
    let report = folder.path().join("report.json");
    let run = |suffix: &str| {
        let p = Pipeline::new("report");
        p.read_from(files::lines(folder.path()).suffix(suffix).build())
            .write_to(files::write_lines(&report).build());
        p.run()
    };
    for _ in 0..2 {
        run(".csv").unwrap();
    }
    let error = run("").unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("report.json"), "{error}");
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "1\n2\n");
}
