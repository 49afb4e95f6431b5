//! What `ardea bench wordcount` can be asked for.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ardea_core::Result;
use ardea_core::settings::duration::format_duration;
use ardea_engine::NodeConfig;
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::report::Field;

/// The most distinct words that are generated.
const MOST_WORDS: usize = 10_000_000;
/// The most spouts.
const MOST_PARALLELISM: u32 = 1_024;

/// What `ardea bench wordcount` can be asked for; the names are those of its flags.
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
            spin: NodeConfig::default().spin,
            baseline: true,
        }
    }
}

impl WordcountParams {
    pub(super) fn check(&self) -> Result<()> {
        if self.words == 0 || self.words > MOST_WORDS {
            return Err(refused(format!(
                "{} words are not between 1 and {MOST_WORDS}",
                self.words
            )));
        }
        if self.parallelism == 0 || self.parallelism > MOST_PARALLELISM {
            return Err(refused(format!(
                "{} spouts are not between 1 and {MOST_PARALLELISM}",
                self.parallelism
            )));
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
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--spin", self.spin),
        ])
    }

    /// `words` is how many there were.
    pub(super) fn fields(&self, words: usize) -> Vec<Field> {
        let file = self.words_file.as_ref();
        vec![
            ("words", json!(words)),
            (
                "words_file",
                json!(file.map(|path| path.display().to_string())),
            ),
            ("parallelism", json!(self.parallelism)),
            ("containers", json!(1)),
            ("threads", json!(self.threads)),
            ("acks", json!(self.acks)),
            ("rate", json!(self.rate)),
            ("max", json!(self.rate.is_none())),
            ("max_pending", json!(self.max_pending)),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("spin", json!(format_duration(self.spin))),
        ]
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
            |params| params.parallelism = 0,
            |params| params.parallelism = MOST_PARALLELISM + 1,
            |params| params.max_pending = NonZeroUsize::new(1),
            |params| params.rate = Some(0),
            |params| params.rate = Some(u64::MAX),
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
            |params| params.spin = Duration::MAX,
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
