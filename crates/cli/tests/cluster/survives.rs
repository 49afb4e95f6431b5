//! Jobs with a guarantee: under any fault or change, they publish the same results.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde_json::Value;

use crate::arena::Arena;
use crate::processes::{kill, kill_group};
use crate::tally::Tally;

/// A job `tally` in three containers.
pub struct GuaranteedJob {
    pub arena: Arena,
    pub out: Tally,
    numbers: u64,
}

/// Returns the options of a job with a guarantee.
pub fn promises(options: &str) -> String {
    format!("--set job.containers=3 --set checkpoints.folder=kept {options}")
}

/// Returns the options of a job in three containers, with its checkpoints in the memory of hosts.
pub fn in_memory(options: &str) -> String {
    format!("--set job.containers=3 {options}")
}

/// A number of records that no test reaches.
pub const ENDLESS: u64 = 1_000_000_000;

pub const EXACTLY_ONCE: &str = "--set guarantee=exactly-once --set checkpoints.every=200ms";

impl GuaranteedJob {
    pub fn begun(numbers: u64, rate: u64, options: &str) -> Self {
        GuaranteedJob::submitted(numbers, rate, &promises(options))
    }

    pub fn submitted(numbers: u64, rate: u64, options: &str) -> Self {
        GuaranteedJob::submitted_to(Arena::new(), numbers, rate, options)
    }

    /// Submits the job to two new hosts of the cluster `arena`.
    pub fn submitted_to(arena: Arena, numbers: u64, rate: u64, options: &str) -> Self {
        GuaranteedJob::variant(arena, numbers, rate, (options, ""))
    }

    /// Submits a variant of the job to two new hosts of the cluster `arena`.
    pub fn variant(arena: Arena, numbers: u64, rate: u64, (options, how): (&str, &str)) -> Self {
        arena.succeed("cluster start --workers 2");
        let out = arena.path().join("out");
        fs::create_dir(&out).unwrap();
        let arguments = format!("tally {} {numbers} {rate} {how}", out.display());
        arena.submit_numbers(options, &arguments);
        GuaranteedJob {
            arena,
            out: Tally(out),
            numbers,
        }
    }

    pub fn exactly_once(numbers: u64, rate: u64) -> Self {
        GuaranteedJob::begun(numbers, rate, EXACTLY_ONCE)
    }

    /// Returns the state of the job's epochs; `None` while no host answers.
    fn epochs(&self) -> Option<Value> {
        let epochs = self.arena.look("tally")?["epochs"].clone();
        epochs.is_object().then_some(epochs)
    }

    pub fn committed(&self) -> u64 {
        let epochs = self.epochs();
        epochs.and_then(|it| it["committed"].as_u64()).unwrap_or(0)
    }

    /// Waits until more has been committed and published.
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

    /// Kills the worker of a container, and waits until the next attempt has published something.
    pub fn kill_worker(&self, container: u64, kill: fn(i32)) {
        let life = self.life();
        kill(self.worker(container));
        self.arena.until("the next life", || self.life() > life);
        self.until_more();
    }

    /// Kills the worker of a container, and waits until its next process has published something.
    /// Returns true if the other workers have continued.
    fn replace_worker(&self, container: u64) -> bool {
        let (arena, life) = (&self.arena, self.life());
        let before = self.worker(container);
        kill(before);
        arena.until("its next process", || {
            let workers = arena.workers("tally");
            let mut workers = workers.iter();
            workers.any(|(id, process)| *id == container && *process != before)
        });
        arena.until_phase("tally", "running");
        self.until_more();
        self.life() == life
    }

    fn life(&self) -> u64 {
        let epochs = self.epochs();
        epochs.and_then(|it| it["life"].as_u64()).unwrap_or(0)
    }

    /// Returns the host that leads the job, as soon as one does.
    pub fn leader(&self) -> String {
        let mut leader = None;
        self.arena.until("a host leads tally", || {
            let described = self.arena.look("tally").unwrap_or_default();
            leader = described["master"]["host"].as_str().map(str::to_string);
            leader.is_some()
        });
        leader.unwrap_or_default()
    }

    /// Waits for the job's end, and checks that every result was published exactly once.
    fn end(&self) {
        let arena = &self.arena;
        arena.until("the end of tally", || {
            let listed = arena.run("list --json");
            listed.status.success() && listed.stdout.trim_ascii() == b"[]"
        });
        assert_eq!(self.out.lines(), Tally::expected(self.numbers));
        assert_eq!(arena.workers("tally"), []);
    }

