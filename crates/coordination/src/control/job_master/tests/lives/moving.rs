//! Away from hosts that are drained, with a guarantee and without one.

use super::*;
use crate::control::Displaced;

/// Container 2 is to leave its host.
fn second_leaves(stuck: Option<&str>) -> MasterEvent {
    MasterEvent::Displaced(vec![Displaced {
        container: ContainerId(2),
        host: "quay".into(),
        stuck: stuck.map(str::to_string),
    }])
}

impl Desk {
    /// The containers that the scheduler was asked for last.
    fn wanted(&self) -> Vec<u32> {
        let Some(SchedulerCall::Have(wanted)) = self.calls.last() else {
            panic!("{:?}", self.calls);
        };
        wanted.iter().map(|request| request.id.0).collect()
    }

    fn plan_version(&self) -> u64 {
        self.stored.as_ref().unwrap().0.plan_version.0
    }

    fn moves(&self) -> Vec<String> {
        let notes = self.notes.iter().filter_map(|note| match note {
            Note::Moves {
                container,
                host,
                to,
            } => Some(format!("{container} leaves {host} for {to}")),
            Note::Stuck {
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
    // As long as it is there, the scheduler says so: once is enough.
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
    let mut desk = Desk::running();
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
    let mut desk = Desk::running();
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
fn who_takes_over_goes_on_with_what_moves_and_begins_nothing_anew() {
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
fn what_is_being_updated_moves_behind_that() {
    let mut desk = Desk::running();
    desk.command(Command::Update([("v".into(), 6)].into()));
    desk.happens(second_leaves(None));
    assert_eq!(desk.plan_version(), 2);
    desk.carry_out_all();
    desk.carry_out_all();
    // It is said again as long as it is so.
    assert_eq!((desk.plan_version(), desk.wanted()), (3, vec![1, 2, 3]));
}
