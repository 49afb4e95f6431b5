//! Recordings of micro-batches, and their replay.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Chunk, ChunkCodec, Dag, Edge, Error, ErrorCode, Inbox, Instance, InstanceContext,
    MicroBatch, Ordinal, Outbox, Processor, Progress, RestoredState, Result, Routing,
    SnapshotRequest, SnapshotWriter, Timestamp, Watermark, unique_number,
};
use ardea_engine::{
    ExecutionMode, InstanceRecording, JobConfig, JobStatus, MicroBatchConfig, Node, NodeConfig,
    RecordedRun, replay,
};

use crate::processors::{Journal, completes, config, numbers, over, vertex};

/// A folder that is removed at the end of the test.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new() -> Self {
        let name = format!("ardea-recording-{:x}", unique_number());
        TestFolder(std::env::temp_dir().join(name))
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The codec of numbers.
struct Numbers;

impl ChunkCodec for Numbers {
    fn encode(&self, chunk: &mut Chunk, _: usize, out: &mut Vec<u8>) -> Result<usize> {
        let rows = chunk.rows::<u64>()?;
        let count = rows.len().min(10);
        for (value, time) in rows.drain_front(count) {
            out.extend_from_slice(&value.to_le_bytes());
            out.extend_from_slice(&time.as_micros().to_le_bytes());
        }
        Ok(count)
    }

    fn decode(&self, records: usize, payload: &[u8], chunk: &mut Chunk) -> Result<()> {
        let (numbers, rest) = payload.as_chunks::<16>();
        if !rest.is_empty() || numbers.len() != records {
            return Err(Error::new(ErrorCode::BadRecord, "no numbers"));
        }
        let rows = chunk.rows_or_new::<u64>(records)?;
        for number in numbers {
            let [value, time] = [&number[..8], &number[8..]].map(|it| it.try_into().unwrap());
            let time = Timestamp::from_micros(i64::from_le_bytes(time));
            rows.push(u64::from_le_bytes(value), time);
        }
        Ok(())
    }
}

/// A fault of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The total of this number and each later one is random.
    RandomFrom(u64),
    /// Panics at this number.
    PanicsAt(u64),
}

/// Emits the total of all numbers so far, twice for each number, and once at each watermark. Output
/// that finds no room waits.
struct Totals {
    fault: Fault,
    total: u64,
    frozen: Option<u64>,
    waiting: VecDeque<(u64, Timestamp)>,
    context: InstanceContext,
    is_at_watermark: bool,
}

impl Totals {
    fn new(fault: Fault) -> Self {
        Totals {
            fault,
            total: 0,
            frozen: None,
            waiting: VecDeque::new(),
            context: InstanceContext::detached("totals"),
            is_at_watermark: false,
        }
    }

    fn flush(&mut self, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
        while !lane.is_full()
            && let Some((value, time)) = self.waiting.pop_front()
        {
            lane.push(value, time);
        }
        if !self.waiting.is_empty() {
            outbox.wake_at(self.context.clock.now());
        }
        Ok(())
    }
}

impl Processor for Totals {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        for (value, time) in inbox.rows::<u64>()?.drain_front(usize::MAX) {
            self.total += value;
            let mut total = self.total;
            match self.fault {
                Fault::RandomFrom(from) if value >= from => total ^= unique_number(),
                Fault::PanicsAt(at) if value == at => panic!("at {at}"),
                _ => {}
            }
            self.waiting.extend([(total, time), (total + 1, time)]);
        }
        self.flush(outbox)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if !std::mem::replace(&mut self.is_at_watermark, true) {
            self.waiting.push_back((self.total, watermark.0));
        }
        self.flush(outbox)?;
        if !self.waiting.is_empty() {
            return Ok(Progress::MADE);
        }
        self.is_at_watermark = false;
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.flush(outbox)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Totals {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        assert!(self.waiting.is_empty(), "a micro-batch has ended");
        self.frozen = Some(self.total);
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        if let Some(total) = self.frozen.take() {
            let key = self.context.instance.index.to_le_bytes();
            writer.set("total", None, &key, &total.to_le_bytes())?;
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            self.total = u64::from_le_bytes(entry.value.try_into().unwrap());
        }
        Ok(())
    }
}

