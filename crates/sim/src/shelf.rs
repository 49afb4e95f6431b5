//! The simulated state manager: the record of one job, and of each submission that it had a lease and a record of epochs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_coordination::control::{
    EpochsRecord, JobRecord, LeaseRecord, Lookup, MasterEpoch, StoreReply, StoreRequest,
    StoreVersion,
};

/// The simulated state manager.
#[derive(Debug, Default)]
pub struct Shelf {
    /// What is stored of the job.
    pub record: Slot<Arc<JobRecord>>,
    /// What is named for a submission, of those that have anything.
    papers: BTreeMap<u64, Papers>,
    /// Whether it doesn't answer.
    pub down: bool,
    /// The master that has written the record last.
    writer: MasterEpoch,
}

/// What is named for a submission.
#[derive(Debug, Default)]
struct Papers {
    /// Who is master.
    lease: Slot<LeaseRecord>,
    /// What is stored of its epochs.
    epochs: Slot<Arc<EpochsRecord>>,
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
    /// Does what is asked for.
    pub(crate) fn carry_out(&mut self, request: StoreRequest<T>) -> StoreReply<T> {
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

impl Shelf {
    /// Whether that submission is the job.
    pub fn is_there(&self, of: u64) -> bool {
        let record = self.record.value.as_ref();
        record.is_some_and(|(record, _)| record.job.submission == of)
    }

    /// Who leads a submission, or did last.
    pub fn leader(&self, of: u64) -> Option<&LeaseRecord> {
        let (lease, _) = self.papers.get(&of)?.lease.value.as_ref()?;
        Some(lease)
    }

    /// What is stored of the epochs of a submission.
    pub fn epochs_of(&self, of: u64) -> Option<&Arc<EpochsRecord>> {
        let (record, _) = self.papers.get(&of)?.epochs.value.as_ref()?;
        Some(record)
    }

    /// Whether nothing is written of a submission that is gone. If another has followed, whoever had something there finds that out when it has
    /// written the next: only who writes the first looks at the job.
    fn is_gone<T>(&self, of: u64, request: &StoreRequest<T>) -> bool {
        let StoreRequest::Write { expected, .. } = request else {
            return false;
        };
        !self.is_there(of) && (expected.is_none() || self.record.value.is_none())
    }

    /// What is asked of the lease of a submission.
    pub fn lease(
        &mut self,
        of: u64,
        request: StoreRequest<LeaseRecord>,
    ) -> StoreReply<LeaseRecord> {
        match self.is_gone(of, &request) {
            true => StoreReply::JobGone,
            false => self.papers.entry(of).or_default().lease.carry_out(request),
        }
    }

    /// What is asked of the record.
    ///
    /// # Errors
    ///
    /// When a master succeeds in writing after a later one has: fencing has failed.
    pub fn record(
        &mut self,
        request: StoreRequest<Arc<JobRecord>>,
    ) -> Result<StoreReply<Arc<JobRecord>>, String> {
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

    /// Puts another job into the place of the one that is there, in one write. That has no lease and no epochs yet, and no master has written.
    pub fn replace(
        &mut self,
        next: Arc<JobRecord>,
        expected: StoreVersion,
    ) -> StoreReply<Arc<JobRecord>> {
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

    /// What is asked of the record of epochs of a submission.
    pub fn epochs(
        &mut self,
        of: u64,
        request: StoreRequest<Arc<EpochsRecord>>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        match self.is_gone(of, &request) {
            true => StoreReply::JobGone,
            false => self.papers.entry(of).or_default().epochs.carry_out(request),
        }
    }

    /// Removes what is left of a submission that is gone.
    pub fn drop_lease(&mut self, of: u64) {
        if !self.is_there(of) {
            self.papers.remove(&of);
        }
    }

    /// What a worker of a submission is told that looks for its master.
    pub fn look_up(&self, of: u64) -> Lookup {
        if !self.is_there(of) {
            return Lookup::JobGone;
        }
        match self.leader(of) {
            Some(lease) if !lease.resigned => Lookup::Master {
                address: lease.address.clone(),
                epoch: lease.epoch,
            },
            _ => Lookup::Nobody,
        }
    }
}
