//! Storage of the job's record: reads it when a master starts, and writes each decision before it
//! is executed.

use std::sync::Arc;
use std::time::Duration;

use crate::control::{
    JobRecord, JobRef, MasterEpoch, Rejection, RequestId, StoreReply, StoreRequest, StoreVersion,
};

/// The timeout of a request to the metadata store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The retry delay after the metadata store was unavailable.
const RETRY_DELAY: Duration = Duration::from_millis(250);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum WriteOutcome {
    /// The record has been read for the first time; see [`JobRecordStore::record`].
    Read,
    /// The proposed record is stored.
    Stored,
    /// The record was deleted, by this master or another process: the job is gone.
    Gone,
    /// The metadata store rejects the proposed record, or the stored value cannot be read. The
    /// proposal is dropped.
    Refused(Rejection),
    /// The reply to a write was lost, and the stored value cannot be read now, for this reason. It
    /// is unknown whether the write was done. The proposal is dropped.
    Doubtful(Rejection),
    /// Another master has written the record, with a later master epoch or the same one.
    Superseded(MasterEpoch),
}

/// One master's view of the stored job record.
///
/// After a write without a reply, the record is read first. If it contains neither the proposed
/// value nor another master's value, the write is repeated against the version found. A late first
/// write then fails because of its old version.
#[derive(Debug)]
pub(super) struct JobRecordStore {
    job: JobRef,
    epoch: MasterEpoch,
    known: Option<(Arc<JobRecord>, StoreVersion)>,
    wanted: Option<Wanted>,
    asked: Option<(RequestId, Duration)>,
    /// True if the record must be read before anything is written.
    must_read: bool,
    /// True if the proposal has been sent, and its outcome is still unknown.
    is_doubtful: bool,
    next_at: Duration,
    requests: u64,
}

#[derive(Debug)]
enum Wanted {
    Write(Arc<JobRecord>),
    Delete,
}

impl JobRecordStore {
    pub(super) fn new(job: JobRef, epoch: MasterEpoch) -> Self {
        JobRecordStore {
            job,
            epoch,
            known: None,
            wanted: None,
            asked: None,
            must_read: true,
            is_doubtful: false,
            next_at: Duration::ZERO,
            // Request numbers differ between leaderships, so that a reply to another leadership's
            // request is never accepted.
            requests: epoch.0 << 32,
        }
    }

    pub(super) fn record(&self) -> Option<&JobRecord> {
        self.known.as_ref().map(|(record, _)| &**record)
    }

    /// Returns true if a write is pending, or nothing has been read yet.
    pub(super) fn is_busy(&self) -> bool {
        self.known.is_none() || self.wanted.is_some()
    }

    /// Returns true if a record with another plan is being written.
    pub(super) fn is_changing_plans(&self) -> bool {
        let Some(Wanted::Write(wanted)) = &self.wanted else {
            return false;
        };
        let known = self.record().map(|record| record.plan_version);
        known != Some(wanted.plan_version)
    }

    /// Starts a write of `record`; [`WriteOutcome::Stored`] reports its success. Must not be called
    /// while the store [is busy](Self::is_busy).
    pub(super) fn propose(&mut self, mut record: JobRecord) {
        record.epoch = self.epoch;
        self.wanted = Some(Wanted::Write(Arc::new(record)));
    }

    /// Starts the deletion of the record; [`WriteOutcome::Gone`] reports its success.
    pub(super) fn delete(&mut self) {
        self.wanted = Some(Wanted::Delete);
    }

