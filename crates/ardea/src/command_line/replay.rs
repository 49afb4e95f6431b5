//! `replay`: runs recorded micro-batches of an instance again, and compares the output.

use std::path::PathBuf;

use ardea_core::{Error, ErrorCode, MicroBatch};
use ardea_engine::{Job, RecordedRun, ReplayDifference, ReplayReport};
use serde_json::{Value, json};

use super::Context;
use crate::console::Failure;

/// The options of `replay`.
#[derive(clap::Args, Clone, Debug)]
pub struct ReplayOptions {
    /// Name of the step
    #[arg(long, value_name = "STEP")]
    pub vertex: String,
    /// Index of the step's instance, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub instance: u32,
    /// Micro-batch up to which the instance runs, from its latest recorded state (default: all)
    #[arg(long, value_name = "N", visible_alias = "epoch")]
    pub micro_batch: Option<u64>,
    /// Run of the job (default: the latest)
    #[arg(long, value_name = "N")]
    pub run: Option<u64>,
    /// New folder to which the replayed part is written, as a fixture for ardea::testing::replay
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

/// Replays micro-batches of `job` from the folder of the setting `micro_batch.record`, and prints
/// whether the output is the same.
///
/// # Errors
/// `InvalidConfig` if nothing is recorded, or another instance or micro-batch; `UserError` if the
/// output differs.
pub fn replay(job: &dyn Job, options: &ReplayOptions, context: &Context) -> Result<(), Failure> {
    let Some(record) = context.node_config(None)?.micro_batch.record else {
        return Err(Failure::usage(
            "micro_batch.record is not set, so that there is no recording",
            "give the folder of the recorded run: --set micro_batch.record=DIR",
        ));
    };
    let run = RecordedRun::find(&record, job.name(), options.run)?;
    let dag = job.graph(run.threads())?;
    let recording = run.instance(&dag, &options.vertex, options.instance)?;
    let micro_batch = options.micro_batch.map(MicroBatch);
    let save = options.save.as_deref();
    let report = ardea_engine::replay(&dag, &recording, micro_batch, save)?;
    context.print(&format!("{report}\n"), || to_json(&report, run.number()))?;
    match report.is_equal() {
        true => Ok(()),
        false => Err(difference_of(&report).into()),
    }
}

/// Returns the error for a replay with another output.
fn difference_of(report: &ReplayReport) -> Error {
    let what = match (&report.difference, &report.failure) {
        (Some(difference), _) => format!(
            "the output differs from the recorded one in micro-batch {}",
            difference.micro_batch.0
        ),
        (None, Some(failure)) => format!("the replay fails: {}", failure.message()),
        (None, None) => "the replay does not fail as recorded".into(),
    };
    Error::new(ErrorCode::UserError, what)
        .hint("let the step's output follow from its input alone (no clock, no random numbers), or declare the step with `nondeterministic`")
        .in_vertex(&report.vertex, report.instance)
}

fn to_json(report: &ReplayReport, run: u64) -> Value {
    let batches = report.micro_batches;
    let failure = report.failure.as_ref().map(Error::message);
    json!({
        "run": run,
        "vertex": report.vertex,
        "instance": report.instance,
        "first": batches.map(|(first, _)| first.0),
        "last": batches.map(|(_, last)| last.0),
        "micro_batches": report.replayed,
        "records_in": report.records_in,
        "items_out": report.items_out,
        "equal": report.is_equal(),
        "difference": report.difference.as_ref().map(difference_json),
        "failure": failure,
        "recorded_failure": report.recorded_failure,
    })
}

fn difference_json(difference: &ReplayDifference) -> Value {
    json!({
        "micro_batch": difference.micro_batch.0,
        "output": difference.output,
        "position": difference.position,
        "recorded": difference.recorded_text(),
        "replayed": difference.replayed_text(),
        "is_order": difference.is_order,
    })
}
