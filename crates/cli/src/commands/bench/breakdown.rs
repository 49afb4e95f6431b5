//! `ardea bench breakdown`: its options.

use super::Repeat;
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct BreakdownBenchArgs {
    /// Brokers of Kafka, which make a topic when it is first written to
    #[arg(long, value_name = "BROKERS", default_value = "localhost:9092")]
    kafka: String,
    /// The Redis server
    #[arg(long, value_name = "URL", default_value = "redis://localhost:6379")]
    redis: String,
    /// How many records are written to a new topic, and read
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// How many cooperative threads the job has
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
#[cfg(all(feature = "kafka", feature = "redis"))]
pub fn run(args: &BreakdownBenchArgs, context: &Context) -> Result<(), Failure> {
    use ardea_bench::breakdown::{self, BreakdownParams};
    let params = BreakdownParams {
        kafka: args.kafka.clone(),
        redis: args.redis.clone(),
        records: args.records,
        threads: args.threads,
    };
    super::repeat::run(args.repeat.repeat, context, |progress| {
        breakdown::run(&params, progress)
    })
}

/// Says how to get a program that can.
#[cfg(not(all(feature = "kafka", feature = "redis")))]
pub fn run(args: &BreakdownBenchArgs, _: &Context) -> Result<(), Failure> {
    let _ = (
        &args.kafka,
        &args.redis,
        args.records,
        args.threads,
        args.repeat.repeat,
    );
    Err(ardea_core::Error::new(
        ardea_core::ErrorCode::InvalidConfig,
        "this program was built without the clients of Kafka and Redis",
    )
    .hint("build one with them: cargo build --release --bin ardea --features kafka,redis")
    .into())
}
