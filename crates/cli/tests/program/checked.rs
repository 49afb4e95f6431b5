//! Invalid settings are refused by the commands that would use them, before anything is stored or
//! started.

use std::fs;

use crate::clusters::{WORD_COUNT, fails};
use crate::served::Served;

#[test]
fn what_no_job_could_run_with_is_refused_wherever_it_is_given() {
    let served = Served::new(None);
    fs::write(served.folder.path().join("count.yaml"), WORD_COUNT).unwrap();
    for wrong in [
        "cluster.name=a/b",
        "container.cpu=2x",
        "cluster.state=foo",
        "cluster.directory=rel",
        "cluster.token_file=tok",
        "cluster.packages=foo",
        "cluster.packing=foo",
        "metrics.sinks=prom",
        "metrics.sinks=prometheus:xx",
        "metrics.sinks=json-lines",
        "worker.ports=7499-7400",
        "worker.transport=udp",
        "worker.bind=http://a",
        "worker.heartbeat=5s",
    ] {
        let (key, value) = wrong.split_once('=').unwrap();
        let told = format!("{key} cannot be {value:?} (from --set)");
        for command in [
            "config",
            "plan count.yaml --dry-run",
            "submit count.yaml",
            "cluster start",
        ] {
            fails(&served, &format!("{command} --set {wrong}"), 2, &told);
        }
    }
    for command in ["config", "cluster start"] {
        let line = format!("{command} --set cluster.scheduler=k8s");
        fails(&served, &line, 2, "choose one of: hosts, local, slurm");
    }
    fails(
        &served,
        "config --set cluster.api=foo",
        2,
        "http://HOST:PORT",
    );
    let files = fs::read_dir(served.folder.path()).unwrap();
    assert_eq!(files.count(), 1, "nothing was stored or made");
    assert!(!served.succeed("list").contains("word count"));
}

#[test]
fn a_host_that_can_not_start_ends_with_the_code_of_what_kept_it() {
    let served = Served::new(None);
    let line = "cluster start --set cluster.host=no.such.host.invalid";
    fails(
        &served,
        line,
        2,
        "error: ARD-102: host \"host-1\" did not come up",
    );
    let line = "cluster start --set cluster.directory=/proc/nope";
    fails(&served, line, 3, "cannot start hosts in /proc/nope");
}

#[test]
fn an_empty_variable_that_should_name_the_file_is_named() {
    let served = Served::new(None);
    fails(
        &served,
        "config --config=",
        2,
        "unset the variable ARDEA_CONFIG",
    );
}

#[test]
fn what_a_file_says_for_a_program_with_parts_of_its_own_is_a_warning_to_others() {
    let served = Served::new(None);
    let file = served.folder.path().join("ardea.toml");
    let own = "metrics.sinks = \"statsd:a:1\"\nworker.transport = \"unix\"\ncluster.packing = \"by-rack\"\n";
    fs::write(&file, own).unwrap();
    let finished = served.run("config");
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(finished.out.contains("by-rack"), "{finished:?}");
    for part in ["statsd", "unix", "by-rack", "`PROGRAM plan`"] {
        assert!(finished.err.contains(part), "{part}: {finished:?}");
    }
    // A value that no program accepts is refused wherever it is written.
    fs::write(&file, "metrics.sinks = \"prometheus:xx\"\n").unwrap();
    fails(&served, "config", 2, "metrics.sinks cannot be");
}
