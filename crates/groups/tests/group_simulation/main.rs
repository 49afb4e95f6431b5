//! Simulations of the group scheduler and local schedulers: delays, losses of messages and workers,
//! workers that join and leave.
//!
//! Every run checks that a task runs only with all its inputs, that its result is that of the plain
//! computation, and that it runs again only if the worker of its range was lost.

mod decisions;
mod faults;
mod model;
mod worker;
mod world;

use std::time::Duration;

use ardea_coordination::packing::ContainerId;
use ardea_core::MicroBatch;
use ardea_groups::{
    BatchMode, BatchStage, GroupSchedulerConfig, GroupSizing, StageExchange, StageGraph, StageId,
    TunerConfig,
};
use proptest::prelude::*;

use model::graphs;
use world::{Conditions, REPEAT_AFTER, SimEvent, World};

const QUIET: Conditions = Conditions {
    seed: 7,
    lost: 0,
    doubled: 0,
    delay_micros: 200,
    task_micros: 100,
    checkpoint_every: 10,
};

fn config(mode: BatchMode, size: u32) -> GroupSchedulerConfig {
    GroupSchedulerConfig {
        mode,
        sizing: GroupSizing::Fixed(size),
        repeat_after: REPEAT_AFTER,
        ..GroupSchedulerConfig::default()
    }
}

fn groups_of(size: u32) -> GroupSchedulerConfig {
    config(BatchMode::Groups, size)
}

fn has_ended(groups: usize) -> impl Fn(&World) -> bool {
    move |world| world.ended.len() >= groups
}

#[test]
fn a_worker_gets_one_message_a_group_and_never_waits_at_the_seam() {
    for graph in graphs() {
        let mut world = World::new(graph, 4, groups_of(50), QUIET);
        // The first messages may overtake each other.
        world.run_until(has_ended(2)).unwrap();
        let (all, one) = (world.to_all, world.to_one);
        let starved = world.ended.last().unwrap().totals.starved_nanos;
        world.run_until(has_ended(22)).unwrap();
        assert!(
            world.to_all - all <= 21,
            "{} for 20 groups",
            world.to_all - all
        );
        assert_eq!(world.to_one, one);
        let totals = world.ended.last().unwrap().totals;
        assert_eq!(totals.starved_nanos, starved);
        assert_eq!(totals.tasks_rerun + totals.duplicates_dropped, 0);
        world.finish().unwrap();
    }
}

#[test]
fn a_tree_costs_one_notice_a_producer() {
    let tree = StageExchange::Tree { arity: 2 };
    let stages = vec![
        BatchStage::source(16),
        BatchStage::after(StageId(0), tree, 8),
        BatchStage::after(StageId(1), tree, 4),
        BatchStage::after(StageId(2), tree, 2),
        BatchStage::after(StageId(3), tree, 1),
    ];
    let graph = StageGraph::new(stages).unwrap();
    // One range on each worker, so that no consumer is on the worker of its producer by design.
    let mut world = World::new(graph, 16, groups_of(10), QUIET);
    world.run_until(has_ended(10)).unwrap();
    world.finish().unwrap();
    let batches = world.stopped.unwrap().0;
    assert!(
        world.notices <= 30 * batches,
        "{} in {batches}",
        world.notices
    );
    assert_eq!(world.notices, world.data_messages);
}

#[test]
fn a_shuffle_costs_one_notice_for_each_pair_of_workers() {
    let stages = vec![
        BatchStage::source(16),
        BatchStage::after(StageId(0), StageExchange::Shuffle, 16),
    ];
    let graph = StageGraph::new(stages).unwrap();
    let mut world = World::new(graph, 4, groups_of(10), QUIET);
    world.run_until(has_ended(10)).unwrap();
    world.finish().unwrap();
    let batches = world.stopped.unwrap().0;
    assert_eq!(world.notices, batches * 4 * 3);
}

#[test]
fn modes_for_comparison_compute_the_same_with_more_messages() {
    for mode in [BatchMode::BarrierPerBatch, BatchMode::Pipelined] {
        for graph in graphs() {
            let stages = graph.stages().len() as u64;
            let mut world = World::new(graph, 3, config(mode, 50), QUIET);
            world.run_until(has_ended(60)).unwrap();
            world.finish().unwrap();
            let batches = world.stopped.unwrap().0;
            let least = match mode {
                BatchMode::BarrierPerBatch => (batches - 1) * stages,
                _ => batches,
            };
            assert!(world.to_all >= least, "{} in {batches}", world.to_all);
        }
    }
}

