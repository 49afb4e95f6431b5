//! Faults at chosen moments: lost reports of failures, stops during rollbacks, deaths at every
//! step, and changes of the placement between the stages of a micro-batch.

use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::MicroBatch;
use ardea_groups::{BatchMode, GroupSchedulerConfig, SchedulerEvent, StageId};

use crate::model::graphs;
use crate::world::{Conditions, SimEvent, World};
use crate::{QUIET, config, groups_of, has_ended};

/// A network that loses, repeats and reorders messages.
const LOSSY: Conditions = Conditions {
    lost: 100,
    doubled: 100,
    delay_micros: 2_000,
    ..QUIET
};

#[test]
fn a_worker_repeats_that_it_cannot_recover_until_the_leader_knows() {
    let conditions = Conditions {
        checkpoint_every: 100_000,
        ..QUIET
    };
    let mut world = World::new(graphs().swap_remove(1), 4, groups_of(20), conditions);
    world.lost_failures = 3;
    world.run_until(has_ended(3)).unwrap();
    world.plan(Duration::ZERO, SimEvent::DropOutputs(ContainerId(3)));
    world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
    world
        .run_until(|world| !world.rollbacks.is_empty())
        .unwrap();
    assert_eq!(world.lost_failures, 0);
    let ended = world.ended.len();
    world.run_until(has_ended(ended + 3)).unwrap();
    world.finish().unwrap();
    assert_eq!(world.rollbacks.len(), 1, "{:?}", world.rollbacks);
}

#[test]
fn a_stop_is_carried_out_after_a_rollback() {
    let without_recovery = GroupSchedulerConfig {
        has_partial_recovery: false,
        ..groups_of(50)
    };
    for graph in graphs() {
        let mut world = World::new(graph, 4, without_recovery, QUIET);
        world.run_until(has_ended(3)).unwrap();
        let planned = world.ended.last().unwrap().first.0 + 50;
        world.lead(SchedulerEvent::Stop);
        world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
        world.run_until(|world| world.stopped.is_some()).unwrap();
        assert_eq!(world.rollbacks.len(), 1);
        assert!(world.stopped.unwrap().0 >= planned, "{:?}", world.stopped);
    }
}

#[test]
fn a_stop_between_a_rollback_and_the_next_attempt_is_carried_out() {
    let without_recovery = GroupSchedulerConfig {
        has_partial_recovery: false,
        ..groups_of(50)
    };
    let mut world = World::new(graphs().swap_remove(1), 4, without_recovery, QUIET);
    world.run_until(has_ended(3)).unwrap();
    world.workers.remove(&ContainerId(2));
    world.lead(SchedulerEvent::Lost(ContainerId(2), "killed".to_string()));
    assert_eq!(world.rollbacks.len(), 1);
    world.lead(SchedulerEvent::Stop);
    world.run_until(|world| world.stopped.is_some()).unwrap();
}

#[test]
fn a_worker_still_leaves_after_a_rollback() {
    let without_recovery = GroupSchedulerConfig {
        has_partial_recovery: false,
        ..groups_of(50)
    };
    for graph in graphs() {
        let mut world = World::new(graph, 4, without_recovery, QUIET);
        world.run_until(has_ended(3)).unwrap();
        let leaving = ContainerId(1);
        world.lead(SchedulerEvent::Draining(leaving));
        world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
        world
            .run_until(|world| world.drained.contains(&leaving))
            .unwrap();
        assert_eq!(world.rollbacks.len(), 1);
        world.finish().unwrap();
    }
}

#[test]
fn a_change_of_the_plan_is_repeated_after_a_rollback_to_an_earlier_micro_batch() {
    let without_recovery = GroupSchedulerConfig {
        has_partial_recovery: false,
        ..groups_of(20)
    };
    let conditions = Conditions {
        checkpoint_every: 100_000,
        ..QUIET
    };
    let mut world = World::new(graphs().swap_remove(1), 4, without_recovery, conditions);
    world.run_until(has_ended(3)).unwrap();
    world.lead(SchedulerEvent::Change(Vec::from(*b"plan").into()));
    world.run_until(has_ended(6)).unwrap();
    let worker = ContainerId(1);
    assert_eq!(world.changes[&worker].len(), 1);
    world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
    world.run_until(has_ended(10)).unwrap();
    assert_eq!(world.rollbacks.len(), 1);
    assert_eq!(world.changes[&worker].len(), 2);
    let (from, change) = &world.changes[&worker][1];
    assert_eq!((*from, &**change), (MicroBatch(1), &b"plan"[..]));
    world.finish().unwrap();
}

#[test]
fn workers_come_and_go_between_any_two_stages_of_a_micro_batch() {
    for graph in graphs() {
        for groups in 20..20 + graph.stages().len() {
            let barriers = config(BatchMode::BarrierPerBatch, 1);
            let mut world = World::new(graph.clone(), 3, barriers, QUIET);
            world.run_until(has_ended(groups)).unwrap();
            let (joined, leaving) = (ContainerId(9), ContainerId(2));
            world.plan(Duration::ZERO, SimEvent::Join(joined));
            world.plan(Duration::ZERO, SimEvent::Drain(leaving));
            world
                .run_until(|world| world.drained.contains(&leaving))
                .unwrap();
            assert!(!world.leader.placement().ranges_of(joined).is_empty());
            world.finish().unwrap();
            assert!(world.rollbacks.is_empty());
            assert_eq!(world.ended.last().unwrap().totals.tasks_rerun, 0);
        }
    }
}

#[test]
fn a_state_on_its_way_is_restored_if_its_sender_is_lost_between_two_stages() {
    let barriers = config(BatchMode::BarrierPerBatch, 1);
    // Outputs of ranges that have moved are no longer needed.
    let conditions = Conditions {
        checkpoint_every: 1,
        ..QUIET
    };
    let mut world = World::new(graphs().swap_remove(1), 2, barriers, conditions);
    world.run_until(has_ended(20)).unwrap();
    world.slow_states = Some((StageId(1), Duration::from_millis(100)));
    world.plan(Duration::ZERO, SimEvent::Join(ContainerId(9)));
    // The first stage of the next micro-batch has ended, and the second waits for its states.
    world.run_until(has_ended(23)).unwrap();
    world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(1)));
    world.run_until(has_ended(30)).unwrap();
    world.finish().unwrap();
    assert!(world.rollbacks.is_empty(), "{:?}", world.rollbacks);
}

#[test]
fn a_stop_between_two_stages_of_a_micro_batch_waits_for_the_last_one() {
    for graph in graphs() {
        let stages = graph.stages().len();
        for groups in 20..20 + stages {
            let barriers = config(BatchMode::BarrierPerBatch, 1);
            let mut world = World::new(graph.clone(), 3, barriers, QUIET);
            world.run_until(has_ended(groups)).unwrap();
            world.finish().unwrap();
            assert_eq!(world.ended.len() % stages, 0);
            assert_eq!(
                world.stopped.unwrap().0,
                (world.ended.len() / stages) as u64
            );
        }
    }
}

#[test]
fn a_worker_may_die_at_any_step() {
    for mode in [BatchMode::Groups, BatchMode::BarrierPerBatch] {
        for graph in graphs() {
            for step in (0..500).step_by(31) {
                let mut world = World::new(graph.clone(), 4, config(mode, 5), LOSSY);
                for _ in 0..step {
                    world.run_step().unwrap();
                }
                world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
                let ended = world.ended.len();
                world.run_until(has_ended(ended + 12)).unwrap();
                world.finish().unwrap();
            }
        }
    }
}
