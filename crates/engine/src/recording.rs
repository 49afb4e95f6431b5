//! The recording of micro-batches, and their replay.
//!
//! With `micro_batch.record` each instance of a recordable step writes its inputs, its outputs and
//! its state at certain points to files. [`replay`] runs an instance again from such files, in the
//! calling thread, and compares the outputs. Nothing of this is on the path of a job that does not
//! record.
//!
//! * `events`: the entries of a recording as bytes;
//! * `segments`: the files of an instance, and their bound;
//! * `instance_recorder`, `recorded_processor`: the writing side, which wraps a processor;
//! * [`RecordedRun`], [`InstanceRecording`]: the reading side;
//! * [`replay`], [`ReplayReport`]: the replay; `replayed_instance`: its calls of the processor;
//! * `comparison`: the first difference of two outputs.
//!
//! # Layout
//!
//! ```text
//! FOLDER/JOB/run-7/threads                    the number of threads of the node
//! FOLDER/JOB/run-7/VERTEX/0/segment-00000012  inputs and outputs, after a start state
//! ```
//!
//! Each attempt of a job is a run. The latest [`RUNS_RETAINED`] runs are retained.

mod comparison;
mod events;
mod instance_recorder;
mod instance_recording;
mod recorded_processor;
mod recorded_run;
mod replay;
mod replayed_instance;
mod segments;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use ardea_core::{
    ChunkCodec, Dag, EdgeId, Error, ErrorCode, Instance, MicroBatch, Processor, Result, VertexId,
    Watermark,
};

use crate::{JobConfig, MicroBatchConfig};

pub use comparison::{OutputItem, ReplayDifference};
pub use instance_recording::InstanceRecording;
pub use recorded_run::RecordedRun;
pub use replay::{ReplayReport, replay};

pub(crate) use recorded_processor::RecordedProcessor;

use events::SegmentStart;
use instance_recorder::InstanceRecorder;
use recorded_processor::SegmentRenewal;
use segments::SegmentFiles;

/// The number of runs of a job whose recordings are retained.
const RUNS_RETAINED: u64 = 3;

/// The codecs of the edges of a vertex, by ordinal.
#[derive(Clone)]
pub(crate) struct EdgeCodecs {
    inputs: Vec<Arc<dyn ChunkCodec>>,
    outputs: Vec<Arc<dyn ChunkCodec>>,
}

impl EdgeCodecs {
    /// Returns the codecs of a recordable vertex.
    ///
    /// # Errors
    /// The reason why the vertex is not recordable.
    fn of(dag: &Dag, id: VertexId) -> Result<Self, String> {
        let (inputs, outputs) = (dag.inputs(id), dag.outputs(id));
        let vertex = dag.get(id);
        if inputs.is_empty() {
            return Err("it is a source, whose records are the input of the job".into());
        }
        if outputs.is_empty() {
            return Err("it is a sink, which has no output to compare".into());
        }
        if let Some(reason) = vertex.nondeterminism() {
            return Err(format!("it is not deterministic: {reason}"));
        }
        let codecs = |edges: Vec<EdgeId>, is_input: bool| {
            let mut edges = edges.into_iter();
            edges
                .try_fold(Vec::new(), |mut codecs, edge| {
                    let edge = &dag.edges()[edge.index()];
                    let (other, preposition) = match is_input {
                        true => (edge.source().0, "from"),
                        false => (edge.target().0, "to"),
                    };
                    let codec = edge.wanted_codec().ok_or_else(|| {
                        let other = dag.get(other).name();
                        format!("its records {preposition} {other:?} have no codec: derive serde's traits for their type, and call `recordable` on their stream")
                    })?;
                    codecs.push(Arc::clone(codec));
                    Ok::<_, String>(codecs)
                })
        };
        Ok(EdgeCodecs {
            inputs: codecs(inputs, true)?,
            outputs: codecs(outputs, false)?,
        })
    }
}

/// Returns each vertex of a graph, with the reason why its micro-batches are not recorded, if they
/// are not.
///
/// ```
/// use ardea_core::{Dag, Processor, Vertex, supplier};
/// use ardea_engine::recordable_vertices;
///
/// struct Nothing;
/// impl Processor for Nothing {}
///
/// let mut dag = Dag::new();
/// dag.vertex(Vertex::new("numbers", supplier(|| Nothing)));
/// let vertices = recordable_vertices(&dag);
/// assert!(vertices[0].1.as_ref().is_some_and(|reason| reason.contains("a source")));
/// ```
pub fn recordable_vertices(dag: &Dag) -> Vec<(Arc<str>, Option<String>)> {
    let vertices = (0..).map(VertexId::of_index).zip(dag.vertices());
    vertices
        .map(|(id, vertex)| (Arc::clone(vertex.name()), EdgeCodecs::of(dag, id).err()))
        .collect()
}

/// The recording of a job in this process.
pub(crate) struct JobRecorder {
    folder: PathBuf,
    limit_bytes: u64,
    job: String,
    threads: u32,
    chunk_records: u32,
    /// True if the job takes checkpoints.
    has_checkpoints: bool,
    /// True if the job starts from a checkpoint.
    is_restored: bool,
}

