//! Tests of whole jobs that copy files. The jobs are stopped at any moment and restored from their
//! last committed epoch; each line is written once.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_connectors::files;
use ardea_core::{
    Dag, Edge, Epoch, Guarantee, Parallelism, Result, Routing, SnapshotRequest, StateChunk, Vertex,
    Waker,
};
use ardea_engine::{
    InstanceName, JobConfig, JobHandle, JobStatus, Node, NodeConfig, RestoreReader, RestoreSource,
    SnapshotAbort, SnapshotIo, SnapshotRead, SnapshotReport, SnapshotSink,
};

/// The timeout of waiting in tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// The content of the copied folder.
#[derive(Clone, Copy)]
struct Content {
    files: usize,
    lines: usize,
    /// The length of the text after the number of each line.
    padding: usize,
}

const SMALL_FILES: Content = Content {
    files: 5,
    lines: 4_000,
    padding: 0,
};

/// A file that up to three instances share.
const LARGE_FILE: Content = Content {
    files: 1,
    lines: 3_500,
    padding: 2_000,
};

/// The entries of an instance, as chunks.
type Entries = Vec<StateChunk>;

/// An in-memory store of full snapshots.
#[derive(Default)]
struct Keeper(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    begun: BTreeMap<(String, u32), Entries>,
    whole: BTreeMap<(String, u32), Vec<(SnapshotRequest, Entries)>>,
}

fn key(of: &InstanceName) -> (String, u32) {
    (of.vertex.to_string(), of.instance.index)
}

impl Keeper {
    /// Returns the state of all vertices at an epoch; `None` until all instances have reported
    /// their snapshots.
    fn checkpoint(&self, epoch: Epoch, vertices: &[(&str, u32)]) -> Option<Checkpoint> {
        let kept = self.0.lock().unwrap();
        let mut state: BTreeMap<String, Entries> = BTreeMap::new();
        for (vertex, count) in vertices {
            for index in 0..*count {
                let snapshots = kept.whole.get(&(vertex.to_string(), index))?;
                let (_, entries) = snapshots.iter().find(|(snapshot, _)| {
                    snapshot.epoch == epoch || snapshot.is_last && snapshot.epoch < epoch
                })?;
                let of_vertex = state.entry(vertex.to_string()).or_default();
                of_vertex.extend(entries.iter().cloned());
            }
        }
        Some(Checkpoint { epoch, state })
    }
}

impl SnapshotSink for Keeper {
    fn wants_all(&self, _: &InstanceName, _: Epoch) -> bool {
        true
    }

    fn buffer(&self, _: &InstanceName, _: &Waker) -> Option<StateChunk> {
        Some(StateChunk::default())
    }

    fn take(&self, of: &InstanceName, _: SnapshotRequest, entries: StateChunk) {
        let mut kept = self.0.lock().unwrap();
        kept.begun.entry(key(of)).or_default().push(entries);
    }

    fn finish(&self, of: &InstanceName, report: SnapshotReport, entries: StateChunk) {
        let mut kept = self.0.lock().unwrap();
        let mut all = kept.begun.remove(&key(of)).unwrap_or_default();
        all.push(entries);
        kept.whole
            .entry(key(of))
            .or_default()
            .push((report.snapshot, all));
    }

    fn abort(&self, of: &InstanceName, _: SnapshotRequest, _: SnapshotAbort) {
        self.0.lock().unwrap().begun.remove(&key(of));
    }
}

/// The state of a job at an epoch, by vertex.
struct Checkpoint {
    epoch: Epoch,
    state: BTreeMap<String, Entries>,
}

impl RestoreSource for Checkpoint {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn RestoreReader>> {
        let chunks = self.state.get(&*of.vertex).cloned().unwrap_or_default();
        Ok(Box::new(Reader(chunks)))
    }
}

struct Reader(Entries);

impl RestoreReader for Reader {
    fn read(&mut self, into: &mut StateChunk, _: &Waker) -> Result<SnapshotRead> {
        match self.0.pop() {
            Some(chunk) => {
                *into = chunk;
                Ok(SnapshotRead::Entries)
            }
            None => Ok(SnapshotRead::End),
        }
    }
}

/// Creates a job that copies the files of a folder with `readers` source instances and `writers`
/// sink instances.
fn dag(from: &Path, to: &Path, [readers, writers]: [u32; 2], is_one_file: bool) -> Dag {
    let exactly = |count| Parallelism::Exactly(NonZeroU32::new(count).unwrap());
    let sink = files::write_lines::<String>(to.join("out.txt"));
    let sink = match is_one_file {
        true => sink,
        false => sink.rotate_with_epochs().rotate_bytes(3_000),
    };
    let mut dag = Dag::new();
    let (_, supplier, _, isolation) = files::lines(from).build().into_parts();
    let source = Vertex::new("source", supplier).isolation(isolation);
    let source = dag.vertex(source.parallelism(exactly(readers)));
    let (_, supplier, _, isolation) = sink.build().into_parts();
    let sink = Vertex::new("sink", supplier).isolation(isolation);
    let sink = dag.vertex(sink.parallelism(exactly(writers)));
    dag.edge(Edge::between(source, sink).routing(Routing::RoundRobin));
    dag
}

