//! Tests of containers that leave drained hosts, in jobs with and without a guarantee.

use super::*;
use crate::control::ContainersToMove;

/// Returns the event that container 2 must leave its host; `stuck` is the reason for which it
/// cannot.
fn second_leaves(stuck: Option<&str>) -> MasterEvent {
    MasterEvent::Displaced(vec![ContainersToMove {
        container: ContainerId(2),
        host: "quay".into(),
        stuck: stuck.map(str::to_string),
    }])
}

impl TestHarness {
    /// Returns the containers that were last requested from the scheduler.
    fn wanted(&self) -> Vec<u32> {
        let Some(SchedulerCall::EnsureContainers(wanted)) = self.calls.last() else {
            panic!("{:?}", self.calls);
        };
        wanted.iter().map(|request| request.id.0).collect()
    }

    fn plan_version(&self) -> u64 {
        self.stored.as_ref().unwrap().0.plan_version.0
    }

    fn moves(&self) -> Vec<String> {
        let notes = self.notes.iter().filter_map(|note| match note {
            MasterStatus::Moves {
                container,
                host,
                to,
            } => Some(format!("{container} leaves {host} for {to}")),
            MasterStatus::Stuck {
                container,
                host,
                why,
            } => Some(format!("{container} stays at {host}: {why}")),
            _ => None,
        });
        notes.collect()
    }
}

#[test]
fn a_container_leaves_its_host_where_an_epoch_ends_and_the_others_stay_what_they_are() {
    let mut desk = living();
    desk.commit_next();
    desk.happens(second_leaves(None));
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    assert_eq!(desk.moves(), ["2 leaves quay for 3"]);
    assert_eq!(desk.wanted(), [1, 2, 3]);
    let busy = desk.command(Command::Rescale(NonZeroU32::new(3).unwrap()));
    assert_eq!(busy.unwrap().unwrap_err().code(), ErrorCode::WrongState);
    desk.comes_back(worker(3), None);
    // The scheduler repeats the report as long as the container is there; one is enough.
    desk.happens(second_leaves(None));
    desk.come_near();
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.asked_for().unwrap().1, EpochKind::Handover);
    let epoch = desk.commit();
    desk.wait(Duration::from_millis(500));
    for container in [1, 3] {
        let life = desk.life_of(worker(container)).unwrap();
        assert_eq!((life.generation, life.from), (Generation(2), Some(epoch)));
    }
    assert_eq!((desk.indices(1), desk.indices(3)), (vec![0, 2], vec![1, 3]));
    assert_eq!(desk.wanted(), [1, 3]);
    assert_eq!((desk.plan_version(), desk.moves().len()), (2, 1));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    desk.happens(second_leaves(None));
    desk.happens(MasterEvent::Displaced(Vec::new()));
    assert_eq!(desk.plan_version(), 2);
}

#[test]
fn what_moves_of_a_job_without_a_guarantee_stops_where_it_was_before_it_starts_elsewhere() {
    let mut desk = TestHarness::running();
    desk.happens(second_leaves(None));
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    assert_eq!(desk.wanted(), [1, 2, 3]);
    desk.register(worker(3), Credentials::of(&job()));
    assert!(desk.indices(3).is_empty());
    for _ in 0..3 {
        desk.carry_out_all();
    }
    assert_eq!((desk.indices(1), desk.indices(3)), (vec![0, 2], vec![1, 3]));
    assert_eq!(desk.wanted(), [1, 3]);
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn what_has_no_room_elsewhere_stays_where_it_is_until_there_is_some_and_that_is_told_once() {
    let mut desk = TestHarness::running();
    for free in ["1 cpu is left", "2 cpu are left"] {
        desk.happens(second_leaves(Some(free)));
    }
    assert_eq!(desk.moves(), ["2 stays at quay: 1 cpu is left"]);
    assert_eq!(
        (desk.plan_version(), desk.master.phase()),
        (1, &JobPhase::Running)
    );
    desk.happens(second_leaves(None));
    assert_eq!(desk.moves()[1..], ["2 leaves quay for 3"]);
    assert_eq!(desk.plan_version(), 2);
}

#[test]
fn a_new_master_continues_a_drain() {
    let mut desk = living();
    desk.commit_next();
    desk.happens(second_leaves(None));
    desk.take_over();
    desk.happens(second_leaves(None));
    for container in [1, 2] {
        desk.comes_back(worker(container), Some(1));
    }
    desk.happens(second_leaves(None));
    assert_eq!((desk.plan_version(), desk.moves().len()), (2, 1));
    desk.wait(Duration::from_millis(200));
    desk.commit();
    desk.comes_back(worker(3), None);
    desk.come_near();
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.asked_for().unwrap().1, EpochKind::Handover);
    desk.commit();
    desk.wait(Duration::from_millis(500));
    assert_eq!((desk.indices(1), desk.indices(3)), (vec![0, 2], vec![1, 3]));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
}

#[test]
fn drained_containers_move_after_a_pending_update() {
    let mut desk = TestHarness::running();
    desk.command(Command::Update([("v".into(), 6)].into()));
    desk.happens(second_leaves(None));
    assert_eq!(desk.plan_version(), 2);
    desk.carry_out_all();
    desk.carry_out_all();
    // The report is repeated as long as it applies.
    assert_eq!((desk.plan_version(), desk.wanted()), (3, vec![1, 2, 3]));
}
