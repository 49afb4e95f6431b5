//! The simulated metadata store: the record of one job, and the lease and the checkpoint record of
//! each of its submissions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_coordination::control::{
    CheckpointRecord, JobRecord, LeaseRecord, Lookup, MasterEpoch, StoreReply, StoreRequest,
    StoreVersion,
};

/// A request about a checkpoint record, and the reply.
pub type CheckpointRequest = StoreRequest<Arc<CheckpointRecord>>;
pub type CheckpointReply = StoreReply<Arc<CheckpointRecord>>;

/// A request about a job's record, and the reply.
pub type JobRequest = StoreRequest<Arc<JobRecord>>;
pub type JobReply = StoreReply<Arc<JobRecord>>;

/// The simulated metadata store.
#[derive(Debug, Default)]
pub struct SimMetastore {
    /// The job's record.
    pub record: Slot<Arc<JobRecord>>,
    /// The other values of each submission.
    submissions: BTreeMap<u64, SubmissionNodes>,
    /// True if the store does not answer.
    pub down: bool,
    /// The leader that has last written the record.
    writer: MasterEpoch,
}

/// The values of a submission besides the job's record.
#[derive(Debug, Default)]
struct SubmissionNodes {
    lease: Slot<LeaseRecord>,
    epochs: Slot<Arc<CheckpointRecord>>,
}

/// One value with its version.
#[derive(Debug)]
pub struct Slot<T> {
    /// The value.
    pub value: Option<(T, StoreVersion)>,
    writes: u64,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            value: None,
            writes: 0,
        }
    }
}

impl<T: Clone> Slot<T> {
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().map(|(value, _)| value)
    }

    pub fn carry_out(&mut self, request: StoreRequest<T>) -> StoreReply<T> {
        let version = self.value.as_ref().map(|(_, version)| *version);
        match request {
            StoreRequest::Read => StoreReply::Found(self.value.clone()),
            StoreRequest::Write { value, expected } if expected == version => {
                self.writes += 1;
                let version = StoreVersion(self.writes);
                self.value = Some((value, version));
                StoreReply::Written(version)
            }
            StoreRequest::Delete { expected } if Some(expected) == version => {
                self.value = None;
                StoreReply::Deleted
            }
            StoreRequest::Write { .. } | StoreRequest::Delete { .. } => StoreReply::Conflict,
        }
    }
}

impl SimMetastore {
    /// Returns the job's record.
    pub fn job(&self) -> Option<&Arc<JobRecord>> {
        self.record.get()
    }

    /// Returns true if the submission `of` is the current job.
    pub fn is_there(&self, of: u64) -> bool {
        self.job().is_some_and(|record| record.job.submission == of)
    }

    /// Returns the current or last leader of a submission.
    pub fn leader(&self, of: u64) -> Option<&LeaseRecord> {
        self.submissions.get(&of)?.lease.get()
    }

    /// Returns the checkpoint record of a submission.
    pub fn epochs_of(&self, of: u64) -> Option<&Arc<CheckpointRecord>> {
        self.submissions.get(&of)?.epochs.get()
    }

    /// Returns true if a write must fail because the submission is gone. If another job has
    /// replaced it, only the first write of a value fails; later ones are still accepted.
    fn is_gone<T>(&self, of: u64, request: &StoreRequest<T>) -> bool {
        let StoreRequest::Write { expected, .. } = request else {
            return false;
        };
        !self.is_there(of) && (expected.is_none() || self.record.value.is_none())
    }

    /// Executes a request about the lease of a submission.
    pub fn lease(
        &mut self,
        of: u64,
        request: StoreRequest<LeaseRecord>,
    ) -> StoreReply<LeaseRecord> {
        match self.is_gone(of, &request) {
            true => StoreReply::JobGone,
            false => self
                .submissions
                .entry(of)
                .or_default()
                .lease
                .carry_out(request),
        }
    }

    /// Executes a request about the job's record.
    ///
    /// # Errors
    ///
    /// If a master writes after a later master has written: fencing has failed.
    pub fn record(&mut self, request: JobRequest) -> Result<JobReply, String> {
        let epoch = match &request {
            StoreRequest::Write { value, .. } => Some(value.epoch),
            _ => None,
        };
        let reply = self.record.carry_out(request);
        if let (Some(epoch), StoreReply::Written(_)) = (epoch, &reply) {
            if epoch < self.writer {
                return Err(format!("{epoch:?} wrote after {:?}", self.writer));
            }
            self.writer = epoch;
        }
        Ok(reply)
    }

    /// Replaces the job by another in one write. The new job has no lease and no checkpoint record
    /// yet, and no leader of it has written.
    pub fn replace(&mut self, next: Arc<JobRecord>, expected: StoreVersion) -> JobReply {
        let write = StoreRequest::Write {
            value: next,
            expected: Some(expected),
        };
        match self.record.carry_out(write) {
            StoreReply::Written(_) => {
                self.writer = MasterEpoch::default();
                StoreReply::Deleted
            }
            other => other,
        }
    }

    /// Executes a request about the checkpoint record of a submission.
    pub fn epochs(&mut self, of: u64, request: CheckpointRequest) -> CheckpointReply {
        match self.is_gone(of, &request) {
            true => StoreReply::JobGone,
            false => self
                .submissions
                .entry(of)
                .or_default()
                .epochs
                .carry_out(request),
        }
    }

    /// Removes the remaining values of a submission that is gone.
    pub fn drop_lease(&mut self, of: u64) {
        if !self.is_there(of) {
            self.submissions.remove(&of);
        }
    }

    /// Returns the reply to a worker that looks up the leader of its submission.
    pub fn look_up(&self, of: u64) -> Lookup {
        if !self.is_there(of) {
            return Lookup::JobGone;
        }
        match self.leader(of) {
            Some(lease) if !lease.resigned => Lookup::Master {
                address: lease.address.clone(),
                epoch: lease.epoch,
            },
            _ => Lookup::NoLeader,
        }
    }
}
