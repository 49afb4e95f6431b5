//! A job processes records before all of its state is restored.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ardea_aggregate::count;
use ardea_checkpoint::local::{FaultTolerantJob, JobEnd};
use ardea_connectors::{files, generate};
use ardea_core::Parallelism;
use ardea_engine::Node;
use ardea_pipeline::{Pipeline, WatermarkPolicy};
use serde::{Deserialize, Serialize};

use crate::site::{node, survival, until};

/// The number of keys: enough for the restore to read the state in several pieces.
const KEYS: u64 = 20_000;
const RECORDS: u64 = 200_000;
const RATE: u64 = 100_000;

#[derive(Clone, Serialize, Deserialize)]
struct Padded {
    count: u64,
    pad: Vec<u64>,
}

/// Counts each key twice: in a stateful step with much state, then by a rolling aggregate of the
/// output of `distinct`. Panics when `mishap` reaches zero.
fn pipeline(folder: &Path, instances: u32, mishap: &Arc<AtomicI64>) -> Pipeline {
    let p = Pipeline::new("padded");
    let instances = Parallelism::Exactly(instances.try_into().unwrap());
    let mishap = Arc::clone(mishap);
    let create = || Padded {
        count: 0,
        pad: Vec::new(),
    };
    let step = move |state: &mut Padded, key: &u64, number: u64| {
        assert!(mishap.fetch_sub(1, Ordering::SeqCst) != 1, "a mishap");
        if state.count == 0 {
            state.pad = (0..40).map(|at| (key << 40) | (number * at)).collect();
        }
        state.count += 1;
        (*key, state.count)
    };
    let source = generate::at_rate(RATE, |number| number).limit(RECORDS);
    p.read_from(source.build())
        .with_native_timestamps(WatermarkPolicy::in_order())
        .key_by(|number| number % KEYS)
        .map_stateful("padded", create, step)
        .parallelism(instances)
        .key_by(|pair| *pair)
        .distinct("once")
        .key_by(|(key, _)| *key)
        .rolling("counts", count())
        .map(|(key, count)| format!("{key} {count}"))
        .write_to(
            files::write_lines(folder.join("out/counts.txt"))
                .rotate_with_epochs()
                .build(),
        );
    p
}

fn published(folder: &Path) -> Vec<(u64, u64)> {
    let files = fs::read_dir(folder.join("out")).unwrap();
    let whole = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"));
    let mut lines = Vec::new();
    for path in whole {
        let text = fs::read_to_string(path).unwrap();
        lines.extend(text.lines().map(|line| {
            let (key, count) = line.split_once(' ').unwrap();
            (key.parse().unwrap(), count.parse().unwrap())
        }));
    }
    lines.sort_unstable();
    lines
}

#[test]
fn nothing_is_lost_nor_comes_twice_if_it_fails_while_state_comes_back_in_any_numbers() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    let survival = survival(folder.path());
    let mishap = Arc::<AtomicI64>::default();
    let node = Node::start(node()).unwrap();
    for instances in [2, 3, 1, 2] {
        let job = pipeline(folder.path(), instances, &mishap);
        let surviving = FaultTolerantJob::open(&job, &node, &survival).unwrap();
        let handle = surviving.handle();
        let survived = std::thread::scope(|scope| {
            scope.spawn(|| {
                let made = || handle.figures().checkpoints;
                until("there is a checkpoint", || made() > 2 || handle.is_over());
                // The job fails once with all state in memory, and again right after the restart.
                for left in [1, 50] {
                    let before = handle.figures().recoveries;
                    mishap.store(left, Ordering::SeqCst);
                    until("it goes back", || {
                        handle.figures().recoveries > before || handle.is_over()
                    });
                }
                let now = made();
                until("it goes on", || made() > now || handle.is_over());
                if instances != 1 {
                    handle.stop();
                }
            });
            surviving.run().unwrap()
        });
        if survived.end == JobEnd::Completed {
            break;
        }
    }
    mishap.store(0, Ordering::SeqCst);
    let job = pipeline(folder.path(), 2, &mishap);
    FaultTolerantJob::open(&job, &node, &survival)
        .unwrap()
        .run()
        .unwrap();
    let each = RECORDS / KEYS;
    let expected = (0..KEYS).flat_map(|key| (1..=each).map(move |count| (key, count)));
    assert!(published(folder.path()).into_iter().eq(expected));
}
