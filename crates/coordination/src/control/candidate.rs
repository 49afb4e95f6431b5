//! A process that may lead a job. It has a lease, and a job master while it holds the lease.

use std::sync::Arc;
use std::time::Duration;

use crate::packing::PackingPolicy;

use crate::control::{
    JobMaster, JobRef, Lease, LeaseAction, LeaseConfig, LeaseEvent, LeaseRecord, MasterAction,
    MasterConfig, MasterEpoch, MasterEvent, RequestId, StoreRequest,
};

/// An event for a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CandidateEvent {
    /// An event for the candidate's lease.
    Lease(LeaseEvent),
    /// An event for the job master; ignored if this process does not lead.
    Master(MasterEvent),
    /// Time has passed. Must come at least every 50 ms.
    Tick,
}

/// An action requested by a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CandidateAction {
    /// Send a request about the lease to the metadata store.
    Lease(RequestId, StoreRequest<LeaseRecord>),
    /// Execute an action of the job master.
    Master(MasterAction),
    /// This process leads the job from now on.
    Gained,
    /// This process no longer leads the job.
    Lost,
    /// The job is gone: remove all that is stored of it, including its lease regardless of the
    /// holder, unless the job has a record again. Then exit.
    JobGone,
}

/// A process that may lead a job. One of several candidates leads, and the others stand by.
///
/// It adds two rules to [`Lease`] and [`JobMaster`]. After the end of the lease term, no action of
/// the master is executed. A master that has stepped down for an epoch not below its own claims a
/// later epoch, if no other process holds the lease. This case occurs if a damaged lease was
/// removed, and with it the record of past epochs.
pub struct Candidate {
    job: JobRef,
    config: MasterConfig,
    manager: Arc<dyn PackingPolicy>,
    lease: Lease,
    master: Option<JobMaster>,
}

impl Candidate {
    /// Creates a candidate that workers and clients reach at `address`. `name` must be unique among
    /// all present and past processes.
    pub fn new(
        name: &str,
        address: &str,
        job: JobRef,
        manager: Arc<dyn PackingPolicy>,
        lease: LeaseConfig,
        config: MasterConfig,
    ) -> Self {
        Candidate {
            job,
            config,
            manager,
            lease: Lease::new(name, address, lease),
            master: None,
        }
    }

    /// Returns the job master while this process leads, otherwise `None`.
    pub fn master(&self) -> Option<&JobMaster> {
        self.master.as_ref()
    }

    /// Returns the master epoch while this process leads at the time `now`, otherwise `None`.
    pub fn mastership(&self, now: Duration) -> Option<MasterEpoch> {
        self.lease.mastership(now)
    }

    /// Handles an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: CandidateEvent) -> Vec<CandidateAction> {
        let (lease, master) = match event {
            CandidateEvent::Tick => (LeaseEvent::Tick, Some(MasterEvent::Tick)),
            CandidateEvent::Lease(event) => (event, None),
            CandidateEvent::Master(event) => (LeaseEvent::Tick, Some(event)),
        };
        let mut actions = Vec::new();
        // The lease is checked first, since it may have expired.
        self.lease_event(now, lease, &mut actions);
        if let (Some(event), Some(master)) = (master, &mut self.master) {
            let wanted = master.on(now, event);
            let newest = master.superseded_by();
            actions.extend(wanted.into_iter().map(CandidateAction::Master));
            if let Some(newest) = newest {
                self.lease_event(now, LeaseEvent::Outpaced(newest), &mut actions);
            }
        }
        actions
    }

    fn lease_event(
        &mut self,
        now: Duration,
        event: LeaseEvent,
        actions: &mut Vec<CandidateAction>,
    ) {
        for action in self.lease.on(now, event) {
            match action {
                LeaseAction::Store(id, request) => {
                    actions.push(CandidateAction::Lease(id, request));
                }
                LeaseAction::Gained(epoch) => {
                    let (job, manager) = (self.job.clone(), Arc::clone(&self.manager));
                    self.master = Some(JobMaster::new(job, epoch, manager, self.config));
                    actions.push(CandidateAction::Gained);
                }
                LeaseAction::JobGone => actions.push(CandidateAction::JobGone),
                LeaseAction::Lost(_) => {
                    self.master = None;
                    actions.push(CandidateAction::Lost);
                }
            }
        }
    }
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Candidate { lease, master, .. } = self;
        write!(f, "Candidate({lease:?}, {master:?})")
    }
}

#[cfg(test)]
mod tests {
    use crate::packing::{JobDemand, PackingConfig, RoundRobin};

    use super::*;
    use crate::control::{JobRecord, StoreReply, StoreVersion};

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_master_that_finds_a_later_ones_record_is_dropped_and_its_lease_looked_at() {
        let job = JobRef {
            cluster: "prod".into(),
            name: "word-count".into(),
            submission: 7,
        };
        let demand = JobDemand::new("word-count");
        let mut record = JobRecord::submitted(job.clone(), demand, PackingConfig::default());
        record.epoch = MasterEpoch(5);
        let mut candidate = Candidate::new(
            "host-1@2a",
            "10.0.0.7:41",
            job,
            Arc::new(RoundRobin),
            LeaseConfig::default(),
            MasterConfig::default(),
        );
        let mut event = CandidateEvent::Tick;
        for reply in [
            StoreReply::Found(None),
            StoreReply::Written(StoreVersion(1)),
        ] {
            let actions = candidate.on(NOW, event);
            let [CandidateAction::Lease(id, _)] = &actions[..] else {
                panic!("{actions:?}");
            };
            event = CandidateEvent::Lease(LeaseEvent::Reply(*id, reply));
        }
        assert_eq!(candidate.on(NOW, event), [CandidateAction::Gained]);
        let actions = candidate.on(NOW, CandidateEvent::Tick);
        let [CandidateAction::Master(MasterAction::Record(id, _))] = &actions[..] else {
            panic!("{actions:?}");
        };

        let found = StoreReply::Found(Some((Arc::new(record), StoreVersion(9))));
        let found = CandidateEvent::Master(MasterEvent::Record(*id, found));
        let actions = candidate.on(NOW, found);
        let [
            ..,
            CandidateAction::Lost,
            CandidateAction::Lease(_, request),
        ] = &actions[..]
        else {
            panic!("{actions:?}");
        };
        assert_eq!(*request, StoreRequest::Read);
        assert!(candidate.master().is_none() && candidate.mastership(NOW).is_none());
    }
}
