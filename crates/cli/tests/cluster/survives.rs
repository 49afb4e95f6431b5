//! Jobs with a guarantee: whatever is killed or changed, what they publish is what it would have been.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde_json::Value;

use crate::arena::Arena;
use crate::processes::{kill, kill_group};
use crate::tally::Tally;

/// A job `tally` in three containers.
pub struct Surviving {
    pub arena: Arena,
    pub out: Tally,
    numbers: u64,
}

/// How a job is submitted that promises something.
pub fn promises(options: &str) -> String {
    format!("--set job.containers=3 --set snapshots.folder=kept {options}")
}

/// The options of a job in three containers, with its snapshots in the memory of hosts.
pub fn in_memory(options: &str) -> String {
    format!("--set job.containers=3 {options}")
}

/// More numbers than there is time for.
pub const ENDLESS: u64 = 1_000_000_000;

pub const EXACTLY_ONCE: &str = "--set guarantee=exactly-once --set snapshots.every=200ms";

impl Surviving {
    pub fn begun(numbers: u64, rate: u64, options: &str) -> Self {
        Surviving::submitted(numbers, rate, &promises(options))
    }

    pub fn submitted(numbers: u64, rate: u64, options: &str) -> Self {
        Surviving::submitted_to(Arena::new(), numbers, rate, options)
    }

    /// To two hosts of that cluster, in which nothing runs yet.
    pub fn submitted_to(arena: Arena, numbers: u64, rate: u64, options: &str) -> Self {
        arena.succeed("cluster start --workers 2");
        let out = arena.path().join("out");
        fs::create_dir(&out).unwrap();
        let arguments = format!("tally {} {numbers} {rate}", out.display());
        arena.submit_numbers(options, &arguments);
        Surviving {
            arena,
            out: Tally(out),
            numbers,
        }
    }

    pub fn exactly_once(numbers: u64, rate: u64) -> Self {
        Surviving::begun(numbers, rate, EXACTLY_ONCE)
    }

    /// What is known of its epochs; nothing while nobody tells.
    fn epochs(&self) -> Option<Value> {
        let epochs = self.arena.look("tally")?["epochs"].clone();
        epochs.is_object().then_some(epochs)
    }

    pub fn committed(&self) -> u64 {
        let epochs = self.epochs();
        epochs.and_then(|it| it["committed"].as_u64()).unwrap_or(0)
    }

    /// Waits until more has been committed, and published.
    pub fn until_more(&self) {
        let (committed, lines) = (self.committed(), self.out.lines().len());
        self.arena.until("more is committed and published", || {
            self.committed() > committed && self.out.lines().len() > lines
        });
    }

    fn worker(&self, container: u64) -> i32 {
        let workers = self.arena.workers("tally");
        let found = workers.iter().find(|(id, _)| *id == container);
        found
            .unwrap_or_else(|| panic!("no {container} in {workers:?}"))
            .1
    }

    /// Kills the worker of a container, and waits until the next life has published something.
    pub fn kill_worker(&self, container: u64, kill: fn(i32)) {
        let life = self.life();
        kill(self.worker(container));
        self.arena.until("the next life", || self.life() > life);
        self.until_more();
    }

    fn life(&self) -> u64 {
        let epochs = self.epochs();
        epochs.and_then(|it| it["life"].as_u64()).unwrap_or(0)
    }

    /// The host that leads it, as soon as one does.
    pub fn leader(&self) -> String {
        let mut leader = None;
        self.arena.until("a host leads tally", || {
            let described = self.arena.look("tally").unwrap_or_default();
            leader = described["master"]["host"].as_str().map(str::to_string);
            leader.is_some()
        });
        leader.unwrap_or_default()
    }

    /// Waits for its end, and sees that everything was published, and once.
    fn end(&self) {
        let arena = &self.arena;
        arena.until("the end of tally", || {
            let listed = arena.run("list --json");
            listed.status.success() && listed.stdout.trim_ascii() == b"[]"
        });
        assert_eq!(self.out.lines(), Tally::expected(self.numbers));
        assert_eq!(arena.workers("tally"), []);
    }

    /// Kills it, and sees that all that was published is whole.
    pub fn stop(&self) {
        self.arena.succeed("kill tally --yes");
        assert!(self.out.is_whole().unwrap() > 1_000);
    }

    /// The folder of its snapshots.
    pub fn folder(&self) -> PathBuf {
        let mut folders = fs::read_dir(self.arena.path().join("kept"))
            .unwrap()
            .flatten();
        folders.next().unwrap().path()
    }
}

pub fn what_is_published_is_the_same_whoever_is_killed() {
    let job = Surviving::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    job.kill_worker(1, kill);
    job.kill_worker(2, kill_group);

    // Its master: the containers go on, and so does the life that they are in.
    let (workers, life) = (arena.workers("tally"), job.life());
    kill(arena.host(&job.leader()));
    arena.until("another master", || job.epochs().is_some());
    job.until_more();
    assert_eq!((arena.workers("tally"), job.life()), (workers, life));
    arena.succeed("cluster start --workers 2");

    // Both at once.
    let leader = arena.host(&job.leader());
    kill(job.worker(3));
    kill(leader);
    arena.until("the next life", || job.life() > life);
    job.until_more();
    job.stop();
}

