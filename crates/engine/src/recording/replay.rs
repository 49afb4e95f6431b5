//! The replay of an instance's recorded micro-batches.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ardea_core::{
    Chunk, Dag, Error, ErrorCode, MicroBatch, Result, VertexId, Watermark, panic_message,
};

use super::EdgeCodecs;
use super::comparison::{OutputItem, ReplayDifference};
use super::events::RecordedEvent;
use super::instance_recording::{BatchOutcome, InstanceRecording, RecordedBatch};
use super::replayed_instance::ReplayedInstance;

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    /// The name of the vertex.
    pub vertex: String,
    /// The index of the instance.
    pub instance: u32,
    /// The first and the last replayed micro-batch, if there is one.
    pub micro_batches: Option<(MicroBatch, MicroBatch)>,
    /// The number of replayed micro-batches.
    pub replayed: u64,
    /// The number of records of the inputs.
    pub records_in: u64,
    /// The number of records and watermarks that were compared.
    pub items_out: u64,
    /// The first difference, if there is one. The replay ends there.
    pub difference: Option<ReplayDifference>,
    /// The failure of the replayed instance, if it failed.
    pub failure: Option<Error>,
    /// The message of the failure of the recorded instance, if it failed in a replayed micro-batch.
    pub recorded_failure: Option<String>,
}

impl ReplayReport {
    /// Returns true if the output is that of the recording, byte by byte. If the recorded instance
    /// failed, the replayed one must fail in the same micro-batch.
    pub fn is_equal(&self) -> bool {
        let fails = [self.failure.is_some(), self.recorded_failure.is_some()];
        self.difference.is_none() && fails[0] == fails[1]
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, instance {}: ", self.vertex, self.instance)?;
        match self.micro_batches {
            Some((first, last)) if first == last => write!(f, "micro-batch {}", first.0)?,
            Some((first, last)) => write!(f, "micro-batches {} to {}", first.0, last.0)?,
            None => write!(f, "no micro-batch")?,
        }
        let (read, compared) = (self.records_in, self.items_out);
        writeln!(f, ", {read} records in, {compared} items out")?;
        if let Some(difference) = &self.difference {
            return write!(f, "different: {difference}");
        }
        match (&self.failure, &self.recorded_failure) {
            (None, None) => write!(f, "equal: the output is the same to the byte"),
            (Some(failure), Some(_)) => write!(f, "equal: it fails as recorded: {failure}"),
            (Some(failure), None) => write!(f, "different: it fails: {failure}"),
            (None, Some(recorded)) => {
                write!(f, "different: it does not fail as recorded: {recorded}")
            }
        }
    }
}

/// Runs recorded micro-batches of an instance again in the calling thread, and compares the output
/// with the recorded one: those from the latest recorded state up to `micro_batch`, or all. Writes
/// the replayed part of the recording to the folder `save`, if given.
///
/// `dag` is the graph of the same job for a node with
/// [as many threads](InstanceRecording::threads). The replay ends at the first difference and at a
/// failure of the instance, which are parts of the report.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the graph has no such vertex, or the micro-batch is not
/// recorded; [`ErrorCode::InvalidJob`] if the vertex has other inputs or outputs; an error of the
/// restore, or of writing.
pub fn replay(
    dag: &Dag,
    recording: &InstanceRecording,
    micro_batch: Option<MicroBatch>,
    save: Option<&Path>,
) -> Result<ReplayReport> {
    let name = recording.vertex();
    let mut ids = (0..dag.vertices().len()).map(VertexId::of_index);
    let id = ids.find(|id| &**dag.get(*id).name() == name);
    let id = id.ok_or_else(|| {
        let what = format!("the job has no step {name:?}, whose recording is to be replayed");
        Error::new(ErrorCode::InvalidConfig, what)
            .hint("replay it with the program that was recorded")
    })?;
    let codecs = EdgeCodecs::of(dag, id).map_err(|reason| {
        let what = format!("the step {name:?} cannot be replayed");
        Error::new(ErrorCode::InvalidJob, what).because(reason)
    })?;
    let heads = match micro_batch {
        Some(batch) => vec![recording.segment_of(batch)?],
        None => recording.heads(),
    };
    if let (Some(folder), Some(head)) = (save, heads.last()) {
        let last = micro_batch.unwrap_or(MicroBatch(u64::MAX));
        recording.save(*head, last, folder)?;
    }
    let mut report = ReplayReport {
        vertex: name.to_string(),
        instance: recording.instance().index,
        micro_batches: None,
        replayed: 0,
        records_in: 0,
        items_out: 0,
        difference: None,
        failure: None,
        recorded_failure: None,
    };
    for head in heads {
        let batches = recording.batches_from(head);
        let until = micro_batch.unwrap_or(MicroBatch(u64::MAX));
        let wanted = batches.iter().take_while(|batch| batch.first <= until);
        replay_from((dag, id), recording, head, &codecs, wanted, &mut report)?;
        if report.difference.is_some() || report.failure.is_some() {
            break;
        }
    }
    Ok(report)
}

