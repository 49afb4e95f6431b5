//! The simulated state manager: the values of one job, which are its lease, its record, and that of its epochs.

use std::sync::Arc;

use ardea_control::{
    EpochsRecord, JobRecord, LeaseRecord, Lookup, MasterEpoch, StoreReply, StoreRequest,
    StoreVersion,
};

/// The simulated state manager.
#[derive(Debug, Default)]
pub struct Shelf {
    /// Who is master.
    pub lease: Slot<LeaseRecord>,
    /// What is stored of the job.
    pub record: Slot<Arc<JobRecord>>,
    /// What is stored of its epochs.
    pub epochs: Slot<Arc<EpochsRecord>>,
    /// Whether it doesn't answer.
    pub down: bool,
    /// The master that has written the record last.
    writer: MasterEpoch,
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
    /// What is asked of the lease.
    pub fn lease(&mut self, request: StoreRequest<LeaseRecord>) -> StoreReply<LeaseRecord> {
        match (&request, &self.record.value) {
            (StoreRequest::Write { .. }, None) => StoreReply::JobGone,
            _ => self.lease.carry_out(request),
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

    /// What is asked of the record of epochs.
    pub fn epochs(
        &mut self,
        request: StoreRequest<Arc<EpochsRecord>>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        match (&request, &self.record.value) {
            (StoreRequest::Write { .. }, None) => StoreReply::JobGone,
            _ => self.epochs.carry_out(request),
        }
    }

    /// Removes what is left of a job that is gone.
    pub fn drop_lease(&mut self) {
        if self.record.value.is_none() {
            self.epochs.value = None;
            self.lease.value = None;
        }
    }

    /// What a worker is told that looks for its master.
    pub fn look_up(&self) -> Lookup {
        if self.record.value.is_none() {
            return Lookup::JobGone;
        }
        match &self.lease.value {
            Some((lease, _)) if !lease.resigned => Lookup::Master {
                address: lease.address.clone(),
                epoch: lease.epoch,
            },
            _ => Lookup::Nobody,
        }
    }
}
