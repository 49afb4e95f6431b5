//! Several hosts: a cluster of four, as network namespaces of this machine, with a real ZooKeeper
//! or etcd, a job spread over them, and faults of all processes and connections. `make hosts` runs
//! it; it needs root.
//!
//! ```text
//! scripts/hosts.sh [zookeeper|etcd] [SCENARIO …]
//! ```
//!
//! This program is also the job: see `numbers`, beside this folder. In reading order: `ground`
//! (namespaces, cut and healed), `cluster` (host processes, and requests to them), `measured`, then
//! the scenarios, in `deaths`, `partitions`, `outage`, `changes` and `other_jobs`.

mod changes;
mod cluster;
mod deaths;
mod ground;
mod measured;
mod other_jobs;
mod outage;
mod partitions;
mod poll;

#[path = "../numbers/mod.rs"]
mod numbers;
#[path = "../settings/mod.rs"]
mod settings;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use ardea_metastore::conformance::Skipped;

use cluster::{Cluster, Kind};
use measured::Measured;

/// A fault of a cluster whose job keeps running.
type Scenario = fn(&mut Cluster, &mut Measured);

const SCENARIOS: &[(&str, Scenario)] = &[
    ("a_worker_is_killed", deaths::worker),
    ("a_containers_group_is_killed", deaths::group),
    ("an_instances_process_is_killed", deaths::instance),
    ("the_host_that_leads_is_killed", deaths::leader),
    ("a_host_that_does_not_lead_is_killed", deaths::follower),
    ("a_host_stays_dead", deaths::host_for_good),
    ("a_host_is_cut_off_and_healed", partitions::follower),
    (
        "the_host_that_leads_is_cut_off_and_healed",
        partitions::leader,
    ),
    ("two_hosts_are_cut_from_each_other", partitions::pair),
    (
        "the_metadata_stores_server_is_gone_for_a_while",
        outage::server,
    ),
    (
        "instances_with_processes_are_doubled_and_halved",
        changes::update_of_instances,
    ),
    ("two_jobs_run_side_by_side", other_jobs::two_jobs),
    ("all_numbers_arrive_and_the_job_ends", deaths::the_end),
];

fn main() -> ExitCode {
    if numbers::is_asked_for() {
        return ardea::main(numbers::build);
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    // A list of tests is requested, and is empty.
    if wanted.iter().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let named = |name: &str| wanted.iter().any(|word| word == name);
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| named(kind.name()) || !Kind::ALL.iter().any(|kind| named(kind.name())))
        .collect();
    let asked: Vec<&String> = wanted
        .iter()
        .filter(|word| !Kind::ALL.iter().any(|kind| kind.name() == *word))
        .collect();
    let mut failed = Vec::new();
    for kind in kinds {
        match Cluster::start(kind) {
            Ok(mut cluster) => failed.extend(run(&mut cluster, kind, &asked)),
            Err(Skipped(why)) => eprintln!("SKIPPED several hosts with {}: {why}", kind.name()),
        }
    }
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => {
            eprintln!("FAILED: {}", failed.join(", "));
            ExitCode::FAILURE
        }
    }
}

/// Runs the selected scenarios, one after the other; returns the names of those that failed.
fn run(cluster: &mut Cluster, kind: Kind, asked: &[&String]) -> Vec<String> {
    let mut measured = Measured::default();
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        if !asked.is_empty() && !asked.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(cluster, &mut measured)));
        let took = begun.elapsed().as_secs_f64();
        let told = if outcome.is_ok() { "ok" } else { "FAILED" };
        eprintln!("{}: {name} … {told} ({took:.1} s)", kind.name());
        if outcome.is_err() {
            cluster.tell_all();
            failed.push(format!("{}: {name}", kind.name()));
        }
    }
    measured.print(kind.name());
    failed
}