impl JobRecorder {
    /// Creates the folder of a run, if the job is recorded.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if no step of the job can be recorded;
    /// [`ErrorCode::WriteFailed`] if the folder cannot be created.
    pub(crate) fn start(
        dag: &Dag,
        job: &JobConfig,
        batches: Option<&MicroBatchConfig>,
        (threads, chunk_records): (u32, usize),
    ) -> Result<Option<Self>> {
        let Some((batches, record)) = batches.and_then(|it| Some((it, it.record.as_ref()?))) else {
            return Ok(None);
        };
        let vertices = recordable_vertices(dag);
        if vertices.iter().all(|(_, reason)| reason.is_some()) {
            let reasons = vertices
                .iter()
                .filter_map(|(name, reason)| Some(format!("{name:?}: {}", reason.as_ref()?)));
            let what = format!(
                "micro_batch.record is set, and no step of the job {:?} can be recorded",
                job.name
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .because(reasons.collect::<Vec<_>>().join("; "))
                .hint("set micro_batch.record=off"));
        }
        let folder = create_run(&record.join(escaped(&job.name)))?;
        write_file(&folder.join("threads"), threads.to_string().as_bytes())?;
        Ok(Some(JobRecorder {
            folder,
            limit_bytes: batches.record_bytes,
            job: job.name.clone(),
            threads,
            chunk_records: u32::try_from(chunk_records).unwrap_or(u32::MAX),
            has_checkpoints: job.guarantee.keeps_state() && job.snapshots.sink.is_some(),
            is_restored: job.snapshots.source.is_some(),
        }))
    }

    /// Wraps the processor of an instance if its vertex is recordable.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if a file cannot be created.
    pub(crate) fn wrap(
        &self,
        (dag, id): (&Dag, VertexId),
        instance: Instance,
        mut processor: Box<dyn Processor>,
    ) -> Result<Result<Box<RecordedProcessor>, Box<dyn Processor>>> {
        let Ok(codecs) = EdgeCodecs::of(dag, id) else {
            return Ok(Err(processor));
        };
        // Its output comes from another process at any time.
        if processor.marker_deferral().is_some() {
            return Ok(Err(processor));
        }
        let vertex = dag.get(id).name();
        let folder = instance_folder(&self.folder, vertex, instance.index);
        let renewal = SegmentRenewal::of(&mut *processor, self.has_checkpoints);
        let start = SegmentStart {
            job: self.job.clone(),
            vertex: vertex.to_string(),
            instance,
            threads: self.threads,
            chunk_records: self.chunk_records,
            keeps_state: self.has_checkpoints || renewal == SegmentRenewal::OwnSnapshots,
            first: MicroBatch(0),
            follows: false,
            epoch: None,
            watermark: Watermark::NONE,
            sent: Watermark::NONE,
            done_inputs: Vec::new(),
        };
        let files = SegmentFiles::create(folder, self.limit_bytes)?;
        let recorder = InstanceRecorder::new(files, start, codecs, !self.is_restored)?;
        Ok(Ok(Box::new(RecordedProcessor::new(
            processor, recorder, renewal,
        ))))
    }
}

/// Creates the folder of the next run in the folder of a job, and removes old runs.
fn create_run(job_folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(job_folder).map_err(|error| write_failed(job_folder, error))?;
    loop {
        let runs = recorded_run::numbers(job_folder)?;
        let next = runs.last().map_or(1, |last| last + 1);
        for old in runs.iter().filter(|run| **run + RUNS_RETAINED <= next) {
            let folder = recorded_run::folder_of(job_folder, *old);
            fs::remove_dir_all(&folder).map_err(|error| write_failed(&folder, error))?;
        }
        let folder = recorded_run::folder_of(job_folder, next);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            // Another process of the same job has created it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(write_failed(&folder, error)),
        }
    }
}

/// Returns the folder of an instance in the folder of a run.
fn instance_folder(run: &Path, vertex: &str, instance: u32) -> PathBuf {
    run.join(escaped(vertex)).join(instance.to_string())
}

/// Returns a name as the name of a folder: other characters than letters, digits and `-_` are
/// escaped.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02x}")),
        }
    }
    match escaped.is_empty() {
        true => "%".into(),
        false => escaped,
    }
}

fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).map_err(|error| write_failed(path, error))
}

fn write_failed(path: &Path, error: io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
        _ => ErrorCode::WriteFailed,
    };
    let what = format!("cannot write the recording {}", path.display());
    Error::new(code, what)
        .because(error)
        .hint("check the folder of micro_batch.record, or set micro_batch.record=off")
}

fn read_failed(path: &Path, error: io::Error) -> Error {
    let what = format!("cannot read the recording {}", path.display());
    Error::new(ErrorCode::ReadFailed, what)
        .because(error)
        .hint("check the folder and its permissions")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_of_vertices_become_names_of_folders() {
        assert_eq!(escaped("words"), "words");
        assert_eq!(escaped("a/b: ..é"), "a%2fb%3a%20%2e%2e%c3%a9");
        assert_eq!(escaped(""), "%");
    }
}
