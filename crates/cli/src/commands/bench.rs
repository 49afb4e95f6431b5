//! `ardea bench`: runs benchmarks, with results as JSON or, on a terminal, as a table.
//!
//! A benchmark's options are its parameters in [`ardea_bench`]. This module adds the options that
//! repeat a run.

mod pairs;
mod repeat;
mod scheduling_series;
mod series;
mod soak;
mod sweep;
mod table;

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_bench::active_active::{self, ActiveActiveParams};
use ardea_bench::breakdown::BreakdownParams;
use ardea_bench::checkpoint::CheckpointParams;
use ardea_bench::exchange::ExchangeParams;
use ardea_bench::failover::FailoverParams;
use ardea_bench::grid::GridParams;
use ardea_bench::input::InputParams;
use ardea_bench::ipc::{self, IpcParams};
use ardea_bench::latency::LatencyParams;
use ardea_bench::layouts::{self, KneeParams, LayoutsParams};
use ardea_bench::nexmark::NexmarkParams;
use ardea_bench::placement::PlacementParams;
use ardea_bench::recovery::RecoveryParams;
use ardea_bench::rescale::RescaleParams;
use ardea_bench::scheduling::SchedulingParams;
use ardea_bench::sgd::SgdParams;
use ardea_bench::stages::StagesParams;
use ardea_bench::state::StateParams;
use ardea_bench::submit::SubmitParams;
use ardea_bench::wakeup::WakeupParams;
use ardea_bench::windows::WindowsParams;
use ardea_bench::wordcount::SoakParams;
use ardea_bench::ysb::YsbParams;
use ardea_bench::{Bench, WithGuarantee};
use clap::{Args, Subcommand};

use sweep::WordcountBenchArgs;

/// The columns of `ardea bench layouts`.
const LAYOUTS: [&str; 8] = [
    "layout",
    "packing",
    "transport",
    ">mean_ms",
    ">p50_ms",
    ">p99_ms",
    ">inside_hosts_percent",
    ">expected_inside_hosts_percent",
];

/// The columns of `ardea bench knee`.
const KNEE: [&str; 7] = [
    ">rate",
    "position",
    ">offered_per_s",
    ">tuples_per_s",
    ">mean_ms",
    ">p50_ms",
    ">p99_ms",
];

/// The subcommands of `ardea bench`.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Throughput, or latency at a rate, of a NEXMark query, compared with a plain loop
    Nexmark(GuaranteeBenchArgs<NexmarkParams>),
    /// The Yahoo streaming benchmark on a cluster; can kill a worker, the job's leader or a host
    Ysb(GuaranteeBenchArgs<YsbParams>),
    /// Cost of incremental checkpoints of large state, and their effect on latency
    Checkpoint(GuaranteeBenchArgs<CheckpointParams>),
    /// Outage after a worker of a job with large state is killed; checks for lost and duplicate
    /// results
    Failover(GuaranteeBenchArgs<FailoverParams>),
    /// Throughput, or latency at a rate, of a word count topology, with or without acks, in one or
    /// several containers
    Wordcount(WordcountBenchArgs),
    /// Word count for hours: growth of memory, stability of throughput
    Soak(SoakParams),
    /// Latency of a tuple through a chain of steps, split into queueing, transport and work
    Latency(BenchArgs<LatencyParams>),
    /// Latency of topologies over hosts and workers, by transport and packing policy
    Layouts(LayoutsParams),
    /// Latency of a topology at increasing rates, until backpressure limits it
    Knee(KneeParams),
    /// End-to-end latency of a pipeline of many stages
    Stages(BenchArgs<StagesParams>),
    /// State of many keys: in memory, and on disk with a tenth of that memory
    State(BenchArgs<StateParams>),
    /// Checkpoints of sliding windows, in the format of the window operator and in the state
    /// backend
    Windows(BenchArgs<WindowsParams>),
    /// CPU cost of an idle job, and its wakeup latency
    Wakeup(BenchArgs<WakeupParams>),
    /// Throughput, or latency at a rate, of records from one worker to another over TCP
    Exchange(BenchArgs<ExchangeParams>),
    /// Latency at a rate, or throughput, of messages from other processes through a ring in shared
    /// memory, Unix sockets or TCP
    Ipc {
        /// The benchmark.
        #[command(flatten)]
        bench: BenchArgs<IpcParams>,
        /// Run as one of the producers (internal)
        #[arg(long, value_name = "JSON", hide = true)]
        copy: Option<String>,
    },
    /// Cost of reading and writing a map in the memory of several members
    Grid(BenchArgs<GridParams>),
    /// Queries over JSON lines, CSV and text, compared with a plain loop and DuckDB
    Input(BenchArgs<InputParams>),
    /// Time from submitting a job until its first record has passed through
    Submit(BenchArgs<SubmitParams>),
    /// Outage after a worker is killed
    Recovery(BenchArgs<RecoveryParams>),
    /// Effect of killing one of two replicas of an active-active job
    ActiveActive {
        /// The benchmark.
        #[command(flatten)]
        bench: BenchArgs<ActiveActiveParams>,
        /// Run as one of the replicas (internal)
        #[arg(long, value_name = "JSON", hide = true)]
        copy: Option<String>,
    },
    /// Effect of changing a job's number of workers, compared with the same job unchanged
    Rescale(BenchArgs<RescaleParams>),
    /// Cost of coordinating micro-batches of processes or of many simulated workers, traces of the
    /// tuned interval of checkpoints, or effects of the number of micro-batches between two
    Scheduling(BenchArgs<SchedulingParams>),
    /// Planning time of placement by traffic, and traffic between hosts compared with round robin
    Placement(BenchArgs<PlacementParams>),
    /// Time and bytes of an iteration of logistic regression, compared with its arithmetic alone
    Sgd(BenchArgs<SgdParams>),
    /// CPU time of the stages from Kafka through a filter and an aggregation to Redis
    Breakdown(BenchArgs<BreakdownParams>),
}

