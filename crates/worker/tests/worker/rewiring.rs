//! Changes of plan while records flow, without loss or duplicates.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_coordination::control::PlanVersion;
use ardea_coordination::packing::{ContainerId, InstanceId};
use ardea_engine::Job;

use crate::containers::{start, thread};
use crate::jobs::Adding;
use crate::master::{Master, Plan, plan};
use crate::spread::{embedded, runtime};

/// Returns the instances of each container in the union of these plans.
fn instances(plans: &[&Plan]) -> BTreeMap<ContainerId, Vec<InstanceId>> {
    let mut instances = BTreeMap::<ContainerId, Vec<InstanceId>>::new();
    for (container, ids) in plans.iter().flat_map(|plan| plan.iter()) {
        let known = instances.entry(ContainerId(*container)).or_default();
        let ids = ids.iter();
        known.extend(ids.map(|(vertex, index)| InstanceId::new(*vertex, *index)));
        known.sort_unstable();
        known.dedup();
    }
    instances
}

impl Master {
    /// Starts the additional instances of the next plan, the last of these.
    pub async fn grow(&mut self, version: u64, plans: &[&Plan; 2]) {
        self.add_plan(version, plan(plans[1]));
        self.next = PlanVersion(version);
        self.running = instances(plans);
        self.assign().await;
        self.settled().await;
    }

    /// Routes records by this plan from the next assignment on.
    pub fn switch(&mut self, version: u64) {
        self.routes = PlanVersion(version);
    }

    /// Stops the instances that the next plan lacks, and completes the change.
    pub async fn shrink(&mut self, after: &Plan) {
        let before = std::mem::take(&mut self.running);
        self.running = instances(&[after]);
        for container in before.into_keys() {
            self.running.entry(container).or_default();
        }
        self.assign().await;
        self.settled().await;
        self.last = self.routes;
        self.assign().await;
        self.settled().await;
    }
}

/// Changes from one plan to the next as a leader does: starts new instances, switches the routes,
/// stops old instances.
async fn rescale(master: &mut Master, version: u64, before: &Plan, after: &Plan) {
    master.grow(version, &[before, after]).await;
    master.switch(version);
    master.assign().await;
    master.settled().await;
    master.shrink(after).await;
}

/// Sums numbers while instances are added, removed and moved; `pace` is the rate of the source per
/// millisecond.
fn summed_while_plans_change(total: u64, pace: u64) -> Vec<(u64, u64)> {
    const FIRST: &Plan = &[
        (1, &[("numbers", 0), ("sums", 0), ("list", 0)]),
        (2, &[("sums", 1)]),
    ];
    const DOUBLED: &Plan = &[
        (1, &[("numbers", 0), ("sums", 0), ("list", 0)]),
        (2, &[("sums", 1), ("sums", 2)]),
        (3, &[("sums", 3)]),
    ];
    const MOVED: &Plan = &[
        (1, &[("numbers", 0), ("list", 0)]),
        (3, &[("sums", 0), ("sums", 1)]),
    ];
    runtime().block_on(async {
        let mut master = Master::start(plan(FIRST)).await;
        let job = Arc::new(Adding {
            pace: Some(pace),
            ..Adding::new(total)
        });
        let worker = |container: u32| {
            let job: Arc<dyn Job> = Arc::<Adding>::clone(&job);
            thread(start(container, 1, &master.address), job)
        };
        let workers = [worker(1), worker(2), worker(3)];
        master.start_reading().await;
        rescale(&mut master, 2, FIRST, DOUBLED).await;
        rescale(&mut master, 3, DOUBLED, MOVED).await;
        master.dismiss(2).await;
        master.all_ended().await;
        master.say_farewell().await;
        for worker in workers {
            worker.join().unwrap().unwrap();
        }
        job.results()
    })
}

#[test]
fn instances_come_go_and_move_and_every_number_is_summed_once() {
    let total = 1_000_000;
    assert_eq!(summed_while_plans_change(total, 1_000), embedded(total));
}

#[test]
fn plans_also_change_when_the_input_has_ended_before_or_ends_meanwhile() {
    let total = 100_000;
    let expected = embedded(total);
    for pace in [total, 2_000, 700, 400] {
        assert_eq!(summed_while_plans_change(total, pace), expected, "{pace}");
    }
}
