//! The normal life of a job, and hosts for one job.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::arena::Arena;
use crate::processes;

pub fn a_submitted_job_is_seen_alike_everywhere_and_leaves_nothing_when_it_is_killed() {
    let arena = Arena::with_hosts(2);
    assert_eq!(arena.hosts().len(), 2);
    arena.succeed("submit word-count.yaml --set job.containers=2");

    let listed = arena.json("list");
    let described = arena.json("describe word-count");
    for field in [
        "name",
        "submission",
        "phase",
        "container_count",
        "instance_count",
    ] {
        assert_eq!(listed[0][field], described[field], "{field}");
    }
    assert_eq!(described["phase"], "running");
    assert_eq!(described["instance_count"], 5);
    let workers = arena.workers("word-count");
    assert_eq!(workers.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2]);

    // No job that comes with ardea has that name, so it is looked up on the cluster.
    let plans = arena.json("plan word-count");
    let packed = plans["physical"]["containers"].as_array().unwrap();
    let described = described["containers"].as_array().unwrap();
    for (packed, described) in packed.iter().zip(described) {
        assert_eq!(packed["id"], described["id"]);
        assert_eq!(packed["address"], described["address"]);
        assert_eq!(described["state"], "up");
    }

    arena.until("counted in both containers", || {
        let top = arena.json("top word-count --once");
        let rates = top["vertices"].as_array().unwrap().iter();
        let rates: Vec<f64> = rates
            .filter_map(|it| it["records_in_per_s"].as_f64())
            .collect();
        let containers = top["containers"].as_array().unwrap().len();
        containers == 2 && rates.iter().filter(|rate| **rate > 0.0).count() >= 2
    });
    arena.until("metrics of records", || {
        arena.metric("word-count", "counts", "ardea_records_in_total") > 0.0
    });
    arena.until("something printed", || {
        arena
            .succeed("logs word-count --source stdout")
            .contains('\t')
    });
    let status = arena.json("cluster status");
    assert_eq!(status["hosts"].as_array().unwrap().len(), 2);
    assert_eq!(status["jobs"][0]["name"], "word-count");

    remembered(&arena);

    arena.succeed("kill word-count --yes");
    assert_eq!(arena.workers("word-count"), []);
    assert_eq!(arena.hosts().len(), 2);
    assert_eq!(arena.json("list").as_array().unwrap().len(), 0);
    assert_eq!(left_in_containers(&arena), ["stderr.log", "stdout.log"]);
    let told = arena.cluster().join("state/tree/jobs/word-count");
    arena.until("gone: what was told of the job", || !told.exists());

    arena.succeed("cluster stop");
    assert_eq!(arena.processes(), []);
}

pub fn who_stops_a_cluster_that_is_down_is_told_which_jobs_go_on() {
    let arena = Arena::with_hosts(1);
    arena.succeed("submit word-count.yaml");
    arena.succeed("cluster stop");
    let told = arena.fail("cluster stop --kill-jobs");
    assert!(told.contains("these keep running: word-count"), "{told}");
    let told = arena.run("cluster stop");
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success(), "{said}");
    assert!(said.contains("these jobs keep running"), "{said}");
    arena.succeed("cluster start");
    arena.succeed("cluster stop --kill-jobs");
    assert_eq!(arena.processes(), []);
}

/// Checks that the metadata store has the job's definition, its plan, the locations of its
/// containers, its scheduler (Heron, section IV-C), and its leader.
fn remembered(arena: &Arena) {
    let known = |path: &str| -> Value {
        let dumped = arena.json(&format!("metastore dump --below /jobs/word-count{path}"));
        dumped["tree"].clone()
    };
    let definition = &known("/definition")["value"];
    let submitted = &definition["submitted"]["definition"];
    assert_eq!(submitted["job"]["name"], "word-count", "{definition}");
    let plan = &known("/packing-plan")["value"]["plan"];
    assert_eq!(plan["containers"].as_array().unwrap().len(), 2, "{plan}");
    assert_eq!(known("/scheduler")["value"]["name"], "local");
    let containers = known("/containers");
    for container in containers["children"].as_array().unwrap() {
        let endpoint = container["value"]["endpoint"].as_str().unwrap();
        let (_, port) = endpoint.rsplit_once(':').unwrap();
        assert!(port.parse::<u16>().is_ok(), "{containers}");
    }
    let text = arena.succeed("metastore dump");
    assert!(
        text.contains("─ master-") && text.contains("\"holder\""),
        "{text}"
    );
}

