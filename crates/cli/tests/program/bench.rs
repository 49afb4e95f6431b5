//! Benchmarks whose output is no terminal.

use serde_json::Value;

use crate::ardea::{run, succeed};

#[test]
fn a_bench_in_a_pipe_prints_one_object_on_one_line() {
    let nexmark = ["nexmark", "--query", "q2", "--rate", "1000"];
    let stages = ["stages", "--stages", "40", "--threads", "2"];
    let wordcount = ["wordcount", "--words", "1000", "--rate", "1000", "--acks"];
    let plain: [&[&str]; 6] = [
        &["wakeup"],
        &["exchange"],
        &["exchange", "--transport", "uds"],
        &["exchange", "--transport", "shm"],
        &["ipc"],
        &["grid", "--keys", "500"],
    ];
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

/// Returns the lines of a benchmark in a pipe.
fn lines(words: &str) -> Vec<Value> {
    let words: Vec<&str> = words.split(' ').collect();
    let out = succeed(&[&["bench"], &words[..], &["--quiet"]].concat());
    let lines = out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_sweep_prints_an_object_a_run_for_throughput_and_for_latency() {
    // Long enough that some tuples pass on a busy machine: half of a rate of zero can't be
    // measured.
    let short = "--words 1000 --duration 250ms --warmup 1ms --no-baseline";
    let lines_of = |flags: &str| lines(&format!("wordcount {flags} {short}"));
    let told = |lines: &[Value]| -> Vec<(u64, bool, bool)> {
        let told = lines.iter().map(|line| {
            let parallelism = line["parallelism"].as_u64().unwrap();
            let (acks, max) = (line["acks"] == true, line["max"] == true);
            (parallelism, acks, max)
        });
        told.collect()
    };
    let runs = lines_of("--sweep 1,2 --both");
    let expected = [false, true]
        .map(|acks| [1, 2].map(|parallelism| [true, false].map(|max| (parallelism, acks, max))));
    assert_eq!(told(&runs), expected.as_flattened().as_flattened());
    for run in &runs {
        assert!(run["tuples_per_cpu_s"].is_number(), "{run}");
        assert_eq!(run["lost"], 0, "{run}");
    }
    let fast = lines_of("--sweep 2 --max");
    assert_eq!(told(&fast), [(2, false, true)]);
    let paced = lines_of("--sweep 1 --rate 1000 --acks");
    assert_eq!(told(&paced), [(1, true, false)]);
}

#[test]
fn an_ablation_prints_an_object_a_combination_without_and_with_acks() {
    let runs = lines("wordcount --ablation --words 1000 --duration 250ms --warmup 200ms");
    let told: Vec<(bool, bool, bool, bool)> = runs
        .iter()
        .map(|run| {
            let is = |name: &str| run[name] == true;
            (is("acks"), is("pools"), is("in_place"), is("rings"))
        })
        .collect();
    let expected = [false, true].map(|acks| {
        [
            (acks, true, true, true),
            (acks, false, true, true),
            (acks, true, false, true),
            (acks, true, true, false),
            (acks, false, false, false),
        ]
    });
    assert_eq!(told, expected.as_flattened());
    for run in &runs {
        assert_eq!(
            (&run["lost"], &run["failed"]),
            (&0.into(), &0.into()),
            "{run}"
        );
        assert!(run["tuples"].as_u64() > Some(0), "{run}");
        assert!(run["ratio_to_all_on"].is_number(), "{run}");
    }
}

#[test]
fn the_parts_of_a_tuples_way_over_containers_add_up_to_its_latency() {
    // Repeats a measurement in which no tuple passed because the machine stood still.
    let runs = (0..5).map(|_| {
        let told = lines("latency --steps 2 --rate 500 --duration 500ms --warmup 100ms");
        let [told] = &told[..] else {
            panic!("{told:?}");
        };
        told.clone()
    });
    let is_undisturbed = |told: &Value| told["p99_us"].as_f64() < Some(500e3);
    let mut runs = runs.skip_while(|told| !is_undisturbed(told));
    let told = &runs.next().expect("the machine stood still five times");
    assert_eq!((&told["tuples"], &told["lost"]), (&250.into(), &0.into()));
    let figure = |name: &str| told[name].as_f64().unwrap();
    let parts = ["source_us", "queue_us", "transport_us", "service_us"];
    let sum: f64 = parts.iter().map(|part| figure(part)).sum();
    let mean = figure("mean_us");
    assert!((sum - mean).abs() < mean * 0.05, "{told}");
    // Each step is in another container than the one before it.
    for transport in told["edge_transport_us"].as_array().unwrap() {
        assert!(transport.as_f64() > Some(0.0), "{told}");
    }
    for step in told["step_service_us"].as_array().unwrap() {
        assert!(step.as_f64() >= Some(10.0), "{told}");
    }
}

#[test]
fn a_copy_that_is_killed_costs_no_result_and_doubles_none() {
    let told = lines(
        "active-active --rate 10000 --duration 1s --warmup 300ms --checkpoint-interval 100ms",
    );
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((&told["lost"], &told["duplicated"]), (&0.into(), &0.into()));
    // 16 results every 10 ms.
    assert!(told["results"].as_u64() >= Some(16 * 100), "{told}");
    for figure in ["p50_ms", "alone_p50_ms", "killed_max_ms", "spike_ms"] {
        assert!(told[figure].is_number(), "{figure}: {told}");
    }
}

#[test]
fn what_a_guarantee_costs_is_told_pair_by_pair() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let short =
        "--duration 300ms --warmup 50ms --no-baseline --checkpoint-interval 50ms --repeat 2";
    let runs = lines(&format!(
        "nexmark --query q5 --rate 10000 --slide 50ms --guarantee exactly-once --both --checkpoint-folder {at} {short}"
    ));
    let told = runs.iter().map(|run| run["guarantee"].as_str().unwrap());
    let [without, with] = ["none", "exactly-once"];
    assert_eq!(
        told.collect::<Vec<_>>(),
        [without, with, without, with, with]
    );
    assert!(runs[0]["checkpoints"].is_null() && runs[0]["checkpoint_interval"].is_null());
    assert!(runs[1]["checkpoints"].as_u64() >= Some(2), "{}", runs[1]);
    assert_eq!(runs[1]["checkpoint_interval"], "50ms");
    let last = &runs[4];
    assert_eq!(last["pairs"], 2);
    assert!(last["with_by_without"]["p50_ms"].is_number(), "{last}");
    let finished = run(&["bench", "nexmark", "--both"]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
}

#[test]
fn what_can_not_go_with_a_sweep_is_refused() {
    for flags in [
        "--sweep 1,2 --parallelism 2",
        "--sweep 1,2 --repeat 2",
        "--sweep 1 --acks --both",
        "--max --both",
        "--sweep 0",
        "--sweep 1,2,3 --containers 2",
    ] {
        let words: Vec<&str> = flags.split(' ').collect();
        let finished = run(&[&["bench", "wordcount"], &words[..]].concat());
        assert_eq!(finished.code, Some(2), "{flags}: {finished:?}");
        assert_eq!(finished.out, "");
    }
}

#[test]
fn a_soak_prints_an_object_a_look_and_at_the_end_whether_its_limits_held() {
    let lines = lines("soak --words 1000 --duration 400ms --warmup 10ms --every 100ms");
    assert_eq!(lines.len(), 5, "{lines:?}");
    for (number, line) in (1..).zip(&lines[..4]) {
        assert_eq!(
            (&line["bench"], &line["sample"]),
            (&"soak".into(), &number.into())
        );
        for figure in ["rss_mb", "open_files", "os_threads"] {
            assert!(line[figure].as_f64() > Some(0.0), "{figure}: {line}");
        }
    }
    // A busy machine may leave a job without CPU for one sampling interval, but not for all of
    // them.
    let tuples = lines[..4].iter().map(|line| line["tuples"].as_u64());
    assert!(tuples.sum::<Option<u64>>() > Some(0), "{lines:?}");
    let last = &lines[4];
    assert_eq!(
        (&last["every"], &last["lost"]),
        (&"100ms".into(), &0.into())
    );
    for verdict in ["held", "rss_held", "drift_held"] {
        assert!(last[verdict].is_boolean(), "{verdict}: {last}");
    }
    let finished = run(&["bench", "soak", "--duration", "1s"]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.err.contains("--every 1m"), "{finished:?}");
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
fn scheduling_reports_messages_and_times_of_batches_or_traces() {
    let field = |args: &[&str], name: &str| {
        let short = [
            "--batches",
            "500",
            "--group",
            "50",
            "--duration",
            "500ms",
            "--quiet",
        ];
        let out = succeed(&[&["bench", "scheduling"], args, &short].concat());
        let first = out.lines().next().unwrap();
        let fields: Value = serde_json::from_str(first).unwrap();
        fields[name].clone()
    };
    // Two messages to each worker and two from it for each checkpoint.
    let simulated = ["--simulated", "--workers", "8", "--stages", "2"];
    assert_eq!(field(&simulated, "messages_per_batch"), 0.64);
    assert!(field(&["--warmup", "1s"], "batch_ms_p95").is_number());
    // A report for each group.
    assert!(field(&["--tune"], "next_size").is_number());
}

#[test]
fn layouts_and_the_knee_print_an_object_a_run_and_write_a_table_and_a_chart() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let short = format!("--parallelism 2 --duration 500ms --warmup 1ms --folder {at}");
    let wanted = "layouts --layouts 1N1W,1N2W --transport auto --packing traffic --rate 500";
    let layouts = lines(&format!("{wanted} --topology words {short}"));
    assert_eq!(layouts.len(), 2);
    for (run, layout) in layouts.iter().zip(["1N1W", "1N2W"]) {
        assert_eq!(
            (&run["bench"], &run["layout"]),
            (&"layouts".into(), &layout.into())
        );
        assert_eq!(run["lost"], 0, "{run}");
        assert!(run["mean_ms"].is_number(), "{run}");
        assert!(run["stage_ms"]["split"].is_number(), "{run}");
    }
    assert_eq!(layouts[1]["expected_inside_hosts_percent"], 100.0);
    let knee = lines(&format!(
        "knee --layout 1N1W --from 100 --until 200 {short}"
    ));
    assert!(
        knee.iter().all(|run| run["position"].is_string()),
        "{knee:?}"
    );
    for name in ["layouts-words", "knee-throughput"] {
        for kind in ["md", "svg"] {
            let file = folder.path().join(format!("{name}.{kind}"));
            assert!(file.exists(), "{}", file.display());
        }
    }
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
        ("latency", &["--duration", "--warmup", "--spin", "--work"]),
        (
            "layouts",
            &["--duration", "--warmup", "--delay", "--reassign"],
        ),
        ("knee", &["--duration", "--warmup", "--delay", "--latency"]),
        ("wakeup", &["--duration", "--warmup", "--gap", "--spin"]),
        ("state", &["--duration"]),
        ("wordcount --max", &["--duration", "--warmup", "--spin"]),
        ("exchange", &["--duration", "--warmup"]),
        ("ipc", &["--duration", "--warmup"]),
        ("grid", &["--duration", "--warmup"]),
        ("soak", &["--duration", "--warmup", "--spin", "--every"]),
    ] {
        for flag in flags {
            let words: Vec<&str> = bench.split(' ').collect();
            let finished = run(&[&["bench"], &words[..], &[*flag, age]].concat());
            assert_eq!(finished.code, Some(2), "{bench} {flag}: {finished:?}");
            assert!(
                finished.err.contains(&format!("'{flag} <DURATION>'")),
                "{bench} {flag}: {finished:?}"
            );
        }
    }
    for bench in [
        "nexmark",
        "wordcount",
        "soak",
        "stages",
        "latency",
        "layouts",
        "exchange",
        "ipc",
    ] {
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
