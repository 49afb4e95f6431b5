//! SIGKILL to each kind of process.

use ardea_rest::{JobDescription, Phase};

use crate::cluster::{Cluster, JOB, Worker};
use crate::ground::HOSTS;
use crate::measured::{Measured, now_ms};
use crate::poll::{pass, until, until_true};

/// Kills the worker of a container.
pub fn worker(cluster: &mut Cluster, measured: &mut Measured) {
    killed(cluster, measured, Worker::kill);
}

/// Kills a container's process group.
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

/// Fails if a worker was replaced that should not have been.
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

/// Kills the process of an instance that has its own: its worker and all others stay.
pub fn instance(cluster: &mut Cluster, measured: &mut Measured) {
    cluster.runs(JOB);
    let before = cluster.workers(JOB);
    let instances = cluster.instances(JOB);
    let killed = *instances.first().expect("`pass` has processes of its own");
    let at = now_ms();
    killed.kill();
    until_true("another process has taken its place", 60, || {
        let now = cluster.instances(JOB);
        now.len() == instances.len() && !now.contains(&killed)
    });
    measured.note("instance's process killed, another is there", at, now_ms());
    cluster.goes_on(JOB);
    only_changed(&before, cluster, &[]);
    let left = cluster
        .instances(JOB)
        .into_iter()
        .filter(|one| instances.contains(one))
        .count();
    assert_eq!(left, instances.len() - 1, "only one instance was killed");
}

/// Kills the host that leads the job; it is restarted at once, as by a process supervisor.
pub fn leader(cluster: &mut Cluster, measured: &mut Measured) {
    let before = cluster.workers(JOB);
    let epoch = |cluster: &Cluster| Some(cluster.describe(JOB)?.master?.epoch);
    let former = until("somebody leads", 60, || epoch(cluster));
    let host = cluster.leader(JOB);
    let at = now_ms();
    cluster.kill_host(host);
    cluster.start_host(host);
    until_true("somebody leads anew", 60, || {
        epoch(cluster).is_some_and(|epoch| epoch > former)
    });
    measured.note("leading host killed, a host leads anew", at, now_ms());
    cluster.runs(JOB);
    measured.note(
        "leading host killed, job whole under its next master",
        at,
        now_ms(),
    );
    cluster.all_hosts_are_there();
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    only_changed(&before, cluster, &[]);
}

/// Kills a host that does not lead the job; it is restarted.
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

/// Kills a host's process without restarting it for long: its containers stay connected, and keep
/// running.
pub fn host_for_good(cluster: &mut Cluster, measured: &mut Measured) {
    cluster.runs(JOB);
    let before = cluster.workers(JOB);
    let leader = cluster.leader(JOB);
    let host = (1..=HOSTS)
        .find(|host| *host != leader)
        .expect("there are four");
    cluster.kill_host(host);
    let at = now_ms();
    pass(20);
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    only_changed(&before, cluster, &[]);
    cluster.all_hosts_are_there();
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    only_changed(&before, cluster, &[]);
    measured.note("host dead for 20 s, all in order", at, now_ms());
}

/// Stops the spouts; checks that all that they have emitted was recorded, and that the job ends by
/// itself and leaves no process.
pub fn the_end(cluster: &mut Cluster, _: &mut Measured) {
    let ledger = cluster.ledger(JOB);
    ledger.enough();
    until_true("every number is acked", 90, || ledger.is_whole());
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
