//! Tests of another placement of the same instances in the same containers.

use super::execution_attempts::living;
use super::*;
use crate::control::EpochKind;
use crate::packing::{ContainerId, InstanceId, PackingPlan, Placement};

impl TestHarness {
    fn plan(&self) -> PackingPlan {
        let record = &self.stored.as_ref().unwrap().0;
        (**record.plan.as_ref().unwrap()).clone()
    }

    /// Returns the present plan with these instances in the containers 1 and 2.
    fn placed(&self, containers: [&[u32]; 2]) -> PackingPlan {
        let instances = containers.map(|indices| {
            let instances = indices.iter().map(|index| InstanceId::new("v", *index));
            instances.collect()
        });
        let ids = [1, 2].map(ContainerId);
        let placement: Placement = ids.into_iter().zip(instances).collect();
        let config = self.stored.as_ref().unwrap().0.packing.clone();
        PackingPlan::of(&self.plan().demand(), &config, placement).unwrap()
    }

    fn place(&mut self, plan: PackingPlan) -> Result<(), Rejection> {
        self.command(Command::Place(Box::new(plan))).unwrap()
    }
}

#[test]
fn instances_move_between_present_containers_and_the_job_goes_on() {
    let mut desk = TestHarness::running();
    assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 2], vec![1, 3]));
    let next = desk.placed([&[0, 1], &[2, 3]]);
    desk.place(next.clone()).unwrap();
    desk.wait(Duration::from_secs(2));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 1], vec![2, 3]));
    let before = desk.plan();
    desk.place(next).unwrap();
    assert_eq!(desk.plan(), before, "the placement is the present one");
}

#[test]
fn a_job_with_a_guarantee_moves_instances_where_an_epoch_ends() {
    let mut desk = living();
    desk.commit_next();
    let next = desk.placed([&[0, 1], &[2, 3]]);
    desk.place(next).unwrap();
    assert_eq!(desk.master.phase(), &JobPhase::Updating);
    desk.come_near();
    desk.wait(Duration::from_millis(200));
    assert_eq!(desk.asked_for().unwrap().1, EpochKind::Handover);
    desk.commit();
    desk.wait(Duration::from_millis(500));
    assert_eq!(desk.master.phase(), &JobPhase::Running);
    assert_eq!((desk.indices(1), desk.indices(2)), (vec![0, 1], vec![2, 3]));
}

#[test]
fn a_placement_for_another_plan_is_refused() {
    let mut desk = TestHarness::running();
    let outdated = desk.placed([&[0, 1], &[2, 3]]);
    let update = Command::Update([("v".into(), 5)].into());
    desk.command(update).unwrap().unwrap();
    desk.wait(Duration::from_secs(2));
    let refused = desk.place(outdated).unwrap_err();
    assert!(refused.to_string().contains("earlier plan"), "{refused}");
    assert_eq!(desk.plan().instance_count(), 5);
}
