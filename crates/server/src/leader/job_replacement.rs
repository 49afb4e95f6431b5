//! Replacement of a job by its successor in an upgrade.

use std::sync::Arc;

use ardea_coordination::control::{JobMaster, JobRecord, Replacement, StoreReply};
use ardea_core::Result;

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use ardea_checkpoint::local::LeaderCheckpointBackend;

use crate::leader::{StoredJob, Submitted};

/// Prepares the successor of a job. Reads and writes files.
///
/// # Errors
///
/// If neither the new nor the old program can be started; the call should be retried.
pub(crate) fn prepare(
    following: Replacement,
    checkpoints: &dyn LeaderCheckpointBackend,
) -> Result<StoredJob> {
    let (definition, record) = following.next(|next, left| checkpoints.follow(next, left))?;
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
