//! The arguments of `ardea bench breakdown`.

use super::Repeat;
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct BreakdownBenchArgs {
    /// Kafka brokers, which must create topics on first use
    #[arg(long, value_name = "BROKERS", default_value = "localhost:9092")]
    kafka: String,
    /// Redis server
    #[arg(long, value_name = "URL", default_value = "redis://localhost:6379")]
    redis: String,
    /// Number of records to write to a new topic, and to read
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Number of cooperative threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
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

/// Fails with a hint, since this program is built without the clients for Kafka and Redis.
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
