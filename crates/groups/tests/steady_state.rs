//! The cost of the steady state: sizes of messages, memory of inactive tasks, and their activation.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::MicroBatch;
use ardea_groups::{
    BatchStage, BatchTask, FromGroupWorker, GroupScheduler, GroupSchedulerConfig, GroupSizing,
    LocalAction, LocalEvent, LocalScheduler, MovedState, PlacementVersion, PlannedGroup, RangeId,
    RangeMove, RangePlacement, SchedulerAction, SchedulerEvent, StageExchange, StageGraph, StageId,
    TaskFigures, ToGroupWorker,
};

const WORKERS: u32 = 128;
const SLOTS: u32 = 4;
const NOW: Duration = Duration::ZERO;

fn leader(group: u32) -> GroupScheduler {
    let stages = vec![
        BatchStage::source(WORKERS * SLOTS),
        BatchStage::after(StageId(0), StageExchange::Shuffle, WORKERS * SLOTS),
    ];
    let graph = StageGraph::new(stages).unwrap();
    let config = GroupSchedulerConfig {
        sizing: GroupSizing::Fixed(group),
        ..GroupSchedulerConfig::default()
    };
    GroupScheduler::new(MasterEpoch(3), graph, config).unwrap()
}

fn begin(leader: &mut GroupScheduler) -> Vec<Arc<ToGroupWorker>> {
    let begun = SchedulerEvent::Begun {
        generation: Generation(2),
        after: MicroBatch(0),
        workers: (1..=WORKERS).map(ContainerId).collect(),
    };
    messages(leader.on(NOW, begun))
}

fn messages(actions: Vec<SchedulerAction>) -> Vec<Arc<ToGroupWorker>> {
    let message = |action| match action {
        SchedulerAction::ToAll(message) => Some(message),
        _ => None,
    };
    actions.into_iter().filter_map(message).collect()
}

/// Returns a report that the worker has ended all that it has received.
fn report(worker: u32, message: &ToGroupWorker) -> SchedulerEvent {
    let newest = message.groups.last().unwrap().id;
    SchedulerEvent::From(FromGroupWorker::Progress {
        worker: ContainerId(worker),
        generation: Some(message.generation),
        version: message.version,
        planned: newest,
        ended: newest,
        is_missing: false,
        figures: ardea_groups::GroupFigures::default(),
        ranges: Vec::new(),
    })
}

#[test]
fn a_steady_group_is_one_message_of_a_few_bytes() {
    let mut leader = leader(100);
    let mut newest = begin(&mut leader).pop().unwrap();
    let first = postcard::to_stdvec(&*newest).unwrap();
    assert!(first.len() > 300, "the first message has the placement");
    for _ in 0..50 {
        let reports = (1..=WORKERS).map(|worker| report(worker, &newest));
        let next: Vec<_> = reports
            .flat_map(|report| messages(leader.on(NOW, report)))
            .collect();
        newest = next.last().unwrap().clone();
        let bytes = postcard::to_stdvec(&*newest).unwrap();
        assert!(bytes.len() <= 24, "{} bytes: {newest:?}", bytes.len());
        assert_eq!(
            postcard::from_bytes::<ToGroupWorker>(&bytes).unwrap(),
            *newest
        );
    }
}

#[test]
fn ten_thousand_inactive_tasks_cost_little_memory_and_nothing_when_time_passes() {
    let mut leader = leader(1_250);
    let mut worker = LocalScheduler::new(ContainerId(1), Duration::from_secs(1));
    let mut actions = Vec::new();
    let first = begin(&mut leader).remove(0);
    worker.on(NOW, LocalEvent::FromLeader((*first).clone()), &mut actions);
    let tasks = worker.inactive_tasks();
    assert_eq!(tasks, 10_000 - u64::from(SLOTS), "the sources run");
    let bytes = worker.memory_bytes() as u64 / tasks;
    assert!(bytes < 10, "{bytes} bytes for each task");
    actions.clear();
    for millis in 0..900 {
        worker.on(
            Duration::from_millis(millis),
            LocalEvent::Tick,
            &mut actions,
        );
    }
    assert!(
        actions
            .iter()
            .all(|action| matches!(action, LocalAction::ToLeader(_)))
    );
}

