//! The benches: what they print where nobody looks.

use serde_json::Value;

use crate::ardea::{run, succeed};

#[test]
fn a_bench_in_a_pipe_prints_one_object_on_one_line() {
    let nexmark = ["nexmark", "--query", "q2", "--rate", "1000"];
    let stages = ["stages", "--stages", "40", "--threads", "2"];
    let wordcount = ["wordcount", "--words", "1000", "--rate", "1000", "--acks"];
    let plain: [&[&str]; 3] = [&["wakeup"], &["exchange"], &["forward", "--bytes", "1000"]];
    for bench in [&nexmark[..], &stages, &wordcount].iter().chain(&plain) {
        let short = ["--duration", "50ms", "--warmup", "1ms", "--quiet"];
        let out = succeed(&[&["bench"], *bench, &short].concat());
        assert_eq!(out.lines().count(), 1, "{out}");
        let fields: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(fields["bench"], bench[0]);
        for always in [
            "duration_s",
            "cpu_seconds",
            "noise_p9999_ms",
            "noise_max_ms",
        ] {
            assert!(fields[always].is_number(), "{always}: {out}");
        }
        assert_eq!(fields["system"], "ardea");
        assert_eq!(fields["warmup"], "1ms");
    }
}

#[test]
fn repeated_runs_end_with_a_line_of_the_best_and_the_median() {
    let out = succeed(&[
        "bench",
        "wakeup",
        "--gap",
        "5ms",
        "--duration",
        "50ms",
        "--repeat",
        "2",
        "-q",
    ]);
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert_eq!(
        (&lines[2]["repeat"], &lines[2]["gap"]),
        (&2.into(), &"5ms".into())
    );
    for figure in ["idle_cpu_percent", "noise_max_ms", "duration_s"] {
        assert!(lines[2]["best"][figure].is_number(), "{figure}: {out}");
        assert!(lines[2]["median"][figure].is_number(), "{figure}: {out}");
    }
}

#[test]
fn a_query_without_a_bench_is_refused_with_those_that_have_one() {
    let finished = run(&["bench", "nexmark", "--query", "q3"]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(
        finished.err.contains("q0, q1, q2, q5, q7, q8, q13"),
        "{finished:?}"
    );
}

#[test]
fn what_no_clock_has_room_for_is_refused_by_the_name_of_its_flag() {
    let age = "200000000000h";
    for (bench, flags) in [
        (
            "nexmark",
            &["--duration", "--warmup", "--window", "--slide", "--spin"][..],
        ),
        ("stages", &["--duration", "--warmup", "--spin"]),
        ("wakeup", &["--duration", "--warmup", "--gap", "--spin"]),
        ("wordcount --max", &["--duration", "--warmup", "--spin"]),
        ("exchange", &["--duration", "--warmup"]),
        ("forward", &["--duration", "--warmup"]),
    ] {
        for flag in flags {
            let words: Vec<&str> = bench.split(' ').collect();
            let finished = run(&[&["bench"], &words[..], &[*flag, age]].concat());
            assert_eq!(finished.code, Some(2), "{bench} {flag}: {finished:?}");
            assert!(
                finished.err.contains(&format!("ARD-102: {flag} ")),
                "{bench} {flag}: {finished:?}"
            );
        }
    }
    for bench in ["nexmark", "wordcount", "stages", "exchange"] {
        let finished = run(&["bench", bench, "--rate", "1_000_000_000_000"]);
        assert_eq!(finished.code, Some(2), "{finished:?}");
        assert!(finished.err.contains("--rate "), "{finished:?}");
    }
}

#[test]
fn word_count_asks_for_a_rate_or_for_all_that_goes() {
    let finished = run(&["bench", "wordcount"]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.err.contains("--rate <N>|--max"), "{finished:?}");
    let both = run(&["bench", "wordcount", "--rate", "5", "--max"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}
