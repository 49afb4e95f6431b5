//! A process that may be a job's master: its lease, and the master while it holds that.

use std::sync::Arc;
use std::time::Duration;

use crate::packing::ResourceManager;

use crate::control::{
    JobMaster, JobRef, Lease, LeaseAction, LeaseConfig, LeaseEvent, LeaseRecord, MasterAction,
    MasterConfig, MasterEpoch, MasterEvent, RequestId, StoreRequest,
};

/// What happens to a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CandidateEvent {
    /// To its lease.
    Lease(LeaseEvent),
    /// To the master; dropped while this is none.
    Master(MasterEvent),
    /// Time has passed; comes at least every 50 ms.
    Tick,
}

/// What a candidate wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CandidateAction {
    /// Ask the state manager about the lease.
    Lease(RequestId, StoreRequest<LeaseRecord>),
    /// What the master wants done.
    Master(MasterAction),
    /// This is the master now.
    Gained,
    /// This is not the master any more.
    Lost,
    /// The job is gone: remove what is left of it, its lease among that whoever holds it, unless it has a record again; and end.
    JobGone,
}

/// A process that may be a job's master. Of several, one is; the others stand by.
///
/// It adds two rules to [`Lease`] and [`JobMaster`]: when the term is over, nothing that the master wants done is done any more; and a master
/// that steps down for one whose number is not below its own, though nobody else holds the lease, comes back with a later number. That
/// happens where a lease was damaged and removed, and with it what tells the numbers of the past.
pub struct Candidate {
    job: JobRef,
    config: MasterConfig,
    manager: Arc<dyn ResourceManager>,
    lease: Lease,
    master: Option<JobMaster>,
}

impl Candidate {
    /// A process of that name, which no other has or had, reached at `address`.
    pub fn new(
        name: &str,
        address: &str,
        job: JobRef,
        manager: Arc<dyn ResourceManager>,
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

    /// The master, while this is it.
    pub fn master(&self) -> Option<&JobMaster> {
        self.master.as_ref()
    }

    /// The number of the mastership, while it lasts.
    pub fn mastership(&self, now: Duration) -> Option<MasterEpoch> {
        self.lease.mastership(now)
    }

    /// Deals with an event.
    pub fn on(&mut self, now: Duration, event: CandidateEvent) -> Vec<CandidateAction> {
        let (lease, master) = match event {
            CandidateEvent::Tick => (LeaseEvent::Tick, Some(MasterEvent::Tick)),
            CandidateEvent::Lease(event) => (event, None),
            CandidateEvent::Master(event) => (LeaseEvent::Tick, Some(event)),
        };
        let mut actions = Vec::new();
        // The lease first: it may be over.
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
