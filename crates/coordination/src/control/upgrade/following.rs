//! Which job takes the place of one that gives way, and with which state.

use std::sync::Arc;

use ardea_core::Result;

use crate::control::{
    JobDefinition, JobRecord, JobRef, LeftState, PlanVersion, Predecessor, Successor, Upgrade,
    UpgradeEnd, UpgradeOrder,
};

/// What a job has left for one that follows it.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// The job, as it was submitted.
    pub job: &'a Successor,
    /// Its last state; none if it had none.
    pub state: Option<LeftState>,
}

/// What takes the place of a job of which nothing runs any more. Whoever leads that job puts it there, in one write, instead of removing the
/// job's record.
#[derive(Debug)]
pub struct Following {
    /// The job that gives way.
    own: Successor,
    record: JobRecord,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// The new program, or the old one again if nothing can be made ready for that.
    On(Arc<UpgradeOrder>, Option<LeftState>),
    /// The old one, for this reason.
    Back(Arc<Predecessor>, String),
}

impl Following {
    /// Of a job with this record; none if it does not give way.
    pub fn of(definition: &JobDefinition, record: &JobRecord) -> Option<Self> {
        let way = match record.upgrade.as_ref().filter(|_| record.gives_way())? {
            Upgrade::Left(order, state) => Way::On(Arc::clone(order), *state),
            Upgrade::Returning(before, why) => Way::Back(Arc::clone(before), why.clone()),
            Upgrade::Leaving(_) | Upgrade::Proving(_) | Upgrade::Over(_) => return None,
        };
        Some(Following {
            own: Successor {
                definition: definition.clone(),
                // As it was updated.
                demand: record.demand.clone(),
                packing: record.packing.clone(),
            },
            record: record.clone(),
            way,
        })
    }

