//! The rules of this crate.

use std::collections::BTreeMap;

use crate::elasticity::{
    ElasticityConfig, ElasticityPolicy, JobLoad, NO_ELASTICITY, SizeChange, TargetUtilization,
};

use super::{
    Finding, FindingChange, InstanceStatistics, JobStatistics, OptimizerConfig, OptimizerRule,
    StepStatistics,
};

/// The part of its records that a combination may pass on without being useless.
const PASSED_ON: f64 = 0.9;

/// Records a second of a step below which its combination does not matter.
const LEAST_RECORDS: f64 = 1_000.0;

/// The busy time from which an instance limits its step.
const BUSY: f64 = 0.85;

/// The records of a hot instance as a multiple of the mean of the others.
const HOT: f64 = 2.0;

/// The time of a record on a slow host as a multiple of the median of the other hosts.
const SLOW: f64 = 2.0;

/// Gives each step the instances for its load, as the elasticity policy `utilization` does. A job
/// with an elasticity policy is left to that policy.
#[derive(Clone, Debug)]
pub struct ParallelismRule {
    config: ElasticityConfig,
}

impl ParallelismRule {
    /// Creates the rule with the bounds of the job's elasticity.
    pub fn new(config: &OptimizerConfig) -> Self {
        ParallelismRule {
            config: config.elasticity.clone(),
        }
    }
}

impl OptimizerRule for ParallelismRule {
    fn findings(&self, job: &JobStatistics) -> Vec<Finding> {
        if self.config.policy != NO_ELASTICITY {
            return Vec::new();
        }
        let load = JobLoad {
            window: self.config.window,
            containers: 0,
            hosts: 0,
            vertices: job.steps.iter().map(|step| step.load.clone()).collect(),
        };
        let proposal = TargetUtilization::new(&self.config).decide(&load);
        let found = proposal.and_then(|proposal| match proposal.change {
            SizeChange::Instances(counts) => Some(Finding {
                subject: counts
                    .keys()
                    .map(|name| name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
                figures: proposal.reason,
                change: FindingChange::Instances(counts),
            }),
            SizeChange::Containers(_) => None,
        });
        found.into_iter().collect()
    }
}

/// Reports a combination before an exchange that combines almost nothing, since few of its records
/// have equal keys.
#[derive(Clone, Copy, Debug)]
pub struct CombineRule;

impl OptimizerRule for CombineRule {
    fn findings(&self, job: &JobStatistics) -> Vec<Finding> {
        let is_useless = |step: &&StepStatistics| {
            let (read, written) = (step.records_in(), step.records_out());
            step.is_combination && read >= LEAST_RECORDS && written >= PASSED_ON * read
        };
        let steps = job.steps.iter().filter(is_useless);
        let found = steps.map(|step| Finding {
            subject: step.vertex.as_str().to_string(),
            figures: format!(
                "{} of {} records/s remain after the combination",
                step.records_out().round(),
                step.records_in().round()
            ),
            change: FindingChange::ByUser(
                "combine after the exchange: combine(Combine::AfterExchange)".to_string(),
            ),
        });
        found.collect()
    }
}

/// Reports an instance that is busy and gets a multiple of the records of the others: a range of
/// keys has most records. More instances do not help, because a key has one instance.
#[derive(Clone, Copy, Debug)]
pub struct HotInstanceRule;

impl OptimizerRule for HotInstanceRule {
    fn findings(&self, job: &JobStatistics) -> Vec<Finding> {
        job.steps.iter().filter_map(hot_instance).collect()
    }
}

fn hot_instance(step: &StepStatistics) -> Option<Finding> {
    let instances = step.instances.iter();
    let hottest = instances.max_by(|a, b| a.records_in.total_cmp(&b.records_in))?;
    let others = step.instances.len().checked_sub(1).filter(|it| *it > 0)?;
    let mean = (step.records_in() - hottest.records_in) / others as f64;
    if hottest.busy < BUSY || hottest.records_in < HOT * mean {
        return None;
    }
    Some(Finding {
        subject: format!("{}#{}", step.vertex, hottest.index),
        figures: format!(
            "{} records/s, {} % busy; the others have {} records/s",
            hottest.records_in.round(),
            (hottest.busy * 100.0).round(),
            mean.round()
        ),
        change: FindingChange::ByUser(
            "combine before the exchange, or add a second part to the key".to_string(),
        ),
    })
}

/// Reports a host on which the records of several steps, or of the only one, take a multiple of the
/// time that they take on the other hosts.
#[derive(Clone, Copy, Debug)]
pub struct StragglerRule;

impl OptimizerRule for StragglerRule {
    fn findings(&self, job: &JobStatistics) -> Vec<Finding> {
        // For each host the factors of the steps that can be compared.
        let mut factors: BTreeMap<&str, Vec<(f64, &StepStatistics)>> = BTreeMap::new();
        for step in &job.steps {
            for (host, factor) in factors_of(step) {
                factors.entry(host).or_default().push((factor, step));
            }
        }
        let is_slow = |(_, steps): &(&str, Vec<(f64, &StepStatistics)>)| {
            let slow = steps.iter().filter(|(factor, _)| *factor >= SLOW).count();
            slow > 0 && slow * 2 > steps.len()
        };
        let found = factors.into_iter().filter(is_slow).filter_map(|(host, mut steps)| {
            steps.sort_by(|a, b| b.0.total_cmp(&a.0));
            let (factor, step) = steps.first()?;
            Some(Finding {
                subject: host.to_string(),
                figures: format!(
                    "a record of {} takes {factor:.1} times as long as on the other hosts",
                    step.vertex
                ),
                change: FindingChange::ByUser(format!(
                    "find out what slows the host, or move its containers: ardea cluster drain {host}"
                )),
            })
        });
        found.collect()
    }
}

/// Returns for each host the time of a record of a step, as a multiple of the median of the other
/// hosts.
fn factors_of(step: &StepStatistics) -> Vec<(&str, f64)> {
    let mut by_host: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for instance in &step.instances {
        let host = instance.host.as_deref();
        if let Some((host, time)) = host.zip(InstanceStatistics::micros_per_record(instance)) {
            by_host.entry(host).or_default().push(time);
        }
    }
    let hosts = by_host.keys();
    let factor = |host: &&'_ str| {
        let own = median(by_host.get(*host)?.clone())?;
        let others = by_host.iter().filter(|(other, _)| *other != host);
        let others = median(others.flat_map(|(_, times)| times.clone()).collect())?;
        (others > 0.0).then_some(own / others)
    };
    let factors = hosts.filter_map(|host| Some((*host, factor(host)?)));
    factors.collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elasticity::VertexLoad;
    use crate::packing::VertexName;

