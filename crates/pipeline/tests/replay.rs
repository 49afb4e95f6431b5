//! Tests that recorded micro-batches of every kind of step give the same output when they are
//! replayed, and that a step that is not deterministic is found.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ardea_aggregate::{collect_list, count, max, sum};
use ardea_connectors::collections::items;
use ardea_connectors::null;
use ardea_core::{Bounded, Dag, ErrorCode, Timestamp};
use ardea_engine::{
    ExecutionMode, Job, MicroBatchConfig, NodeConfig, RecordedRun, ReplayReport,
    recordable_vertices, replay,
};
use ardea_pipeline::{JoinInterval, Local, Pipeline, Stream, Timed, WatermarkPolicy, Window};

/// A key, a second and an amount.
type Sale = (u16, i64, i64);

fn sales(p: &Pipeline, records: i64) -> Stream<Sale, Bounded, Timed> {
    let sales = (0..records).map(|n| ((n * n % 97) as u16, n / 20 - n % 13, n % 1_000));
    p.read_from(items(sales.collect::<Vec<Sale>>()))
        .with_timestamps(
            |sale| Timestamp::from_secs(sale.1),
            WatermarkPolicy::out_of_order(Duration::from_secs(20)),
        )
        .recordable()
}

fn node(record: &Path, record_bytes: u64) -> NodeConfig {
    NodeConfig {
        mode: ExecutionMode::MicroBatch,
        micro_batch: MicroBatchConfig {
            records: 200.try_into().ok(),
            record: Some(record.to_path_buf()),
            record_bytes,
            ..MicroBatchConfig::default()
        },
        chunk_records: 64.try_into().unwrap(),
        pin: false,
        ..NodeConfig::with_threads(2)
    }
}

/// Runs a pipeline, and replays all instances of all recorded steps. Returns the reports.
fn replayed(p: &Pipeline, record_bytes: u64) -> (Dag, Vec<ReplayReport>) {
    let folder = tempfile::tempdir().unwrap();
    p.run_with(node(folder.path(), record_bytes)).unwrap();
    let run = RecordedRun::find(folder.path(), p.name(), None).unwrap();
    let dag = p.graph(run.threads()).unwrap();
    let recorded = recordable_vertices(&dag).into_iter();
    let mut reports = Vec::new();
    for (vertex, _) in recorded.filter(|(_, reason)| reason.is_none()) {
        let first = run.instance(&dag, &vertex, 0).unwrap();
        for instance in 0..first.instance().parallelism {
            let recording = run.instance(&dag, &vertex, instance).unwrap();
            reports.push(replay(&dag, &recording, None, None).unwrap());
        }
    }
    (dag, reports)
}

/// Runs a pipeline, and checks that all steps with these names are recorded and replayed. Returns
/// the number of instances whose first micro-batches are not retained.
fn all_are_equal(p: &Pipeline, record_bytes: u64, names: &[&str]) -> usize {
    let (dag, reports) = replayed(p, record_bytes);
    for report in &reports {
        assert!(report.is_equal(), "{report}");
    }
    for name in names {
        let own = reports.iter().filter(|report| report.vertex == *name);
        let items: u64 = own.map(|report| report.items_out).sum();
        assert!(items > 0, "{name} of {:?}", recordable_vertices(&dag));
    }
    let firsts = reports.iter().filter_map(|report| report.micro_batches);
    firsts.filter(|(first, _)| first.0 > 0).count()
}

fn windows() -> Pipeline {
    let p = Pipeline::new("windows");
    let [sums, tops, sessions] = sales(&p, 8_000).tee_n::<3>();
    let by_key = |sale: &Sale| sale.0;
    sums.filter(|sale| sale.2 > 3)
        .key_by(by_key)
        .window(Window::sliding(
            Duration::from_secs(60),
            Duration::from_secs(10),
        ))
        .aggregate("sums", sum(|sale: &Sale| sale.2))
        .recordable()
        .map(|result| (result.key, result.value))
        .write_to(null::sink());
    tops.key_by(by_key)
        .window(Window::tumbling(Duration::from_secs(30)))
        .aggregate("tops", collect_list())
        .write_to(null::sink());
    sessions
        .key_by(by_key)
        .window(Window::session(Duration::from_secs(15)))
        .aggregate("sessions", max(|sale: &Sale| sale.2))
        .write_to(null::sink());
    p
}

fn keyed() -> Pipeline {
    let p = Pipeline::new("keyed");
    let [totals, states, unique, sorted] = sales(&p, 6_000).tee_n::<4>();
    totals
        .key_by(|sale| sale.0)
        .rolling("totals", count())
        .write_to(null::sink());
    states
        .key_by(|sale| sale.0)
        .flat_map_stateful(
            "changes",
            || 0i64,
            |last, key, sale| {
                let change = sale.2 - *last;
                *last = sale.2;
                vec![(*key, change); (change % 5).unsigned_abs() as usize]
            },
        )
        .write_to(null::sink());
    unique
        .map(|sale| sale.2)
        .key_by(|amount| *amount)
        .distinct("amounts")
        .map(|amount| amount.to_string())
        .write_to(null::sink());
    sorted
        .key_by(|sale| sale.0)
        .aggregate("groups", sum(|sale: &Sale| sale.2))
        .write_to(null::sink());
    p
}