#[test]
fn a_worker_that_joins_has_ranges_after_two_groups_at_most() {
    for graph in graphs() {
        let mut world = World::new(graph, 2, groups_of(20), QUIET);
        world.run_until(has_ended(5)).unwrap();
        let joined = ContainerId(9);
        world.plan(Duration::ZERO, SimEvent::Join(joined));
        world.run_until(has_ended(8)).unwrap();
        assert!(!world.leader.placement().ranges_of(joined).is_empty());
        world.run_until(has_ended(12)).unwrap();
        world.finish().unwrap();
        assert_eq!(world.ended.last().unwrap().totals.tasks_rerun, 0);
        assert!(world.rollbacks.is_empty());
    }
}

#[test]
fn a_worker_that_leaves_is_drained_without_a_failed_task() {
    for graph in graphs() {
        let mut world = World::new(graph, 3, groups_of(20), QUIET);
        world.run_until(has_ended(5)).unwrap();
        let leaving = ContainerId(2);
        world.plan(Duration::ZERO, SimEvent::Drain(leaving));
        world
            .run_until(|world| world.drained.contains(&leaving))
            .unwrap();
        assert!(world.leader.placement().ranges_of(leaving).is_empty());
        world.finish().unwrap();
        assert_eq!(world.ended.last().unwrap().totals.tasks_rerun, 0);
        assert!(world.rollbacks.is_empty());
    }
}

#[test]
fn the_loss_of_a_worker_runs_its_tasks_again_on_all_survivors_and_no_other_task() {
    for graph in graphs() {
        let has_exchange = graph.stages().len() > 1;
        let mut world = World::new(graph, 4, groups_of(50), QUIET);
        world.run_until(has_ended(3)).unwrap();
        world.plan(Duration::from_micros(300), SimEvent::Kill(ContainerId(2)));
        world.run_until(has_ended(8)).unwrap();
        let places = [1, 3, 4].map(|worker| {
            world
                .leader
                .placement()
                .ranges_of(ContainerId(worker))
                .len()
        });
        let (least, most) = (places.iter().min().unwrap(), places.iter().max().unwrap());
        assert!(most - least <= 4, "{places:?}");
        world.finish().unwrap();
        assert!(world.rollbacks.is_empty(), "{:?}", world.rollbacks);
        let totals = world.ended.last().unwrap().totals;
        assert!(totals.tasks_rerun > 0);
        assert_eq!(totals.blocks_reused > 0, has_exchange);
    }
}

#[test]
fn the_loss_of_a_stage_that_is_not_deterministic_rolls_the_job_back_with_the_reason() {
    let mut stages = vec![
        BatchStage::source(8),
        BatchStage::after(StageId(0), StageExchange::Shuffle, 4),
    ];
    stages[1].is_deterministic = false;
    let graph = StageGraph::new(stages).unwrap();
    let mut world = World::new(graph, 4, groups_of(50), QUIET);
    world.run_until(has_ended(3)).unwrap();
    world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
    world.run_until(has_ended(8)).unwrap();
    world.finish().unwrap();
    assert_eq!(world.rollbacks.len(), 1);
    assert!(world.rollbacks[0].contains("stage 1, which is not deterministic"));
}

#[test]
fn outputs_that_were_dropped_or_lost_roll_the_job_back_with_the_reason() {
    let conditions = Conditions {
        checkpoint_every: 100_000,
        ..QUIET
    };
    let shuffle = || graphs().swap_remove(1);
    let mut world = World::new(shuffle(), 4, groups_of(20), conditions);
    world.run_until(has_ended(3)).unwrap();
    world.plan(Duration::ZERO, SimEvent::DropOutputs(ContainerId(3)));
    world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
    world.run_until(has_ended(8)).unwrap();
    world.finish().unwrap();
    assert!(
        world.rollbacks[0].contains("kept from micro-batch"),
        "{:?}",
        world.rollbacks
    );

    // A range has moved from worker 1, which keeps its outputs.
    let mut world = World::new(shuffle(), 2, groups_of(20), conditions);
    world.run_until(has_ended(3)).unwrap();
    world.plan(Duration::ZERO, SimEvent::Join(ContainerId(3)));
    world.run_until(has_ended(8)).unwrap();
    world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(1)));
    world.run_until(has_ended(12)).unwrap();
    world.finish().unwrap();
    assert!(
        world.rollbacks[0].contains("that are needed again are lost"),
        "{:?}",
        world.rollbacks
    );
}

