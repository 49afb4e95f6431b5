//! The fault tolerance of a job in this process.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::FaultTolerance;
use ardea_core::Guarantee;

/// Returns the fault-tolerance settings of a job in this process, if the guarantee requires state.
/// Its checkpoints are in `folder`, which is recreated, or in memory.
pub(crate) fn fault_tolerance(
    guarantee: Guarantee,
    every: Duration,
    folder: Option<PathBuf>,
) -> Option<FaultTolerance> {
    let checkpoints = match folder {
        Some(folder) => FaultTolerance::in_folder(folder).start_over(true),
        None => FaultTolerance::in_memory(),
    };
    guarantee.keeps_state().then(|| {
        // A job that fails must not be measured.
        let survival = checkpoints.guarantee(guarantee).attempts(0);
        survival.every(every).pause(Duration::ZERO)
    })
}
