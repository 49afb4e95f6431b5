//! Keeps the stored record: reads it when a master begins, and writes each decision before anybody acts on it.

use std::sync::Arc;
use std::time::Duration;

use crate::control::{
    JobRecord, JobRef, MasterEpoch, Refused, RequestId, StoreReply, StoreRequest, StoreVersion,
};

/// After how long a request counts as unanswered.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait after the state manager was not there.
const PAUSE: Duration = Duration::from_millis(250);

/// What has come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// The record has been read for the first time; [`RecordKeeper::record`] has it.
    Read,
    /// What was proposed is stored.
    Stored,
    /// The record is deleted, by this master or somebody else: the job is gone.
    Gone,
    /// The state manager does not take it, or what is there can't be read; nothing is proposed any more.
    Refused(Refused),
    /// A write has gone out whose answer was lost, and for this reason what is there can't be read now: whether it was done is not known.
    /// Nothing is proposed any more.
    Doubtful(Refused),
    /// Another master has written, later or under the same number.
    Superseded(MasterEpoch),
}

/// One master's view of the stored record.
///
/// A write whose answer is lost is not repeated blindly: the record is read, and if what is there is not what was to be written,
/// and not another master's, it is written against the version found. A write that was given up may still arrive; it
/// carries an old version then and fails, or it is found to be there.
#[derive(Debug)]
pub(super) struct RecordKeeper {
    job: JobRef,
    epoch: MasterEpoch,
    known: Option<(Arc<JobRecord>, StoreVersion)>,
    wanted: Option<Wanted>,
    asked: Option<(RequestId, Duration)>,
    /// Whether the record has to be read before anything is written.
    must_read: bool,
    /// Whether what is wanted has been sent, and neither an answer nor a look has told since what came of it.
    is_doubtful: bool,
    next_at: Duration,
    requests: u64,
}

#[derive(Debug)]
enum Wanted {
    Write(Arc<JobRecord>),
    Delete,
}

impl RecordKeeper {
    pub(super) fn new(job: JobRef, epoch: MasterEpoch) -> Self {
        RecordKeeper {
            job,
            epoch,
            known: None,
            wanted: None,
            asked: None,
            must_read: true,
            is_doubtful: false,
            next_at: Duration::ZERO,
            // So that no answer to another mastership's request is taken for one to this one's.
            requests: epoch.0 << 32,
        }
    }

    /// The record as it is stored.
    pub(super) fn record(&self) -> Option<&JobRecord> {
        self.known.as_ref().map(|(record, _)| &**record)
    }

    /// Whether something is being written, or nothing has been read yet.
    pub(super) fn is_busy(&self) -> bool {
        self.known.is_none() || self.wanted.is_some()
    }

    /// Whether a record with another plan than the stored one is being written.
    pub(super) fn is_changing_plans(&self) -> bool {
        let Some(Wanted::Write(wanted)) = &self.wanted else {
            return false;
        };
        let known = self.record().map(|record| record.plan_version);
        known != Some(wanted.plan_version)
    }

    /// Has it written; [`Kept::Stored`] says when it is. Only when not busy.
    pub(super) fn propose(&mut self, mut record: JobRecord) {
        record.epoch = self.epoch;
        self.wanted = Some(Wanted::Write(Arc::new(record)));
    }

    /// Has it deleted; [`Kept::Gone`] says when it is.
    pub(super) fn delete(&mut self) {
        self.wanted = Some(Wanted::Delete);
    }

    /// The request that is due now.
    pub(super) fn ask(
        &mut self,
        now: Duration,
    ) -> Option<(RequestId, StoreRequest<Arc<JobRecord>>)> {
        if self
            .asked
            .take_if(|(_, sent)| now >= *sent + PATIENCE)
            .is_some()
        {
            self.unanswered();
        }
        if self.asked.is_some() || now < self.next_at {
            return None;
        }
        let version = self.known.as_ref().map(|(_, version)| *version);
        let request = match (&self.wanted, version) {
            _ if self.must_read => StoreRequest::Read,
            (Some(Wanted::Write(record)), expected) => StoreRequest::Write {
                value: Arc::clone(record),
                expected,
            },
            (Some(Wanted::Delete), Some(expected)) => StoreRequest::Delete { expected },
            _ => return None,
        };
        self.requests += 1;
        let id = RequestId(self.requests);
        self.asked = Some((id, now));
        Some((id, request))
    }