#[test]
fn recovery_on_one_survivor_and_none_at_all_can_be_chosen() {
    let serial = GroupSchedulerConfig {
        has_parallel_recovery: false,
        ..groups_of(20)
    };
    let off = GroupSchedulerConfig {
        has_partial_recovery: false,
        ..groups_of(20)
    };
    for (config, rollbacks) in [(serial, 0), (off, 1)] {
        let mut world = World::new(graphs().swap_remove(1), 4, config, QUIET);
        world.run_until(has_ended(3)).unwrap();
        world.plan(Duration::ZERO, SimEvent::Kill(ContainerId(2)));
        world.run_until(has_ended(8)).unwrap();
        assert_eq!(world.rollbacks.len(), rollbacks, "{:?}", world.rollbacks);
        let ranges = |worker| {
            world
                .leader
                .placement()
                .ranges_of(ContainerId(worker))
                .len()
        };
        let most = [1, 3, 4].map(ranges).into_iter().max().unwrap();
        // 13 ranges: 3 or 4 on each of 4 workers, and those of the lost one.
        assert_eq!(most >= 6, rollbacks == 0, "{most}");
        world.finish().unwrap();
    }
}

/// A fault at a time in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(u64, u32),
    Join(u64, u32),
    Drain(u64, u32),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => (0_u64..60, 1_u32..6).prop_map(|(at, worker)| Fault::Kill(at, worker)),
        1 => (0_u64..60, 11_u32..14).prop_map(|(at, worker)| Fault::Join(at, worker)),
        1 => (0_u64..60, 1_u32..14).prop_map(|(at, worker)| Fault::Drain(at, worker)),
    ]
}

fn conditions() -> impl Strategy<Value = Conditions> {
    (
        any::<u64>(),
        0_u64..50,
        0_u64..100,
        1_u64..3_000,
        1_u64..200,
        1_u64..40,
    )
        .prop_map(
            |(seed, lost, doubled, delay_micros, task_micros, checkpoint_every)| Conditions {
                seed,
                lost,
                doubled,
                delay_micros,
                task_micros,
                checkpoint_every,
            },
        )
}

fn sizing() -> impl Strategy<Value = GroupSizing> {
    prop_oneof![
        (1_u32..60).prop_map(GroupSizing::Fixed),
        Just(GroupSizing::Tuned(TunerConfig::default())),
    ]
}

fn mode() -> impl Strategy<Value = BatchMode> {
    prop_oneof![
        3 => Just(BatchMode::Groups),
        1 => Just(BatchMode::Pipelined),
        1 => Just(BatchMode::BarrierPerBatch),
    ]
}

fn run_faults(
    graph: usize,
    mode: BatchMode,
    sizing: GroupSizing,
    conditions: Conditions,
    faults: &[Fault],
) -> Result<World, String> {
    let config = GroupSchedulerConfig {
        sizing,
        ..config(mode, 1)
    };
    let mut world = World::new(graphs().swap_remove(graph), 5, config, conditions);
    let mut joined = Vec::new();
    for fault in faults {
        let millis = Duration::from_millis;
        match *fault {
            // A worker is always left.
            Fault::Kill(_, 5) | Fault::Drain(_, 5) => {}
            Fault::Kill(at, worker) => world.plan(millis(at), SimEvent::Kill(ContainerId(worker))),
            Fault::Join(_, worker) if joined.contains(&worker) => {}
            Fault::Join(at, worker) => {
                joined.push(worker);
                world.plan(millis(at), SimEvent::Join(ContainerId(worker)));
            }
            Fault::Drain(at, worker) => {
                world.plan(millis(at), SimEvent::Drain(ContainerId(worker)))
            }
        }
    }
    let settled = Duration::from_millis(100);
    world.run_until(|world| world.now >= settled)?;
    let groups = world.ended.len();
    world.run_until(has_ended(groups + 3))?;
    world.finish()?;
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn tasks_run_once_and_results_are_those_of_the_plain_computation_whatever_happens(
        graph in 0_usize..4,
        mode in mode(),
        sizing in sizing(),
        conditions in conditions(),
        faults in prop::collection::vec(fault(), 0..6),
    ) {
        let world = run_faults(graph, mode, sizing, conditions, &faults).map_err(TestCaseError::fail)?;
        prop_assert!(world.stopped > Some(MicroBatch(0)));
    }
}