/// Replays micro-batches from a segment on.
fn replay_from<'a>(
    of: (&Dag, VertexId),
    recording: &InstanceRecording,
    head: usize,
    codecs: &EdgeCodecs,
    batches: impl Iterator<Item = &'a RecordedBatch<'a>>,
    report: &mut ReplayReport,
) -> Result<()> {
    let segment = recording.segment(head);
    let at_start = |error: Error| error.in_vertex(recording.vertex(), recording.instance().index);
    let mut instance = ReplayedInstance::create(of, &segment.start, codecs).map_err(at_start)?;
    let state = segment.state.as_deref().unwrap_or_default();
    instance.restore(&segment.start, state).map_err(at_start)?;
    let mut sent = segment.start.sent;
    for batch in batches {
        let (first, _) = report.micro_batches.unwrap_or((batch.first, batch.last));
        report.micro_batches = Some((first, batch.last));
        report.replayed += 1;
        let recorded = outputs_of(batch, codecs, &mut sent)?;
        let before = instance.records_in();
        let failure = run_batch(&mut instance, batch);
        report.records_in += instance.records_in() - before;
        report.failure = failure.map(at_start);
        if let BatchOutcome::Failed(why) = batch.end {
            report.recorded_failure = Some(why.to_string());
        }
        report.items_out += recorded.iter().map(|items| items.len() as u64).sum::<u64>();
        // A failed instance has written a part of its output.
        if report.failure.is_some() {
            break;
        }
        let is_complete = batch.end == BatchOutcome::Complete;
        let replayed = instance.take_outputs();
        report.difference = ReplayDifference::find(batch.last, &recorded, &replayed, is_complete);
        if report.difference.is_some() {
            break;
        }
    }
    Ok(())
}

/// Passes the inputs of a micro-batch to an instance. Returns its failure, if it fails.
fn run_batch(instance: &mut ReplayedInstance<'_>, batch: &RecordedBatch<'_>) -> Option<Error> {
    let run = || {
        let mut events = batch.events.iter();
        events.try_for_each(|event| instance.handle(event))?;
        let mut events = batch.events.iter();
        let is_last = events.any(|event| matches!(event, RecordedEvent::Complete));
        match batch.end {
            BatchOutcome::Complete if !is_last => {
                instance.handle(&RecordedEvent::BatchEnd(batch.last))
            }
            _ => Ok(()),
        }
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.err(),
        Err(payload) => Some(panicked(&*payload)),
    }
}

fn panicked(payload: &(dyn Any + Send)) -> Error {
    let what = format!("user code panicked: {}", panic_message(payload));
    Error::new(ErrorCode::UserPanic, what)
}

/// Returns the recorded outputs of a micro-batch; `sent` is the latest watermark.
fn outputs_of(
    batch: &RecordedBatch<'_>,
    codecs: &EdgeCodecs,
    sent: &mut Watermark,
) -> Result<Vec<Vec<OutputItem>>> {
    let mut outputs: Vec<Vec<OutputItem>> = codecs.outputs.iter().map(|_| Vec::new()).collect();
    for event in &batch.events {
        match event {
            RecordedEvent::Output {
                output,
                records,
                payload,
            } => {
                let output = usize::from(*output);
                let (Some(items), Some(codec)) =
                    (outputs.get_mut(output), codecs.outputs.get(output))
                else {
                    return Err(other_graph());
                };
                let mut chunk = Chunk::default();
                codec.decode(*records, payload, &mut chunk)?;
                OutputItem::append_chunk(&**codec, &mut chunk, items)?;
            }
            RecordedEvent::OutputWatermark(watermark) => {
                let before = *sent;
                for items in &mut outputs {
                    *sent = before;
                    OutputItem::append_watermark(*watermark, sent, items);
                }
            }
            RecordedEvent::Input { input, .. } | RecordedEvent::EdgeDone(input)
                if input.index() >= codecs.inputs.len() =>
            {
                return Err(other_graph());
            }
            _ => {}
        }
    }
    Ok(outputs)
}

fn other_graph() -> Error {
    let what = "the recorded step has other inputs or outputs than that of this job";
    Error::new(ErrorCode::InvalidJob, what).hint("replay it with the program that was recorded")
}
