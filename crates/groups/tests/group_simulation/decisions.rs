//! Decisions of the optimizer and of the elasticity policy.

use ardea_coordination::control::MasterEpoch;
use ardea_groups::{
    BatchTask, GroupScheduler, OptimizerRules, PlanDecision, RuleOptimizer, StageChange, StageId,
    TargetUtilization, TaskFigures, UtilizationConfig,
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

fn busy(_: BatchTask) -> TaskFigures {
    TaskFigures {
        busy_nanos: 1_000_000_000,
        ..TaskFigures::default()
    }
}

#[test]
fn workers_follow_the_load_and_no_task_runs_again() {
    let graph = graphs().swap_remove(1);
    let policy = TargetUtilization::new(UtilizationConfig {
        min: 2,
        max: 6,
        ..UtilizationConfig::default()
    });
    let leader = GroupScheduler::new(MasterEpoch(1), graph.clone(), groups_of(10));
    let leader = leader.unwrap().with_elasticity(Box::new(policy.unwrap()));
    let mut world = World::with_leader(graph, 2, leader, QUIET);
    world.work = busy;
    world.run_until(|world| world.workers.len() == 6).unwrap();
    let ended = world.ended.len();
    world.run_until(has_ended(ended + 5)).unwrap();
    for worker in world.workers.keys() {
        assert!(!world.leader.placement().ranges_of(*worker).is_empty());
    }
    world.work = |_| TaskFigures::default();
    world.run_until(|world| world.workers.len() == 2).unwrap();
    world.finish().unwrap();
    assert_eq!(world.ended.last().unwrap().totals.tasks_rerun, 0);
    assert!(world.rollbacks.is_empty());
    let wanted: Vec<u32> = world
        .scalings
        .iter()
        .map(|scaling| scaling.wanted)
        .collect();
    assert_eq!(wanted, [6, 2]);
    assert!(world.scalings[0].load.utilization() > 1.0);
}