fn joins() -> Pipeline {
    let p = Pipeline::new("joins");
    let names: Vec<(u16, String)> = (0..50).map(|n| (n, format!("key {n}"))).collect();
    let table = p.read_from(items(names));
    let [left, right] = sales(&p, 3_000).tee_n::<2>();
    left.key_by(|sale| sale.0)
        .interval_join(
            "near",
            right.key_by(|sale| sale.0),
            JoinInterval::between(Duration::from_secs(3), Duration::from_secs(3)),
            |a, b| (a.0, a.2 + b.2),
        )
        .recordable()
        .hash_join(
            "names",
            table,
            |near| near.0,
            |row| row.0,
            |near, row| (row.1.clone(), near.1),
        )
        .write_to(null::sink());
    p
}

#[test]
fn windows_give_the_same_bytes() {
    assert_eq!(
        all_are_equal(&windows(), 1 << 30, &["sums", "tops", "sessions", "filter"]),
        0
    );
}

#[test]
fn windows_give_the_same_bytes_from_a_recorded_state() {
    let restored = all_are_equal(&windows(), 256 << 10, &["sums", "tops", "sessions"]);
    assert!(restored > 3, "{restored}");
}

#[test]
fn keyed_steps_give_the_same_bytes() {
    let names = ["totals", "changes", "amounts", "groups", "map"];
    assert_eq!(all_are_equal(&keyed(), 1 << 30, &names), 0);
}

#[test]
fn keyed_steps_give_the_same_bytes_from_a_recorded_state() {
    let restored = all_are_equal(&keyed(), 64 << 10, &["totals", "changes", "amounts"]);
    assert!(restored > 3, "{restored}");
}

#[test]
fn joins_give_the_same_bytes() {
    assert_eq!(all_are_equal(&joins(), 1 << 30, &["near", "names"]), 0);
}

#[test]
fn joins_give_the_same_bytes_from_a_recorded_state() {
    let restored = all_are_equal(&joins(), 64 << 10, &["near", "names"]);
    assert!(restored > 3, "{restored}");
}

#[test]
fn a_step_that_reads_the_clock_or_a_counter_is_found_and_others_are_not() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let p = Pipeline::new("liars");
    let numbers = p.read_from(items((0..2_000u64).collect::<Vec<u64>>()));
    numbers
        .map(|n| n + 1)
        .named("honest")
        .map(|n| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            n + u64::from(now.subsec_nanos())
        })
        .named("clock")
        .map(|n| n % 7)
        .named("honest too")
        .map(|n| n + CALLS.fetch_add(1, Ordering::SeqCst))
        .named("counter")
        .write_to(null::sink());
    let (_, reports) = replayed(&p, 1 << 30);
    let found = reports.iter().filter(|report| !report.is_equal());
    let found: Vec<&str> = found.map(|report| &*report.vertex).collect();
    assert_eq!(found, ["clock", "counter"]);
    assert_eq!(reports.len(), 4);
}

#[test]
fn a_step_with_records_without_a_codec_is_not_recorded() {
    let p = Pipeline::new("local");
    p.read_from(items(vec![1u32, 2]))
        .map(Local)
        .named("wrap")
        .map(|n| n.0)
        .named("unwrap")
        .key_by(|n| *n)
        .rolling("counts", count())
        .write_to(null::sink());
    let dag = p.graph(2.try_into().unwrap()).unwrap();
    let vertices = recordable_vertices(&dag);
    let reason = |name: &str| {
        let found = vertices.iter().find(|(vertex, _)| &**vertex == name);
        found.unwrap().1.clone().unwrap_or_default()
    };
    assert!(reason("wrap").contains("its records to \"unwrap\" have no codec"));
    assert!(reason("unwrap").contains("its records from \"wrap\" have no codec"));
    assert_eq!(reason("counts"), "");
}

#[test]
fn a_graph_for_a_cluster_gets_no_codecs_for_recordings() {
    let p = keyed();
    let dag = p.program(&Default::default()).unwrap().dag;
    let is_forward = |name: &str| name == "forward";
    let edges = dag.edges().iter();
    let without = edges.filter(|edge| edge.wanted_codec().is_none());
    let names: Vec<&str> = without.map(|edge| edge.wanted_routing().name()).collect();
    assert!(!names.is_empty() && names.into_iter().all(is_forward));
}

#[test]
fn a_recording_of_a_job_without_micro_batches_is_refused() {
    let p = keyed();
    let error = p
        .run_with(NodeConfig {
            mode: ExecutionMode::Continuous,
            ..node(Path::new("recording"), 1 << 20)
        })
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
}
