//! Jobs that have ended: the queries that still work.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use crate::arena::Arena;
use crate::processes::kill;

/// Two thousand words, counted in two containers.
const SHORT: &str = "
name: short
config: { reliability: at-least-once }
spouts:
  - { name: words, component: words, settings: { total: 2000 } }
bolts:
  - { name: counts, component: count, parallelism: 2, inputs: [{ from: words, grouping: fields, fields: [word] }] }
  - { name: out, component: print, inputs: [{ from: counts, grouping: global }] }
";

/// Runs the job to its end; returns the output of the submission.
fn ended(arena: &Arena, options: &str) -> String {
    arena.write("short.yaml", SHORT);
    let told = arena.succeed(&format!(
        "submit short.yaml --set job.containers=2 {options}"
    ));
    arena.until("ended: short", || {
        arena.run("logs short").status.success()
            && arena
                .look("short")
                .is_some_and(|it| it["ending"] == "finished")
    });
    told
}

/// Checks that the logs of both containers are shown.
fn tells_what_it_wrote(arena: &Arena) {
    let told = arena.succeed("logs short --json --tail 10000");
    let lines = told.lines().map(|line| -> serde_json::Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let lines: Vec<_> = lines.collect();
    let containers: BTreeSet<u64> = lines
        .iter()
        .filter_map(|line| line["container"].as_u64())
        .collect();
    assert_eq!(containers, BTreeSet::from([1, 2]), "{told}");
    let printed = lines.iter().filter(|line| line["source"] == "stdout");
    assert_eq!(printed.count(), lines_written(arena));
    let last = arena.run("logs short --source stdout --tail 1");
    assert_eq!(String::from_utf8_lossy(&last.stdout).lines().count(), 1);
    let said = String::from_utf8_lossy(&last.stderr).into_owned();
    assert!(said.contains("\"short\" ended at 20"), "{said}");
}

/// Returns the number of lines that containers have written to standard output.
fn lines_written(arena: &Arena) -> usize {
    let mut lines = 0;
    let mut folders = vec![arena.cluster()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == "stdout.log" {
                lines += std::fs::read_to_string(entry.path())
                    .unwrap()
                    .lines()
                    .count();
            }
        }
    }
    assert!(lines > 100, "{lines}");
    lines
}

pub fn a_job_of_its_own_hosts_tells_how_it_ended_and_what_it_wrote_when_they_are_gone() {
    let arena = Arena::new();
    let told = ended(&arena, "");
    assert!(told.contains("it has its own, which end with it"), "{told}");
    arena.until("gone: the hosts", || arena.processes().is_empty());
    let all = arena.json("list --all");
    assert_eq!(all["jobs"].as_array().map(Vec::len), Some(0));
    assert_eq!(all["past"][0]["name"], "short");
    let described = arena.run("describe short");
    assert!(described.status.success(), "{described:?}");
    let text = String::from_utf8_lossy(&described.stdout).into_owned();
    assert!(text.contains("finished: all of its sources"), "{text}");
    let said = String::from_utf8_lossy(&described.stderr).into_owned();
    assert!(
        said.contains("no host of cluster \"local\" is up"),
        "{said}"
    );
    tells_what_it_wrote(&arena);
    for command in ["kill", "top", "metrics", "pause"] {
        let told = arena.fail(&format!("{command} short"));
        assert!(
            told.contains("ended at 20") && told.contains("it had finished"),
            "{told}"
        );
    }
    let other = arena.fail("describe shrot");
    assert!(other.contains("there is no job \"shrot\""), "{other}");
    let other = arena.fail("logs shrot");
    assert!(other.contains("there is no job \"shrot\""), "{other}");
    let submission = all["past"][0]["submission"].as_str().unwrap();
    let earlier = arena.run(&format!("logs short --submission {submission} --tail 1"));
    assert!(earlier.status.success() && !earlier.stdout.is_empty());

    let jobs = arena.cluster().join("local/jobs");
    std::fs::remove_dir_all(jobs).unwrap();
    let told = arena.fail("logs short");
    assert!(
        told.contains("can't be found") && told.contains("kept for a day"),
        "{told}"
    );
}

pub fn what_a_job_wrote_on_several_hosts_is_told_by_any_of_them_after_its_end() {
    let arena = Arena::with_hosts(2);
    let told = ended(&arena, "--set cluster.scheduler=hosts");
    assert_eq!(told.lines().count(), 1, "{told}");
    tells_what_it_wrote(&arena);
    let told = arena.fail("update short counts=3");
    assert!(
        told.contains("ended at 20") && told.contains("logs short"),
        "{told}"
    );
    let only = arena.succeed("logs short --container 2 --json");
    assert!(
        !only.is_empty() && !only.contains("\"container\":1"),
        "{only}"
    );
}

pub fn who_follows_what_a_job_writes_has_it_to_the_last_line_and_is_told_its_end() {
    let arena = Arena::with_hosts(2);
    for scheduler in ["local", "hosts"] {
        let job = format!("on-{scheduler}");
        let text = SHORT.replace("short", &job);
        arena.write("endless.yaml", &text.replace("total: 2000", "rate: 50"));
        arena.succeed(&format!(
            "submit endless.yaml --set job.containers=2 --set cluster.scheduler={scheduler}"
        ));
        let last = || {
            let logs = arena.run(&format!("logs {job} --source stdout --tail 1"));
            String::from_utf8_lossy(&logs.stdout).trim().to_string()
        };
        arena.until("written: something", || !last().is_empty());
        let follow = format!("logs {job} --source stdout --tail 1 --follow");
        let mut follower = arena.begin_with_output(&follow);
        let mut followed = String::new();
        let stdout = follower.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, stdout)
            .read_line(&mut followed)
            .unwrap();
        assert!(!followed.is_empty());
        arena.succeed(&format!("kill {job} --yes"));
        arena.until("ended: who follows", || {
            follower.try_wait().unwrap().is_some()
        });
        let told = follower.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(
            told.status.success() && said.contains("it was killed"),
            "{said}"
        );
        followed += &String::from_utf8_lossy(&told.stdout);
        assert_eq!(followed.lines().last().map(str::trim), Some(&*last()));
    }
}

pub fn a_job_without_a_host_tells_what_it_wrote_and_obeys_the_host_that_comes() {
    let arena = Arena::new();
    for job in ["lonely", "other"] {
        let text = SHORT
            .replace("short", job)
            .replace("total: 2000", "rate: 5");
        arena.write("job.yaml", &text);
        arena.succeed("submit job.yaml");
    }
    arena.until("gone: the hosts of lonely", || {
        let hosts = arena.hosts().into_iter();
        let own: Vec<_> = hosts.filter(|it| it.0.starts_with("lonely")).collect();
        own.iter().for_each(|(_, pid)| kill(*pid));
        own.is_empty()
            && arena
                .look("lonely")
                .is_some_and(|it| it["master"].is_null())
    });
    let told = arena.fail("kill lonely --yes");
    assert!(
        told.contains("`ardea cluster start` starts a host"),
        "{told}"
    );
    let logs = arena.run("logs lonely --tail 1");
    assert!(logs.status.success() && !logs.stdout.is_empty(), "{logs:?}");
    let said = String::from_utf8_lossy(&logs.stderr).into_owned();
    assert!(said.contains("the hosts of lonely are gone"), "{said}");
    let told = arena.fail("logs lonely --follow");
    assert!(told.contains("no host is registered"), "{told}");
    arena.succeed("cluster start");
    arena.succeed("kill lonely --yes");
    arena.succeed("kill other --yes");
}
