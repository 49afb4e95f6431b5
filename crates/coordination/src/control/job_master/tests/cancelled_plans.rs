//! Tests of changes of plans that are cancelled, since the new containers find no room.

use std::num::NonZeroU32;

use super::execution_attempts::living;
use super::*;

impl TestHarness {
    fn full(mut self) -> Self {
        self.is_full = true;
        self
    }

    fn rescale(&mut self, containers: u32) -> Result<(), Rejection> {
        let containers = NonZeroU32::new(containers).unwrap();
        self.command(Command::Rescale(containers)).unwrap()
    }

    fn update(&mut self, count: u32) -> Result<(), Rejection> {
        let update = Command::Update([("v".into(), count)].into());
        self.command(update).unwrap()
    }

    /// Returns the reasons of all cancelled changes of plans.
    fn went_back(&self) -> Vec<&str> {
        let notes = self.notes.iter().filter_map(|note| match note {
            MasterStatus::PlanCancelled(why) => Some(why.as_str()),
            _ => None,
        });
        notes.collect()
    }

    fn record(&self) -> &JobRecord {
        &self.stored.as_ref().unwrap().0
    }
}

const LONG: Duration = Duration::from_secs(31);

#[test]
fn a_job_whose_new_containers_have_no_room_goes_on_as_it_was_and_back_to_it_in_the_end() {
    let mut desk = TestHarness::running().full();
    let before = desk.record().plan.clone();
    desk.rescale(3).unwrap();
    desk.wait(Duration::from_secs(5));
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    let why = desk.master.waits_for().unwrap();
    assert!(
        why.contains("no host has room; the change is cancelled"),
        "{why}"
    );
    // All instances run in the meantime.
    assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 2], vec![1, 3]));
    desk.wait(LONG);
    assert_eq!(desk.went_back(), ["no host has room"]);
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(desk.master.waits_for(), None);
    let record = desk.record();
    assert_eq!((&record.plan, record.plan_version.0), (&before, 3));
    assert_eq!(record.packing.containers, NonZeroU32::new(2));
    assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 2], vec![1, 3]));

    desk.is_full = false;
    desk.rescale(3).unwrap();
    desk.register(worker(3), Credentials::of(&job()));
    desk.wait(Duration::from_secs(2));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(desk.indices(3), [2]);
}

#[test]
fn containers_that_can_not_become_larger_are_refused_as_new_ones_are() {
    for mut desk in [TestHarness::running().full(), living().full()] {
        desk.wait(Duration::from_millis(100));
        desk.update(6).unwrap();
        desk.wait(Duration::from_secs(5));
        assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 2], vec![1, 3]));
        desk.wait(LONG);
        assert_eq!(desk.went_back(), ["no host has room"]);
        let vertices = &desk.record().demand.vertices;
        assert_eq!(vertices[0].parallelism, 4);
    }
}

#[test]
fn what_waits_for_room_is_taken_back_at_once_by_the_numbers_that_the_job_comes_from() {
    for mut desk in [TestHarness::running().full(), living().full()] {
        desk.wait(Duration::from_millis(100));
        let before = desk.record().demand.clone();
        desk.update(8).unwrap();
        assert_eq!(desk.update(5).unwrap_err().code(), ErrorCode::WrongState);
        assert_eq!(desk.rescale(2).unwrap_err().code(), ErrorCode::WrongState);
        desk.update(4).unwrap();
        assert_eq!(desk.record().demand, before);
        assert_eq!(desk.record().plan_version.0, 3);
        assert!(desk.went_back().is_empty());
    }
}

#[test]
fn a_job_with_a_guarantee_goes_back_where_an_epoch_ends_and_whoever_takes_over_does_so_too() {
    let mut desk = living().full();
    desk.commit_next();
    desk.rescale(3).unwrap();
    desk.wait(Duration::from_secs(1));
    assert!(desk.master.waits_for().is_some());
    desk.take_over();
    for container in [1, 2] {
        desk.comes_back(worker(container), Some(1));
    }
    desk.wait(LONG);
    assert_eq!(desk.went_back().len(), 1);
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    for _ in 0..9 {
        if desk.master.phase() == &JobPhase::Updating {
            desk.commit_next();
        }
    }
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 2], vec![1, 3]));
    let record = desk.record();
    assert_eq!(
        (record.plan_version.0, record.previous.is_none()),
        (3, true)
    );
}

#[test]
fn nothing_is_asked_any_more_of_a_container_that_is_not_wanted() {
    let mut desk = TestHarness::running();
    desk.is_deaf = true;
    desk.rescale(3).unwrap();
    let restart = SchedulerCall::Restart(ContainerId(3));
    desk.wait(LONG);
    assert!(desk.calls.contains(&restart));
    desk.rescale(2).unwrap();
    desk.calls.clear();
    desk.wait(LONG);
    assert!(!desk.calls.contains(&restart));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!(desk.master.waits_for(), None);
}

#[test]
fn a_change_whose_containers_have_started_is_not_cancelled() {
    let mut desk = living().full();
    desk.commit_next();
    desk.rescale(3).unwrap();
    desk.wait(Duration::from_secs(9));
    desk.is_full = false;
    desk.comes_back(worker(3), None);
    desk.wait(LONG);
    // The attempt with the next plan may start at any moment.
    assert_eq!(desk.rescale(2).unwrap_err().code(), ErrorCode::WrongState);
    assert!(desk.went_back().is_empty());
    assert_eq!(desk.record().plan_version.0, 2);
}

#[test]
fn a_job_whose_new_container_never_comes_up_goes_back_to_what_it_was() {
    for (mut desk, ends_an_epoch) in [(TestHarness::running(), false), (living(), true)] {
        desk.wait(Duration::from_millis(100));
        let before = desk.record().plan.clone();
        desk.rescale(3).unwrap();
        desk.wait(Duration::from_secs(60));
        assert_eq!(desk.master.phase(), &JobPhase::Updating);
        assert_eq!(desk.went_back(), [""; 0]);
        desk.wait(Duration::from_secs(61));
        assert_eq!(desk.went_back(), ["container 3 has not started in 120s"]);
        assert_eq!(desk.record().plan, before);
        let is_over = desk.master.phase() == &JobPhase::Running;
        assert_eq!(is_over, !ends_an_epoch);
    }
}
