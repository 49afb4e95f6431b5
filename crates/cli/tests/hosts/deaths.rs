//! `kill -9` of each kind of process.

use ardea_api::{JobDescription, Phase};

use crate::cluster::{Cluster, JOB, Worker, host_number};
use crate::ground::HOSTS;
use crate::measured::{Measured, now_ms};
use crate::poll::{pass, until, until_true};

/// The worker of a container.
pub fn worker(cluster: &mut Cluster, measured: &mut Measured) {
    killed(cluster, measured, Worker::kill);
}

/// All of a container's process group.
pub fn group(cluster: &mut Cluster, measured: &mut Measured) {
    killed(cluster, measured, Worker::kill_group);
}

fn killed(cluster: &mut Cluster, measured: &mut Measured, kill: fn(&Worker)) {
    for container in [1, 2] {
        let before = cluster.workers(JOB);
        let incarnation = incarnation(&cluster.runs(JOB), container);
        let at = now_ms();
        kill(&before[&container]);
        let described = until("another life of the container runs", 60, || {
            let described = cluster.describe(JOB)?;
            let running = described.summary.phase == Phase::Running;
            (running && self::incarnation(&described, container) != incarnation)
                .then_some(described)
        });
        let after = |text: &str| {
            let mut notes = described.notes.iter();
            notes
                .find(|note| note.at_ms >= at && note.text.contains(text))
                .map(|note| note.at_ms)
        };
        if let (Some(seen), Some(again)) = (after("given up"), after("the job is running")) {
            measured.note("worker killed, detected", at, seen);
            measured.note("worker killed, job running again", at, again);
        }
        cluster.goes_on(JOB);
        only_changed(&before, cluster, &[container]);
    }
}

fn incarnation(described: &JobDescription, container: u32) -> Option<u64> {
    let mut containers = described.containers.iter();
    containers
        .find(|known| known.id.0 == container)?
        .incarnation
}

/// Fails if a worker is another one that should not be.
pub fn only_changed(
    before: &std::collections::BTreeMap<u32, Worker>,
    cluster: &Cluster,
    changed: &[u32],
) {
    for (container, worker) in cluster.workers(JOB) {
        let same = before[&container] == worker;
        assert_eq!(
            same,
            !changed.contains(&container),
            "container {container}: {before:?}, {worker:?}"
        );
    }
}

/// The host that leads the job; it is started again.
pub fn leader(cluster: &mut Cluster, measured: &mut Measured) {
    let before = cluster.workers(JOB);
    let former = cluster.leader(JOB);
    let at = now_ms();
    cluster.kill_host(former);
    until_true("another host leads", 60, || {
        let master = cluster.describe(JOB).and_then(|described| described.master);
        master.is_some_and(|master| host_number(&master.host) != former)
    });
    measured.note("leading host killed, another leads", at, now_ms());
    cluster.runs(JOB);
    measured.note("leading host killed, job whole under another", at, now_ms());
    cluster.all_hosts_are_there();
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    only_changed(&before, cluster, &[]);
}

/// A host that does not lead the job; it is started again.
pub fn follower(cluster: &mut Cluster, _: &mut Measured) {
    let before = cluster.workers(JOB);
    let leader = cluster.leader(JOB);
    let host = (1..=HOSTS)
        .find(|host| *host != leader)
        .expect("there are four");
    cluster.kill_host(host);
    cluster.all_hosts_are_there();
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    assert_eq!(cluster.leader(JOB), leader);
    only_changed(&before, cluster, &[]);
}

/// A host's process that is not started again for long: its containers go on, or go elsewhere.
pub fn host_for_good(cluster: &mut Cluster, measured: &mut Measured) {
    let leader = cluster.leader(JOB);
    let host = (1..=HOSTS)
        .find(|host| *host != leader)
        .expect("there are four");
    cluster.kill_host(host);
    let at = now_ms();
    pass(20);
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    cluster.all_hosts_are_there();
    until_true("each container has one process", 60, || {
        cluster.processes(JOB).len() == 4
    });
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    measured.note("host dead for 20 s, all in order", at, now_ms());
}

/// The spouts stop, and all that they have emitted has been recorded; the job ends by itself, and leaves no process.
pub fn the_end(cluster: &mut Cluster, _: &mut Measured) {
    let ledger = cluster.ledger(JOB);
    ledger.stop();
    until_true("every number is acked", 90, || {
        let positions = ledger.positions();
        positions.values().all(|at| at.acked_below == at.next)
    });
    let (numbers, again) = ledger.nothing_is_lost();
    println!("{numbers} numbers, none lost, {again} came more than once");
    until_true("the job's processes are gone", 60, || {
        cluster.processes(JOB).is_empty()
    });
    until_true("the job is gone", 60, || {
        let jobs = cluster.ask(|client| async move { client.list().await });
        jobs.is_some_and(|jobs| {
            jobs.iter()
                .all(|job| job.name != JOB || job.phase == Phase::Finished)
        })
    });
}
