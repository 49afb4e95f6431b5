//! The shipped optimizer: the rules, and their memory of earlier decisions.

use std::collections::BTreeMap;

use ardea_core::Result;

use super::rules::{self, OptimizerRules};
use super::{GroupStatistics, Optimizer, PlanDecision, StageChange, StageStatistics};
use crate::message::GroupId;
use crate::stage_graph::{StageExchange, StageGraph, StageId};

/// The memory of a stage.
#[derive(Clone, Copy, Debug)]
struct StageMemory {
    /// The group of the last decision.
    decided: Option<GroupId>,
    is_combined: bool,
    /// The least reduction for which records are combined.
    least_reduction: f64,
}

/// An optimizer by the [rules](super::rules). It decides about stages behind a shuffle, whose
/// records any range can process.
#[derive(Clone, Debug)]
pub struct RuleOptimizer {
    rules: OptimizerRules,
    /// Stages behind a shuffle, with their producers.
    stages: BTreeMap<StageId, StageId>,
    memory: BTreeMap<StageId, StageMemory>,
}

impl RuleOptimizer {
    /// Creates the optimizer of a graph, in which no records are combined yet.
    ///
    /// # Errors
    /// As [`OptimizerRules::check`].
    pub fn new(graph: &StageGraph, rules: OptimizerRules) -> Result<Self> {
        rules.check()?;
        let shuffled = graph
            .numbered()
            .filter_map(|(id, stage)| match &stage.inputs[..] {
                [input] if input.exchange == StageExchange::Shuffle => Some((id, input.from)),
                _ => None,
            });
        Ok(RuleOptimizer {
            rules,
            stages: shuffled.collect(),
            memory: BTreeMap::new(),
        })
    }

    /// Returns a change of a stage, and the stage whose figures led to it.
    fn change<'s>(
        &self,
        statistics: &'s GroupStatistics,
        memory: StageMemory,
        (stage, producer): (&'s StageStatistics, &'s StageStatistics),
    ) -> Option<(StageChange, &'s StageStatistics)> {
        let combination = match memory.is_combined {
            true => rules::separate(producer, &self.rules).map(|change| (change, producer)),
            false => rules::combine(stage, memory.least_reduction).map(|change| (change, stage)),
        };
        let duration = statistics.duration;
        combination
            .or_else(|| Some((rules::split(stage, duration, &self.rules)?, stage)))
            .or_else(|| Some((rules::resize(stage, duration, &self.rules)?, stage)))
    }
}

impl Optimizer for RuleOptimizer {
    fn on_group(&mut self, statistics: &GroupStatistics) -> Vec<PlanDecision> {
        let mut decisions = Vec::new();
        let of = |id: StageId| statistics.stages.iter().find(|stage| stage.stage == id);
        for (id, from) in &self.stages {
            let (Some(stage), Some(producer)) = (of(*id), of(*from)) else {
                continue;
            };
            let mut memory = self.memory.get(id).copied().unwrap_or(StageMemory {
                decided: None,
                is_combined: false,
                least_reduction: self.rules.combine_above,
            });
            let is_paused = memory.decided.is_some_and(|decided| {
                statistics.group.0 <= decided.0.saturating_add(self.rules.pause_groups)
            });
            if is_paused {
                continue;
            }
            let Some((change, reason)) = self.change(statistics, memory, (stage, producer)) else {
                continue;
            };
            memory.decided = Some(statistics.group);
            if let StageChange::Combine(is_combined) = change {
                memory.is_combined = is_combined;
                // A combination that had no effect is tried again for a greater reduction only.
                if let (true, Some(reduction)) = (is_combined, rules::reduction(stage)) {
                    memory.least_reduction = reduction * 2.0;
                }
            }
            self.memory.insert(*id, memory);
            decisions.push(PlanDecision {
                stage: *id,
                change,
                figures: statistics.figures(reason),
            });
        }
        decisions
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::optimizer::RangeStatistics;
    use crate::{BatchStage, TaskFigures};
    use ardea_coordination::packing::ContainerId;

    fn stage(stage: u16, records_in: u64, records_out: u64) -> StageStatistics {
        StageStatistics {
            stage: StageId(stage),
            ranges: vec![RangeStatistics {
                range: 0,
                worker: ContainerId(1),
                tasks: 1,
                work: TaskFigures {
                    records_in,
                    records_out,
                    bytes_out: records_out * 8,
                    busy_nanos: 500_000_000,
                },
            }],
        }
    }

    /// Returns the decision after a group in which the source emits `sent` of `read` records, and
    /// the stage behind it `emitted`.
    fn decide(
        optimizer: &mut RuleOptimizer,
        group: u64,
        (read, sent, emitted): (u64, u64, u64),
    ) -> Option<PlanDecision> {
        let decisions = optimizer.on_group(&GroupStatistics {
            group: GroupId(group),
            batches: 10,
            duration: Duration::from_secs(1),
            stages: vec![stage(0, read, sent), stage(1, sent, emitted)],
        });
        assert!(decisions.len() <= 1);
        decisions.first().copied()
    }

    fn optimizer() -> RuleOptimizer {
        let stages = vec![
            BatchStage::source(1),
            BatchStage::after(StageId(0), StageExchange::Shuffle, 1),
        ];
        let graph = StageGraph::new(stages).unwrap();
        RuleOptimizer::new(&graph, OptimizerRules::default()).unwrap()
    }

    #[test]
    fn a_decision_has_its_figures_and_the_next_one_waits_for_its_effect() {
        let mut optimizer = optimizer();
        let few_keys = (1_000, 1_000, 10);
        let decision = decide(&mut optimizer, 7, few_keys).unwrap();
        assert_eq!(decision.change, StageChange::Combine(true));
        assert_eq!(
            decision.to_string(),
            "stage 1: combine before the exchange; in group 7 1000 records became 10 (80 bytes), \
             utilization 0.50, skew 1.00"
        );
        // Until the change, the producer does not combine.
        for group in 8..=10 {
            assert_eq!(decide(&mut optimizer, group, few_keys), None);
        }
        for group in 11..30 {
            assert_eq!(decide(&mut optimizer, group, (1_000, 10, 10)), None);
        }
    }

    #[test]
    fn a_combination_without_effect_ends_and_is_not_repeated_for_the_same_load() {
        let mut optimizer = optimizer();
        // Each producer has each key once, so that only the consumer reduces records.
        let spread = (1_000, 1_000, 200);
        let on = decide(&mut optimizer, 1, spread).unwrap();
        assert_eq!(on.change, StageChange::Combine(true));
        let off = decide(&mut optimizer, 5, spread).unwrap();
        assert_eq!(off.change, StageChange::Combine(false));
        assert_eq!(off.figures.records_out, 1_000, "those of the producer");
        for group in 9..30 {
            assert_eq!(decide(&mut optimizer, group, spread), None);
        }
        let fewer_keys = (1_000, 1_000, 50);
        let on = decide(&mut optimizer, 30, fewer_keys).unwrap();
        assert_eq!(on.change, StageChange::Combine(true));
    }
}