/// Ends an epoch of the job and returns its checkpoint; `None` if the job has ended.
fn end_epoch(
    job: &JobHandle,
    keeper: &Keeper,
    epoch: Epoch,
    vertices: &[(&str, u32)],
) -> Option<Checkpoint> {
    job.end_epochs(epoch);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(checkpoint) = keeper.checkpoint(epoch, vertices) {
            return Some(checkpoint);
        }
        if job.status().is_over() {
            return None;
        }
        assert!(Instant::now() < deadline, "{epoch:?} does not end");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Returns all lines of published files.
fn seen(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "part") {
            let text = fs::read_to_string(path).unwrap();
            lines.extend(text.lines().map(String::from));
        }
    }
    lines.sort_unstable();
    lines
}

fn copied_once(content: Content, is_one_file: bool, lives: &[([u32; 2], u64)]) {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    let mut all = Vec::new();
    let padding = "x".repeat(content.padding);
    for file in 0..content.files {
        let lines = (0..content.lines).map(|n| format!("{file}/{n:05}{padding}"));
        let lines: Vec<String> = lines.collect();
        fs::write(from.join(format!("{file}.txt")), lines.join("\n")).unwrap();
        all.extend(lines);
    }
    let mut checkpoint: Option<Arc<Checkpoint>> = None;
    let mut epoch = Epoch(0);
    for (life, (instances, epochs)) in lives.iter().enumerate() {
        let is_last = life + 1 == lives.len();
        let vertices = [("source", instances[0]), ("sink", instances[1])];
        let keeper = Arc::new(Keeper::default());
        let node = Node::start(NodeConfig {
            pin: false,
            chunk_records: 16.try_into().unwrap(),
            ..NodeConfig::with_threads(2)
        });
        let node = node.unwrap();
        let config = JobConfig {
            guarantee: Guarantee::ExactlyOnce,
            snapshots: SnapshotIo {
                sink: Some(Arc::<Keeper>::clone(&keeper)),
                source: checkpoint.clone().map(|checkpoint| checkpoint as _),
                ..SnapshotIo::default()
            },
            ..JobConfig::named("copy")
        };
        let job = node
            .submit(&dag(&from, &to, *instances, is_one_file), config)
            .unwrap();
        for number in 0.. {
            if is_last && job.status().is_over() || !is_last && number >= *epochs {
                break;
            }
            epoch = epoch.next();
            let Some(ended) = end_epoch(&job, &keeper, epoch, &vertices) else {
                break;
            };
            checkpoint = Some(Arc::new(ended));
            // The last epoch of an attempt is committed without notifying the job.
            if is_last || number + 1 < *epochs {
                job.epoch_committed(epoch);
            }
        }
        if !is_last {
            job.cancel();
        }
        let status = job.wait(PATIENCE);
        assert!(status.is_over(), "it hangs");
        assert!(!matches!(status, JobStatus::Failed(_)), "{status}");
        let mut seen = seen(&to);
        let count = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), count, "none twice, in life {life}");
        if is_last {
            assert!(matches!(status, JobStatus::Completed), "{status}");
        }
    }
    assert!(seen(&to) == all, "all of them");
}

#[test]
fn files_are_copied_once_whatever_stops_the_job() {
    let lives = [
        ([2, 1], 2),
        ([2, 1], 1),
        ([2, 1], 3),
        ([2, 1], 0),
        ([2, 1], 0),
    ];
    copied_once(SMALL_FILES, true, &lives);
    copied_once(SMALL_FILES, false, &lives);
}

#[test]
fn files_are_copied_once_also_by_other_numbers_of_instances() {
    let lives = [
        ([1, 2], 2),
        ([3, 1], 2),
        ([2, 3], 1),
        ([2, 3], 2),
        ([1, 1], 0),
    ];
    copied_once(SMALL_FILES, true, &lives);
    copied_once(SMALL_FILES, false, &lives);
}

#[test]
fn a_file_that_instances_share_is_copied_once_whatever_stops_the_job_and_rescales_it() {
    let lives = [
        ([2, 1], 2),
        ([2, 1], 1),
        ([1, 2], 2),
        ([3, 1], 2),
        ([2, 2], 1),
        ([3, 1], 0),
    ];
    copied_once(LARGE_FILE, true, &lives);
    copied_once(LARGE_FILE, false, &lives);
}
