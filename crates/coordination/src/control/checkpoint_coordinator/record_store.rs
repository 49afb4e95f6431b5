//! Storage of the checkpoint record: reads it at the start of a leadership, and determines the
//! outcome of each write.

use std::sync::Arc;
use std::time::Duration;

use super::record::CheckpointRecord;
use crate::control::{
    JobRef, MasterEpoch, Rejection, RequestId, StoreReply, StoreRequest, StoreVersion,
};

/// The timeout of a request to the metadata store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The retry delay after the metadata store was unavailable or has refused a request.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// The retry delay after the job's initial state was found damaged. It is long, since each retry
/// may read much of this state.
const DAMAGED_RETRY_DELAY: Duration = Duration::from_secs(10);

type Request = (RequestId, StoreRequest<Arc<CheckpointRecord>>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum WriteOutcome {
    /// The record was read, and this leader has not written it yet: see
    /// [`CheckpointRecordStore::record`].
    Read,
    /// The proposed record is stored.
    Stored,
    /// An earlier proposal, which was replaced because its outcome was unknown, has been stored
    /// after all. The replacement is not stored and never will be.
    StoredBefore,
    /// It is unknown whether the proposal is stored. The next requests will determine this.
    Doubtful,
    /// The metadata store has refused the write. The proposal is retried until it is replaced or
    /// withdrawn.
    Refused(Rejection),
    /// The job is gone.
    Gone,
    /// Another leader has written the record, with a later master epoch or the same one.
    Superseded(MasterEpoch),
}

/// One leader's view of the stored checkpoint record.
///
/// **The outcome of a write** without a reply is known only after a later write succeeds, since it
/// may be delayed indefinitely. So the leader reads the record. If the proposal is not stored, the
/// leader writes it again against the same version; at most one of both writes succeeds. To
/// withdraw a write that may still arrive, the leader writes another value in its place; then the
/// earlier write fails.
#[derive(Debug)]
pub(super) struct CheckpointRecordStore {
    job: JobRef,
    master: MasterEpoch,
    known: Option<Known>,
    wanted: Option<Arc<CheckpointRecord>>,
    /// The earlier proposals that may still be stored, and were not found in the record.
    doubtful: Vec<Arc<CheckpointRecord>>,
    asked: Option<PendingWrite>,
    must_read: bool,
    /// True once this leader has stored anything: from then on no earlier leader can write.
    claimed: bool,
    next_at: Duration,
    requests: u64,
}

#[derive(Debug)]
struct Known {
    record: Arc<CheckpointRecord>,
    version: Option<StoreVersion>,
}

#[derive(Debug)]
struct PendingWrite {
    id: RequestId,
    sent: Duration,
    writes: bool,
}

impl CheckpointRecordStore {
    pub(super) fn new(job: JobRef, master: MasterEpoch) -> Self {
        CheckpointRecordStore {
            job,
            master,
            known: None,
            wanted: None,
            doubtful: Vec::new(),
            asked: None,
            must_read: true,
            claimed: false,
            next_at: Duration::ZERO,
            // Request numbers differ between leaderships, so that a reply to another leadership's
            // request is never accepted.
            requests: master.0 << 32,
        }
    }

    /// Returns the stored record, as this leader last observed it.
    pub(super) fn record(&self) -> Option<&CheckpointRecord> {
        self.known.as_ref().map(|known| &*known.record)
    }

    /// Returns true if the stored record is known, and no write is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.claimed && self.wanted.is_none() && self.doubtful.is_empty()
    }

    /// Proposes a record to be written, in place of the previous proposal. [`WriteOutcome::Stored`]
    /// reports the success.
    pub(super) fn propose(&mut self, mut record: CheckpointRecord) {
        record.master = self.master;
        self.wanted = Some(Arc::new(record));
    }

    /// Returns true if a proposal may be stored despite the last reply.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Drops the proposal. Must not be called while the proposal [is in doubt](Self::is_in_doubt).
    pub(super) fn withdraw(&mut self) {
        self.wanted = None;
    }

    /// Returns the request that is due now, and [`WriteOutcome::Doubtful`] if the previous request
    /// timed out.
    pub(super) fn ask(&mut self, now: Duration) -> (Option<WriteOutcome>, Option<Request>) {
        let late = self
            .asked
            .take_if(|asked| now >= asked.sent + REQUEST_TIMEOUT);
        let doubtful = late.and_then(|asked| self.doubt(&asked));
        (doubtful, self.request(now))
    }

    fn request(&mut self, now: Duration) -> Option<Request> {
        if self.asked.is_some() || now < self.next_at {
            return None;
        }
        let request = match (&self.wanted, &self.known) {
            (Some(wanted), Some(known)) if !self.must_read => StoreRequest::Write {
                value: Arc::clone(wanted),
                expected: known.version,
            },
            _ if self.must_read => StoreRequest::Read,
            _ => return None,
        };
        self.requests += 1;
        let id = RequestId(self.requests);
        self.asked = Some(PendingWrite {
            id,
            sent: now,
            writes: matches!(request, StoreRequest::Write { .. }),
        });
        Some((id, request))
    }

    /// Handles the request `asked`, whose outcome is unknown: the record must be read before the
    /// next write.
    fn doubt(&mut self, asked: &PendingWrite) -> Option<WriteOutcome> {
        self.must_read = true;
        let wanted = self.wanted.as_ref().filter(|_| asked.writes)?;
        if !self.doubtful.contains(wanted) {
            self.doubtful.push(Arc::clone(wanted));
        }
        Some(WriteOutcome::Doubtful)
    }

    pub(super) fn answered(
        &mut self,
        now: Duration,
        id: RequestId,
        reply: StoreReply<Arc<CheckpointRecord>>,
    ) -> Option<WriteOutcome> {
        let asked = self.asked.take_if(|asked| asked.id == id)?;
        match reply {
            StoreReply::Found(found) => self.found(found),
            StoreReply::Written(version) => {
                let record = self.wanted.clone()?;
                self.now_stored(record, Some(version));
                Some(WriteOutcome::Stored)
            }
            StoreReply::Deleted | StoreReply::JobGone => Some(WriteOutcome::Gone),
            StoreReply::Conflict => {
                self.must_read = true;
                None
            }
            StoreReply::Unavailable => {
                self.next_at = now + RETRY_DELAY;
                self.doubt(&asked)
            }
            StoreReply::Refused(why) => {
                let is_damaged = !asked.writes && why.is_for_good();
                self.next_at = now
                    + if is_damaged {
                        DAMAGED_RETRY_DELAY
                    } else {
                        RETRY_DELAY
                    };
                Some(WriteOutcome::Refused(why))
            }
        }
    }

    /// Records that this leader's value `record` is stored. All other pending writes fail then.
    fn now_stored(&mut self, record: Arc<CheckpointRecord>, version: Option<StoreVersion>) {
        self.known = Some(Known { record, version });
        self.wanted = None;
        self.doubtful.clear();
        self.claimed = true;
    }

    fn found(
        &mut self,
        found: Option<(Arc<CheckpointRecord>, StoreVersion)>,
    ) -> Option<WriteOutcome> {
        self.must_read = false;
        let Some((record, version)) = found else {
            let was_there = self
                .known
                .as_ref()
                .is_some_and(|known| known.version.is_some());
            return match (was_there, &self.known) {
                // The record has been deleted.
                (true, _) => Some(WriteOutcome::Gone),
                (false, Some(_)) => None,
                (false, None) => {
                    let record = Arc::new(CheckpointRecord::new(self.job.clone()));
                    let version = None;
                    self.known = Some(Known { record, version });
                    Some(WriteOutcome::Read)
                }
            };
        };
        // A record of another submission means that this one was deleted and its name reused.
        if record.job != self.job {
            return Some(WriteOutcome::Gone);
        }
        let known = self.known.as_ref();
        if known.is_some_and(|known| known.version == Some(version)) {
            return None;
        }
        let is_wanted = self.wanted.as_ref() == Some(&record);
        if is_wanted || self.doubtful.contains(&record) {
            self.now_stored(record, Some(version));
            return Some(match is_wanted {
                true => WriteOutcome::Stored,
                false => WriteOutcome::StoredBefore,
            });
        }
        // A record with this epoch that this leader did not write belongs to a leader with the same
        // epoch, after a loss of the lease.
        if self.claimed || record.master >= self.master {
            return Some(WriteOutcome::Superseded(record.master));
        }
        self.wanted = None;
        self.doubtful.clear();
        let version = Some(version);
        self.known = Some(Known { record, version });
        Some(WriteOutcome::Read)
    }
}