/// Numbers, their totals in two instances, and a sink.
fn graph(fault: Fault, end: u64) -> Dag {
    let mut dag = Dag::new();
    let from = dag.vertex(numbers("numbers", 2, end));
    let totals = dag.vertex(vertex("totals", 2, move |_: Instance| Totals::new(fault)));
    let to = dag.vertex(Journal::default().vertex("to", 1));
    let codec = || Arc::new(Numbers);
    let keyed = Edge::between(from, totals).routing(Routing::keyed(|n: &u64| *n));
    dag.edge(keyed.codec(codec()));
    dag.edge(Edge::between(totals, to).codec(codec()));
    dag
}

fn node(record: &Path, record_bytes: u64) -> Node {
    let config = NodeConfig {
        mode: ExecutionMode::MicroBatch,
        micro_batch: MicroBatchConfig {
            records: 50.try_into().ok(),
            record: Some(record.to_path_buf()),
            record_bytes,
            ..MicroBatchConfig::default()
        },
        ..config(2)
    };
    Node::start(config).unwrap()
}

/// Runs the job to its end, and returns its latest recording of an instance of `totals`.
fn recorded(folder: &Path, fault: Fault, end: u64, bytes: u64) -> (Dag, InstanceRecording) {
    let dag = graph(fault, end);
    completes(&node(folder, bytes), &dag);
    let run = RecordedRun::find(folder, "test", None).unwrap();
    assert_eq!(run.threads().get(), 2);
    let recording = run.instance(&dag, "totals", 1).unwrap();
    (dag, recording)
}

