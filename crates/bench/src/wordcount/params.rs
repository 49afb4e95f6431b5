//! What `ardea bench wordcount` can be asked for.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct WordcountParams {
    /// How many distinct words there are.
    pub words: usize,
    /// A file with a word a line, instead of generated ones.
    pub words_file: Option<PathBuf>,
    /// Spouts, and as many bolts.
    pub parallelism: u32,
    /// Cooperative threads.
    pub threads: u32,
    /// Whether every tuple is followed until it has been counted.
    pub acks: bool,
    /// Tuples a second over all spouts; as fast as possible without.
    pub rate: Option<u64>,
    /// How many tuples each spout may have pending, with acks.
    pub max_pending: Option<NonZeroUsize>,
    /// How long is measured.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
    /// How long an idle thread looks for work before it sleeps.
    pub spin: Duration,
    /// Whether the plain loop runs too.
    pub baseline: bool,
}

impl Default for WordcountParams {
    fn default() -> Self {
        WordcountParams {
            words: 450_000,
            words_file: None,
            parallelism: 1,
            threads: 1,
            acks: false,
            rate: None,
            max_pending: None,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(3),
            spin: Duration::from_micros(10),
            baseline: true,
        }
    }
}

impl WordcountParams {
    pub(super) fn check(&self) -> Result<()> {
        let invalid =
            |what: &str, hint: &str| Err(Error::new(ErrorCode::InvalidConfig, what).hint(hint));
        if self.words == 0 || self.words > 10_000_000 {
            return invalid(
                "the number of words is not between 1 and 10,000,000",
                "the usual number is 450000",
            );
        }
        if self.rate == Some(0) || self.duration.is_zero() {
            return invalid(
                "a rate or a duration is zero",
                "give it some time and some tuples",
            );
        }
        if self.max_pending.is_some() && !self.acks {
            return invalid(
                "a number of pending tuples was given without acks",
                "pending tuples are those that are not acked: add --acks",
            );
        }
        Ok(())
    }
}
