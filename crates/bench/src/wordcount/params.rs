//! The parameters of `ardea bench wordcount`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;
use clap::ArgAction;

use crate::bounds::{
    MOST_PROCESSES, check_duration, check_range, check_rate, check_threads, refused,
};
use crate::exchange::TransportKind;
use crate::flags::{size, time};
use crate::report::{Field, fields};

/// The maximum number of distinct generated words.
const MOST_WORDS: usize = 10_000_000;
/// The maximum number of spouts.
const MOST_PARALLELISM: u32 = 1_024;

/// The parameters of `ardea bench wordcount`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct WordcountParams {
    /// Number of distinct words to generate
    #[arg(long, value_name = "N", value_parser = size, default_value = "450000")]
    pub words: usize,
    /// File to read words from, one per line, instead of generating them
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    pub words_file: Option<PathBuf>,
    /// Number of spouts, and of bolts (default: one per container)
    #[arg(long, value_name = "N")]
    pub parallelism: Option<u32>,
    /// Number of processes; more than one are containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub containers: u32,
    /// Transport between containers
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value_t = TransportKind::Shm)]
    pub transport: TransportKind,
    /// Enable acks: track every tuple until it has been counted
    #[arg(long)]
    pub acks: bool,
    /// Maximum number of pending tuples per spout, with acks (default: the capacity of the queues)
    #[arg(long, value_name = "N", requires = "acks")]
    pub max_pending: Option<NonZeroUsize>,
    /// Number of cooperative threads per container
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10us")]
    pub spin: Duration,
    /// Latency budget of sources with few records; zero calls them for each record
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "500us")]
    pub latency: Duration,
    /// Tuples per second, over all spouts: measures latency
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub rate: Option<u64>,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "3s")]
    pub warmup: Duration,
    /// Skip the plain loops that are used for comparison
    #[arg(long = "no-baseline", action = ArgAction::SetFalse)]
    pub baseline: bool,
}

impl WordcountParams {
    pub(super) fn check(&self) -> Result<()> {
        check_range("--words", self.words, 1..=MOST_WORDS)?;
        check_range("--containers", self.containers, 1..=MOST_PROCESSES)?;
        let instances = self.instances();
        check_range("--parallelism", instances, 1..=MOST_PARALLELISM)?;
        if !instances.is_multiple_of(self.containers) {
            return Err(refused(format!(
                "{instances} spouts can't be distributed evenly over {} containers",
                self.containers
            ))
            .hint("give --parallelism a multiple of --containers"));
        }
        if self.max_pending.is_some() && !self.acks {
            return Err(
                refused("a number of pending tuples was given without acks").hint(
                    "pending tuples are those that are not acked: add --acks, or leave --max-pending out",
                ),
            );
        }
        if let Some(rate) = self.rate {
            check_rate(rate, "tuples")?;
        }
        check_threads(self.threads)?;
        check_duration(self.duration)
    }

    /// Returns the number of spouts, and of bolts.
    pub(super) fn instances(&self) -> u32 {
        self.parallelism.unwrap_or(self.containers)
    }

    /// Returns each parameter under its own name; `words` is the actual number of words.
    pub(super) fn fields(&self, words: usize) -> Vec<Field> {
        fields!(
            self; words = words, words_file, parallelism = self.instances(), containers, threads,
            transport = (self.containers > 1).then_some(self.transport.name()),
            acks, rate, max = self.rate.is_none(), max_pending = self.max_pending.map(usize::from),
            duration, warmup, spin, latency
        )
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut WordcountParams);
        let wrong: [Set; 12] = [
            |params| params.words = 0,
            |params| params.words = MOST_WORDS + 1,
            |params| params.parallelism = Some(0),
            |params| params.parallelism = Some(MOST_PARALLELISM + 1),
            |params| params.containers = 0,
            |params| params.containers = MOST_PROCESSES + 1,
            |params| (params.containers, params.parallelism) = (2, Some(3)),
            |params| params.max_pending = NonZeroUsize::new(1),
            |params| params.rate = Some(0),
            |params| params.rate = Some(u64::MAX),
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = WordcountParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
