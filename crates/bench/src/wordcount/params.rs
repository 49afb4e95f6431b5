//! The parameters of `ardea bench wordcount`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use ardea_engine::NodeConfig;
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::report::Field;

/// The maximum number of distinct generated words.
const MOST_WORDS: usize = 10_000_000;
/// The maximum number of spouts.
const MOST_PARALLELISM: u32 = 1_024;
/// The maximum number of containers, since all of them are processes of this machine.
const MOST_CONTAINERS: u32 = 64;

/// The parameters of `ardea bench wordcount`, named as its flags.
#[derive(Clone, Debug)]
pub struct WordcountParams {
    /// The number of distinct words.
    pub words: usize,
    /// A file with a word a line, instead of generated words.
    pub words_file: Option<PathBuf>,
    /// The number of spouts, and of bolts; by default one for each container.
    pub parallelism: Option<u32>,
    /// The number of processes: one runs in this process, several are a cluster on this machine.
    pub containers: u32,
    /// Cooperative threads of each container.
    pub threads: u32,
    /// True to track every tuple until it has been counted.
    pub acks: bool,
    /// Tuples a second over all spouts; as fast as possible if `None`.
    pub rate: Option<u64>,
    /// The maximum number of pending tuples of each spout, with acks.
    pub max_pending: Option<NonZeroUsize>,
    /// The measured time.
    pub duration: Duration,
    /// The warm-up before the measured time.
    pub warmup: Duration,
    /// The time for which an idle thread polls for work before it sleeps.
    pub spin: Duration,
    /// True to run the plain loop as well.
    pub baseline: bool,
}

impl Default for WordcountParams {
    fn default() -> Self {
        WordcountParams {
            words: 450_000,
            words_file: None,
            parallelism: None,
            containers: 1,
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
        if self.containers == 0 || self.containers > MOST_CONTAINERS {
            return Err(refused(format!(
                "{} containers are not between 1 and {MOST_CONTAINERS}",
                self.containers
            )));
        }
        let instances = self.instances();
        if instances == 0 || instances > MOST_PARALLELISM {
            return Err(refused(format!(
                "{instances} spouts are not between 1 and {MOST_PARALLELISM}"
            )));
        }
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
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--spin", self.spin),
        ])
    }

    /// Returns the number of spouts, and of bolts.
    pub(super) fn instances(&self) -> u32 {
        self.parallelism.unwrap_or(self.containers)
    }

    /// Returns each parameter under its own name; `words` is the actual number of words.
    pub(super) fn fields(&self, words: usize) -> Vec<Field> {
        let file = self.words_file.as_ref();
        vec![
            ("words", json!(words)),
            (
                "words_file",
                json!(file.map(|path| path.display().to_string())),
            ),
            ("parallelism", json!(self.instances())),
            ("containers", json!(self.containers)),
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
        let wrong: [Set; 15] = [
            |params| params.words = 0,
            |params| params.words = MOST_WORDS + 1,
            |params| params.parallelism = Some(0),
            |params| params.parallelism = Some(MOST_PARALLELISM + 1),
            |params| params.containers = 0,
            |params| params.containers = MOST_CONTAINERS + 1,
            |params| (params.containers, params.parallelism) = (2, Some(3)),
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
