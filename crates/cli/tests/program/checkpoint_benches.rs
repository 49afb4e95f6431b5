//! The fault-tolerance benchmarks, with small parameters.

use serde_json::Value;

use crate::ardea::{run, succeed};

fn lines(words: &str) -> Vec<Value> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let out = succeed(&[&["bench"], &words[..], &["--quiet"]].concat());
    let lines = out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Checks the fields that the benchmark contract requires of every benchmark.
fn check_always(line: &Value) {
    for always in [
        "version",
        "duration_s",
        "cpu_seconds",
        "rss_mb",
        "noise_p9999_ms",
        "noise_max_ms",
    ] {
        let is_told = line[always].is_number() || line[always].is_string();
        assert!(is_told, "{always}: {line}");
    }
    assert_eq!(line["system"], "ardea");
}

#[test]
fn a_query_over_two_workers_is_compared_with_the_same_without_a_guarantee() {
    let flags = "nexmark --query q5 --rate 10000 --slide 50ms --workers 2 --guarantee exactly-once";
    let short = "--checkpoint-interval 100ms --both --duration 1s --warmup 200ms";
    let runs = lines(&format!("{flags} {short}"));
    let [without, with, last] = &runs[..] else {
        panic!("{runs:?}");
    };
    for line in [without, with] {
        check_always(line);
        assert_eq!(
            (&line["workers"], &line["keys"]),
            (&2.into(), &10_000.into())
        );
        // One for each window.
        assert_eq!(line["latencies"], 20, "{line}");
        assert!(line["p9999_ms"].is_number() && line["host_cpu_seconds"].is_number());
        assert!(line["events"].as_u64() > Some(0), "{line}");
    }
    assert!(without["checkpoints"].is_null(), "{without}");
    assert!(with["checkpoints"].as_u64() >= Some(1), "{with}");
    assert!(last["with_by_without"]["p50_ms"].is_number(), "{last}");
}

#[test]
fn checkpoints_of_state_that_changes_a_little_are_told_beside_latency() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("kept");
    let flags = format!(
        "--keys 5000 --checkpoint-interval 100ms --checkpoint-folder {}",
        at.display()
    );
    let runs = lines(&format!(
        "checkpoint {flags} --both --duration 600ms --warmup 100ms"
    ));
    let [without, with, last] = &runs[..] else {
        panic!("{runs:?}");
    };
    for line in [without, with] {
        check_always(line);
        assert_eq!(
            (&line["rate"], &line["latencies"]),
            (&500.into(), &300.into())
        );
        assert!(line["p9999_ms"].is_number() && line["fill_s"].is_number());
    }
    assert!(without["checkpoint_max_ms"].is_null(), "{without}");
    assert!(with["checkpoint_max_ms"].is_number(), "{with}");
    assert!(
        with["first_checkpoints_bytes"].as_u64() > Some(300_000),
        "{with}"
    );
    assert_eq!(last["pairs"], 1);
}

#[test]
fn nothing_is_lost_and_nothing_comes_twice_when_a_worker_is_killed() {
    let flags = "failover --keys 2000 --rate 2000 --checkpoint-interval 200ms";
    let runs = lines(&format!("{flags} --duration 6s --warmup 500ms --at 1s"));
    let [line] = &runs[..] else {
        panic!("{runs:?}");
    };
    check_always(line);
    assert_eq!(
        (&line["lost"], &line["duplicated"]),
        (&0.into(), &0.into()),
        "{line}"
    );
    for figure in ["gap_ms", "spike_ms", "recovery_ms", "checkpoint_max_ms"] {
        assert!(line[figure].is_number(), "{figure}: {line}");
    }
    // The outage lasts until the worker is replaced.
    assert!(line["gap_ms"].as_f64() > Some(1.0), "{line}");
}

#[test]
fn advertisements_are_counted_whoever_is_killed() {
    for victim in ["worker", "job-master"] {
        let flags =
            format!("ysb --rate 3000 --window 500ms --guarantee exactly-once --kill {victim}");
        let short = "--checkpoint-interval 200ms --duration 4s --warmup 500ms --at 1s";
        let runs = lines(&format!("{flags} {short}"));
        let [line] = &runs[..] else {
            panic!("{runs:?}");
        };
        check_always(line);
        assert_eq!(line["kill"], victim);
        assert_eq!(
            (&line["lost"], &line["duplicated"]),
            (&0.into(), &0.into()),
            "{line}"
        );
        for figure in [
            "window_p50_ms",
            "window_p99_ms",
            "spike_ms",
            "windows_affected",
        ] {
            assert!(line[figure].is_number(), "{figure}: {line}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_value_at_fault() {
    for (words, told) in [
        ("checkpoint --changed 0", "--changed"),
        ("checkpoint --keys 10", "a record a second"),
        ("failover --at 60s", "measured time"),
        ("ysb --kill nobody", "job-master"),
        ("ysb --kill worker --workers 1", "must survive"),
        ("ysb --window 1500us", "whole milliseconds"),
        ("ysb --mode micro-batch --workers 2", "require a guarantee"),
        ("nexmark --workers 2 --jobs 2", "2 workers"),
        ("failover --guarantee none --both", "--both"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let finished = run(&[&["bench"], &words[..]].concat());
        assert_eq!(finished.code, Some(2), "{finished:?}");
        assert!(finished.err.contains(told), "{words:?}: {finished:?}");
    }
}
