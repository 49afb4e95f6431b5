//! `ardea bench`: measures, and tells it as JSON or, on a terminal, as a table.

mod breakdown;
mod exchange;
mod failover;
mod fixed;
mod forward;
mod grid;
mod latency;
mod nexmark;
mod pairs;
mod promise;
mod recovery;
mod repeat;
mod rescale;
mod snapshot;
mod soak;
mod stages;
mod state;
mod submit;
mod sweep;
mod table;
mod twins;
mod wakeup;
mod word_job;
mod wordcount;
mod ysb;

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

/// `ardea bench …`.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Throughput, or latency at a rate, of a NEXMark query, beside a plain loop that computes the same
    Nexmark(nexmark::NexmarkBenchArgs),
    /// The Yahoo streaming benchmark on a cluster, of which a worker, the job's master or a host may be killed
    Ysb(ysb::YsbBenchArgs),
    /// What a snapshot of much state takes of which little has changed, and what records feel of it
    Snapshot(snapshot::SnapshotBenchArgs),
    /// How long results are missed when a worker of a job with much state is killed, and whether any is lost or comes twice
    Failover(failover::FailoverBenchArgs),
    /// Throughput, or latency at a rate, of word count as a topology, with or without acks, in one container or several
    Wordcount(wordcount::WordcountBenchArgs),
    /// Word count for hours: whether memory grows, and whether throughput stays
    Soak(soak::SoakBenchArgs),
    /// What of a tuple's way through a chain of steps is queueing, transport between containers, and work
    Latency(latency::LatencyBenchArgs),
    /// Latency from end to end of a pipeline of many stages
    Stages(stages::StagesBenchArgs),
    /// A state for each of many keys: in memory, and on disk with a tenth of that memory
    State(state::StateBenchArgs),
    /// What an idle job costs, and how long it takes to wake
    Wakeup(wakeup::WakeupBenchArgs),
    /// Throughput, or latency at a rate, of records from one worker to another over TCP
    Exchange(exchange::ExchangeBenchArgs),
    /// What it costs a worker to pass frames on that are not for it
    Forward(forward::ForwardBenchArgs),
    /// What it costs to read and write a map in the memory of several members
    Grid(grid::GridBenchArgs),
    /// How long it takes from submitting a job until its first record is through
    Submit(submit::SubmitBenchArgs),
    /// How long a killed worker is missed
    Recovery(recovery::RecoveryBenchArgs),
    /// What is seen of the death of one of two copies of a job that write together
    Twins(twins::TwinsBenchArgs),
    /// What is felt of it when a job is spread over other numbers of workers, beside the same job left alone
    Rescale(rescale::RescaleBenchArgs),
    /// Where the cpu time goes from Kafka through a filter and an aggregation to Redis
    Breakdown(breakdown::BreakdownBenchArgs),
}

/// What every bench can be told.
#[derive(clap::Args, Debug)]
struct Repeat {
    /// Run so many times; at the end come the best and the median of every figure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

/// Measures, as often as asked.
pub fn run(command: &BenchCommand, context: &Context) -> Result<(), Failure> {
    match command {
        BenchCommand::Nexmark(args) => nexmark::run(args, context),
        BenchCommand::Ysb(args) => ysb::run(args, context),
        BenchCommand::Snapshot(args) => snapshot::run(args, context),
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
        BenchCommand::Twins(args) => twins::run(args, context),
        BenchCommand::Rescale(args) => rescale::run(args, context),
        BenchCommand::Breakdown(args) => breakdown::run(args, context),
    }
}