/// Returns the size of all files of a recording.
fn bytes_of(recording: &InstanceRecording) -> u64 {
    let files = fs::read_dir(recording.folder()).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

#[test]
fn a_replay_of_all_micro_batches_gives_the_same_bytes() {
    let folder = TestFolder::new();
    let (dag, recording) = recorded(&folder.0, Fault::None, 3_000, 1 << 20);
    let report = replay(&dag, &recording, None, None).unwrap();
    assert!(report.is_equal(), "{report}");
    assert!(report.replayed > 10, "{report}");
    assert_eq!((report.vertex.as_str(), report.instance), ("totals", 1));
    let ranges = recording.micro_batches();
    assert_eq!((ranges.len(), ranges[0].0), (1, MicroBatch(0)));
    let both: u64 = [0, 1]
        .into_iter()
        .map(|instance| {
            let run = RecordedRun::find(&folder.0, "test", Some(1)).unwrap();
            let recording = run.instance(&dag, "totals", instance).unwrap();
            replay(&dag, &recording, None, None).unwrap().records_in
        })
        .sum();
    assert_eq!(both, 3_000);
}

#[test]
fn a_recording_is_bounded_and_its_latest_micro_batches_are_replayed_from_a_state() {
    let folder = TestFolder::new();
    let (dag, recording) = recorded(&folder.0, Fault::None, 20_000, 64 << 10);
    assert!(bytes_of(&recording) <= 64 << 10, "{}", bytes_of(&recording));
    let (first, last) = recording.micro_batches()[0];
    assert!(first > MicroBatch(0) && last > first);
    let report = replay(&dag, &recording, None, None).unwrap();
    assert!(report.is_equal() && report.replayed > 3, "{report}");
    assert_eq!(report.micro_batches, Some((first, last)));
    let one = replay(&dag, &recording, Some(last), None).unwrap();
    assert!(one.is_equal() && one.replayed < report.replayed, "{one}");
    let error = replay(&dag, &recording, Some(MicroBatch(0)), None).unwrap_err();
    let told = format!("recorded are micro-batches {} to {}", first.0, last.0);
    assert!(error.to_string().contains(&told), "{error}");
}

#[test]
fn a_recording_without_room_for_a_micro_batch_has_none() {
    let folder = TestFolder::new();
    let (dag, recording) = recorded(&folder.0, Fault::None, 1_000, 100);
    assert!(bytes_of(&recording) <= 300);
    let error = replay(&dag, &recording, Some(MicroBatch(0)), None).unwrap_err();
    assert!(error.to_string().contains("is not recorded"), "{error}");
}

#[test]
fn a_step_that_is_not_deterministic_is_found_and_the_first_difference_is_named() {
    let folder = TestFolder::new();
    let (dag, recording) = recorded(&folder.0, Fault::RandomFrom(1_500), 3_000, 1 << 20);
    let report = replay(&dag, &recording, None, None).unwrap();
    let difference = report.difference.clone().unwrap();
    assert!(!report.is_equal() && !difference.is_order, "{report}");
    assert!(difference.micro_batch > MicroBatch(0), "{report}");
    assert!(difference.recorded != difference.replayed);
    let text = report.to_string();
    assert!(
        text.contains("\"totals\", instance 1: micro-batches 0 to"),
        "{text}"
    );
    assert!(text.contains("different: micro-batch"), "{text}");
    // Before the first difference the step is deterministic.
    let before = MicroBatch(difference.micro_batch.0 - 1);
    let report = replay(&dag, &recording, Some(before), None).unwrap();
    assert!(report.is_equal(), "{report}");
}

#[test]
fn a_failed_instance_fails_again_in_the_same_micro_batch() {
    let folder = TestFolder::new();
    let dag = graph(Fault::PanicsAt(2_000), 3_000);
    let job = node(&folder.0, 1 << 20)
        .submit(&dag, JobConfig::named("test"))
        .map(|job| over(&job));
    assert!(matches!(job, Ok(JobStatus::Failed(_))), "{job:?}");
    let run = RecordedRun::find(&folder.0, "test", None).unwrap();
    let reports = [0, 1].map(|instance| {
        let recording = run.instance(&dag, "totals", instance).unwrap();
        replay(&dag, &recording, None, None).unwrap()
    });
    assert!(
        reports.iter().all(|report| report.is_equal()),
        "{reports:?}"
    );
    let failed: Vec<_> = reports.iter().filter(|it| it.failure.is_some()).collect();
    assert_eq!(failed.len(), 1);
    let text = failed[0].to_string();
    assert!(text.contains("equal: it fails as recorded"), "{text}");
    assert!(text.contains("user code panicked: at 2000"), "{text}");
}

#[test]
fn a_torn_tail_of_a_recording_is_ignored() {
    let folder = TestFolder::new();
    let (dag, recording) = recorded(&folder.0, Fault::None, 3_000, 1 << 20);
    let whole = replay(&dag, &recording, None, None).unwrap();
    let file = fs::read_dir(recording.folder()).unwrap().next().unwrap();
    let path = file.unwrap().path();
    let content = fs::read(&path).unwrap();
    fs::write(&path, &content[..content.len() / 2]).unwrap();
    let torn = InstanceRecording::open(recording.folder()).unwrap();
    let report = replay(&dag, &torn, None, None).unwrap();
    assert!(report.is_equal(), "{report}");
    assert!(0 < report.replayed && report.replayed < whole.replayed);
    fs::write(&path, &content[..3]).unwrap();
    let error = InstanceRecording::open(recording.folder()).unwrap_err();
    assert!(error.to_string().contains("has no recording"), "{error}");
}

#[test]
fn a_saved_fixture_is_replayed_alone() {
    let folder = TestFolder::new();
    let (dag, recording) = recorded(&folder.0, Fault::None, 20_000, 64 << 10);
    let (first, last) = recording.micro_batches()[0];
    let at = MicroBatch((first.0 + last.0) / 2);
    let saved = folder.0.join("fixtures/totals");
    let report = replay(&dag, &recording, Some(at), Some(&saved)).unwrap();
    let fixture = InstanceRecording::open(&saved).unwrap();
    assert_eq!((fixture.job(), fixture.vertex()), ("test", "totals"));
    let again = replay(&dag, &fixture, None, None).unwrap();
    assert!(again.is_equal(), "{again}");
    assert_eq!(again.replayed, report.replayed);
    assert_eq!(again.micro_batches, report.micro_batches);
    let liar = graph(Fault::RandomFrom(0), 0);
    assert!(!replay(&liar, &fixture, None, None).unwrap().is_equal());
    let error = replay(&dag, &recording, Some(at), Some(&saved)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteFailed, "it exists");
}

#[test]
fn missing_recordings_are_named_with_those_that_exist() {
    let folder = TestFolder::new();
    let (dag, _) = recorded(&folder.0, Fault::None, 100, 1 << 20);
    let run = RecordedRun::find(&folder.0, "test", None).unwrap();
    for (vertex, instance, told) in [
        ("total", 0, "no step \"total\"; recorded steps are totals"),
        ("numbers", 0, "it is a source"),
        ("to", 0, "it is a sink"),
        (
            "totals",
            2,
            "no recorded instance 2; its instances are 0 to 1",
        ),
    ] {
        let error = run.instance(&dag, vertex, instance).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
    for (job, number, told) in [
        ("other", None, "no recording of the job \"other\""),
        (
            "test",
            Some(7),
            "no run 7 of the job \"test\"; its runs are 1",
        ),
    ] {
        let error = RecordedRun::find(&folder.0, job, number).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[test]
fn only_the_latest_runs_are_retained() {
    let folder = TestFolder::new();
    for _ in 0..5 {
        recorded(&folder.0, Fault::None, 100, 1 << 20);
    }
    let runs = (1..=5).map(|run| RecordedRun::find(&folder.0, "test", Some(run)).is_ok());
    assert_eq!(runs.collect::<Vec<_>>(), [false, false, true, true, true]);
}

#[test]
fn a_folder_that_cannot_be_written_is_named_before_the_job_starts() {
    let folder = TestFolder::new();
    fs::write(&folder.0, "a file").unwrap();
    let dag = graph(Fault::None, 100);
    let started = node(&folder.0, 1 << 20).submit(&dag, JobConfig::named("test"));
    let error = started.err().unwrap();
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    let path = folder.0.display().to_string();
    assert!(error.to_string().contains(&path), "{error}");
    fs::remove_file(&folder.0).unwrap();
}

#[test]
fn the_epochs_of_a_recorded_job_without_checkpoints_are_replayed() {
    let folder = TestFolder::new();
    let dag = graph(Fault::None, 200_000);
    let node = node(&folder.0, 64 << 10);
    let job = node.submit(&dag, JobConfig::named("test")).unwrap();
    job.end_epoch();
    job.end_epoch();
    assert!(matches!(over(&job), JobStatus::Completed));
    let run = RecordedRun::find(&folder.0, "test", None).unwrap();
    let recording = run.instance(&dag, "totals", 0).unwrap();
    let report = replay(&dag, &recording, None, None).unwrap();
    assert!(report.is_equal(), "{report}");
}

#[test]
fn a_job_without_a_recordable_step_is_refused() {
    let folder = TestFolder::new();
    let mut dag = Dag::new();
    let from = dag.vertex(numbers("numbers", 1, 10));
    let dice = vertex("dice", 1, |_: Instance| Totals::new(Fault::None));
    let dice = dag.vertex(dice.nondeterministic("it throws dice"));
    let plain = dag.vertex(vertex("plain", 1, |_: Instance| Totals::new(Fault::None)));
    let to = dag.vertex(Journal::default().vertex("to", 1));
    dag.edge(Edge::between(from, dice).codec(Arc::new(Numbers)));
    dag.edge(Edge::between(dice, plain).codec(Arc::new(Numbers)));
    dag.edge(Edge::between(plain, to));
    let started = node(&folder.0, 1 << 20).submit(&dag, JobConfig::named("test"));
    let text = started
        .err()
        .map_or_else(String::new, |error| error.to_string());
    for told in [
        "ARD-101: micro_batch.record is set",
        "\"dice\": it is not deterministic: it throws dice",
        "\"plain\": its records to \"to\" have no codec",
    ] {
        assert!(text.contains(told), "{told} in {text}");
    }
    assert!(!folder.0.exists());
}