    /// Returns the request to the metadata store that is due now, if any.
    pub(super) fn ask(
        &mut self,
        now: Duration,
    ) -> Option<(RequestId, StoreRequest<Arc<JobRecord>>)> {
        if self
            .asked
            .take_if(|(_, sent)| now >= *sent + REQUEST_TIMEOUT)
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
    ) -> Option<WriteOutcome> {
        self.asked.take_if(|(asked, _)| *asked == id)?;
        match reply {
            StoreReply::Found(found) => self.found(found),
            StoreReply::Written(version) => match self.wanted.take() {
                Some(Wanted::Write(record)) => {
                    self.known = Some((record, version));
                    Some(WriteOutcome::Stored)
                }
                other => {
                    self.wanted = other;
                    None
                }
            },
            StoreReply::Deleted | StoreReply::JobGone => Some(WriteOutcome::Gone),
            StoreReply::Conflict => {
                self.must_read = true;
                None
            }
            StoreReply::Unavailable => {
                self.unanswered();
                self.next_at = now + RETRY_DELAY;
                None
            }
            StoreReply::Refused(why) => {
                self.wanted = None;
                self.next_at = now + RETRY_DELAY;
                // If the outcome of a write is unknown, the store has refused the verifying read,
                // not the write.
                Some(match std::mem::take(&mut self.is_doubtful) {
                    true => WriteOutcome::Doubtful(why),
                    false => WriteOutcome::Refused(why),
                })
            }
        }
    }

    /// Handles a request without a reply. While a read is required no write is sent, so the request
    /// was a write if no read is required.
    fn unanswered(&mut self) {
        self.is_doubtful |= !self.must_read;
        self.must_read = true;
    }