#[test]
fn the_last_notice_activates_a_task_in_the_same_call() {
    let mut leader = leader(10);
    let mut workers: Vec<LocalScheduler> = (1..=WORKERS)
        .map(|worker| LocalScheduler::new(ContainerId(worker), Duration::from_secs(1)))
        .collect();
    let mut actions = Vec::new();
    let first = begin(&mut leader).remove(0);
    let mut notices = Vec::new();
    for (number, worker) in (1..).zip(&mut workers) {
        worker.on(NOW, LocalEvent::FromLeader((*first).clone()), &mut actions);
        for action in std::mem::take(&mut actions) {
            if let LocalAction::Run(task) = action {
                worker.on(
                    NOW,
                    LocalEvent::Ended(task, TaskFigures::default()),
                    &mut actions,
                );
            }
        }
        let to_first = |action| match action {
            LocalAction::Notify(ContainerId(1), notice) if number != 1 => Some(notice),
            _ => None,
        };
        notices.extend(
            std::mem::take(&mut actions)
                .into_iter()
                .filter_map(to_first),
        );
    }
    // The range of micro-batch 1, from each other worker.
    notices.retain(|notice| notice.through == MicroBatch(1));
    assert_eq!(notices.len() as u32, WORKERS - 1);
    let last = notices.pop().unwrap();
    for notice in notices {
        workers[0].on(NOW, LocalEvent::Notice(notice), &mut actions);
    }
    assert!(actions.is_empty(), "{actions:?}");
    workers[0].on(NOW, LocalEvent::Notice(last), &mut actions);
    let run = |range| {
        LocalAction::Run(BatchTask {
            at: RangeId {
                stage: StageId(1),
                range,
            },
            batch: MicroBatch(1),
        })
    };
    assert_eq!(actions, (0..SLOTS).map(run).collect::<Vec<_>>());
}

#[test]
fn messages_of_an_earlier_leader_or_attempt_are_ignored() {
    let mut leader = leader(10);
    let mut worker = LocalScheduler::new(ContainerId(1), Duration::from_secs(1));
    let mut actions = Vec::new();
    let first = begin(&mut leader).remove(0);
    worker.on(NOW, LocalEvent::FromLeader((*first).clone()), &mut actions);
    assert!(!std::mem::take(&mut actions).is_empty());
    for earlier in [
        ToGroupWorker {
            master: MasterEpoch(2),
            ..(*first).clone()
        },
        ToGroupWorker {
            generation: Generation(1),
            ..(*first).clone()
        },
    ] {
        worker.on(NOW, LocalEvent::FromLeader(earlier), &mut actions);
        assert!(actions.is_empty(), "{actions:?}");
    }
}

#[test]
fn a_placement_of_too_many_ranges_is_refused_before_it_takes_memory() {
    let runs = vec![vec![(ContainerId(1), u32::MAX), (ContainerId(2), u32::MAX)]];
    let bytes = postcard::to_stdvec(&runs).unwrap();
    assert!(postcard::from_bytes::<RangePlacement>(&bytes).is_err());
}

#[test]
fn a_placement_of_many_stages_is_refused_before_it_takes_memory() {
    let runs = vec![vec![(ContainerId(1), 1_000_000_u32)]; 1_000];
    let bytes = postcard::to_stdvec(&runs).unwrap();
    assert!(postcard::from_bytes::<RangePlacement>(&bytes).is_err());
}

#[test]
fn messages_with_numbers_beyond_their_limits_are_refused() {
    let mut leader = leader(10);
    let first = begin(&mut leader).remove(0);
    let is_refused = |message: &ToGroupWorker| {
        let bytes = postcard::to_stdvec(message).unwrap();
        postcard::from_bytes::<ToGroupWorker>(&bytes).is_err()
    };
    assert!(!is_refused(&first));
    let with_group = |change: fn(&mut PlannedGroup)| {
        let mut message = (*first).clone();
        change(&mut message.groups[0]);
        message
    };
    assert!(is_refused(&with_group(|group| group.batches = 0)));
    assert!(is_refused(&with_group(|group| group.batches = u32::MAX)));
    assert!(is_refused(&with_group(
        |group| group.first = MicroBatch(u64::MAX)
    )));
    let committed = ToGroupWorker {
        committed: MicroBatch(u64::MAX),
        ..(*first).clone()
    };
    assert!(is_refused(&committed));
}

