//! Jobs with different packing policies and schedulers on one cluster.

use ardea_rest::Phase;

use crate::cluster::{Cluster, JOB};
use crate::measured::Measured;
use crate::poll::until_true;

/// Two more jobs, one of them with another packing policy and scheduler.
pub fn two_jobs(cluster: &mut Cluster, _: &mut Measured) {
    let before = cluster.workers(JOB);
    let local = ["cluster.scheduler=local", "cluster.packing=binpack"];
    let hosts = [
        "cluster.scheduler=hosts",
        "cluster.packing=compliant-round-robin",
    ];
    cluster.submit("local", "local", &local, 2);
    cluster.submit("beside", "beside", &hosts, 3);
    for (job, scheduler, packing) in [
        ("local", "local", "binpack"),
        ("beside", "hosts", "compliant-round-robin"),
        (JOB, "hosts", "round-robin"),
    ] {
        let described = cluster.runs(job);
        assert_eq!(
            (described.scheduler.as_str(), described.packing.as_str()),
            (scheduler, packing)
        );
        cluster.goes_on(job);
    }
    let leader = cluster.leader("local");
    let on: Vec<usize> = cluster
        .processes("local")
        .iter()
        .map(|worker| worker.host)
        .collect();
    assert!(
        on.iter().all(|host| *host == leader),
        "local containers on {on:?}, led by {leader}"
    );
    for job in ["local", "beside"] {
        // A request whose response is late has been accepted all the same.
        let _ = cluster.ask(|client| async move { client.kill(job).await });
        until_true("it leaves no process", 60, || {
            cluster.processes(job).is_empty()
        });
    }
    until_true("it is the only job", 60, || {
        let jobs = cluster.ask(|client| async move { client.list().await });
        jobs.is_some_and(|jobs| {
            jobs.iter()
                .all(|job| job.name == JOB || job.phase == Phase::Finished)
        })
    });
    cluster.goes_on(JOB);
    crate::deaths::only_changed(&before, cluster, &[]);
}