pub fn without_a_folder_snapshots_are_in_the_memory_of_hosts_and_survive_any_of_them() {
    let job = Surviving::submitted(ENDLESS, 1_000, &in_memory(EXACTLY_ONCE));
    let arena = &job.arena;
    job.until_more();
    job.kill_worker(1, kill);
    let seen = arena.json("snapshots tally --check");
    assert!(
        seen["folder"].as_str().unwrap().contains("memory"),
        "{seen}"
    );

    // Each host keeps copies of what the other has.
    for _ in 0..2 {
        let (workers, life) = (arena.workers("tally"), job.life());
        kill(arena.host(&job.leader()));
        arena.until("another master", || job.epochs().is_some());
        job.until_more();
        assert_eq!((arena.workers("tally"), job.life()), (workers, life));
        job.kill_worker(2, kill);
        arena.succeed("cluster start --workers 2");
        job.until_more();
    }

    // What all of them have lost at once those hand over anew who remember it.
    let (workers, life) = (arena.workers("tally"), job.life());
    arena.hosts().iter().for_each(|(_, host)| kill(*host));
    arena.succeed("cluster start --workers 2");
    arena.until("another master", || job.epochs().is_some());
    job.until_more();
    assert_eq!((arena.workers("tally"), job.life()), (workers, life));
    job.kill_worker(3, kill);
    assert!(!arena.path().join("kept").exists());
    job.stop();
}

pub fn what_is_published_is_the_same_with_other_numbers_of_instances() {
    let job = Surviving::exactly_once(ENDLESS, 1_000);
    job.until_more();
    for count in [1, 3, 2] {
        let life = job.life();
        job.arena.succeed(&format!("update tally counts={count}"));
        assert!(job.life() > life);
        job.until_more();
    }
    job.kill_worker(1, kill);
    job.stop();
}

pub fn what_is_published_is_the_same_over_other_numbers_of_workers() {
    let job = Surviving::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    let first = job.worker(1);
    for count in [2, 3] {
        let life = job.life();
        arena.succeed(&format!("rescale tally --workers {count}"));
        assert!(job.life() > life);
        arena.until("as many workers", || arena.workers("tally").len() == count);
        job.until_more();
    }
    // Nothing was restarted that stays.
    assert_eq!(job.worker(1), first);
    let life = job.life();
    arena.succeed("rescale tally --workers 3");
    assert_eq!(job.life(), life);
    job.kill_worker(3, kill);
    job.stop();
}