/// The number of runs.
#[derive(Args, Debug)]
struct Repeat {
    /// Number of runs; several also report the best and the median of every figure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

/// A benchmark, run several times; each result contains the values of its options.
#[derive(Args, Debug)]
pub struct BenchArgs<B: Bench> {
    #[command(flatten)]
    params: B,
    #[command(flatten)]
    repeat: Repeat,
}

impl<B: Bench> BenchArgs<B> {
    fn run(&self, context: &Context) -> Result<(), Failure> {
        repeat::run(self.repeat.repeat, context, |progress| {
            self.params.run(progress)
        })
    }
}

/// A benchmark that can be compared with the same without its guarantee.
#[derive(Args, Debug)]
pub struct GuaranteeBenchArgs<B: WithGuarantee> {
    #[command(flatten)]
    bench: BenchArgs<B>,
    /// Run in pairs, first without the guarantee, and report its cost at the end
    #[arg(long)]
    both: bool,
}

impl<B: WithGuarantee> GuaranteeBenchArgs<B> {
    fn run(&self, context: &Context) -> Result<(), Failure> {
        let with = &self.bench.params;
        if !self.both {
            return self.bench.run(context);
        }
        if !with.keeps_state() {
            return Err(Failure::usage(
                "--both compares runs with a guarantee with runs without",
                "add --guarantee exactly-once, or leave --both out",
            ));
        }
        let without = with.without_guarantee();
        pairs::run(
            self.bench.repeat.repeat,
            context,
            |is_second, progress| match is_second {
                true => with.run(progress),
                false => without.run(progress),
            },
        )
    }
}

/// Runs a benchmark.
pub fn run(command: &BenchCommand, context: &Context) -> Result<(), Failure> {
    match command {
        BenchCommand::Nexmark(bench) => bench.run(context),
        BenchCommand::Ysb(bench) => bench.run(context),
        BenchCommand::Checkpoint(bench) => bench.run(context),
        BenchCommand::Failover(bench) => bench.run(context),
        BenchCommand::Wordcount(args) => sweep::run(args, context),
        BenchCommand::Soak(params) => soak::run(params, context),
        BenchCommand::Latency(bench) => bench.run(context),
        BenchCommand::Layouts(params) => series::run(&LAYOUTS, context, |progress, report| {
            layouts::run_layouts(params, progress, report)
        }),
        BenchCommand::Knee(params) => series::run(&KNEE, context, |progress, report| {
            layouts::run_knee(params, progress, report)
        }),
        BenchCommand::Stages(bench) => bench.run(context),
        BenchCommand::State(bench) => bench.run(context),
        BenchCommand::Windows(bench) => bench.run(context),
        BenchCommand::Wakeup(bench) => bench.run(context),
        BenchCommand::Exchange(bench) => bench.run(context),
        BenchCommand::Ipc {
            copy: Some(copy), ..
        } => Ok(ipc::run_producer(copy)?),
        BenchCommand::Ipc { bench, copy: None } => bench.run(context),
        BenchCommand::Grid(bench) => bench.run(context),
        BenchCommand::Input(bench) => bench.run(context),
        BenchCommand::Submit(bench) => bench.run(context),
        BenchCommand::Recovery(bench) => bench.run(context),
        BenchCommand::ActiveActive {
            copy: Some(copy), ..
        } => Ok(active_active::run_replica(copy)?),
        BenchCommand::ActiveActive { bench, copy: None } => bench.run(context),
        BenchCommand::Rescale(bench) => bench.run(context),
        BenchCommand::Scheduling(bench) => scheduling_series::run(bench, context),
        BenchCommand::Placement(bench) => bench.run(context),
        BenchCommand::Sgd(bench) => bench.run(context),
        BenchCommand::Breakdown(bench) => bench.run(context),
    }
}
