//! Puts the job that follows into the place of one that gives way, and says why if it can't.

use std::sync::Arc;

use ardea_coordination::control::{Following, JobMaster, JobRecord, StoreReply};
use ardea_core::Result;

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use ardea_checkpoint::local::Snapshots;

use crate::leader::{StoredJob, Submitted};

/// Makes ready what follows. Looks at files, and writes some.
///
/// # Errors
/// Why neither program can go on; it is to be tried again.
pub(crate) fn prepare(following: Following, snapshots: &dyn Snapshots) -> Result<StoredJob> {
    let (definition, record) = following.next(|next, left| snapshots.follow(next, left))?;
    Ok(StoredJob {
        submitted: Arc::new(Submitted {
            definition,
            at_ms: now_ms(),
        }),
        record: Arc::new(record),
    })
}

impl Driver {
    /// Why no other job can take the place of this one yet, which nothing runs of: people see it with the job.
    pub(crate) fn note_trouble(&mut self, reply: &StoreReply<Arc<JobRecord>>) {
        let record = self.candidate.master().and_then(JobMaster::record);
        if let (StoreReply::Refused(why), Some(record)) = (reply, record)
            && record.gives_way()
        {
            let text = format!("no program can follow yet: {why}");
            if self.unfollowed.as_ref() != Some(&text) {
                self.unfollowed = Some(text.clone());
                self.chronicle.notice(text);
            }
        }
    }
}
