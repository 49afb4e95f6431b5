//! Tests of the graphs of pipelines, and of refused pipelines.

use std::num::NonZeroU32;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::collections::items;
use ardea_connectors::null;
use ardea_core::{Error, ErrorCode, Parallelism, Timestamp};
use ardea_engine::{ExecutionPlan, NodeConfig};
use ardea_pipeline::{Combine, EarlyFiring, Pipeline, WatermarkPolicy, Weekday, Window};

fn threads(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn plan(p: &Pipeline, count: u32) -> Vec<String> {
    let plan = ExecutionPlan::of(&p.to_dag(threads(count)).unwrap(), threads(count), true).unwrap();
    plan.to_string().lines().map(str::to_string).collect()
}

fn windowed(window: Window) -> Pipeline {
    let p = Pipeline::new("windowed");
    p.read_from(items(vec![1i64]))
        .with_timestamps(
            |second| Timestamp::from_secs(*second),
            WatermarkPolicy::in_order(),
        )
        .key_by(|second| *second)
        .window(window)
        .aggregate("counts", count())
        .write_to(null::sink());
    p
}

fn refusal(p: &Pipeline) -> Error {
    p.to_dag(threads(2)).unwrap_err()
}

#[test]
fn steps_on_single_records_share_one_tasklet_with_their_source() {
    let p = Pipeline::new("chain");
    p.read_from(items(vec![1, 2, 3]))
        .map(|n| n + 1)
        .filter(|n| *n > 2)
        .map(|n| n * 2)
        .write_to(null::sink());
    assert_eq!(
        plan(&p, 2),
        ["1 × tasklet: items → map → filter → map-2 → null"]
    );
}

#[test]
fn a_latency_budget_holds_for_the_edges_of_its_stream_and_between_the_stages_of_the_next_step() {
    let p = Pipeline::new("budgets");
    let budget = Duration::from_millis(1);
    p.read_from(items(vec![1u64, 2, 3]))
        .map(|n| n + 1)
        .latency(budget)
        .key_by(|n| *n)
        .aggregate("counts", count())
        .write_to(null::sink());
    let dag = p.to_dag(threads(2)).unwrap();
    let name = |id| dag.get(id).name().to_string();
    let of_edges = dag
        .edges()
        .iter()
        .filter(|edge| edge.wanted_latency() == Some(budget));
    let of_edges: Vec<_> = of_edges.map(|edge| name(edge.source().0)).collect();
    assert_eq!(of_edges, ["map", "counts: partial"]);

    let p = Pipeline::new("too long");
    p.read_from(items(vec![1]))
        .latency(Duration::from_secs(2))
        .write_to(null::sink());
    let error = refusal(&p);
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(
        error.to_string().contains("latency budget of 2s"),
        "{error}"
    );
}

#[test]
fn a_parallelism_holds_for_its_step_and_those_that_follow() {
    let three = Parallelism::Exactly(threads(3));
    let p = Pipeline::new("parallel");
    p.read_from(items(vec![1, 2, 3]))
        .map(|n| n + 1)
        .named("first")
        .filter(|n| *n > 2)
        .named("second")
        .parallelism(three)
        .map(|n| n * 2)
        .named("third")
        .write_to(null::sink());
    assert_eq!(
        plan(&p, 2),
        [
            "1 × tasklet: items → first",
            "3 × tasklet: second → third",
            "1 × tasklet: null"
        ]
    );
}

#[test]
fn a_parallelism_may_be_a_plain_number_and_zero_is_refused_with_the_step_named() {
    let p = Pipeline::new("numbers");
    p.read_from(items(vec![1, 2, 3]))
        .map(|n| n)
        .named("parse")
        .parallelism(3)
        .write_to(null::sink());
    assert_eq!(plan(&p, 2)[1], "3 × tasklet: parse");
    for is_source in [true, false] {
        let p = Pipeline::new("none");
        let source = items(vec![1, 2, 3]);
        let source = match is_source {
            true => source.parallelism(0).named("parse"),
            false => source,
        };
        let records = p.read_from(source).map(|n| n);
        match is_source {
            true => records.write_to(null::sink()),
            false => records.named("parse").parallelism(0).write_to(null::sink()),
        }
        let text = refusal(&p).to_string();
        assert!(text.contains("\"parse\" has a parallelism of 0"), "{text}");
    }
}

#[test]
fn a_sample_of_one_in_a_plain_number_and_none_of_zero() {
    let p = Pipeline::new("sampled");
    let out = p
        .read_from(items((0..10).collect::<Vec<u32>>()))
        .sample(4)
        .collect();
    p.run_with(NodeConfig {
        pin: false,
        ..NodeConfig::with_threads(1)
    })
    .unwrap();
    assert_eq!(out.take(), [0, 4, 8]);
    let p = Pipeline::new("none");
    p.read_from(items(vec![1])).sample(0).write_to(null::sink());
    let text = refusal(&p).to_string();
    assert!(text.contains("one of 0 records"), "{text}");
}

#[test]
fn records_are_spread_over_a_step_with_more_instances_and_none_is_lost() {
    let p = Pipeline::new("spread");
    let out = p
        .read_from(items((0..5_000).collect::<Vec<u32>>()))
        .map(|n| n)
        .named("wide")
        .parallelism(Parallelism::Exactly(threads(3)))
        .map(|n| n)
        .collect();
    p.run_with(NodeConfig {
        pin: false,
        ..NodeConfig::with_threads(2)
    })
    .unwrap();
    assert_eq!(out.take_sorted(), (0..5_000).collect::<Vec<u32>>());
}

#[test]
fn several_instances_of_a_step_that_has_one_are_refused() {
    let p = Pipeline::new("sorted");
    p.read_from(items(vec![1, 2, 3]))
        .sort_by_key("numbers", |n| *n)
        .parallelism(Parallelism::Auto)
        .write_to(null::sink());
    let text = refusal(&p).to_string();
    assert!(
        text.contains("numbers") && text.contains("parallelism"),
        "{text}"
    );
}

#[test]
fn one_thread_runs_a_windowed_job_as_one_tasklet() {
    let p = windowed(Window::tumbling(Duration::from_secs(10)));
    assert_eq!(
        plan(&p, 1),
        ["1 × tasklet: items → timestamps → counts → null"]
    );
}

#[test]
fn several_threads_aggregate_in_two_stages() {
    let p = windowed(Window::tumbling(Duration::from_secs(10)));
    let plan = plan(&p, 3);
    assert_eq!(plan[0], "1 × tasklet: items → timestamps → counts: partial");
    assert_eq!(plan[1], "3 × tasklet: counts");
}

/// Returns a windowed pipeline, and one that groups its whole input, that combine so.
fn combining(combine: Combine, window: Window) -> [Pipeline; 2] {
    let (windows, groups) = (Pipeline::new("windows"), Pipeline::new("groups"));
    let seconds = |p: &Pipeline| {
        p.read_from(items(vec![1i64]))
            .with_timestamps(
                |second| Timestamp::from_secs(*second),
                WatermarkPolicy::in_order(),
            )
            .key_by(|second| *second)
            .combine(combine)
    };
    seconds(&windows)
        .window(window)
        .aggregate("counts", count())
        .write_to(null::sink());
    seconds(&groups)
        .aggregate("counts", count())
        .write_to(null::sink());
    [windows, groups]
}

#[test]
fn records_are_combined_before_or_after_their_exchange_as_set() {
    let tumbling = Window::tumbling(Duration::from_secs(10));
    for (combine, count, is_before) in [
        (Combine::Auto, 1, false),
        (Combine::Auto, 3, true),
        (Combine::BeforeExchange, 1, true),
        (Combine::BeforeExchange, 3, true),
        (Combine::AfterExchange, 1, false),
        (Combine::AfterExchange, 3, false),
    ] {
        for p in combining(combine, tumbling) {
            let plan = plan(&p, count).join("\n");
            let has_stage = plan.contains("counts: partial");
            assert_eq!(has_stage, is_before, "{combine:?}, {count} threads: {plan}");
        }
    }
}

#[test]
fn what_needs_all_records_in_one_place_is_not_combined_before_the_exchange() {
    let second = Duration::from_secs(1);
    let late = Window::tumbling(second).allowed_lateness(second);
    for (window, word) in [(late, "lateness"), (Window::session(second), "sessions")] {
        let [p, _] = combining(Combine::BeforeExchange, window);
        let text = refusal(&p).to_string();
        assert!(text.contains("counts") && text.contains(word), "{text}");
        for combine in [Combine::Auto, Combine::AfterExchange] {
            let [p, _] = combining(combine, window);
            assert!(!plan(&p, 3).join("\n").contains("partial"));
        }
    }
}

#[test]
fn only_steps_that_somebody_named_have_a_name_of_their_own() {
    let p = windowed(Window::tumbling(Duration::from_secs(10)));
    let dag = p.to_dag(threads(3)).unwrap();
    let named = |name: &str| {
        let vertex = dag
            .vertices()
            .iter()
            .find(|vertex| &**vertex.name() == name);
        !vertex.unwrap().has_generated_name()
    };
    assert!(named("counts"));
    assert!(!named("counts: partial") && !named("timestamps"));
}

#[test]
fn compiling_twice_gives_the_same_graph() {
    let p = windowed(Window::tumbling(Duration::from_secs(10)));
    assert_eq!(plan(&p, 2), plan(&p, 2));
}

#[test]
fn windows_that_make_no_sense_are_refused_with_their_numbers() {
    for (window, word) in [
        (Window::tumbling(Duration::ZERO), "0ns"),
        (
            Window::sliding(Duration::from_secs(10), Duration::ZERO),
            "0ns",
        ),
        (
            Window::sliding(Duration::from_secs(10), Duration::from_secs(3)),
            "10s",
        ),
        (Window::session(Duration::ZERO), "gap"),
        (Window::daily("Europe/Berlni"), "Europe/Berlin"),
        (Window::weekly("", Weekday::Monday), "time zone \"\""),
        (
            Window::monthly("UTC").offset(Duration::from_secs(28 * 86_400)),
            "28 days",
        ),
    ] {
        let error = refusal(&windowed(window));
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("counts"), "{text}");
    }
}