#[test]
fn moves_of_ranges_that_do_not_exist_are_ignored() {
    let mut leader = leader(10);
    let mut worker = LocalScheduler::new(ContainerId(1), Duration::from_secs(1));
    let mut actions = Vec::new();
    let first = begin(&mut leader).remove(0);
    worker.on(NOW, LocalEvent::FromLeader((*first).clone()), &mut actions);
    let before = worker.inactive_tasks();
    let version = PlacementVersion(first.version.0 + 1);
    let moved = RangeMove {
        version,
        at: RangeId {
            stage: StageId(1),
            range: u32::MAX,
        },
        to: ContainerId(1),
        after: MicroBatch(0),
        state: MovedState::Restored,
    };
    let message = ToGroupWorker {
        moves: Arc::new([moved]),
        version,
        start: None,
        groups: Vec::new(),
        ..(*first).clone()
    };
    worker.on(NOW, LocalEvent::FromLeader(message), &mut actions);
    assert_eq!(worker.inactive_tasks(), before);
}

/// Returns the reports among actions, and runs the tasks among them.
fn run_tasks(
    worker: &mut LocalScheduler,
    now: Duration,
    mut actions: Vec<LocalAction>,
) -> Vec<FromGroupWorker> {
    let mut reports = Vec::new();
    while !actions.is_empty() {
        for action in std::mem::take(&mut actions) {
            match action {
                LocalAction::Run(task) => {
                    let ended = LocalEvent::Ended(task, TaskFigures::default());
                    worker.on(now, ended, &mut actions);
                }
                LocalAction::ToLeader(report) => reports.push(report),
                _ => {}
            }
        }
    }
    reports
}

#[test]
fn a_worker_that_restores_ranges_is_not_starved() {
    let graph = StageGraph::new(vec![BatchStage::source(2)]).unwrap();
    let config = GroupSchedulerConfig {
        sizing: GroupSizing::Fixed(1),
        ..GroupSchedulerConfig::default()
    };
    let mut leader = GroupScheduler::new(MasterEpoch(1), graph, config).unwrap();
    let mut worker = LocalScheduler::new(ContainerId(1), Duration::from_secs(100));
    let seconds = Duration::from_secs;
    let deliver = |worker: &mut LocalScheduler, now, sent: Vec<SchedulerAction>| {
        let mut actions = Vec::new();
        for message in messages(sent) {
            worker.on(
                now,
                LocalEvent::FromLeader((*message).clone()),
                &mut actions,
            );
        }
        run_tasks(worker, now, actions)
    };
    let begun = SchedulerEvent::Begun {
        generation: Generation(1),
        after: MicroBatch(0),
        workers: vec![ContainerId(1), ContainerId(2)],
    };
    let sent = leader.on(NOW, begun);
    deliver(&mut worker, NOW, sent);
    // The worker has ended both planned groups, and starves for a second.
    let lost = SchedulerEvent::Lost(ContainerId(2), "killed".to_string());
    let sent = leader.on(seconds(1), lost);
    deliver(&mut worker, seconds(1), sent);
    let mut actions = Vec::new();
    let at = RangeId {
        stage: StageId(0),
        range: 1,
    };
    worker.on(seconds(5), LocalEvent::StateArrived(at), &mut actions);
    let reports = run_tasks(&mut worker, seconds(5), actions);
    // It starves for another second until the next group comes.
    let sent = reports
        .into_iter()
        .flat_map(|report| leader.on(seconds(6), SchedulerEvent::From(report)));
    let sent = sent.collect();
    deliver(&mut worker, seconds(6), sent);
    assert_eq!(worker.figures().tasks_rerun, 2);
    let starved = Duration::from_nanos(worker.figures().starved_nanos);
    assert_eq!(starved, seconds(2));
}

#[test]
fn groups_without_a_micro_batch_are_refused() {
    let graph = StageGraph::new(vec![BatchStage::source(1)]).unwrap();
    let config = GroupSchedulerConfig {
        sizing: GroupSizing::Fixed(0),
        ..GroupSchedulerConfig::default()
    };
    let error = GroupScheduler::new(MasterEpoch(1), graph, config).unwrap_err();
    assert_eq!(error.code(), ardea_core::ErrorCode::InvalidConfig);
}
