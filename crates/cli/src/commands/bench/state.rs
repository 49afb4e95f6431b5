//! The arguments of `ardea bench state`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::state::{self, StateParams};
use ardea_config::parse_bytes;

use super::{Repeat, repeat};
use crate::args::duration;
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct StateBenchArgs {
    /// Number of keys with state
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Size of each state in bytes
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    /// Memory budget of the job whose state is on disk, such as `64MiB` (default: a tenth of the
    /// size of all keys in memory)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Folder on the disk to measure (default: one for temporary files)
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Duration of each measurement, after all keys are loaded
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    duration: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &StateBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = StateParams {
        keys: args.keys,
        value_bytes: args.value_bytes,
        memory: args.memory,
        folder: args.folder.clone(),
        duration: args.duration,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        state::run(&params, progress)
    })
}