    fn found(&mut self, found: Option<(Arc<JobRecord>, StoreVersion)>) -> Option<WriteOutcome> {
        // A record of another submission means that this one was deleted and its name reused.
        let Some((record, version)) = found.filter(|(record, _)| record.job == self.job) else {
            return Some(WriteOutcome::Gone);
        };
        let first = self.known.is_none();
        let done = matches!(&self.wanted, Some(Wanted::Write(wanted)) if *wanted == record);
        let known = self.known.as_ref();
        let own = done || known.is_some_and(|(known, _)| *known == record);
        // A record with this epoch that this master did not write belongs to a master with the same
        // epoch, after a loss of the lease.
        if record.epoch > self.epoch || (!own && record.epoch == self.epoch) {
            return Some(WriteOutcome::Superseded(record.epoch));
        }
        self.must_read = false;
        self.is_doubtful = false;
        self.known = Some((record, version));
        if done {
            self.wanted = None;
            return Some(WriteOutcome::Stored);
        }
        first.then_some(WriteOutcome::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::DesiredState;
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

    fn record(submission: u64, epoch: u64, intent: DesiredState) -> Arc<JobRecord> {
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

    /// Returns a keeper of master 2 that has read the submitter's record and has sent a write of
    /// another intent, with the id of that write.
    fn writing() -> (JobRecordStore, RequestId) {
        let mut keeper = JobRecordStore::new(job(1), MasterEpoch(2));
        let (id, _) = keeper.ask(NOW).unwrap();
        let read = keeper.answered(NOW, id, found(record(1, 0, DesiredState::Run), 1));
        assert_eq!(read, Some(WriteOutcome::Read));
        keeper.propose((*record(1, 0, DesiredState::Pause)).clone());
        let (id, _) = keeper.ask(NOW).unwrap();
        (keeper, id)
    }

    #[test]
    fn a_write_whose_answer_is_lost_is_looked_for_before_it_is_repeated() {
        let (mut keeper, lost) = writing();
        let later = NOW + REQUEST_TIMEOUT;
        let (id, request) = keeper.ask(later).unwrap();
        assert_eq!(request, StoreRequest::Read);
        let reply = found(record(1, 2, DesiredState::Pause), 2);
        assert_eq!(
            keeper.answered(later, id, reply),
            Some(WriteOutcome::Stored)
        );
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
            keeper.answered(NOW, id, found(record(1, 1, DesiredState::Run), 7)),
            None
        );
        let (_, request) = keeper.ask(NOW).unwrap();
        let write = StoreRequest::Write {
            value: record(1, 2, DesiredState::Pause),
            expected: Some(StoreVersion(7)),
        };
        assert_eq!(request, write);
    }

    #[test]
    fn what_the_metadata_store_does_not_take_is_aborted_and_what_is_stored_stays() {
        let (mut keeper, id) = writing();
        let refused = Rejection::not_stored(&Error::new(ErrorCode::LimitReached, "too large"));
        let kept = keeper.answered(NOW, id, StoreReply::Refused(refused.clone()));
        assert_eq!(kept, Some(WriteOutcome::Refused(refused)));
        assert!(!keeper.is_busy());
        assert_eq!(
            keeper.record().map(|record| record.intent),
            Some(DesiredState::Run)
        );
    }

    #[test]
    fn a_write_whose_answer_is_lost_is_doubtful_if_it_can_not_be_looked_for() {
        let damaged = Rejection::not_stored(&Error::new(ErrorCode::MetastoreCorrupt, "damaged"));
        let refused = || StoreReply::Refused(damaged.clone());
        let later = NOW + REQUEST_TIMEOUT;
        for is_told in [false, true] {
            let (mut keeper, id) = writing();
            if is_told {
                assert_eq!(keeper.answered(NOW, id, StoreReply::Unavailable), None);
            }
            // A read without a reply leaves the outcome unknown.
            let (look, request) = keeper.ask(later).unwrap();
            assert_eq!(request, StoreRequest::Read);
            assert_eq!(keeper.answered(later, look, StoreReply::Unavailable), None);
            let later = later + RETRY_DELAY;
            let (look, _) = keeper.ask(later).unwrap();
            let kept = keeper.answered(later, look, refused());
            assert_eq!(kept, Some(WriteOutcome::Doubtful(damaged.clone())));
            assert!(!keeper.is_busy());

            // The outcome of a proposal that was not sent yet is not in doubt.
            keeper.propose((*record(1, 0, DesiredState::Kill)).clone());
            let later = later + RETRY_DELAY;
            let (look, request) = keeper.ask(later).unwrap();
            assert_eq!(request, StoreRequest::Read);
            let kept = keeper.answered(later, look, refused());
            assert_eq!(kept, Some(WriteOutcome::Refused(damaged.clone())));
        }
    }

    #[test]
    fn a_write_that_was_seen_not_to_be_done_and_is_refused_then_is_not_doubtful() {
        let (mut keeper, id) = writing();
        keeper.answered(NOW, id, StoreReply::Unavailable);
        let later = NOW + RETRY_DELAY;
        let (look, _) = keeper.ask(later).unwrap();
        let unchanged = found(record(1, 0, DesiredState::Run), 1);
        assert_eq!(keeper.answered(later, look, unchanged), None);
        let (again, _) = keeper.ask(later).unwrap();
        let why = Rejection::not_stored(&Error::new(ErrorCode::LimitReached, "too large"));
        let kept = keeper.answered(later, again, StoreReply::Refused(why.clone()));
        assert_eq!(kept, Some(WriteOutcome::Refused(why)));
    }

    #[test]
    fn a_record_that_bears_its_number_and_that_it_has_not_written_is_another_masters() {
        let superseded = Some(WriteOutcome::Superseded(MasterEpoch(2)));
        let theirs = || found(record(1, 2, DesiredState::Run), 7);
        let mut keeper = JobRecordStore::new(job(1), MasterEpoch(2));
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
        assert_eq!(
            keeper.answered(NOW, id, written),
            Some(WriteOutcome::Stored)
        );
        keeper.propose((*record(1, 0, DesiredState::Run)).clone());
        let (lost, _) = keeper.ask(NOW).unwrap();
        let later = NOW + REQUEST_TIMEOUT;
        let (id, _) = keeper.ask(later).unwrap();
        let own = found(record(1, 2, DesiredState::Pause), 2);
        assert_eq!(keeper.answered(later, id, own), None);
        let (again, _) = keeper.ask(later).unwrap();
        assert!(keeper.is_busy() && again != lost);
    }

    #[test]
    fn a_later_master_and_another_job_of_the_name_end_it() {
        for (there, end) in [
            (
                record(1, 3, DesiredState::Run),
                WriteOutcome::Superseded(MasterEpoch(3)),
            ),
            (record(9, 0, DesiredState::Run), WriteOutcome::Gone),
        ] {
            let (mut keeper, id) = writing();
            keeper.answered(NOW, id, StoreReply::Conflict);
            let (id, _) = keeper.ask(NOW).unwrap();
            assert_eq!(keeper.answered(NOW, id, found(there, 7)), Some(end));
        }
    }
}
