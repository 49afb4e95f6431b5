//! A pipeline over several containers, with real processes. This program is also the job: embedded,
//! submitted, host and worker.

mod arena;
mod job;
mod tls_clients;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Arc;

use ardea::cluster::Modules;
use ardea_scheduler::artifacts::DirectoryStore;

use arena::{Arena, until};

fn main() -> ExitCode {
    let is_of_a_cluster = ["ARDEA_HOST", "ARDEA_WORKER"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let first = std::env::args().nth(1).unwrap_or_default();
    if is_of_a_cluster || ["run", "plan", "submit"].contains(&first.as_str()) {
        let modules = Modules::builtin().package_store("shelf", |url, options| {
            let folder = url.trim_start_matches("shelf:");
            Ok(Arc::new(DirectoryStore::new(folder, options)))
        });
        return ardea::main_with(modules, job::describe);
    }
    if first == "--list" {
        return ExitCode::SUCCESS;
    }
    // The options of the standard test harness are ignored.
    let first = if first.starts_with('-') {
        String::new()
    } else {
        first
    };
    let tests: [(&str, fn()); 3] = [
        (
            "a_program_comes_from_a_store_of_its_own_within_the_limits_of_its_cluster",
            a_program_comes_from_a_store_of_its_own_within_the_limits_of_its_cluster,
        ),
        (
            "a_pipeline_gives_over_three_containers_what_it_gives_embedded",
            a_pipeline_gives_over_three_containers_what_it_gives_embedded,
        ),
        (
            "with_certificates_it_runs_and_strangers_are_turned_away_on_every_port",
            with_certificates_it_runs_and_strangers_are_turned_away_on_every_port,
        ),
    ];
    let mut failed = Vec::new();
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&first)) {
        match catch_unwind(test) {
            Ok(()) => println!("test {name} ... ok"),
            Err(_) => {
                println!("test {name} ... FAILED");
                failed.push(*name);
            }
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\nfailures:\n    {}\n", failed.join("\n    "));
    ExitCode::from(101)
}

const CLUSTER: &str =
    "--set cluster.directory={}/cluster --set cluster.port=0 --set cluster.patience=100s";

/// Returns the results of an embedded run.
fn embedded(arena: &Arena) -> [Vec<String>; 2] {
    arena.succeed("run --threads 2 -- {} {}/embedded");
    let results = ["sums", "met"].map(|name| arena.result("embedded", name, 2));
    assert!(
        results.iter().all(|lines| lines.len() > 1_000),
        "too little"
    );
    results
}

/// Waits until the cluster gives the same results.
fn check_results(arena: &Arena, expected: &[Vec<String>; 2]) {
    for (name, expected) in ["sums", "met"].iter().zip(expected) {
        let result = || arena.result("spread", name, 2);
        until(name, || arena.told(), || !result().is_empty());
        assert_eq!(&result(), expected, "{name}");
    }
}

/// Checks that no process runs any more: the hosts of a cluster for one job end with the job.
fn check_end(arena: &Arena) {
    let told = || format!("{:?} {}", arena.processes(), arena.told());
    until("the end of all processes", told, || {
        arena.processes().is_empty()
    });
}

fn a_pipeline_gives_over_three_containers_what_it_gives_embedded() {
    let arena = Arena::new();
    let expected = embedded(&arena);
    let plan = arena.succeed(&format!(
        "plan {CLUSTER} --set job.containers=3 -- {{}} {{}}/spread"
    ));
    assert!(plan.contains("stay together: "), "{plan}");
    assert!(plan.contains("in 3 containers"), "{plan}");
    let submit = format!("submit {CLUSTER} --set job.containers=3");
    arena.succeed(&format!(
        "{submit} --set dead_letters={{}}/bad -- {{}} {{}}/spread"
    ));
    check_results(&arena, &expected);
    check_end(&arena);
    let bad = std::fs::read_dir(arena.path().join("bad")).unwrap();
    let files = bad.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let letters: Vec<String> = files.collect();
    assert_eq!(letters.len(), 3, "each container has a file: {letters:?}");
    let all = letters.concat();
    assert!(
        all.lines().count() == 1 && all.contains("\"raw\":\"broken\""),
        "{all}"
    );
    let told = arena.told();
    assert_eq!(told.matches("the job is over").count(), 3, "{told}");
}

fn a_program_comes_from_a_store_of_its_own_within_the_limits_of_its_cluster() {
    let arena = Arena::new();
    let submit = format!("submit {CLUSTER} --set cluster.packages=shelf:{{}}/shelf");
    let small = "--set cluster.package_size=64KiB";
    let refused = arena.run(&format!("{submit} {small} -- {{}} {{}}/spread"));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("65536"),
        "{text}"
    );
    assert!(text.contains("cluster.package_size"), "{text}");
    assert!(arena.processes().is_empty(), "{:?}", arena.processes());

    arena.succeed(&format!("{submit} -- {{}} {{}}/spread"));
    let name = "sums";
    let result = || arena.result("spread", name, 2);
    until(name, || arena.told(), || !result().is_empty());
    check_end(&arena);
    let stored = std::fs::read_dir(arena.path().join("shelf")).unwrap();
    assert_eq!(stored.count(), 1);
    assert!(!arena.cluster().join("packages").exists());
}

fn with_certificates_it_runs_and_strangers_are_turned_away_on_every_port() {
    let arena = Arena::new();
    let expected = embedded(&arena);
    let certificates = tls_clients::certify(arena.path());
    let submit = format!("submit {CLUSTER} {certificates} --set job.containers=2");
    arena.succeed(&format!("{submit} -- {{}} {{}}/spread linger"));
    check_results(&arena, &expected);

    let listeners = tls_clients::listeners(&arena.processes());
    // Two hosts, for users, for the leader's workers and for schedulers; two containers, for each
    // other.
    assert!(listeners.len() >= 6, "{listeners:?}");
    let authority = arena.path().join("authority.pem");
    for at in &listeners {
        for answer in [
            tls_clients::asked_plainly(*at),
            tls_clients::asked_without_certificate(*at, &authority),
        ] {
            let text = String::from_utf8_lossy(&answer).into_owned();
            assert!(
                !text.contains("HTTP/1.1") && !text.contains("orders"),
                "{at}: {text}"
            );
        }
    }
    let refused = arena.run(&format!("submit {CLUSTER} --name other -- {{}} {{}}/other"));
    assert!(!refused.status.success());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("certificates"), "{text}");
}