    pub(super) fn answered(
        &mut self,
        now: Duration,
        id: RequestId,
        reply: StoreReply<Arc<JobRecord>>,
    ) -> Option<Kept> {
        self.asked.take_if(|(asked, _)| *asked == id)?;
        match reply {
            StoreReply::Found(found) => self.found(found),
            StoreReply::Written(version) => match self.wanted.take() {
                Some(Wanted::Write(record)) => {
                    self.known = Some((record, version));
                    Some(Kept::Stored)
                }
                other => {
                    self.wanted = other;
                    None
                }
            },
            StoreReply::Deleted | StoreReply::JobGone => Some(Kept::Gone),
            StoreReply::Conflict => {
                self.must_read = true;
                None
            }
            StoreReply::Unavailable => {
                self.unanswered();
                self.next_at = now + PAUSE;
                None
            }
            StoreReply::Refused(why) => {
                self.wanted = None;
                self.next_at = now + PAUSE;
                // It is the look at what came of a write that is refused then, not that write.
                Some(match std::mem::take(&mut self.is_doubtful) {
                    true => Kept::Doubtful(why),
                    false => Kept::Refused(why),
                })
            }
        }
    }

    /// What was asked has no answer. As long as it has to be read, nothing is written: so it was a write if it need not.
    fn unanswered(&mut self) {
        self.is_doubtful |= !self.must_read;
        self.must_read = true;
    }