    /// The job, and what is to be stored of it. `prepare` makes ready that a job goes on from what another has left, and gives its definition as
    /// it has to be stored for that.
    ///
    /// # Errors
    /// Why neither program can go on; it is to be tried again.
    pub fn next(
        self,
        prepare: impl Fn(&Successor, &Left<'_>) -> Result<JobDefinition>,
    ) -> Result<(JobDefinition, JobRecord)> {
        match &self.way {
            Way::On(order, state) => self.on(order, *state, prepare),
            Way::Back(before, why) => {
                let tried = self.record.job.submission;
                self.back(before, (tried, why.as_str()), prepare)
            }
        }
    }

    fn on(
        &self,
        order: &UpgradeOrder,
        state: Option<LeftState>,
        prepare: impl Fn(&Successor, &Left<'_>) -> Result<JobDefinition>,
    ) -> Result<(JobDefinition, JobRecord)> {
        let before = Predecessor {
            job: self.own.clone(),
            plan: self.record.plan.clone(),
            state,
            back: order.back,
            patience: order.patience,
        };
        let left = Left {
            job: &self.own,
            state,
        };
        match prepare(&order.next, &left) {
            Ok(definition) => {
                let next = Successor {
                    definition,
                    ..order.next.clone()
                };
                Ok(self.stored(next, Upgrade::Proving(Arc::new(before))))
            }
            Err(error) => {
                let tried = order.next.definition.job.submission;
                let why = error.to_string();
                self.back(&before, (tried, why.as_str()), prepare)
            }
        }
    }

    fn back(
        &self,
        before: &Predecessor,
        (tried, why): (u64, &str),
        prepare: impl Fn(&Successor, &Left<'_>) -> Result<JobDefinition>,
    ) -> Result<(JobDefinition, JobRecord)> {
        let mut next = before.job.clone();
        // It was about what the old program began with once.
        next.definition.settings.remove("recovery.drop");
        next.definition.job = JobRef {
            submission: before.back,
            ..next.definition.job
        };
        let left = Left {
            job: &before.job,
            state: before.state,
        };
        next.definition = prepare(&next, &left)?;
        let end = UpgradeEnd::RolledBack {
            tried,
            why: why.to_string(),
        };
        let (definition, mut record) = self.stored(next, Upgrade::Over(end));
        if let Some(plan) = &before.plan {
            record.plan = Some(Arc::clone(plan));
            record.plan_version = PlanVersion(1);
        }
        Ok((definition, record))
    }

    fn stored(&self, next: Successor, upgrade: Upgrade) -> (JobDefinition, JobRecord) {
        let Successor {
            definition,
            demand,
            packing,
        } = next;
        let record = JobRecord {
            intent: self.record.intent,
            upgrade: Some(upgrade),
            ..JobRecord::submitted(definition.job.clone(), demand, packing)
        };
        (definition, record)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::packing::{
        JobDemand, PackingConfig, PackingPlan, ResourceManager, Resources, RoundRobin, VertexDemand,
    };
    use ardea_core::{Epoch, Error, ErrorCode};

    use super::*;
    use crate::control::{Generation, Intent, ProgramRef};

    const STATE: LeftState = LeftState {
        generation: Generation(3),
        epoch: Epoch(17),
    };

    fn successor(submission: u64) -> Successor {
        Successor {
            definition: JobDefinition {
                job: JobRef {
                    cluster: "prod".into(),
                    name: "word-count".into(),
                    submission,
                },
                program: ProgramRef {
                    package: "0".repeat(64),
                    executable: "word-count".into(),
                    arguments: Vec::new(),
                },
                packing: "round-robin".into(),
                scheduler: "local".into(),
                settings: [("recovery.drop".to_string(), "counts".to_string())].into(),
                version: "0.1.0".into(),
            },
            demand: JobDemand::new("word-count").vertex(VertexDemand::new("v", 2, Resources::ZERO)),
            packing: PackingConfig::default(),
        }
    }

    /// What a job runs by.
    fn plan(of: &Successor) -> Arc<PackingPlan> {
        Arc::new(RoundRobin.pack(&of.demand, &of.packing).unwrap())
    }

    /// What is stored of a job that gives way in that manner, while its sources don't read.
    fn record(of: &Successor, upgrade: Upgrade) -> JobRecord {
        let (demand, packing) = (of.demand.clone(), of.packing.clone());
        JobRecord {
            finished: true,
            intent: Intent::Pause,
            plan: Some(plan(of)),
            plan_version: PlanVersion(7),
            upgrade: Some(upgrade),
            ..JobRecord::submitted(of.definition.job.clone(), demand, packing)
        }
    }

    fn order() -> UpgradeOrder {
        UpgradeOrder {
            next: successor(2),
            back: 3,
            patience: Duration::from_secs(5),
        }
    }

    fn before() -> Predecessor {
        Predecessor {
            job: successor(1),
            plan: Some(plan(&successor(1))),
            state: Some(STATE),
            back: 3,
            patience: Duration::from_secs(5),
        }
    }

    /// What follows the job 1, or 2 if that gives way, while only these submissions can be made ready; and who was to go on from which.
    fn next(upgrade: Upgrade, fit: &[u64]) -> (Result<JobRecord>, Vec<(u64, u64)>) {
        let own = successor(if matches!(upgrade, Upgrade::Left(..)) {
            1
        } else {
            2
        });
        let following = Following::of(&own.definition, &record(&own, upgrade));
        let asked = std::cell::RefCell::default();
        let next = following.expect("it gives way").next(|next, left| {
            let of = next.definition.job.submission;
            assert_eq!(left.state, Some(STATE));
            let ways: &mut Vec<_> = &mut asked.borrow_mut();
            ways.push((left.job.definition.job.submission, of));
            match fit.contains(&of) {
                true => Ok(next.definition.clone()),
                false => Err(Error::new(ErrorCode::InvalidJob, "it does not fit")),
            }
        });
        let next = next.map(|(definition, record)| {
            assert_eq!(definition.job, record.job);
            assert_eq!(record.intent, Intent::Pause);
            let drops = definition.settings.contains_key("recovery.drop");
            assert_eq!(drops, record.job.submission == 2);
            record
        });
        (next, asked.into_inner())
    }

    #[test]
    fn the_new_program_follows_with_the_state_of_the_old_one_and_has_to_prove_itself() {
        let left = Upgrade::Left(Arc::new(order()), Some(STATE));
        let (next, asked) = next(left, &[2, 3]);
        let next = next.unwrap();
        assert_eq!((next.job.submission, asked), (2, vec![(1, 2)]));
        assert_eq!(next.upgrade, Some(Upgrade::Proving(Arc::new(before()))));
        assert!(next.plan.is_none() && !next.started && !next.finished);
    }

    #[test]
    fn a_program_that_can_not_be_made_ready_is_not_begun_and_the_old_one_goes_on() {
        let left = Upgrade::Left(Arc::new(order()), Some(STATE));
        let (after, asked) = next(left.clone(), &[3]);
        let after = after.unwrap();
        assert_eq!((after.job.submission, asked), (3, vec![(1, 2), (1, 3)]));
        assert_eq!(after.plan, before().plan);
        let Some(Upgrade::Over(UpgradeEnd::RolledBack { tried: 2, why })) = after.upgrade else {
            panic!("{:?}", after.upgrade);
        };
        assert!(why.contains("does not fit"), "{why}");
        let (neither, _) = next(left, &[]);
        assert_eq!(neither.unwrap_err().code(), ErrorCode::InvalidJob);
    }

    #[test]
    fn the_old_program_comes_back_with_the_state_that_it_left_and_by_the_plan_that_it_ran_by() {
        let back = Upgrade::Returning(Arc::new(before()), "it failed".into());
        let (next, asked) = next(back, &[2, 3]);
        let next = next.unwrap();
        assert_eq!((next.job.submission, asked), (3, vec![(1, 3)]));
        assert_eq!(
            (next.plan, next.plan_version),
            (before().plan, PlanVersion(1))
        );
        assert!(!next.started);
        let rolled_back = UpgradeEnd::RolledBack {
            tried: 2,
            why: "it failed".into(),
        };
        assert_eq!(next.upgrade, Some(Upgrade::Over(rolled_back)));
    }

    #[test]
    fn nothing_follows_a_job_that_does_not_give_way() {
        let own = successor(1);
        let left = Upgrade::Left(Arc::new(order()), Some(STATE));
        let killed = JobRecord {
            intent: Intent::Kill,
            ..record(&own, left)
        };
        let leaving = record(&own, Upgrade::Leaving(Arc::new(order())));
        for record in [killed, leaving] {
            assert!(Following::of(&own.definition, &record).is_none());
        }
    }
}