    /// Returns a step with instances of a host, records read and written a second, and busy time.
    fn step(name: &str, instances: &[(&str, f64, f64, f64)]) -> StepStatistics {
        let busy = instances.iter().map(|it| it.3).sum::<f64>() / instances.len() as f64;
        let of = |(index, &(host, records_in, records_out, busy)): (usize, _)| InstanceStatistics {
            index: index as u32,
            host: Some(String::from(host)),
            records_in,
            records_out,
            busy,
        };
        StepStatistics {
            vertex: VertexName::new(name),
            load: VertexLoad {
                vertex: VertexName::new(name),
                group: usize::from(name.as_bytes()[0]),
                parallelism: instances.len() as u32,
                instance_limit: None,
                is_fixed: false,
                busy,
                blocked: 0.0,
                records_per_second: instances.iter().map(|it| it.1).sum(),
            },
            is_combination: name.ends_with("combine"),
            instances: instances.iter().enumerate().map(of).collect(),
        }
    }

    fn subjects(rule: &dyn OptimizerRule, steps: Vec<StepStatistics>) -> Vec<String> {
        let found = rule.findings(&JobStatistics { steps });
        found.into_iter().map(|finding| finding.subject).collect()
    }

    #[test]
    fn a_busy_step_gets_more_instances_unless_a_policy_does_that() {
        let steps = || {
            vec![
                step("maps", &[("a", 1e3, 1e3, 0.95); 4]),
                step("sink", &[("a", 1e3, 0.0, 0.5)]),
            ]
        };
        let mut config = OptimizerConfig::default();
        let found = ParallelismRule::new(&config).findings(&JobStatistics { steps: steps() });
        let wanted = [(VertexName::new("maps"), 6)].into();
        assert_eq!(found[0].change, FindingChange::Instances(wanted));
        assert!(found[0].figures.contains("95 % busy"), "{found:?}");
        config.elasticity.policy = "hosts".to_string();
        assert!(subjects(&ParallelismRule::new(&config), steps()).is_empty());
    }

    #[test]
    fn a_combination_that_passes_almost_all_records_on_is_reported() {
        let of = |name: &str, written| step(name, &[("a", 5e3, written, 0.5)]);
        assert_eq!(
            subjects(&CombineRule, vec![of("count-combine", 4_900.0)]),
            ["count-combine"]
        );
        assert!(subjects(&CombineRule, vec![of("count-combine", 4_000.0)]).is_empty());
        assert!(subjects(&CombineRule, vec![of("maps", 5_000.0)]).is_empty());
    }

    #[test]
    fn a_busy_instance_with_a_multiple_of_the_records_is_hot() {
        let of = |records, busy| step("counts", &[("a", 1e3, 0.0, 0.3), ("b", records, 0.0, busy)]);
        assert_eq!(subjects(&HotInstanceRule, vec![of(3e3, 0.9)]), ["counts#1"]);
        assert!(subjects(&HotInstanceRule, vec![of(3e3, 0.5)]).is_empty());
        assert!(subjects(&HotInstanceRule, vec![of(1.5e3, 0.9)]).is_empty());
        assert!(subjects(&HotInstanceRule, vec![step("one", &[("a", 9e9, 0.0, 1.0)])]).is_empty());
    }

    #[test]
    fn a_host_is_slow_if_records_of_most_steps_take_longer_there() {
        let even = [
            ("a", 1e3, 1e3, 0.2),
            ("b", 1e3, 1e3, 0.2),
            ("c", 1e3, 1e3, 0.2),
        ];
        let slow = [
            ("a", 1e3, 1e3, 0.2),
            ("b", 1e3, 1e3, 0.6),
            ("c", 1e3, 1e3, 0.25),
        ];
        let both = |one, other| vec![step("maps", one), step("counts", other)];
        assert_eq!(subjects(&StragglerRule, both(&slow, &slow)), ["b"]);
        assert!(subjects(&StragglerRule, both(&even, &even)).is_empty());
        // Few records, or one host, show nothing.
        let few = [("a", 50.0, 0.0, 0.1), ("b", 50.0, 0.0, 0.9)];
        assert!(subjects(&StragglerRule, vec![step("maps", &few)]).is_empty());
        assert!(
            subjects(
                &StragglerRule,
                vec![step("maps", &[("a", 1e3, 0.0, 0.9); 3])]
            )
            .is_empty()
        );
        // One slow step of two is the work of the step, for instance of a hot key.
        assert!(subjects(&StragglerRule, both(&slow, &even)).is_empty());
    }
}
