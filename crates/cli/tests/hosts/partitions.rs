//! Network partitions of hosts, and their end.

use crate::cluster::{Cluster, JOB, host_number};
use crate::ground::HOSTS;
use crate::measured::{Measured, now_ms};
use crate::poll::{pass, until_true};

/// The duration of a partition in seconds.
const CUT: u64 = 15;

/// Cuts off a host that does not lead the job.
pub fn follower(cluster: &mut Cluster, measured: &mut Measured) {
    let leader = cluster.leader(JOB);
    let workers = cluster.workers(JOB);
    let mut hosts = workers.values().map(|worker| worker.host);
    let host = hosts.find(|host| *host != leader).expect("it is spread");
    cut_off(cluster, measured, host);
}

/// Cuts off the host that leads the job.
pub fn leader(cluster: &mut Cluster, measured: &mut Measured) {
    let host = cluster.leader(JOB);
    cut_off(cluster, measured, host);
}

fn cut_off(cluster: &mut Cluster, measured: &mut Measured, host: usize) {
    cluster.runs(JOB);
    let before = cluster.workers(JOB);
    let at = now_ms();
    cluster.ground.command(&format!("cut {host}"));
    let elsewhere = |cluster: &Cluster| {
        let described = cluster.describe(JOB);
        described.is_some_and(|described| {
            let leads = described
                .master
                .as_ref()
                .map(|master| host_number(&master.host));
            let phase = described.summary.phase;
            let mut hosts = described
                .containers
                .iter()
                .filter_map(|known| known.host.as_deref());
            phase == ardea_rest::Phase::Running
                && leads != Some(host)
                && hosts.all(|at| host_number(at) != host)
        })
    };
    until_true("its containers run elsewhere", 60, || elsewhere(cluster));
    measured.note("host cut off, its containers run elsewhere", at, now_ms());
    pass(CUT.saturating_sub((now_ms() - at) / 1000));
    // Data flows on without it.
    cluster.goes_on(JOB);
    cluster.ground.command(&format!("heal {host}"));
    cluster.all_hosts_are_there();
    until_true("what runs twice is stopped where it came back", 60, || {
        cluster.processes(JOB).len() == before.len()
    });
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    let moved: Vec<u32> = before
        .values()
        .filter(|worker| worker.host == host)
        .map(|w| w.container)
        .collect();
    crate::deaths::only_changed(&before, cluster, &moved);
}

/// Cuts the connection between two hosts, neither of which leads the job.
pub fn pair(cluster: &mut Cluster, _: &mut Measured) {
    cluster.runs(JOB);
    let before = cluster.workers(JOB);
    let leader = cluster.leader(JOB);
    let others: Vec<usize> = (1..=HOSTS).filter(|host| *host != leader).collect();
    let (one, other) = (others[0], others[1]);
    cluster.ground.command(&format!("cut {one} {other}"));
    pass(CUT);
    cluster.ground.command(&format!("heal {one} {other}"));
    cluster.runs(JOB);
    cluster.goes_on(JOB);
    crate::deaths::only_changed(&before, cluster, &[]);
}