pub fn the_snapshots_of_a_job_are_shown_and_checked() {
    let job = Surviving::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    job.until_more();
    let seen = arena.json("snapshots tally --check");
    assert_eq!(
        (&seen["job"], &seen["checked"]),
        (&"tally".into(), &true.into())
    );
    let snapshots = seen["snapshots"].as_array().unwrap();
    // Three are kept, and the one that is held while it is read.
    assert!(!snapshots.is_empty() && snapshots.len() <= 4, "{seen}");
    for snapshot in snapshots {
        assert!(snapshot["damage"].is_null(), "{snapshot}");
        let vertices = snapshot["vertices"].as_array().unwrap();
        let counts = vertices.iter().find(|it| it["name"] == "counts").unwrap();
        assert_eq!(counts["instances"], 2);
    }
    // The one that was held is let go, and so followed as any other.
    let epochs = |seen: &Value| -> Vec<u64> {
        let snapshots = seen["snapshots"].as_array().unwrap().iter();
        snapshots.filter_map(|it| it["epoch"].as_u64()).collect()
    };
    let checked = epochs(&seen).into_iter().max();
    arena.until("none is left of those that were checked", || {
        let now = epochs(&arena.json("snapshots tally"));
        now.iter().min() > checked.as_ref()
    });
    let text = arena.succeed("snapshots tally");
    assert!(text.contains("by vertex"), "{text}");
    let text = arena.succeed("describe tally");
    for told in ["exactly-once", "committed", "began from the beginning"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    // Nothing is left of what was given up, nor of parts that have become snapshots.
    arena.until("few parts", || {
        let files = fs::read_dir(job.folder()).unwrap().flatten();
        let parts = files.filter(|it| it.file_name().to_string_lossy().starts_with("part-"));
        parts.count() <= 6
    });
    arena.succeed("kill tally --yes");
}

pub fn a_snapshot_that_is_damaged_is_passed_over_and_that_is_told() {
    let options = "--set guarantee=at-least-once --set snapshots.every=1s";
    let job = Surviving::begun(ENDLESS, 1_000, options);
    let arena = &job.arena;
    job.until_more();
    job.until_more();
    // Before the next one: of the newest nothing can be read.
    let committed = job.committed();
    let name = format!("-{committed}.manifest");
    let files = fs::read_dir(job.folder()).unwrap().flatten();
    let mut manifests = files.filter(|it| it.file_name().to_string_lossy().ends_with(&name));
    fs::write(manifests.next().unwrap().path(), "nothing of it").unwrap();
    let life = job.life();
    kill(job.worker(1));
    arena.until("the next life", || job.life() > life);
    job.until_more();
    let told = arena.succeed("describe tally --verbose");
    if job.epochs().unwrap()["restored_from"].as_u64() < Some(committed) {
        assert!(told.contains("can't be read"), "{told}");
    }
    arena.succeed("kill tally --yes");
}

pub fn a_job_whose_folder_is_away_waits_with_the_reason_and_goes_on_by_itself() {
    let job = Surviving::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    let (folder, away) = (job.folder(), arena.path().join("away"));
    fs::rename(&folder, &away).unwrap();
    kill(job.worker(1));
    let waits = || {
        let listed = arena.json("list");
        let reason = listed[0]["reason"].as_str().unwrap_or_default().to_string();
        reason.contains("not seen at the moment")
    };
    arena.until("it waits", waits);
    // As often as would be too often, if it were a failure.
    let life = job.life();
    arena.until("it has looked again and again", || job.life() > life + 5);
    assert_eq!(arena.phase("tally").as_deref(), Some("recovering"));
    let mut saving = arena.begin_heard("savepoint tally --to saved");
    let mut told = String::new();
    let mut says = BufReader::new(saving.stderr.as_mut().unwrap());
    says.read_line(&mut told).unwrap();
    assert!(told.contains("waits: tally is recovering: "), "{told}");
    fs::rename(&away, &folder).unwrap();
    let saved = saving.wait_with_output().unwrap();
    assert!(saved.status.success(), "{saved:?}");
    job.until_more();
    assert!(!waits());
    job.stop();
}

pub fn a_job_that_can_not_keep_its_promise_is_refused_with_the_reason() {
    let arena = Arena::with_hosts(1);
    let out = arena.path().display().to_string();
    let submit = |options: &str| {
        let output = arena.try_numbers(options, &format!("tally {out} 10 10"));
        assert!(!output.status.success(), "{options}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Where no folder can be made.
    arena.write("file", "");
    let told = submit(&format!("{EXACTLY_ONCE} --set snapshots.folder=file/kept"));
    assert!(told.contains("file/kept"), "{told}");
    let folder = "--set snapshots.folder=kept";
    let told = arena.fail(&format!("submit word-count.yaml {EXACTLY_ONCE} {folder}"));
    assert!(told.contains("would forget"), "{told}");
    assert!(arena.json("list").as_array().unwrap().is_empty());
    // Who comes second leaves no folder.
    let options = format!("{EXACTLY_ONCE} {folder}");
    arena.submit_numbers(&options, &format!("tally {out} {ENDLESS} 1000"));
    let told = submit(&options);
    assert!(told.contains("has a job"), "{told}");
    let kept = fs::read_dir(arena.path().join("kept")).unwrap();
    assert_eq!(kept.count(), 1);
}

pub fn a_job_that_can_not_begin_is_told_for_that_by_all_who_ask() {
    let arena = Arena::with_hosts(1);
    arena.write("book.txt", "to be or not to be");
    let submit = format!("submit wordcount --name words {EXACTLY_ONCE}");
    let failed = arena.fail(&format!("{submit} --set recovery.attempts=2 -- book.txt"));
    assert!(failed.contains("cannot read book.txt"), "{failed}");
    assert!(failed.contains("--file book.txt"), "{failed}");
    arena.until_phase("words", "safe_mode");
    let again = arena.fail("recover words");
    assert!(again.contains("cannot read book.txt"), "{again}");
    arena.succeed("kill words --yes");

    // A file that is missing is missing at each attempt, so none of the hundred is made.
    let options = "--set recovery.attempts=100 --detach";
    arena.succeed(&format!("{submit} {options} -- book.txt"));
    arena.until("it is in safe mode, and says why", || {
        let listed = arena.json("list");
        let reason = listed[0]["reason"].as_str().unwrap_or_default();
        listed[0]["phase"] == "safe_mode" && reason.contains("cannot read book.txt")
    });
    arena.succeed("kill words --yes");
}

pub fn a_job_that_fails_again_and_again_waits_for_somebody_to_decide() {
    let options = format!("{EXACTLY_ONCE} --set recovery.attempts=0");
    let job = Surviving::begun(30_000, 1_000, &options);
    let arena = &job.arena;
    job.until_more();
    kill(job.worker(1));
    arena.until_phase("tally", "safe_mode");
    let listed = arena.json("list");
    let reason = listed[0]["reason"].as_str().unwrap();
    assert!(reason.contains("ardea recover tally"), "{reason}");
    let described = arena.succeed("describe tally");
    assert!(described.contains("safe_mode"), "{described}");
    // It is not waited for in vain, and followed when the job begins again.
    arena.succeed("update tally counts=1");
    arena.succeed("recover tally");
    let refused = arena.fail("recover tally");
    assert!(refused.contains("safe mode"), "{refused}");
    job.end();
}
