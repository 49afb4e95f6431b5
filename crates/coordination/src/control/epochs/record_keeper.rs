//! Keeps the record of a job's epochs: reads it when a mastership begins, and settles what has become of each write.

use std::sync::Arc;
use std::time::Duration;

use super::record::EpochsRecord;
use crate::control::{
    JobRef, MasterEpoch, Refused, RequestId, StoreReply, StoreRequest, StoreVersion,
};

/// After how long a request counts as unanswered.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait after the state manager was not there, or has refused.
const PAUSE: Duration = Duration::from_millis(250);

/// How long to wait after what the record should begin with was damaged: to find that out anew may take reading much of it.
const MENDS_AFTER: Duration = Duration::from_secs(10);

/// A request with its number.
type Request = (RequestId, StoreRequest<Arc<EpochsRecord>>);

/// What has come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// The record was read, and nothing of this master's is in it yet: [`RecordKeeper::record`] has it.
    Read,
    /// What was proposed is stored.
    Stored,
    /// What was proposed before, and was replaced since its fate was not known, has been stored after all; the replacement is not, and never
    /// will be.
    StoredBefore,
    /// What was proposed may be stored or not; it is asked for again.
    Doubtful,
    /// The state manager has refused. What was proposed is tried again until it is replaced or withdrawn.
    Refused(Refused),
    /// The job is gone.
    Gone,
    /// Another master has written, later or under the same number.
    Superseded(MasterEpoch),
}

/// One master's view of the record.
///
/// **What has become of a write** whose answer is lost, only a later one can tell: it may be under way for as long as it likes. So
/// it is looked for, and if it isn't there it is written again against the same version, of which one succeeds at most. And a write that
/// may still arrive is never just dropped: something else is written in its place, after which it comes too late.
#[derive(Debug)]
pub(super) struct RecordKeeper {
    job: JobRef,
    master: MasterEpoch,
    known: Option<Known>,
    wanted: Option<Arc<EpochsRecord>>,
    /// What may be written yet, and was not seen.
    doubtful: Vec<Arc<EpochsRecord>>,
    asked: Option<Asked>,
    must_read: bool,
    /// Whether anything of this master's is stored: from then on nobody before it can write.
    claimed: bool,
    next_at: Duration,
    requests: u64,
}

#[derive(Debug)]
struct Known {
    record: Arc<EpochsRecord>,
    version: Option<StoreVersion>,
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    sent: Duration,
    writes: bool,
}

impl RecordKeeper {
    pub(super) fn new(job: JobRef, master: MasterEpoch) -> Self {
        RecordKeeper {
            job,
            master,
            known: None,
            wanted: None,
            doubtful: Vec::new(),
            asked: None,
            must_read: true,
            claimed: false,
            next_at: Duration::ZERO,
            // So that no answer to another mastership's request is taken for one to this one's.
            requests: master.0 << 32,
        }
    }

    /// The record as it is stored, as far as this master has seen.
    pub(super) fn record(&self) -> Option<&EpochsRecord> {
        self.known.as_ref().map(|known| &*known.record)
    }

    /// Whether nothing is stored but what is known, and nothing is on the way there.
    pub(super) fn is_idle(&self) -> bool {
        self.claimed && self.wanted.is_none() && self.doubtful.is_empty()
    }

    /// Has it written instead of what was proposed before; [`Kept::Stored`] says when it is.
    pub(super) fn propose(&mut self, mut record: EpochsRecord) {
        record.master = self.master;
        self.wanted = Some(Arc::new(record));
    }

    /// Whether what is proposed may be stored though the last answer says otherwise.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Drops what was proposed. Only if it is not in doubt.
    pub(super) fn withdraw(&mut self) {
        self.wanted = None;
    }

    /// The request that is due now; [`Kept::Doubtful`] if the one before was not answered.
    pub(super) fn ask(&mut self, now: Duration) -> (Option<Kept>, Option<Request>) {
        let late = self.asked.take_if(|asked| now >= asked.sent + PATIENCE);
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
        self.asked = Some(Asked {
            id,
            sent: now,
            writes: matches!(request, StoreRequest::Write { .. }),
        });
        Some((id, request))
    }

    /// A request that nobody knows the fate of: look before anything else.
    fn doubt(&mut self, asked: &Asked) -> Option<Kept> {
        self.must_read = true;
        let wanted = self.wanted.as_ref().filter(|_| asked.writes)?;
        if !self.doubtful.contains(wanted) {
            self.doubtful.push(Arc::clone(wanted));
        }
        Some(Kept::Doubtful)
    }

    pub(super) fn answered(
        &mut self,
        now: Duration,
        id: RequestId,
        reply: StoreReply<Arc<EpochsRecord>>,
    ) -> Option<Kept> {
        let asked = self.asked.take_if(|asked| asked.id == id)?;
        match reply {
            StoreReply::Found(found) => self.found(found),
            StoreReply::Written(version) => {
                let record = self.wanted.clone()?;
                self.now_stored(record, Some(version));
                Some(Kept::Stored)
            }
            StoreReply::Deleted | StoreReply::JobGone => Some(Kept::Gone),
            StoreReply::Conflict => {
                self.must_read = true;
                None
            }
            StoreReply::Unavailable => {
                self.next_at = now + PAUSE;
                self.doubt(&asked)
            }
            StoreReply::Refused(why) => {
                let is_damaged = !asked.writes && why.is_for_good();
                self.next_at = now + if is_damaged { MENDS_AFTER } else { PAUSE };
                Some(Kept::Refused(why))
            }
        }
    }

    /// What is stored is this master's: everything else that was on its way there has come too late.
    fn now_stored(&mut self, record: Arc<EpochsRecord>, version: Option<StoreVersion>) {
        self.known = Some(Known { record, version });
        self.wanted = None;
        self.doubtful.clear();
        self.claimed = true;
    }

    fn found(&mut self, found: Option<(Arc<EpochsRecord>, StoreVersion)>) -> Option<Kept> {
        self.must_read = false;
        let Some((record, version)) = found else {
            let was_there = self
                .known
                .as_ref()
                .is_some_and(|known| known.version.is_some());
            return match (was_there, &self.known) {
                // It has been deleted.
                (true, _) => Some(Kept::Gone),
                (false, Some(_)) => None,
                (false, None) => {
                    let record = Arc::new(EpochsRecord::new(self.job.clone()));
                    let version = None;
                    self.known = Some(Known { record, version });
                    Some(Kept::Read)
                }
            };
        };
        // Of another submission: this one has been deleted, and its name is used again.
        if record.job != self.job {
            return Some(Kept::Gone);
        }
        let known = self.known.as_ref();
        if known.is_some_and(|known| known.version == Some(version)) {
            return None;
        }
        let is_wanted = self.wanted.as_ref() == Some(&record);
        if is_wanted || self.doubtful.contains(&record) {
            self.now_stored(record, Some(version));
            return Some(match is_wanted {
                true => Kept::Stored,
                false => Kept::StoredBefore,
            });
        }
        // What bears its own number, and was not written by this one, is another's, who has that number because the lease was lost.
        if self.claimed || record.master >= self.master {
            return Some(Kept::Superseded(record.master));
        }
        self.wanted = None;
        self.doubtful.clear();
        let version = Some(version);
        self.known = Some(Known { record, version });
        Some(Kept::Read)
    }
}