/// Returns the files that the containers of all jobs have left, except the records of their end.
fn left_in_containers(arena: &Arena) -> Vec<String> {
    let mut left = Vec::new();
    let mut folders = vec![arena.cluster().join("local/jobs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false if name.ends_with(".json") || name == "lock" => {}
                false => left.push(name),
            }
        }
    }
    left.sort();
    left.dedup();
    left
}

pub fn a_cluster_for_one_job_outlives_its_leader_and_ends_with_the_job() {
    let arena = Arena::new();
    arena.succeed("submit word-count.yaml --set job.containers=2");
    assert_eq!(arena.hosts().len(), 2);
    let workers = arena.workers("word-count");
    assert_eq!(workers.len(), 2);
    let leader = leader(&arena, "word-count").unwrap();
    processes::kill(arena.host(&leader));

    arena.until("another leads, and a third stands by", || {
        let leads = self::leader(&arena, "word-count");
        leads.is_some_and(|now| now != leader) && arena.hosts().len() == 2
    });
    arena.until_phase("word-count", "running");
    assert_eq!(
        arena.workers("word-count"),
        workers,
        "nothing was restarted"
    );
    let described = arena.json("describe word-count");
    for container in described["containers"].as_array().unwrap() {
        assert_eq!(container["restarts"], 0);
    }

    arena.succeed("kill word-count --yes");
    assert_eq!(arena.workers("word-count"), []);
    arena.until("gone: the hosts", || arena.processes().is_empty());
}

pub fn a_job_that_comes_again_as_its_hosts_are_about_to_end_keeps_hosts() {
    let arena = Arena::new();
    arena.succeed("submit word-count.yaml");
    arena.succeed("kill word-count --yes");
    arena.succeed("submit word-count.yaml");
    // Hosts of a job that is gone end within three seconds.
    let begin = Instant::now();
    arena.until("it runs on", || {
        let is_late = begin.elapsed() > Duration::from_secs(6);
        is_late && arena.phase("word-count").as_deref() == Some("running")
    });
    assert_eq!(arena.hosts().len(), 2);
    arena.succeed("kill word-count --yes");
    arena.until("gone: the hosts", || arena.processes().is_empty());
}

/// Returns the host that leads a job.
pub fn leader(arena: &Arena, job: &str) -> Option<String> {
    let described = arena.look(job)?;
    Some(described["master"]["host"].as_str()?.to_string())
}

pub fn jobs_are_listed_while_their_leader_changes() {
    let arena = Arena::with_hosts(3);
    arena.succeed("submit word-count.yaml");
    for end in [processes::kill as fn(i32), processes::freeze] {
        let before = leader(&arena, "word-count").unwrap();
        let status = arena.json("cluster status");
        let hosts = status["hosts"].as_array().unwrap().iter();
        let others: Vec<String> = hosts
            .filter(|host| host["name"] != before.as_str())
            .map(|host| host["api"].as_str().unwrap().to_string())
            .collect();
        assert!(!others.is_empty());
        end(arena.host(&before));
        arena.until("another one leads", || {
            let listed = arena.json("list");
            assert_eq!(names(&listed), ["word-count"]);
            for api in &others {
                let listed = get(api, "/v1/jobs");
                assert_eq!(names(&listed), ["word-count"], "{api}");
            }
            leader(&arena, "word-count").is_some_and(|now| now != before)
        });
    }
    arena.until_phase("word-count", "running");
}

/// Returns the names of the jobs in a list.
fn names(listed: &Value) -> Vec<&str> {
    let jobs = listed.as_array().unwrap().iter();
    jobs.map(|job| job["name"].as_str().unwrap()).collect()
}

/// Returns the response of a REST interface to a GET request.
fn get(api: &str, path: &str) -> Value {
    let address = api.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

pub fn a_second_job_without_hosts_for_all_gets_its_own() {
    let arena = Arena::new();
    arena.succeed("submit word-count.yaml");
    arena.succeed("submit word-count.yaml --name other");
    assert_eq!(arena.hosts().len(), 4);
    let listed = arena.json("list");
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let taken = arena.fail("submit word-count.yaml --name other");
    assert!(taken.contains("ARD-603"), "{taken}");

    arena.succeed("kill word-count --yes");
    arena.until("gone: the first one's hosts", || arena.hosts().len() == 2);
    assert_eq!(arena.phase("other").as_deref(), Some("running"));
}
