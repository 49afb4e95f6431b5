//! Decisions of the optimizer.

use ardea_coordination::control::MasterEpoch;
use ardea_groups::{
    BatchTask, GroupScheduler, OptimizerRules, PlanDecision, RuleOptimizer, StageChange, StageId,
    TaskFigures,
};

use crate::model::graphs;
use crate::world::World;
use crate::{QUIET, groups_of, has_ended};

/// Sources that emit many records of few keys.
fn few_keys(task: BatchTask) -> TaskFigures {
    let (records_in, records_out) = match task.at.stage {
        StageId(0) => (1_000, 1_000),
        _ => (1_600, 16),
    };
    TaskFigures {
        records_in,
        records_out,
        bytes_out: records_out * 8,
        busy_nanos: 50_000,
    }
}

#[test]
fn few_keys_change_the_plan_of_all_workers_at_the_same_micro_batch() {
    let graph = graphs().swap_remove(1);
    let rules = OptimizerRules {
        idle_below: 0.0,
        ..OptimizerRules::default()
    };
    let optimizer = RuleOptimizer::new(&graph, rules).unwrap();
    let leader = GroupScheduler::new(MasterEpoch(1), graph.clone(), groups_of(10));
    let leader = leader.unwrap().with_optimizer(Box::new(optimizer));
    let mut world = World::with_leader(graph, 3, leader, QUIET);
    world.work = few_keys;
    world.run_until(has_ended(8)).unwrap();
    world.finish().unwrap();
    let decision = world.decisions.first().unwrap();
    assert_eq!(decision.change, StageChange::Combine(true));
    assert!(decision.figures.records_in >= 100 * decision.figures.records_out);
    assert!((decision.figures.skew - 1.0).abs() < 0.5);
    let (from, change) = world.changes.values().next().unwrap()[0].clone();
    assert_eq!(from.0 % 10, 1, "the begin of a group");
    let decoded: Vec<PlanDecision> = postcard::from_bytes(&change).unwrap();
    assert_eq!(decoded, [*decision]);
    assert_eq!(world.changes.len(), 3);
    for changes in world.changes.values() {
        assert_eq!(changes[0], (from, change.clone()));
    }
}
