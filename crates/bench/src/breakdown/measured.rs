//! The measurement of the breakdown.

use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::sum;
use ardea_connectors::generate::sequence;
use ardea_connectors::kafka::{SourceCosts, read, write as write_kafka};
use ardea_connectors::redis::{Commands, SinkCosts, write as write_redis};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::{Pipeline, WatermarkPolicy, Window, WindowResult};
use serde_json::json;

use super::BreakdownParams;
use super::columns::{self, CampaignSum};
use super::cpu_times::{CpuTimes, Shares};
use super::work::{self, Event, amount, campaign, event, is_wanted, replayed, time};
use crate::bounds::{check_threads, refused};
use crate::report::{Field, Report, rounded, seconds};
use crate::usage::{Spent, Stopwatch};

/// Poll interval of the CPU clocks of threads. Work that a thread does after its last reading is
/// not counted.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// Invalid parameters, failures of the two jobs, and a kernel that does not report the CPU time of
/// threads.
pub(super) fn run(params: &BreakdownParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    check_threads(params.threads)?;
    if params.records == 0 {
        return Err(refused("without records there is nothing to measure"));
    }
    let topic = format!(
        "ardea-bench-{}-{}",
        std::process::id(),
        crate::usage::monotonic_nanos()
    );
    progress("writing the records to Kafka");
    fill(params, &topic)?;
    progress("reading, filtering, aggregating and writing to Redis");
    let measured = measure(params, &topic)?;
    // Expressions on columns are functions of the engine.
    let user = match params.columns {
        true => Duration::ZERO,
        false => {
            progress("running the same functions in a plain loop");
            replayed(params.records)
        }
    };
    Ok(report(params, &measured, user))
}

/// The measurements of a run.
struct Measured {
    spent: Spent,
    ledger: CpuTimes,
    source: Arc<SourceCosts>,
    sink: Arc<SinkCosts>,
}

fn node(params: &BreakdownParams) -> Result<Node> {
    let threads = std::num::NonZeroU32::new(params.threads).unwrap_or(std::num::NonZeroU32::MIN);
    Node::start(NodeConfig {
        threads,
        ..NodeConfig::default()
    })
}

fn fill(params: &BreakdownParams, topic: &str) -> Result<()> {
    let p = Pipeline::new("fill");
    p.read_from(sequence(0..params.records, |i| (i, event(i))))
        .with_timestamps(|(i, _)| time(*i), WatermarkPolicy::in_order())
        .write_to_local(write_kafka(
            &params.kafka,
            topic,
            |(_, event): &(u64, Event), out| {
                serde_json::to_writer(out.value_mut(), event).map_err(|error| error.to_string())
            },
        ));
    p.submit(&node(params)?, JobConfig::default())?.join()
}

fn measure(params: &BreakdownParams, topic: &str) -> Result<Measured> {
    let (source, sink) = (Arc::<SourceCosts>::default(), Arc::<SinkCosts>::default());
    let p = Pipeline::new("breakdown");
    let messages = read(&params.kafka, topic).until_present();
    let messages = messages.measure(Arc::clone(&source));
    match params.columns {
        true => columns::aggregate(&p, messages).write_to_local(
            write_redis(
                &params.redis,
                |result: &CampaignSum, commands: &mut Commands| {
                    commands.hset("ardea-bench", result.campaign, result.sum.unwrap_or(0));
                },
            )
            .measure(Arc::clone(&sink)),
        ),
        false => p
            .read_from(messages.json::<Event>().build())
            .with_source_time()
            .filter(is_wanted)
            .key_by(campaign)
            .window(Window::tumbling(work::WINDOW))
            .aggregate("sum", sum(amount))
            .write_to_local(
                write_redis(
                    &params.redis,
                    |result: &WindowResult<u32, i128>, commands: &mut Commands| {
                        commands.hset("ardea-bench", result.key, result.value);
                    },
                )
                .measure(Arc::clone(&sink)),
            ),
    }
    let meanwhile = Stopwatch::begin();
    let mut ledger = CpuTimes::open()?;
    let node = node(params)?;
    let job = p.submit(&node, JobConfig::default())?;
    while !job.wait(POLL_INTERVAL).is_over() {
        ledger.read_clocks()?;
    }
    ledger.read_clocks()?;
    let spent = meanwhile.spent();
    job.join()?;
    let bad = job.dead_letters().count();
    if source.records() < params.records || bad > 0 {
        let what = format!(
            "{} of {} records came through, {bad} of them bad",
            source.records(),
            params.records
        );
        return Err(Error::new(ErrorCode::ReadFailed, what));
    }
    Ok(Measured {
        spent,
        ledger,
        source,
        sink,
    })
}

fn report(params: &BreakdownParams, measured: &Measured, user: Duration) -> Report {
    let Measured {
        spent,
        ledger,
        source,
        sink,
    } = measured;
    let shares = Shares {
        cpu: spent.cpu,
        fetch: source.fetch() + ledger.kafka(),
        deserialise: source.decode(),
        user,
        sink: sink.encode() + ledger.redis(),
        meter: ledger.meter(),
        job_threads: ledger.job(),
        inside: source.fetch() + source.decode() + user + sink.encode(),
    };
    let per_record = |time: Duration| rounded(time.as_nanos() as f64 / params.records as f64, 10.0);
    let share = |time: Duration| rounded(time.as_secs_f64() / spent.cpu.as_secs_f64(), 1e4);
    let mut figures: Vec<Field> = vec![
        ("duration_s", json!(seconds(spent.wall))),
        ("cpu_seconds", json!(seconds(spent.cpu))),
        (
            "records_per_cpu_s",
            json!(spent.per_cpu_second(params.records).map(f64::round)),
        ),
        ("results", json!(sink.records())),
        ("fetch_threads_s", json!(seconds(ledger.kafka()))),
        ("sink_threads_s", json!(seconds(ledger.redis()))),
    ];
    for (names, time) in shares.parts() {
        figures.extend([
            (names[0], json!(seconds(time))),
            (names[1], json!(share(time))),
            (names[2], json!(per_record(time))),
        ]);
    }
    Report {
        bench: "breakdown",
        parameters: vec![
            ("kafka", json!(params.kafka)),
            ("records", json!(params.records)),
            ("threads", json!(params.threads)),
            ("columns", json!(params.columns)),
        ],
        figures,
    }
}