    /// Kills the job, and checks that the published results are complete.
    pub fn stop(&self) {
        self.arena.succeed("kill tally --yes");
        assert!(self.out.is_whole().unwrap() > 1_000);
    }

    /// Returns the folder of the job's checkpoints.
    pub fn folder(&self) -> PathBuf {
        let mut folders = fs::read_dir(self.arena.path().join("kept"))
            .unwrap()
            .flatten();
        folders.next().unwrap().path()
    }
}

pub fn what_is_published_is_the_same_whoever_is_killed() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    job.kill_worker(1, kill);
    job.kill_worker(2, kill_group);

    // Kills the job's leader: the containers keep running, and so does the attempt.
    let (workers, life) = (arena.workers("tally"), job.life());
    kill(arena.host(&job.leader()));
    arena.until("another master", || job.epochs().is_some());
    job.until_more();
    assert_eq!((arena.workers("tally"), job.life()), (workers, life));
    arena.succeed("cluster start --workers 2");

    // Kills the leader and a worker at once.
    let leader = arena.host(&job.leader());
    kill(job.worker(3));
    kill(leader);
    arena.until("the next life", || job.life() > life);
    job.until_more();
    job.stop();
}

pub fn without_a_folder_checkpoints_are_in_the_memory_of_hosts_and_survive_any_of_them() {
    let job = GuaranteedJob::submitted(ENDLESS, 1_000, &in_memory(EXACTLY_ONCE));
    let arena = &job.arena;
    job.until_more();
    job.kill_worker(1, kill);
    let seen = arena.json("checkpoints tally --check");
    assert!(
        seen["folder"].as_str().unwrap().contains("memory"),
        "{seen}"
    );

    // Each host holds backups of the other's data.
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

    // If all hosts are lost at once, the workers send them their part of the state again.
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
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
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
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
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
    // Remaining instances were not restarted.
    assert_eq!(job.worker(1), first);
    let life = job.life();
    arena.succeed("rescale tally --workers 3");
    assert_eq!(job.life(), life);
    job.kill_worker(3, kill);
    job.stop();
}

pub fn what_is_published_in_micro_batches_is_the_same_whatever_happens() {
    let options = format!("{EXACTLY_ONCE} --set mode=micro-batch");
    let job = GuaranteedJob::begun(ENDLESS, 1_000, &options);
    let arena = &job.arena;
    job.until_more();
    for vertex in ["numbers", "counts"] {
        let batches = || arena.metric("tally", vertex, "ardea_micro_batches_total");
        arena.until("micro-batches end", || batches() > 0.0);
    }
    job.replace_worker(1);
    arena.succeed("update tally counts=3");
    arena.succeed("rescale tally --workers 2");
    job.until_more();
    job.replace_worker(2);
    job.stop();
}

/// Returns the container of the job with the instance of the source.
fn with_source(arena: &Arena) -> u64 {
    let sources = arena.samples("tally", "ardea_records_out_total");
    let is_source = |labels: &Value| labels["vertex"] == "numbers";
    let found = sources.iter().find(|(labels, _)| is_source(labels));
    let (labels, _) = found.unwrap_or_else(|| panic!("{sources:?}"));
    let container = labels["container"].as_str().unwrap_or_default();
    container.parse().unwrap_or_else(|_| panic!("{labels}"))
}

/// Returns the total of a counter of a job's workers.
fn total(arena: &Arena, metric: &str) -> f64 {
    let samples = arena.samples("tally", metric);
    samples.iter().map(|(_, count)| count).sum()
}

pub fn in_micro_batches_each_worker_is_restored_while_the_others_continue() {
    let options = "--set guarantee=exactly-once --set checkpoints.every=1s --set mode=micro-batch";
    let options = promises(options);
    let job = GuaranteedJob::variant(Arena::new(), ENDLESS, 1_000, (&options, "hops"));
    let arena = &job.arena;
    job.until_more();
    let source = with_source(arena);
    let others: Vec<u64> = (1..=3).filter(|container| *container != source).collect();
    let mut alone = BTreeSet::new();
    // The loss of a worker during a checkpoint still takes the whole job back.
    for container in [source, others[0], source, others[1], source, others[0]] {
        if job.replace_worker(container) {
            alone.insert(container == source);
            for metric in [
                "ardea_kept_frames_reused_total",
                "ardea_micro_batches_repeated_total",
            ] {
                arena.until(metric, || total(arena, metric) > 0.0);
            }
        }
    }
    let described = arena.succeed("describe tally");
    assert!(
        alone.len() == 2 && described.contains("is restored alone from epoch"),
        "{described}"
    );
    job.stop();
}

