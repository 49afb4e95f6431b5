//! Tests with a process that is killed at any moment. Its last reported checkpoint is intact, and a
//! sweep removes all other files.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_checkpoint::store::*;

use crate::site::*;

/// The environment variable with the store's folder, for the process to be killed.
const FOLDER: &str = "ARDEA_CHECKPOINT_TEST_FOLDER";
/// The number of times that the process is killed.
const KILLS: u64 = 60;

/// Returns a pseudo-random number computed from two numbers.
fn mix(a: u64, b: u64) -> u64 {
    let mut mixed = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

/// Returns the entries that the job sets or removes in an epoch.
fn changes(epoch: u64) -> Vec<(Key, Option<Vec<u8>>)> {
    let change = |number: u64| {
        let chance = mix(epoch, number);
        let slot = (chance % 12) as u32;
        let key = ("s", some_partition(slot), vec![(chance >> 8) as u8 % 8]);
        let value = !(chance >> 16).is_multiple_of(4);
        (
            key,
            value.then(|| vec![epoch as u8; (chance >> 24) as usize % 60]),
        )
    };
    (0..6).map(change).collect()
}

fn change(model: &mut Model, epoch: u64) -> BTreeSet<Key> {
    let mut changed = BTreeSet::new();
    for (key, value) in changes(epoch) {
        match value {
            Some(value) => drop(model.insert(key.clone(), value)),
            None => drop(model.remove(&key)),
        }
        changed.insert(key);
    }
    changed
}

/// Returns the state of the job at the end of an epoch.
fn model_at(epoch: u64) -> Model {
    let mut model = Model::new();
    for epoch in 1..=epoch {
        change(&mut model, epoch);
    }
    model
}

fn open(folder: &Path) -> (LocalDirStore, CheckpointStore) {
    let folder = LocalDirStore::open(folder).expect("a folder");
    let store = CheckpointStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened");
    (folder, store)
}

/// Resumes from the newest checkpoint, and prints each commit. Run by the next test in child
/// processes.
#[test]
fn the_job_of_another_process() {
    let Ok(folder) = env::var(FOLDER) else {
        return;
    };
    let (_, store) = open(Path::new(&folder));
    let latest = store.latest().expect("whole");
    let mut base = latest.as_ref().map(Checkpoint::id);
    let generation = base.map_or(1, |base| base.generation + 1);
    let mut epoch = base.map_or(0, |base| base.epoch.0);
    let mut model = latest.map_or(Model::new(), |latest| read(&latest, 1).expect("whole"));
    store
        .sweep(CheckpointId::start_of(generation))
        .expect("swept");
    loop {
        epoch += 1;
        let changed = change(&mut model, epoch);
        let at = id(generation, epoch);
        let snapshots = (0..2).map(|instance| {
            let of = snapshot_of(at, instance, 2);
            match base {
                Some(since) if epoch % 16 > 0 => {
                    write_increment(&store, of, since, &model, &changed)
                }
                _ => write_full(&store, of, &model),
            }
        });
        let snapshots = snapshots
            .map(|snapshot| snapshot.expect("written"))
            .collect();
        store
            .commit(&commit(at, base, snapshots))
            .expect("committed");
        let mut out = std::io::stdout();
        writeln!(out, "committed {generation} {epoch}").expect("told");
        out.flush().expect("told");
        base = Some(at);
        if let Some(mut fold) = store.begin_compaction() {
            while fold.step(300).expect("folded") == CompactionProgress::More {}
        }
        store.collect().expect("collected");
        if epoch.is_multiple_of(4) {
            store.sweep(at.next()).expect("swept");
        }
    }
}

/// A process that runs the job, killed on drop.
struct Job {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Job {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args([
                "--exact",
                "killed::the_job_of_another_process",
                "--nocapture",
            ])
            .env(FOLDER, folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Job { child, lines }
    }

    /// Returns the next committed checkpoint that the process prints; `None` when the process has
    /// ended.
    fn committed(&mut self) -> Option<CheckpointId> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).expect("read") == 0 {
                return None;
            }
            // A killed process may leave half a line.
            if let Some(told) = line
                .strip_suffix('\n')
                .and_then(|line| line.strip_prefix("committed "))
            {
                let (generation, epoch) = told.split_once(' ').expect("two numbers");
                return Some(id(
                    generation.parse().expect("one"),
                    epoch.parse().expect("one"),
                ));
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a short, varying time.
fn a_moment(chance: u64) {
    let end = Instant::now() + Duration::from_micros(chance % 6_000);
    while Instant::now() < end {
        std::thread::yield_now();
    }
}

#[test]
fn a_killed_process_leaves_its_last_checkpoint_whole_and_nothing_that_a_sweep_does_not_find() {
    let temporary = tempfile::tempdir().expect("a folder");
    let path = temporary.path().join("job");
    let (folder, _) = open(&path);
    // Files that are not those of checkpoints, some with similar names.
    let others = [
        "notes.txt",
        "block-1-1-1-1.block",
        "checkpoint-1-1.manifest.bak",
        "a.writing",
        "a.00000000000000ff.writing",
        "Checkpoint-1-1.manifest",
    ];
    for other in others {
        fs::write(path.join(other), "mine").expect("written");
    }
    let mut last = None;
    for kill in 0..KILLS {
        let mut job = Job::start(&path);
        for _ in 0..1 + mix(kill, 1) % 3 {
            last = job.committed();
            assert!(last.is_some(), "it goes on until it is killed");
        }
        a_moment(mix(kill, 2));
        job.kill();
        while let Some(told) = job.committed() {
            last = Some(told);
        }

        let (_, store) = open(&path);
        assert_eq!(store.damaged().len(), 0);
        let latest = store.latest().expect("whole").expect("there");
        assert!(
            Some(latest.id()) >= last,
            "{} was committed",
            last.expect("told")
        );
        for id in store.checkpoints() {
            let checkpoint = store.checkpoint(id).expect("it is there");
            assert_eq!(
                read(&checkpoint, 3).expect("whole"),
                model_at(id.epoch.0),
                "{id}"
            );
        }
        store
            .sweep(CheckpointId::start_of(latest.id().generation + 1))
            .expect("swept");
        for other in others {
            assert_eq!(fs::read(path.join(other)).expect("still there"), b"mine");
        }
        if kill % 10 == 0 {
            let listed = folder.list().expect("listed");
            let unfinished = listed.iter().filter(|file| file.state != FileState::Whole);
            assert_eq!(unfinished.count(), 1, "that of somebody else");
            let copy = copy_of(&folder);
            for other in others {
                if let Some(name) = FileName::new(other) {
                    replace(&copy, &name, None);
                }
            }
            assert_nothing_is_left(&copy);
        }
    }
}
