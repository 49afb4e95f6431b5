//! Starting hosts: by several commands at once, and with truncated files.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes::kill;

pub fn several_who_start_a_cluster_at_once_all_find_it_up() {
    for _ in 0..3 {
        let arena = Arena::new();
        let line = "cluster start --workers 2";
        let starting: Vec<_> = (0..4).map(|_| arena.begin_with_output(line)).collect();
        let outputs = starting
            .into_iter()
            .map(|it| it.wait_with_output().unwrap());
        let outputs: Vec<_> = outputs.collect();
        let mut said = Vec::new();
        for output in &outputs {
            assert!(output.status.success(), "{outputs:?}");
            said.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let found = said.iter().filter(|it| it.contains("is up already"));
        assert_eq!(found.count(), 3, "{said:?}");
        let hosts = arena.hosts();
        let names: BTreeSet<&String> = hosts.iter().map(|(name, _)| name).collect();
        assert_eq!((hosts.len(), names.len()), (2, 2), "{hosts:?}");
        let status = arena.json("cluster status");
        assert_eq!(status["hosts"].as_array().unwrap().len(), 2);
    }
}

pub fn a_cluster_that_is_given_what_is_anothers_neither_takes_nor_stops_it() {
    let arena = Arena::with_hosts(1);
    let folder = arena.cluster().display().to_string();
    let state = format!("--set cluster.state=file:{folder}/state");
    let directory = format!("--set cluster.directory={folder}");
    for option in [&state, &directory] {
        let told = arena.fail(&format!("cluster start --cluster other {option}"));
        assert!(
            told.contains("ARD-606") && told.contains("of cluster local"),
            "{told}"
        );
    }
    let hosts = arena.hosts();
    let told = arena.run(&format!("cluster stop --cluster other {directory}"));
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("other is not up"), "{told}");
    assert_eq!(arena.hosts(), hosts);
    arena.succeed("list");

    let told = arena.fail("cluster start --foreground --name ../../evil");
    assert!(told.contains("can't be named"), "{told}");
    assert!(!arena.cluster().join("../evil").exists());
}

pub fn a_truncated_record_costs_no_host_and_no_number() {
    let job = NumbersJob::begun(1_000);
    let arena = &job.arena;
    job.until_more();
    let workers = arena.workers("numbers");
    let hosts = arena.hosts();
    let file_of = |pid: i32| arena.cluster().join(format!("run/{pid}.json"));

    // Hosts rewrite their run files before long.
    fs::write(file_of(hosts[0].1), "").unwrap();
    arena.until("written again: the file of a host", || {
        fs::read(file_of(hosts[0].1)).is_ok_and(|text| !text.is_empty())
    });

    // The next hosts find all containers, including that one.
    hosts.iter().for_each(|(_, pid)| kill(*pid));
    let record = record_of(arena, 2);
    fs::write(&record, "").unwrap();
    arena.succeed("cluster start --workers 2");
    arena.until_phase("numbers", "running");
    job.until_more();
    assert_eq!(arena.workers("numbers"), workers, "nothing was restarted");
    arena.until("told: the damaged record", || {
        let told = arena.succeed("describe numbers -v");
        told.contains("run.json.damaged")
    });

    // A container with such a record that dies is replaced like any other.
    fs::write(&record, "").unwrap();
    job.kill_container(2, kill);
    job.end();
}

fn record_of(arena: &Arena, container: u64) -> PathBuf {
    let jobs = fs::read_dir(arena.cluster().join("local/jobs")).unwrap();
    let job = jobs.flatten().next().unwrap().path();
    job.join(format!("container-{container}/run.json"))
}
