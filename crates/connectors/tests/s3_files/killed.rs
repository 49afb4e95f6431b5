//! A process that copies numbers into a bucket is killed at any moment, and goes on.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_connectors::files;
use ardea_core::{Epoch, ProcessorSupplier, SnapshotRequest, StateChunk, StateEntry};

use super::driven::Driven;
use super::environment::Folder;

/// The variables of a process that is killed: the address of its output, and its folder.
const OUTPUT: &str = "KILLED_OUTPUT";
const FOLDER: &str = "KILLED_FOLDER";

const EPOCHS: u64 = 40;
const NUMBERS_PER_EPOCH: u64 = 5_000;
const KILLS: u32 = 8;

/// Timeout of conditions in tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// A snapshot in a file: the epoch, and the entries as state, key and value.
type StoredSnapshot = (u64, Vec<(String, Vec<u8>, Vec<u8>)>);

fn store(folder: &Path, epoch: u64, chunk: &StateChunk) {
    let entries = chunk.entries().map(|entry| {
        let value = entry.value.expect("a full snapshot").to_vec();
        (entry.state.to_string(), entry.key.to_vec(), value)
    });
    let snapshot: StoredSnapshot = (epoch, entries.collect());
    let (new, whole) = (folder.join("new"), folder.join("snapshot"));
    let mut file = fs::File::create(&new).expect("created");
    file.write_all(&serde_json::to_vec(&snapshot).expect("JSON"))
        .expect("written");
    fs::rename(new, whole).expect("renamed");
}

fn load(folder: &Path) -> Option<(u64, StateChunk)> {
    let text = fs::read(folder.join("snapshot")).ok()?;
    let (epoch, entries): StoredSnapshot = serde_json::from_slice(&text).expect("a snapshot");
    let mut chunk = StateChunk::default();
    for (state, key, value) in &entries {
        let entry = StateEntry {
            state,
            partition: None,
            key,
            value: Some(value),
        };
        chunk.push(entry).expect("room");
    }
    Some((epoch, chunk))
}

#[test]
#[ignore = "the process that a_killed_job_publishes_each_record_once starts"]
fn be_the_job() {
    let (Ok(output), Some(folder)) = (std::env::var(OUTPUT), std::env::var_os(FOLDER)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let sink = files::write_lines::<u64>(output).rotate_min_bytes(60_000);
    let supplier: Arc<dyn ProcessorSupplier> = sink.build().into_parts().1;
    let mut driven = Driven::new(&supplier, "killed", (0, 1));
    let mut epoch = 0;
    if let Some((stored, chunk)) = load(&folder) {
        driven = driven.restored(stored, &chunk).expect("restored");
        epoch = stored;
    }
    while epoch < EPOCHS {
        let first = epoch * NUMBERS_PER_EPOCH;
        driven.write(first..first + NUMBERS_PER_EPOCH);
        epoch += 1;
        let is_last = epoch == EPOCHS;
        if is_last {
            let Driven {
                processor, outbox, ..
            } = &mut driven;
            while !processor.complete(outbox).expect("completed").done {}
        }
        let snapshot = driven.snapshot(SnapshotRequest {
            is_last,
            ..SnapshotRequest::full(Epoch(epoch))
        });
        store(&folder, epoch, &snapshot);
        driven.commit(epoch).expect("published");
    }
    fs::write(folder.join("done"), "").expect("written");
}

fn start(output: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("a program"))
        .args(["--include-ignored", "--exact", "killed::be_the_job"])
        .env(OUTPUT, output)
        .env(FOLDER, folder)
        .spawn()
        .expect("started")
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_killed_job_publishes_each_record_once() {
    let (output, folder) = (Folder::new(), tempfile::tempdir().expect("a folder"));
    let path = output.path("out.txt");
    for kill in 0..KILLS {
        let mut child = start(&path, folder.path());
        let end = Instant::now() + Duration::from_millis(150 + 170 * u64::from(kill));
        while Instant::now() < end && child.try_wait().expect("waited").is_none() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let mut child = start(&path, folder.path());
    let end = Instant::now() + PATIENCE;
    while child.try_wait().expect("waited").is_none() {
        assert!(Instant::now() < end, "it does not end");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert!(folder.path().join("done").exists(), "it failed");
    let all = EPOCHS * NUMBERS_PER_EPOCH;
    assert!(output.numbers().into_iter().eq(0..all));
    assert!(output.objects().len() > 5);
    assert_eq!(output.staged(), [""; 0]);
}
