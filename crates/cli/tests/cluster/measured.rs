//! The metrics of a job, wherever its instances run.

use std::fs;

use serde_json::Value;

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::why::until_cause;

/// Metrics of which some series has to be above zero while numbers flow.
const FLOWING: &[&str] = &[
    "ardea_records_in_total",
    "ardea_records_out_total",
    "ardea_busy_seconds_total",
    "ardea_idle_seconds_total",
    "ardea_longest_slice_seconds",
    "ardea_received_bytes_total",
    "ardea_sent_bytes_total",
    "ardea_vertex_pair_records_total",
    "ardea_pair_records_total",
    "ardea_link_bytes_in_total",
    "ardea_link_bytes_out_total",
    "ardea_link_connected",
    "ardea_ring_capacity_bytes",
    "ardea_ring_messages_total",
    "ardea_messages_emitted_total",
    "ardea_messages_acked_total",
    "ardea_complete_latency_seconds_count",
    "ardea_complete_latency_quantile_seconds",
    "ardea_latency_seconds_count",
    "ardea_latency_quantile_seconds",
    "ardea_process_cpu_seconds_total",
    "ardea_process_resident_bytes",
];

/// Metrics that have to be present, with any value.
const TOLD: &[&str] = &[
    "ardea_queue_fill_ratio",
    "ardea_blocked_seconds_total",
    "ardea_messages_pending",
    "ardea_messages_failed_total",
    "ardea_instance_restarts_total",
    "ardea_lost_records_total",
];

pub fn what_the_catalogue_promises_is_told_of_each_instance_and_container() {
    let file = "metrics-{container}.jsonl";
    let job = NumbersJob::begun_told(1_000, |data| {
        // No folder can be created there.
        let fails = "json-lines:/proc/none/{container}";
        let works = format!("json-lines:{}/{file}", data.display());
        format!("--set metrics.sinks={works},{fails}")
    });
    let arena = &job.arena;
    job.until_more();
    arena.until("the log tells of the sink that fails", || {
        let log = arena.succeed("logs numbers");
        log.contains("the metrics sink json-lines#2 misses batches")
    });
    arena.until("the connections are described with their transport", || {
        let described = arena.succeed("describe numbers");
        described.contains("\nconnections\n") && described.contains(" by shm")
    });
    for name in FLOWING {
        arena.until(name, || {
            let samples = arena.samples("numbers", name);
            samples.iter().any(|(_, value)| *value > 0.0)
        });
    }
    for name in TOLD {
        arena.until(name, || !arena.samples("numbers", name).is_empty());
    }
    let of = |name: &str, label: &str| -> Vec<Value> {
        let samples = arena.samples("numbers", name).into_iter();
        let mut values: Vec<Value> = samples.map(|(labels, _)| labels[label].clone()).collect();
        values.sort_by_key(ToString::to_string);
        values.dedup();
        values
    };
    // Five instances in three containers, each with its own series.
    assert_eq!(arena.samples("numbers", "ardea_records_in_total").len(), 5);
    assert_eq!(of("ardea_process_cpu_seconds_total", "container").len(), 3);
    assert_eq!(of("ardea_messages_acked_total", "vertex"), ["numbers"]);
    let reasons = of("ardea_messages_failed_total", "reason");
    assert_eq!(reasons, ["bolt", "lost", "timeout"]);
    let shares = of("ardea_complete_latency_quantile_seconds", "quantile");
    assert_eq!(shares, ["0.5", "0.99", "0.999", "1"]);
    // Sinks receive the same metrics.
    let written: String = (1..=3)
        .map(|container| job.data.join(format!("metrics-{container}.jsonl")))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let plain = |name: &&&str| !name.ends_with("_count");
    for name in FLOWING.iter().chain(TOLD).filter(plain) {
        assert!(
            written.contains(&format!("{name:?}")),
            "{name} is not written"
        );
    }
    // `top` shows the last moments, in which nothing may have been acked.
    arena.until("top tells of acks and how long they took", || {
        let top = arena.json("top numbers --once");
        let messages = &top["vertices"][0]["messages"];
        let is_more = |name: &str| messages[name].as_f64() > Some(0.0);
        assert!(top["vertices"][1]["messages"].is_null(), "{top}");
        is_more("acked_per_s") && is_more("p99_s")
    });
    assert!(arena.succeed("top numbers --once").contains("acked/s"));
    job.end();
}

/// Returns the vertex for which a vertex waits, according to `top`.
fn waits_for(arena: &Arena, vertex: &str) -> Option<String> {
    let top = arena.json("top numbers --once");
    let vertices = top["vertices"].as_array().unwrap();
    let found = vertices.iter().find(|it| it["vertex"] == vertex).unwrap();
    found["waits_for"].as_str().map(str::to_string)
}

pub fn a_slow_step_slows_its_source_is_named_and_loses_nothing() {
    let job = NumbersJob::begun_with("--set queue_chunks=2", 5_000);
    let arena = &job.arena;
    job.until_more();
    fs::write(job.data.join("slow"), "").unwrap();
    for waiting in ["numbers", "pass"] {
        arena.until(&format!("{waiting} waits"), || {
            waits_for(arena, waiting).as_deref() == Some("record")
        });
    }
    let text = arena.succeed("top numbers --once");
    assert!(
        text.contains("record is slow: numbers, pass wait for it"),
        "{text}"
    );
    let cause = until_cause(arena, "numbers", "slow_sink");
    assert_eq!(cause["subject"], "record");
    let blocked = arena.metric("numbers", "numbers", "ardea_blocked_seconds_total");
    assert!(blocked > 0.0);
    fs::remove_file(job.data.join("slow")).unwrap();
    arena.until("nobody waits", || waits_for(arena, "numbers").is_none());
    job.until_more();
    job.end();
}

pub fn a_step_that_fails_again_and_again_is_named_and_not_those_behind_it() {
    let options = "--set queue_chunks=2 --set worker.instance_restarts=100";
    let job = NumbersJob::begun_with(options, 5_000);
    let arena = &job.arena;
    job.until_more();
    fs::write(job.data.join("trip-always"), "").unwrap();
    arena.until("numbers waits for pass", || {
        waits_for(arena, "numbers").as_deref() == Some("pass")
    });
    // Not because it is slow, as it may have seemed before its second failure.
    let told = "pass fails again and again: numbers waits for it\n";
    let text = || arena.succeed("top numbers --once");
    arena.until(told, || text().contains(told));
    assert_eq!(waits_for(arena, "pass"), None);
    fs::remove_file(job.data.join("trip-always")).unwrap();
    arena.until("nobody fails", || !text().contains("again and again"));
    job.until_more();
    job.end();
}
