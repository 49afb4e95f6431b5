//! Submission of a job by a single write: the job exists completely or not at all, even if the
//! submitter fails.

use std::sync::Arc;
use std::time::Duration;

use crate::packing::PackingPolicy;
use ardea_core::Result;

use crate::control::{JobRecord, Rejection, RequestId, StoreReply, StoreRequest};

/// The timeout of a request to the metadata store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The retry delay after the metadata store was unavailable.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// An event for a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubmissionEvent {
    /// Time has passed.
    Tick,
    /// A reply of the metadata store.
    Reply(RequestId, StoreReply<Arc<JobRecord>>),
}

/// An action requested by a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubmissionAction {
    /// Send a request about the job's record to the metadata store.
    Store(RequestId, StoreRequest<Arc<JobRecord>>),
    /// The job has been stored.
    Accepted,
    /// The job was refused: another job has its name, or the metadata store rejects it.
    Refused(Rejection),
}

/// The submission of a job, which writes the job's record to the metadata store.
///
/// The job's files must already be in the package store. After a lost reply the record is read; the
/// random number [`JobRef::submission`](crate::control::JobRef) distinguishes this job from another
/// of the same name.
#[derive(Debug)]
pub struct Submission {
    record: Arc<JobRecord>,
    asked: Option<(RequestId, Duration)>,
    must_read: bool,
    next_at: Duration,
    requests: u64,
    over: bool,
}

impl Submission {
    /// Creates the submission of a job.
    ///
    /// # Errors
    ///
    /// If the policy `manager` cannot pack the job. The job is not submitted then.
    pub fn new(record: JobRecord, manager: &dyn PackingPolicy) -> Result<Self> {
        manager.pack(&record.demand, &record.packing)?;
        Ok(Submission {
            record: Arc::new(record),
            asked: None,
            must_read: false,
            next_at: Duration::ZERO,
            requests: 0,
            over: false,
        })
    }

    /// Handles an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: SubmissionEvent) -> Vec<SubmissionAction> {
        if self.over {
            return Vec::new();
        }
        if let SubmissionEvent::Reply(id, reply) = event
            && self.asked.take_if(|(asked, _)| *asked == id).is_some()
            && let Some(end) = self.answered(now, reply)
        {
            self.over = true;
            return vec![end];
        }
        if now < self.next_at
            || self
                .asked
                .is_some_and(|(_, sent)| now < sent + REQUEST_TIMEOUT)
        {
            return Vec::new();
        }
        // It is unknown whether an unanswered write was done.
        self.must_read |= self.asked.is_some();
        self.requests += 1;
        let id = RequestId(self.requests);
        self.asked = Some((id, now));
        let request = match self.must_read {
            true => StoreRequest::Read,
            false => StoreRequest::Write {
                value: Arc::clone(&self.record),
                expected: None,
            },
        };
        vec![SubmissionAction::Store(id, request)]
    }

    fn answered(
        &mut self,
        now: Duration,
        reply: StoreReply<Arc<JobRecord>>,
    ) -> Option<SubmissionAction> {
        match reply {
            StoreReply::Written(_) => Some(SubmissionAction::Accepted),
            StoreReply::Found(Some((found, _))) if found.job == self.record.job => {
                Some(SubmissionAction::Accepted)
            }
            StoreReply::Found(Some(_)) => {
                let job = &self.record.job;
                Some(SubmissionAction::Refused(Rejection::NameTaken {
                    cluster: job.cluster.clone(),
                    name: job.name.clone(),
                }))
            }
            StoreReply::Found(None) => {
                self.must_read = false;
                None
            }
            StoreReply::Refused(refused) => Some(SubmissionAction::Refused(refused)),
            StoreReply::Unavailable => {
                self.must_read = true;
                self.next_at = now + RETRY_DELAY;
                None
            }
            StoreReply::Conflict | StoreReply::Deleted | StoreReply::JobGone => {
                self.must_read = true;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{JobRef, StoreVersion};
    use crate::packing::{JobDemand, PackingConfig, Resources, RoundRobin, VertexDemand};
    use ardea_core::ErrorCode;

    fn record(submission: u64) -> JobRecord {
        let job = JobRef {
            cluster: "prod".into(),
            name: "word-count".into(),
            submission,
        };
        let demand = JobDemand::new("word-count");
        let demand = demand.vertex(VertexDemand::new("v", 1, Resources::ZERO));
        JobRecord::submitted(job, demand, PackingConfig::default())
    }

    /// Submits to a metadata store that contains `there` and, if `silent`, loses the first reply.
    fn submit(there: Option<JobRecord>, silent: bool) -> SubmissionAction {
        let mut submission = Submission::new(record(1), &RoundRobin).unwrap();
        let mut stored = there.map(|record| (Arc::new(record), StoreVersion(1)));
        let mut event = SubmissionEvent::Tick;
        let mut silent = silent;
        for second in 0..10 {
            let now = Duration::from_secs(second);
            let mut actions =
                submission.on(now, std::mem::replace(&mut event, SubmissionEvent::Tick));
            match actions.pop() {
                Some(SubmissionAction::Store(id, request)) => {
                    let reply = match request {
                        StoreRequest::Write { value, .. } if stored.is_none() => {
                            stored = Some((value, StoreVersion(1)));
                            StoreReply::Written(StoreVersion(1))
                        }
                        StoreRequest::Read => StoreReply::Found(stored.clone()),
                        _ => StoreReply::Conflict,
                    };
                    if !std::mem::take(&mut silent) {
                        event = SubmissionEvent::Reply(id, reply);
                    }
                }
                Some(end) => return end,
                None => {}
            }
        }
        panic!("it does not end");
    }

    #[test]
    fn a_name_that_is_free_is_taken_even_if_the_answer_is_lost() {
        assert_eq!(submit(None, false), SubmissionAction::Accepted);
        assert_eq!(submit(None, true), SubmissionAction::Accepted);
    }

    #[test]
    fn a_name_that_is_taken_is_refused_with_a_code() {
        for silent in [false, true] {
            let SubmissionAction::Refused(refused) = submit(Some(record(2)), silent) else {
                panic!("accepted");
            };
            assert_eq!(refused.code(), ErrorCode::NameTaken);
            assert!(refused.to_string().contains("\"word-count\""));
        }
    }

    #[test]
    fn a_job_that_can_not_be_packed_is_not_submitted() {
        let mut record = record(1);
        record.demand.vertices.clear();
        assert!(Submission::new(record, &RoundRobin).is_err());
    }
}
