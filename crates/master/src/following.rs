//! Which job takes the place of one that gives way, and with which state.

use std::sync::Arc;

use ardea_control::{
    JobMaster, JobRecord, JobRef, LeftState, Predecessor, StoreReply, Successor, Upgrade,
    UpgradeEnd, UpgradeOrder,
};
use ardea_core::Result;

use crate::clock::now_ms;
use crate::driver::Driver;
use crate::{Left, Snapshots, StoredJob, Submitted};

/// What takes the place of a job of which nothing runs any more.
pub(crate) struct Following {
    /// The job that gives way.
    own: Successor,
    record: JobRecord,
    way: Way,
}

enum Way {
    /// The new program, or the old one again if nothing can be made ready for that.
    On(Arc<UpgradeOrder>, Option<LeftState>),
    /// The old one, for this reason.
    Back(Arc<Predecessor>, String),
}

impl Following {
    /// Of a job with this record; none if it does not give way.
    pub(crate) fn of(submitted: &Submitted, record: &JobRecord) -> Option<Self> {
        let way = match record.upgrade.as_ref().filter(|_| record.gives_way())? {
            Upgrade::Left(order, state) => Way::On(Arc::clone(order), *state),
            Upgrade::Returning(before, why) => Way::Back(Arc::clone(before), why.clone()),
            Upgrade::Leaving(_) | Upgrade::Proving(_) | Upgrade::Over(_) => return None,
        };
        Some(Following {
            own: Successor {
                definition: submitted.definition.clone(),
                // As it was updated.
                demand: record.demand.clone(),
                packing: record.packing.clone(),
            },
            record: record.clone(),
            way,
        })
    }

    /// Makes it ready. Looks at files, and writes some.
    ///
    /// # Errors
    /// Why neither program can go on; it is to be tried again.
    pub(crate) fn next(self, snapshots: &dyn Snapshots) -> Result<StoredJob> {
        match &self.way {
            Way::On(order, state) => self.on(order, *state, snapshots),
            Way::Back(before, why) => {
                let tried = self.record.job.submission;
                self.back(before, (tried, why.as_str()), snapshots)
            }
        }
    }

    fn on(
        &self,
        order: &UpgradeOrder,
        state: Option<LeftState>,
        snapshots: &dyn Snapshots,
    ) -> Result<StoredJob> {
        let before = Predecessor {
            job: self.own.clone(),
            state,
            back: order.back,
            patience: order.patience,
        };
        let left = Left {
            job: &self.own,
            state,
        };
        match snapshots.follow(&order.next, &left) {
            Ok(definition) => {
                let next = Successor {
                    definition,
                    ..order.next.clone()
                };
                Ok(self.stored(next, Upgrade::Proving(Arc::new(before))))
            }
            Err(error) => {
                let tried = order.next.definition.job.submission;
                let why = error.to_string();
                self.back(&before, (tried, why.as_str()), snapshots)
            }
        }
    }

    fn back(
        &self,
        before: &Predecessor,
        (tried, why): (u64, &str),
        snapshots: &dyn Snapshots,
    ) -> Result<StoredJob> {
        let mut next = before.job.clone();
        // It was about what the old program began with once.
        next.definition.settings.remove("recovery.drop");
        next.definition.job = JobRef {
            submission: before.back,
            ..next.definition.job
        };
        let left = Left {
            job: &before.job,
            state: before.state,
        };
        next.definition = snapshots.follow(&next, &left)?;
        let end = UpgradeEnd::RolledBack {
            tried,
            why: why.to_string(),
        };
        Ok(self.stored(next, Upgrade::Over(end)))
    }

    fn stored(&self, next: Successor, upgrade: Upgrade) -> StoredJob {
        let Successor {
            definition,
            demand,
            packing,
        } = next;
        let record = JobRecord {
            intent: self.record.intent,
            upgrade: Some(upgrade),
            ..JobRecord::submitted(definition.job.clone(), demand, packing)
        };
        StoredJob {
            submitted: Arc::new(Submitted {
                definition,
                at_ms: now_ms(),
            }),
            record: Arc::new(record),
        }
    }
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
