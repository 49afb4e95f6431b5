//! `ardea bench`: runs benchmarks, with results as JSON or, on a terminal, as a table.

mod active_active;
mod breakdown;
mod checkpoint;
mod exchange;
mod failover;
mod fixed;
mod forward;
mod grid;
mod guarantee_arg;
mod latency;
mod nexmark;
mod pairs;
mod recovery;
mod repeat;
mod rescale;
mod soak;
mod stages;
mod state;
mod submit;
mod sweep;
mod table;
mod wakeup;
mod word_job;
mod wordcount;
mod ysb;

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

/// The subcommands of `ardea bench`.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Throughput, or latency at a rate, of a NEXMark query, compared with a plain loop
    Nexmark(nexmark::NexmarkBenchArgs),
    /// The Yahoo streaming benchmark on a cluster; can kill a worker, the job's leader or a host
    Ysb(ysb::YsbBenchArgs),
    /// Cost of incremental checkpoints of large state, and their effect on latency
    Checkpoint(checkpoint::CheckpointBenchArgs),
    /// Outage after a worker of a job with large state is killed; checks for lost and duplicate
    /// results
    Failover(failover::FailoverBenchArgs),
    /// Throughput, or latency at a rate, of a word count topology, with or without acks, in one or
    /// several containers
    Wordcount(wordcount::WordcountBenchArgs),
    /// Word count for hours: growth of memory, stability of throughput
    Soak(soak::SoakBenchArgs),
    /// Latency of a tuple through a chain of steps, split into queueing, transport and work
    Latency(latency::LatencyBenchArgs),
    /// End-to-end latency of a pipeline of many stages
    Stages(stages::StagesBenchArgs),
    /// State of many keys: in memory, and on disk with a tenth of that memory
    State(state::StateBenchArgs),
    /// CPU cost of an idle job, and its wakeup latency
    Wakeup(wakeup::WakeupBenchArgs),
    /// Throughput, or latency at a rate, of records from one worker to another over TCP
    Exchange(exchange::ExchangeBenchArgs),
    /// Cost of forwarding frames that are addressed to another worker
    Forward(forward::ForwardBenchArgs),
    /// Cost of reading and writing a map in the memory of several members
    Grid(grid::GridBenchArgs),
    /// Time from submitting a job until its first record has passed through
    Submit(submit::SubmitBenchArgs),
    /// Outage after a worker is killed
    Recovery(recovery::RecoveryBenchArgs),
    /// Effect of killing one of two replicas of an active-active job
    ActiveActive(active_active::ActiveActiveBenchArgs),
    /// Effect of changing a job's number of workers, compared with the same job unchanged
    Rescale(rescale::RescaleBenchArgs),
    /// CPU time of the stages from Kafka through a filter and an aggregation to Redis
    Breakdown(breakdown::BreakdownBenchArgs),
}

/// The options of every benchmark.
#[derive(clap::Args, Debug)]
struct Repeat {
    /// Number of runs; several also report the best and the median of every figure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

/// Runs a benchmark.
pub fn run(command: &BenchCommand, context: &Context) -> Result<(), Failure> {
    match command {
        BenchCommand::Nexmark(args) => nexmark::run(args, context),
        BenchCommand::Ysb(args) => ysb::run(args, context),
        BenchCommand::Checkpoint(args) => checkpoint::run(args, context),
        BenchCommand::Failover(args) => failover::run(args, context),
        BenchCommand::Wordcount(args) => wordcount::run(args, context),
        BenchCommand::Soak(args) => soak::run(args, context),
        BenchCommand::Latency(args) => latency::run(args, context),
        BenchCommand::Stages(args) => stages::run(args, context),
        BenchCommand::State(args) => state::run(args, context),
        BenchCommand::Wakeup(args) => wakeup::run(args, context),
        BenchCommand::Exchange(args) => exchange::run(args, context),
        BenchCommand::Forward(args) => forward::run(args, context),
        BenchCommand::Grid(args) => grid::run(args, context),
        BenchCommand::Submit(args) => submit::run(args, context),
        BenchCommand::Recovery(args) => recovery::run(args, context),
        BenchCommand::ActiveActive(args) => active_active::run(args, context),
        BenchCommand::Rescale(args) => rescale::run(args, context),
        BenchCommand::Breakdown(args) => breakdown::run(args, context),
    }
}
