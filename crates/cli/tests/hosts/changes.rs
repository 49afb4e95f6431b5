//! The instances of a vertex, which have their own processes on all hosts, are doubled and halved
//! under load.

use std::collections::BTreeSet;

use ardea_rest::{ParallelismUpdate, Phase};

use crate::cluster::{Cluster, JOB, Worker};
use crate::measured::{Measured, now_ms};
use crate::poll::until_true;

/// The vertex that is doubled and halved.
const VERTEX: &str = "pass";

/// Returns the processes of all instances that have their own.
fn processes(cluster: &Cluster) -> BTreeSet<(u32, usize, i32)> {
    let instances = cluster.instances(JOB).into_iter();
    let known = |it: Worker| (it.container, it.host, it.pid);
    instances.map(known).collect()
}

/// Sets the vertex's parallelism, and waits until it is in effect.
fn update(cluster: &Cluster, count: u32) {
    let parallelism = [(VERTEX.to_string(), count)].into();
    let update = ParallelismUpdate { parallelism };
    // A request whose response is late has been accepted all the same.
    let _ = cluster.ask(|client| {
        let update = update.clone();
        async move { client.update(JOB, &update).await }
    });
    until_true("the update is carried out", 90, || {
        let described = cluster.describe(JOB);
        described.is_some_and(|described| {
            let mut vertices = described.vertices.iter();
            let is_so = vertices.any(|it| it.name == VERTEX && it.parallelism == count);
            is_so && described.summary.phase == Phase::Running
        })
    });
    until_true(
        "each instance has its process, and no other is left",
        60,
        || processes(cluster).len() == count as usize,
    );
}

/// Checks that no existing worker or instance process is replaced by an update.
pub fn update_of_instances(cluster: &mut Cluster, measured: &mut Measured) {
    cluster.runs(JOB);
    let workers = cluster.workers(JOB);
    let before = processes(cluster);
    let few = before.len() as u32;

    let at = now_ms();
    update(cluster, few * 2);
    measured.note("instances doubled", at, now_ms());
    cluster.goes_on(JOB);
    let doubled = processes(cluster);
    assert!(doubled.is_superset(&before), "{before:?} {doubled:?}");

    let at = now_ms();
    update(cluster, few);
    measured.note("instances halved", at, now_ms());
    cluster.goes_on(JOB);
    assert_eq!(processes(cluster), before);
    crate::deaths::only_changed(&workers, cluster, &[]);
}
