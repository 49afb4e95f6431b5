//! The policy that keeps the busy time of each vertex near a target.

use std::collections::BTreeMap;

use super::{ElasticityConfig, ElasticityPolicy, JobLoad, ScalingProposal, SizeChange, VertexLoad};
use crate::packing::VertexName;

/// The vertices that must have the same number of instances count as one, with the load of the
/// busiest.
///
/// Gives a vertex above the high bound more instances, and one below the low bound fewer: as many
/// as bring its busy time to the target, at most twice or half as many at a time. A vertex that is
/// always busy gets twice as many.
///
/// No vertex loses instances while another is above the high bound or waits for room: the others
/// get less to do than their share at present. The bounds around the target are the hysteresis.
/// A change that brings the busy time to the target crosses neither bound.
#[derive(Clone, Debug)]
pub struct TargetUtilization {
    config: ElasticityConfig,
}

/// The busy time above which the demand for a vertex is unknown, and its instances are doubled.
const SATURATED: f64 = 0.98;

/// The blocked time above which a vertex counts as waiting for others.
const WAITING: f64 = 0.1;

impl TargetUtilization {
    /// Creates the policy with the bounds of `config`.
    pub fn new(config: &ElasticityConfig) -> Self {
        TargetUtilization {
            config: config.clone(),
        }
    }

    /// Returns the number of instances for which the busy time of a vertex is the target.
    fn fitting(&self, vertex: &VertexLoad) -> f64 {
        let target = f64::from(self.config.target_percent) / 100.0;
        (f64::from(vertex.parallelism) * vertex.busy / target).ceil()
    }

    fn more(&self, vertex: &VertexLoad) -> Option<u32> {
        let (count, most) = (vertex.parallelism, self.config.most_instances.get());
        let most = vertex.instance_limit.map_or(most, |limit| most.min(limit));
        let is_high = vertex.busy * 100.0 > f64::from(self.config.high_percent);
        if !is_high || vertex.is_fixed || count >= most {
            return None;
        }
        let wanted = match vertex.busy > SATURATED {
            true => most,
            false => self.fitting(vertex).min(f64::from(most)) as u32,
        };
        Some(wanted.clamp(count + 1, count.saturating_mul(2)).min(most))
    }

    fn fewer(&self, vertex: &VertexLoad) -> Option<u32> {
        let (count, least) = (vertex.parallelism, self.config.least_instances.get());
        let is_low = vertex.busy * 100.0 < f64::from(self.config.low_percent);
        if !is_low || vertex.is_fixed || count <= least {
            return None;
        }
        let wanted = self.fitting(vertex).max(1.0) as u32;
        let wanted = wanted.max(count.div_ceil(2)).max(least);
        (wanted < count).then_some(wanted)
    }

    fn proposal<'a>(
        &self,
        changes: impl Iterator<Item = (&'a VertexLoad, u32)>,
    ) -> Option<ScalingProposal> {
        let (mut counts, mut reasons) = (BTreeMap::new(), Vec::new());
        for (vertex, wanted) in changes {
            let name: &VertexName = &vertex.vertex;
            let (before, busy) = (vertex.parallelism, (vertex.busy * 100.0).round());
            reasons.push(format!("{name} {before} to {wanted}, {busy} % busy"));
            counts.insert(name.clone(), wanted);
        }
        if counts.is_empty() {
            return None;
        }
        let target = self.config.target_percent;
        Some(ScalingProposal {
            change: SizeChange::Instances(counts),
            reason: format!("{} (target {target} %)", reasons.join("; ")),
        })
    }
}

impl ElasticityPolicy for TargetUtilization {
    fn decide(&mut self, load: &JobLoad) -> Option<ScalingProposal> {
        let groups = groups(&load.vertices);
        let vertices = groups.iter();
        let more = vertices.clone();
        let more = more.filter_map(|vertex| Some((vertex, self.more(vertex)?)));
        if let Some(proposal) = self.proposal(more) {
            return Some(proposal);
        }
        let high = f64::from(self.config.high_percent) / 100.0;
        let is_held = |vertex: &VertexLoad| vertex.busy > high || vertex.blocked > WAITING;
        if vertices.clone().any(is_held) {
            return None;
        }
        self.proposal(vertices.filter_map(|vertex| Some((vertex, self.fewer(vertex)?))))
    }
}

