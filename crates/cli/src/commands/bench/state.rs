//! `ardea bench state`: its options.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::state::{self, StateParams};
use ardea_config::parse_bytes;

use super::{Repeat, repeat};
use crate::args::duration;
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct StateBenchArgs {
    /// How many keys have a state
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// The bytes of each state
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    /// The memory beside the disk, such as `64MiB`; by default a tenth of what the keys take in memory
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// A folder on the disk that is measured; by default one for temporary files
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// How long each measurement takes once all keys are there
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    duration: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
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
