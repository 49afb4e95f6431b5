//! Helpers for the tests of jobs.

use std::path::Path;

use ardea_engine::{InstanceRecording, Job, ReplayReport};

/// Replays a fixture that `replay --save` has written, with the step of this job. The output must
/// be that of the recording, byte by byte.
///
/// ```no_run
/// # fn pipeline() -> ardea::Pipeline { ardea::Pipeline::new("words") }
/// // In a test.
/// ardea::testing::replay(&pipeline(), "tests/fixtures/counts");
/// ```
///
/// # Panics
/// If the output differs, with the first difference. If the fixture cannot be read, or the job has
/// no such step.
#[track_caller]
pub fn replay(job: &dyn Job, folder: impl AsRef<Path>) -> ReplayReport {
    let replayed = InstanceRecording::open(folder).and_then(|recording| {
        let dag = job.graph(recording.threads())?;
        ardea_engine::replay(&dag, &recording, None, None)
    });
    match replayed {
        Ok(report) if report.is_equal() => report,
        Ok(report) => panic!("{report}"),
        Err(error) => panic!("{error}"),
    }
}
