//! Replacement of a job by its successor in an upgrade.

use std::sync::Arc;

use ardea_coordination::control::{JobMaster, JobRecord, Replacement, StoreReply};
use ardea_coordination::packing::TRAFFIC;
use ardea_coordination::placement::EdgeRate;
use ardea_core::Result;

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use ardea_checkpoint::local::LeaderCheckpointBackend;

use crate::leader::{StoredJob, Submitted};

/// Prepares the successor of a job. A successor that is packed by its traffic gets the measured
/// `rates` of the job. Reads and writes files.
///
/// # Errors
///
/// If neither the new nor the old program can be started; the call should be retried.
pub(crate) fn prepare(
    following: Replacement,
    rates: &[EdgeRate],
    checkpoints: &dyn LeaderCheckpointBackend,
) -> Result<StoredJob> {
    let (definition, mut record) = following.next(|next, left| checkpoints.follow(next, left))?;
    // A program that is rolled back to keeps its plan.
    if definition.packing == TRAFFIC && record.plan.is_none() {
        EdgeRate::write_missing(rates, &mut record.demand);
    }
    Ok(StoredJob {
        submitted: Arc::new(Submitted {
            definition,
            at_ms: now_ms(),
        }),
        record: Arc::new(record),
    })
}

impl Driver {
    /// Records why no successor can replace the stopped job, as a notice of the job.
    pub(crate) fn note_trouble(&mut self, reply: &StoreReply<Arc<JobRecord>>) {
        let record = self.candidate.master().and_then(JobMaster::record);
        if let (StoreReply::Refused(why), Some(record)) = (reply, record)
            && record.is_being_replaced()
        {
            let text = format!("neither program can take over yet: {why}");
            if self.unfollowed.as_ref() != Some(&text) {
                self.unfollowed = Some(text.clone());
                self.event_history.notice(text);
            }
        }
    }
}