/// Returns the busiest vertex of each group, with the limits of all.
fn groups(vertices: &[VertexLoad]) -> Vec<VertexLoad> {
    let mut groups: BTreeMap<usize, VertexLoad> = BTreeMap::new();
    for vertex in vertices {
        let group = groups.entry(vertex.group).or_insert_with(|| vertex.clone());
        let limits = [group.instance_limit, vertex.instance_limit];
        let limit = limits.into_iter().flatten().min();
        let is_fixed = group.is_fixed || vertex.is_fixed;
        let blocked = group.blocked.max(vertex.blocked);
        if vertex.busy > group.busy {
            *group = vertex.clone();
        }
        (group.instance_limit, group.is_fixed, group.blocked) = (limit, is_fixed, blocked);
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn vertex(name: &str, parallelism: u32, busy: f64, blocked: f64) -> VertexLoad {
        VertexLoad {
            vertex: VertexName::new(name),
            group: usize::from(name.as_bytes()[0]),
            parallelism,
            instance_limit: None,
            is_fixed: false,
            busy,
            blocked,
            records_per_second: 0.0,
        }
    }

    fn decide(vertices: Vec<VertexLoad>) -> Vec<(String, u32)> {
        let mut policy = TargetUtilization::new(&ElasticityConfig::default());
        let load = JobLoad {
            window: Duration::from_secs(30),
            containers: 1,
            hosts: 1,
            vertices,
        };
        match policy.decide(&load).map(|proposal| proposal.change) {
            Some(SizeChange::Instances(counts)) => {
                let counts = counts.into_iter();
                counts
                    .map(|(name, count)| (name.as_str().to_string(), count))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_busy_step_gets_the_instances_for_the_target() {
        assert_eq!(decide(vec![vertex("a", 4, 0.95, 0.0)]), [("a".into(), 6)]);
        assert_eq!(decide(vec![vertex("a", 1, 1.0, 0.0)]), [("a".into(), 2)]);
        assert_eq!(decide(vec![vertex("a", 4, 0.80, 0.0)]), []);
        assert_eq!(
            decide(vec![vertex("a", 12, 1.0, 0.0)]),
            [("a".into(), 16)],
            "the limit"
        );
        assert_eq!(decide(vec![vertex("a", 16, 1.0, 0.0)]), []);
    }

    #[test]
    fn an_idle_step_loses_half_of_its_instances_at_most() {
        assert_eq!(decide(vec![vertex("a", 8, 0.01, 0.0)]), [("a".into(), 4)]);
        assert_eq!(decide(vec![vertex("a", 8, 0.29, 0.0)]), [("a".into(), 4)]);
        assert_eq!(decide(vec![vertex("a", 1, 0.0, 0.0)]), []);
        assert_eq!(decide(vec![vertex("a", 8, 0.35, 0.0)]), []);
    }

    #[test]
    fn no_step_loses_instances_while_another_holds_it_back() {
        let idle = || vertex("idle", 8, 0.05, 0.0);
        assert_eq!(
            decide(vec![vertex("b", 16, 0.99, 0.0), idle()]),
            [],
            "b is at its limit"
        );
        assert_eq!(decide(vec![vertex("a", 1, 0.5, 0.4), idle()]), []);
    }

    #[test]
    fn vertices_with_the_same_number_of_instances_follow_the_busiest() {
        let pair = |busy| vec![vertex("a", 8, 0.05, 0.0), vertex("a2", 8, busy, 0.0)];
        assert_eq!(decide(pair(0.6)), []);
        assert_eq!(decide(pair(0.9)), [("a2".into(), 11)]);
        assert_eq!(decide(pair(0.1)), [("a2".into(), 4)]);
    }

    #[test]
    fn a_fixed_or_limited_step_keeps_its_instances() {
        let mut fixed = vertex("a", 2, 1.0, 0.0);
        fixed.is_fixed = true;
        let mut limited = vertex("b", 2, 1.0, 0.0);
        limited.instance_limit = Some(2);
        assert_eq!(decide(vec![fixed, limited]), []);
    }

    #[test]
    fn a_constant_load_is_changed_a_few_times_and_then_left_alone() {
        for work in [0.1, 0.7, 1.9, 4.4, 9.0, 11.0] {
            for start in 1..=16 {
                let mut count: u32 = start;
                let mut changes = 0;
                loop {
                    let busy = (work / f64::from(count)).min(1.0);
                    let change = decide(vec![vertex("a", count, busy, 0.0)]);
                    let Some((_, next)) = change.first() else {
                        break;
                    };
                    count = *next;
                    changes += 1;
                    assert!(changes <= 5, "work {work} from {start}");
                }
                assert!(
                    f64::from(count) * 0.85 >= work,
                    "work {work} from {start}: {count}"
                );
            }
        }
    }
}
