//! Invalid input: from users, and on disk.

use std::fs;

use crate::arena::Arena;
use crate::processes::{kill, kill_group};

pub fn what_can_not_run_is_refused_with_the_reason() {
    let arena = Arena::with_hosts(1);
    arena.succeed("submit word-count.yaml");
    let workers = arena.workers("word-count");

    for (line, says) in [
        ("submit word-count.yaml", "ARD-603"),
        (
            "submit word-count.yaml --name large --set instance.memory=2GiB --set container.memory=1GiB",
            "wants 2GiB memory",
        ),
        (
            "submit word-count.yaml --name x --set cluster.scheduler=slrm",
            "slrm",
        ),
        (
            "submit word-count.yaml --name x --set cluster.packing=bin",
            "bin",
        ),
        ("submit nothing.yaml", "nothing.yaml"),
        ("kill word-cuont --yes", "did you mean word-count?"),
        ("plan word-cuont", "did you mean word-count?"),
        ("submit wordcuont", "did you mean wordcount?"),
        ("cluster stop --cluster locla", "did you mean local?"),
        ("logs word-count --container 9", "it has one: 1"),
    ] {
        let said = arena.fail(line);
        assert!(said.contains(says), "{line}: {said}");
        assert!(said.contains("hint:"), "{line}: {said}");
    }
    let api = arena.json("cluster status")["hosts"][0]["api"].clone();
    let other = arena.fail(&format!(
        "list --cluster other --at {}",
        api.as_str().unwrap()
    ));
    assert!(other.contains("belongs to cluster \"local\""), "{other}");

    corrupt_package(&arena);
    assert_eq!(arena.workers("word-count"), workers);
    assert_eq!(arena.json("list").as_array().unwrap().len(), 1);
    arena.until_phase("word-count", "running");
}

pub fn a_state_that_can_not_be_read_is_told_where_people_look_and_given_up_by_them() {
    let arena = Arena::with_hosts(2);
    arena.succeed("submit word-count.yaml");
    let workers = arena.workers("word-count");
    let job = arena.cluster().join("state/tree/jobs/word-count");
    let nodes = fs::read_dir(job).unwrap().flatten().map(|it| it.path());
    let is_lease = |path: &std::path::PathBuf| path.to_string_lossy().contains("/master-");
    let lease = nodes.filter(|path| is_lease(path)).last().unwrap();
    fs::write(lease.join(".node"), "junk").unwrap();

    let says_why = |told: &str| told.contains("ARD-505") && told.contains("master-");
    arena.until("told by describe", || {
        arena
            .look("word-count")
            .is_some_and(|told| says_why(&told["reason"].to_string()))
    });
    let listed = arena.succeed("list");
    assert!(
        listed.contains("no leader") && says_why(&listed),
        "{listed}"
    );
    for host in ["host-1", "host-2"] {
        let log = arena.cluster().join(format!("logs/{host}.log"));
        arena.until("told by the log", || {
            says_why(&fs::read_to_string(&log).unwrap())
        });
    }
    let lease = lease.file_name().unwrap().to_string_lossy().into_owned();
    arena.succeed(&format!("metastore remove /jobs/word-count/{lease}"));
    arena.until_phase("word-count", "running");
    assert_eq!(arena.workers("word-count"), workers, "its data went on");

    let definition = "/jobs/word-count/definition";
    let whole = arena.fail(&format!("metastore remove {definition}"));
    assert!(whole.contains("not damaged"), "{whole}");
    let file = arena
        .cluster()
        .join(format!("state/tree{definition}/.node"));
    fs::write(file, "junk").unwrap();
    let kept = arena.fail("kill word-count --yes");
    let way_out = format!("`ardea metastore remove {definition}`");
    assert!(
        kept.contains("ARD-505") && kept.contains(&way_out),
        "{kept}"
    );
    arena.succeed(&format!("metastore remove {definition}"));
    arena.until("over: what ran of the job", || {
        arena.workers("word-count").is_empty()
    });
    arena.succeed("submit word-count.yaml");
    arena.until_phase("word-count", "running");
}

/// Checks that a package with a changed byte is never run, that the job's description has the
/// reason, and that submitting again repairs it.
fn corrupt_package(arena: &Arena) {
    arena.write("more.txt", "another package");
    let submit = "submit word-count.yaml --name damaged --file more.txt";
    arena.succeed(submit);
    let described = arena.json("describe damaged");
    let digest = described["program"]["package"].as_str().unwrap();
    let package = arena.cluster().join(format!("packages/{digest}.tar.zst"));
    let mut bytes = fs::read(&package).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;

    arena.hosts().iter().for_each(|(_, pid)| kill(*pid));
    arena
        .workers("damaged")
        .iter()
        .for_each(|(_, pid)| kill_group(*pid));
    fs::remove_dir_all(arena.cluster().join("cache").join(digest)).unwrap();
    fs::write(&package, bytes).unwrap();
    arena.succeed("cluster start");
    arena.until("told: why it does not run", || {
        arena
            .look("damaged")
            .is_some_and(|told| told.to_string().contains("ARD-63"))
    });
    assert_eq!(arena.workers("damaged"), []);

    let taken = arena.fail(submit);
    assert!(taken.contains("ARD-603"), "{taken}");
    arena.until_phase("damaged", "running");
    arena.succeed("kill damaged --yes");
}