#[test]
fn early_results_of_sessions_are_refused_rather_than_left_out() {
    let p = Pipeline::new("early");
    p.read_from(items(vec![1i64]))
        .with_timestamps(
            |second| Timestamp::from_secs(*second),
            WatermarkPolicy::in_order(),
        )
        .key_by(|second| *second)
        .window(Window::session(Duration::from_secs(1)))
        .early(EarlyFiring::each_records(1).unwrap())
        .aggregate("counts", count())
        .write_to(null::sink());
    assert!(refusal(&p).to_string().contains("session"));
}

#[test]
fn a_result_that_goes_nowhere_is_refused_by_name() {
    let p = Pipeline::new("nowhere");
    let _ = p.read_from(items(vec![1])).map(|n| n + 1).named("plus one");
    let text = refusal(&p).to_string();
    assert!(
        text.contains("plus one") && text.contains("write_to"),
        "{text}"
    );
}

#[test]
fn two_steps_of_one_name_are_refused() {
    let p = Pipeline::new("twins");
    let numbers = p
        .read_from(items(vec![1u32]))
        .key_by(|n| *n)
        .distinct("same");
    numbers
        .key_by(|n| *n)
        .distinct("same")
        .write_to(null::sink());
    assert!(refusal(&p).to_string().contains("\"same\""));
}

#[test]
fn a_stream_joined_with_its_own_table_is_refused() {
    let p = Pipeline::new("own table");
    let (stream, table) = p.read_from(items(vec![1u32])).tee();
    stream
        .hash_join("own", table, |n| *n, |n| *n, |n, _| *n)
        .write_to(null::sink());
    assert!(
        refusal(&p)
            .to_string()
            .contains("waits for the other's end")
    );
}
