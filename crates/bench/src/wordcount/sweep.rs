//! Word count at several numbers of spouts and bolts, with acks and without.
//!
//! "Twitter Heron: Towards Extensible Streaming Engines", section VI-A: as many spouts as bolts, throughput, latency and what a core
//! can do at each.

use ardea_core::Result;

use super::params::WordcountParams;
use crate::Report;
use crate::bounds::refused;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What holds for all of them.
    pub base: WordcountParams,
    /// How many spouts, and as many bolts.
    pub parallelisms: Vec<u32>,
    /// Without acks, with, or both.
    pub acks: Vec<bool>,
}

impl Sweep {
    /// Each run in its turn. The plain loops to compare with, if they are to run, run with the first only: they are the same for all.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if there are none, or if one of them can't be run.
    pub fn runs(&self) -> Result<Vec<WordcountParams>> {
        if self.parallelisms.is_empty() || self.acks.is_empty() {
            return Err(refused("a sweep over nothing measures nothing")
                .hint("name the numbers of spouts, such as --sweep 1,2,4"));
        }
        let mut runs = Vec::new();
        for &acks in &self.acks {
            for &parallelism in &self.parallelisms {
                let run = WordcountParams {
                    parallelism: Some(parallelism),
                    acks,
                    max_pending: self.base.max_pending.filter(|_| acks),
                    baseline: self.base.baseline && runs.is_empty(),
                    ..self.base.clone()
                };
                run.check()?;
                runs.push(run);
            }
        }
        Ok(runs)
    }
}

/// The same at half the rate that was reached as fast as possible: there latency is that of the way, and not of full queues. `None`
/// if nothing was reached, or if the run had a rate.
pub fn at_half_of(run: &WordcountParams, reached: &Report) -> Option<WordcountParams> {
    let reached = reached.figure("tuples_per_s").as_f64()?;
    let half = (reached / 2.0) as u64;
    (run.rate.is_none() && half > 0).then(|| WordcountParams {
        rate: Some(half),
        baseline: false,
        ..run.clone()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_parallelism_is_run_without_and_with_acks_and_the_plain_loops_once() {
        let sweep = Sweep {
            base: WordcountParams {
                max_pending: std::num::NonZeroUsize::new(10),
                ..WordcountParams::default()
            },
            parallelisms: vec![1, 4],
            acks: vec![false, true],
        };
        let runs = sweep.runs().unwrap();
        let told: Vec<_> = runs
            .iter()
            .map(|run| {
                (
                    run.instances(),
                    run.acks,
                    run.max_pending.is_some(),
                    run.baseline,
                )
            })
            .collect();
        let expected = [
            (1, false, false, true),
            (4, false, false, false),
            (1, true, true, false),
            (4, true, true, false),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_sweep_with_a_run_that_can_not_be_is_refused_before_the_first() {
        for (containers, parallelisms) in [(2, vec![2, 3]), (1, vec![]), (1, vec![0])] {
            let sweep = Sweep {
                base: WordcountParams {
                    containers,
                    ..WordcountParams::default()
                },
                parallelisms,
                acks: vec![false],
            };
            assert!(sweep.runs().is_err(), "{sweep:?}");
        }
    }

    #[test]
    fn latency_is_taken_at_half_of_what_was_reached() {
        let reached = |rate| Report {
            bench: "wordcount",
            parameters: Vec::new(),
            figures: vec![("tuples_per_s", rate)],
        };
        let run = WordcountParams::default();
        let half = at_half_of(&run, &reached(json!(1001.0))).unwrap();
        assert_eq!((half.rate, half.baseline), (Some(500), false));
        assert!(at_half_of(&half, &reached(json!(1000.0))).is_none());
        assert!(at_half_of(&run, &reached(json!(0.0))).is_none());
        assert!(at_half_of(&run, &reached(json!(null))).is_none());
    }
}
