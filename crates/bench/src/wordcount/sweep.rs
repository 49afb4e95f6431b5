//! Word count at several numbers of spouts and bolts, with acks and without.
//!
//! After "Twitter Heron: Towards Extensible Streaming Engines", section VI-A: as many spouts as
//! bolts; throughput, latency and throughput per core at each.

use ardea_core::Result;

use super::params::WordcountParams;
use crate::Report;
use crate::bounds::refused;

/// The parameters of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The parameters common to all runs.
    pub base: WordcountParams,
    /// The numbers of spouts, and of bolts.
    pub parallelisms: Vec<u32>,
    /// Without acks, with acks, or both.
    pub acks: Vec<bool>,
}

impl Sweep {
    /// Returns the parameters of each run. The plain loops run with the first run only, since they
    /// are the same for all.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if there are no runs, or
    /// if a run has invalid parameters.
    pub fn runs(&self) -> Result<Vec<WordcountParams>> {
        if self.parallelisms.is_empty() || self.acks.is_empty() {
            return Err(refused("the sweep is empty")
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

/// Returns the same run at half of the measured maximum rate, where latency does not include full
/// queues. `None` if nothing was measured, or if the run had a rate.
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
