//! A job whose containers are Slurm jobs, on a real Slurm cluster of one node.

use std::fs;
use std::process::Command;

use ardea_metastore::conformance::{Server, Skipped};

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes::kill;

/// The options with which `sbatch` is called.
const OPTIONS: &str = "--set cluster.scheduler=slurm --set slurm.options=--comment=of-a-test";

/// Returns the output of a Slurm command on the cluster.
fn slurm(server: &Server, command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap())
        .args(words)
        .env("SLURM_CONF", server.folder().join("slurm.conf"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn containers_in_slurm_jobs_lose_no_number_and_leave_no_job() {
    let server = match Server::start("slurm.sh") {
        Ok(server) => server,
        Err(Skipped(why)) => {
            eprintln!("SKIPPED containers in Slurm jobs: {why}");
            return;
        }
    };
    let conf = server.folder().join("slurm.conf");
    let arena = Arena::new().with_variable("SLURM_CONF", &conf.display().to_string());
    arena.succeed("cluster start --workers 2");
    let job = NumbersJob::begun_in(arena, 500, |_| OPTIONS.to_string());
    let arena = &job.arena;
    let described = arena.json("describe numbers");
    assert_eq!(described["scheduler"], "slurm");
    job.until_more();
    let queue = slurm(&server, "squeue --noheader --format=%j|%k|%T");
    let queued: Vec<&str> = queue.lines().collect();
    assert_eq!(queued.len(), 3, "one Slurm job a container: {queued:?}");
    for line in queued {
        let is_ours = line.starts_with("ardea/local/numbers-");
        assert!(is_ours && line.ends_with("|of-a-test|RUNNING"), "{line}");
    }

    // Its script restarts it; no other container is touched.
    let with_spout = job.container_of("numbers#0");
    let without = (1..=3).find(|container| *container != with_spout);
    job.kill_container(without.unwrap(), kill);
    let told = arena.succeed("describe numbers -v");
    assert!(told.contains("signal 9"), "{told}");

    // A new leader finds the containers.
    let workers = arena.workers("numbers");
    let leader = crate::lifecycle::leader(arena, "numbers").unwrap();
    kill(arena.host(&leader));
    arena.until("another leads", || {
        crate::lifecycle::leader(arena, "numbers").is_some_and(|now| now != leader)
    });
    arena.until_phase("numbers", "running");
    assert_eq!(arena.workers("numbers"), workers, "nothing was restarted");
    job.until_more();
    job.end();
    no_job_is_left(arena, &server);

    what_is_printed_is_told_and_a_killed_job_leaves_nothing(arena, &server);
}

fn what_is_printed_is_told_and_a_killed_job_leaves_nothing(arena: &Arena, server: &Server) {
    arena.succeed(&format!(
        "submit word-count.yaml --set job.containers=2 {OPTIONS}"
    ));
    arena.until("something printed", || {
        let told = arena.succeed("logs word-count --source stdout");
        told.contains('\t')
    });
    arena.succeed("kill word-count --yes");
    assert_eq!(arena.workers("word-count"), []);
    no_job_is_left(arena, server);
    let wrong = arena.fail("submit word-count.yaml --set slurm.options=long");
    assert!(
        wrong.contains("slurm.options") && wrong.contains("no option of sbatch"),
        "{wrong}"
    );
    arena.succeed("cluster stop");
    let left = arena.cluster().join("slurm/jobs");
    let left = fs::read_dir(left).unwrap().flatten();
    assert!(left.count() > 0, "what they wrote is kept");
}

fn no_job_is_left(arena: &Arena, server: &Server) {
    arena.until("no Slurm job", || {
        slurm(server, "squeue --noheader --states=all --format=%j|%T")
            .lines()
            .all(|line| {
                ["|COMPLETED", "|CANCELLED", "|FAILED"]
                    .iter()
                    .any(|end| line.ends_with(end))
            })
    });
}