pub fn the_checkpoints_of_a_job_are_shown_and_checked() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    job.until_more();
    let seen = arena.json("checkpoints tally --check");
    assert_eq!(
        (&seen["job"], &seen["checked"]),
        (&"tally".into(), &true.into())
    );
    let checkpoints = seen["checkpoints"].as_array().unwrap();
    // Three checkpoints are retained, and the one that is locked while it is read.
    assert!(!checkpoints.is_empty() && checkpoints.len() <= 4, "{seen}");
    for checkpoint in checkpoints {
        assert!(checkpoint["damage"].is_null(), "{checkpoint}");
        let vertices = checkpoint["vertices"].as_array().unwrap();
        let counts = vertices.iter().find(|it| it["name"] == "counts").unwrap();
        assert_eq!(counts["instances"], 2);
    }
    // The locked checkpoint is released, and so removed like any other.
    let epochs = |seen: &Value| -> Vec<u64> {
        let checkpoints = seen["checkpoints"].as_array().unwrap().iter();
        checkpoints.filter_map(|it| it["epoch"].as_u64()).collect()
    };
    let checked = epochs(&seen).into_iter().max();
    arena.until("none is left of those that were checked", || {
        let now = epochs(&arena.json("checkpoints tally"));
        now.iter().min() > checked.as_ref()
    });
    let text = arena.succeed("checkpoints tally");
    assert!(text.contains("by vertex"), "{text}");
    let text = arena.succeed("describe tally");
    for told in ["exactly-once", "committed", "began from the beginning"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    // Aborted checkpoints and parts that were merged into checkpoints are removed.
    arena.until("few parts", || {
        let files = fs::read_dir(job.folder()).unwrap().flatten();
        let parts = files.filter(|it| it.file_name().to_string_lossy().starts_with("part-"));
        parts.count() <= 6
    });
    arena.succeed("kill tally --yes");
}

pub fn a_checkpoint_that_is_damaged_is_passed_over_and_that_is_told() {
    let options = "--set guarantee=at-least-once --set checkpoints.every=1s";
    let job = GuaranteedJob::begun(ENDLESS, 1_000, options);
    let arena = &job.arena;
    job.until_more();
    job.until_more();
    // Before the next one, make the newest checkpoint unreadable.
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
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    let (folder, away) = (job.folder(), arena.path().join("away"));
    fs::rename(&folder, &away).unwrap();
    kill(job.worker(1));
    let waits = || {
        let listed = arena.json("list");
        let reason = listed[0]["reason"].as_str().unwrap_or_default().to_string();
        reason.contains("not accessible at the moment")
    };
    arena.until("it waits", waits);
    // More attempts than would be allowed if these were failures.
    let life = job.life();
    arena.until("it has looked again and again", || job.life() > life + 5);
    assert_eq!(arena.phase("tally").as_deref(), Some("recovering"));
    let mut saving = arena.begin_with_output("savepoint tally --to saved");
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
    // In a place where no folder can be created.
    arena.write("file", "");
    let told = submit(&format!(
        "{EXACTLY_ONCE} --set checkpoints.folder=file/kept"
    ));
    assert!(told.contains("file/kept"), "{told}");
    let folder = "--set checkpoints.folder=kept";
    let told = arena.fail(&format!("submit word-count.yaml {EXACTLY_ONCE} {folder}"));
    assert!(told.contains("would forget"), "{told}");
    assert!(arena.json("list").as_array().unwrap().is_empty());
    // The second submission leaves no folder.
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

    // A missing file is missing at each attempt, so none of the hundred attempts is made.
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
    let job = GuaranteedJob::begun(30_000, 1_000, &options);
    let arena = &job.arena;
    job.until_more();
    kill(job.worker(1));
    arena.until_phase("tally", "safe_mode");
    let listed = arena.json("list");
    let reason = listed[0]["reason"].as_str().unwrap();
    assert!(reason.contains("ardea recover tally"), "{reason}");
    let described = arena.succeed("describe tally");
    assert!(described.contains("safe_mode"), "{described}");
    // The command does not wait in vain; the update takes effect when the job is recovered.
    arena.succeed("update tally counts=1");
    arena.succeed("recover tally");
    let refused = arena.fail("recover tally");
    assert!(refused.contains("safe mode"), "{refused}");
    job.end();
}