    fn found(&mut self, found: Option<(Arc<JobRecord>, StoreVersion)>) -> Option<Kept> {
        // A record of another submission: this one has been deleted, and its name is used again.
        let Some((record, version)) = found.filter(|(record, _)| record.job == self.job) else {
            return Some(Kept::Gone);
        };
        let first = self.known.is_none();
        let done = matches!(&self.wanted, Some(Wanted::Write(wanted)) if *wanted == record);
        let known = self.known.as_ref();
        let own = done || known.is_some_and(|(known, _)| *known == record);
        // What bears its own number, and was not written by this one, is another's, who has that number because the lease was lost.
        if record.epoch > self.epoch || (!own && record.epoch == self.epoch) {
            return Some(Kept::Superseded(record.epoch));
        }
        self.must_read = false;
        self.is_doubtful = false;
        self.known = Some((record, version));
        if done {
            self.wanted = None;
            return Some(Kept::Stored);
        }
        first.then_some(Kept::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Intent;
    use crate::packing::{JobDemand, PackingConfig};
    use ardea_core::{Error, ErrorCode};

    const NOW: Duration = Duration::ZERO;

    fn job(submission: u64) -> JobRef {
        JobRef {
            cluster: "prod".into(),
            name: "word-count".into(),
            submission,
        }
    }

    fn record(submission: u64, epoch: u64, intent: Intent) -> Arc<JobRecord> {
        let demand = JobDemand::new("word-count");
        let record = JobRecord::submitted(job(submission), demand, PackingConfig::default());
        Arc::new(JobRecord {
            epoch: MasterEpoch(epoch),
            intent,
            ..record
        })
    }

    fn found(record: Arc<JobRecord>, version: u64) -> StoreReply<Arc<JobRecord>> {
        StoreReply::Found(Some((record, StoreVersion(version))))
    }

    /// A keeper of master 2 that has read what the submitter wrote, and has asked for another intent to be written.
    fn writing() -> (RecordKeeper, RequestId) {
        let mut keeper = RecordKeeper::new(job(1), MasterEpoch(2));
        let (id, _) = keeper.ask(NOW).unwrap();
        let read = keeper.answered(NOW, id, found(record(1, 0, Intent::Run), 1));
        assert_eq!(read, Some(Kept::Read));
        keeper.propose((*record(1, 0, Intent::Pause)).clone());
        let (id, _) = keeper.ask(NOW).unwrap();
        (keeper, id)
    }

    #[test]
    fn a_write_whose_answer_is_lost_is_looked_for_before_it_is_repeated() {
        let (mut keeper, lost) = writing();
        let later = NOW + PATIENCE;
        let (id, request) = keeper.ask(later).unwrap();
        assert_eq!(request, StoreRequest::Read);
        let reply = found(record(1, 2, Intent::Pause), 2);
        assert_eq!(keeper.answered(later, id, reply), Some(Kept::Stored));
        let late = StoreReply::Written(StoreVersion(2));
        assert_eq!(keeper.answered(later, lost, late), None);
        assert!(!keeper.is_busy());
    }

    #[test]
    fn a_write_that_was_not_done_is_repeated_against_what_is_there() {
        let (mut keeper, id) = writing();
        assert_eq!(keeper.answered(NOW, id, StoreReply::Conflict), None);
        let (id, _) = keeper.ask(NOW).unwrap();
        assert_eq!(
            keeper.answered(NOW, id, found(record(1, 1, Intent::Run), 7)),
            None
        );
        let (_, request) = keeper.ask(NOW).unwrap();
        let write = StoreRequest::Write {
            value: record(1, 2, Intent::Pause),
            expected: Some(StoreVersion(7)),
        };
        assert_eq!(request, write);
    }

    #[test]
    fn what_the_state_manager_does_not_take_is_given_up_and_what_is_stored_stays() {
        let (mut keeper, id) = writing();
        let refused = Refused::not_stored(&Error::new(ErrorCode::LimitReached, "too large"));
        let kept = keeper.answered(NOW, id, StoreReply::Refused(refused.clone()));
        assert_eq!(kept, Some(Kept::Refused(refused)));
        assert!(!keeper.is_busy());
        assert_eq!(
            keeper.record().map(|record| record.intent),
            Some(Intent::Run)
        );
    }

    #[test]
    fn a_write_whose_answer_is_lost_is_doubtful_if_it_can_not_be_looked_for() {
        let damaged = Refused::not_stored(&Error::new(ErrorCode::StateCorrupt, "damaged"));
        let refused = || StoreReply::Refused(damaged.clone());
        let later = NOW + PATIENCE;
        for is_told in [false, true] {
            let (mut keeper, id) = writing();
            if is_told {
                assert_eq!(keeper.answered(NOW, id, StoreReply::Unavailable), None);
            }
            // A look that has no answer either takes no doubt away.
            let (look, request) = keeper.ask(later).unwrap();
            assert_eq!(request, StoreRequest::Read);
            assert_eq!(keeper.answered(later, look, StoreReply::Unavailable), None);
            let later = later + PAUSE;
            let (look, _) = keeper.ask(later).unwrap();
            let kept = keeper.answered(later, look, refused());
            assert_eq!(kept, Some(Kept::Doubtful(damaged.clone())));
            assert!(!keeper.is_busy());

            // What has not been sent yet is no longer in doubt.
            keeper.propose((*record(1, 0, Intent::Kill)).clone());
            let later = later + PAUSE;
            let (look, request) = keeper.ask(later).unwrap();
            assert_eq!(request, StoreRequest::Read);
            let kept = keeper.answered(later, look, refused());
            assert_eq!(kept, Some(Kept::Refused(damaged.clone())));
        }
    }

    #[test]
    fn a_write_that_was_seen_not_to_be_done_and_is_refused_then_is_not_doubtful() {
        let (mut keeper, id) = writing();
        keeper.answered(NOW, id, StoreReply::Unavailable);
        let later = NOW + PAUSE;
        let (look, _) = keeper.ask(later).unwrap();
        let unchanged = found(record(1, 0, Intent::Run), 1);
        assert_eq!(keeper.answered(later, look, unchanged), None);
        let (again, _) = keeper.ask(later).unwrap();
        let why = Refused::not_stored(&Error::new(ErrorCode::LimitReached, "too large"));
        let kept = keeper.answered(later, again, StoreReply::Refused(why.clone()));
        assert_eq!(kept, Some(Kept::Refused(why)));
    }

    #[test]
    fn a_record_that_bears_its_number_and_that_it_has_not_written_is_another_masters() {
        let superseded = Some(Kept::Superseded(MasterEpoch(2)));
        let theirs = || found(record(1, 2, Intent::Run), 7);
        let mut keeper = RecordKeeper::new(job(1), MasterEpoch(2));
        let (id, _) = keeper.ask(NOW).unwrap();
        assert_eq!(keeper.answered(NOW, id, theirs()), superseded);

        // It has read, and was about to write.
        let (mut keeper, id) = writing();
        keeper.answered(NOW, id, StoreReply::Conflict);
        let (id, _) = keeper.ask(NOW).unwrap();
        assert_eq!(keeper.answered(NOW, id, theirs()), superseded);
    }

    #[test]
    fn a_record_that_it_has_written_itself_is_no_other_masters() {
        let (mut keeper, id) = writing();
        let written = StoreReply::Written(StoreVersion(2));
        assert_eq!(keeper.answered(NOW, id, written), Some(Kept::Stored));
        keeper.propose((*record(1, 0, Intent::Run)).clone());
        let (lost, _) = keeper.ask(NOW).unwrap();
        let later = NOW + PATIENCE;
        let (id, _) = keeper.ask(later).unwrap();
        let own = found(record(1, 2, Intent::Pause), 2);
        assert_eq!(keeper.answered(later, id, own), None);
        let (again, _) = keeper.ask(later).unwrap();
        assert!(keeper.is_busy() && again != lost);
    }

    #[test]
    fn a_later_master_and_another_job_of_the_name_end_it() {
        for (there, end) in [
            (record(1, 3, Intent::Run), Kept::Superseded(MasterEpoch(3))),
            (record(9, 0, Intent::Run), Kept::Gone),
        ] {
            let (mut keeper, id) = writing();
            keeper.answered(NOW, id, StoreReply::Conflict);
            let (id, _) = keeper.ask(NOW).unwrap();
            assert_eq!(keeper.answered(NOW, id, found(there, 7)), Some(end));
        }
    }
}
