//! Replacement of a stopped job: selects the next job, and the state that it is restored from.

use std::sync::Arc;

use ardea_core::Result;

use crate::control::{
    FinalState, JobDefinition, JobRecord, JobRef, PlanVersion, Predecessor, Successor, Upgrade,
    UpgradeEnd, UpgradeOrder,
};

/// The final state of a stopped job, from which the job that replaces it is restored.
#[derive(Clone, Copy, Debug)]
pub struct PredecessorState<'a> {
    /// The job as it was submitted.
    pub job: &'a Successor,
    /// The final state of the job, if it had any.
    pub state: Option<FinalState>,
}

/// The replacement of a job without running instances. The job's leader stores the next job in one
/// write, and does not delete the job's record.
#[derive(Debug)]
pub struct Replacement {
    /// The job to be replaced.
    own: Successor,
    record: JobRecord,
    way: Direction,
}

#[derive(Debug)]
enum Direction {
    /// Replace by the new program; if that cannot be prepared, restart the old one.
    On(Arc<UpgradeOrder>, Option<FinalState>),
    /// Roll back to the old program, for this reason.
    Back(Arc<Predecessor>, String),
}

impl Replacement {
    /// Returns the replacement of the job with this definition and record, or `None` if no other
    /// job is to replace it.
    pub fn of(definition: &JobDefinition, record: &JobRecord) -> Option<Self> {
        let way = match record
            .upgrade
            .as_ref()
            .filter(|_| record.is_being_replaced())?
        {
            Upgrade::Stopped(order, state) => Direction::On(Arc::clone(order), *state),
            Upgrade::RollingBack(before, why) => Direction::Back(Arc::clone(before), why.clone()),
            Upgrade::Stopping(_) | Upgrade::Starting(_) | Upgrade::Over(_) => return None,
        };
        Some(Replacement {
            own: Successor {
                definition: definition.clone(),
                // The demand includes updates since the submission.
                demand: record.demand.clone(),
                packing: record.packing.clone(),
            },
            record: record.clone(),
            way,
        })
    }

    /// Returns the definition and the record to store for the next job. `prepare` prepares the
    /// given job to restore the state of the stopped one, and returns the definition to store.
    ///
    /// # Errors
    ///
    /// If neither program can be prepared. The caller should retry.
    pub fn next(
        self,
        prepare: impl Fn(&Successor, &PredecessorState<'_>) -> Result<JobDefinition>,
    ) -> Result<(JobDefinition, JobRecord)> {
        match &self.way {
            Direction::On(order, state) => self.on(order, *state, prepare),
            Direction::Back(before, why) => {
                let tried = self.record.job.submission;
                self.back(before, (tried, why.as_str()), prepare)
            }
        }
    }

    fn on(
        &self,
        order: &UpgradeOrder,
        state: Option<FinalState>,
        prepare: impl Fn(&Successor, &PredecessorState<'_>) -> Result<JobDefinition>,
    ) -> Result<(JobDefinition, JobRecord)> {
        let before = Predecessor {
            job: self.own.clone(),
            plan: self.record.plan.clone(),
            state,
            back: order.back,
            commit_timeout: order.commit_timeout,
        };
        let left = PredecessorState {
            job: &self.own,
            state,
        };
        match prepare(&order.next, &left) {
            Ok(definition) => {
                let next = Successor {
                    definition,
                    ..order.next.clone()
                };
                Ok(self.stored(next, Upgrade::Starting(Arc::new(before))))
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
        prepare: impl Fn(&Successor, &PredecessorState<'_>) -> Result<JobDefinition>,
    ) -> Result<(JobDefinition, JobRecord)> {
        let mut next = before.job.clone();
        // This setting applied only to the earlier upgrade of the old program.
        next.definition.settings.remove("recovery.drop");
        next.definition.job = JobRef {
            submission: before.back,
            ..next.definition.job
        };
        let left = PredecessorState {
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
        JobDemand, PackingConfig, PackingPlan, PackingPolicy, Resources, RoundRobin, VertexDemand,
    };
    use ardea_core::{Epoch, Error, ErrorCode};

    use super::*;
    use crate::control::{DesiredState, Generation, ProgramRef};

    const STATE: FinalState = FinalState {
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

    fn plan(of: &Successor) -> Arc<PackingPlan> {
        Arc::new(RoundRobin.pack(&of.demand, &of.packing).unwrap())
    }

    /// Returns the record of a paused job that is to be replaced.
    fn record(of: &Successor, upgrade: Upgrade) -> JobRecord {
        let (demand, packing) = (of.demand.clone(), of.packing.clone());
        JobRecord {
            finished: true,
            intent: DesiredState::Pause,
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
            commit_timeout: Duration::from_secs(5),
        }
    }

    fn before() -> Predecessor {
        Predecessor {
            job: successor(1),
            plan: Some(plan(&successor(1))),
            state: Some(STATE),
            back: 3,
            commit_timeout: Duration::from_secs(5),
        }
    }

    /// Returns the record that replaces job 1, or job 2 on a rollback, if only the submissions
    /// `fit` can be prepared. Also returns the attempted pairs of old and new submission.
    fn next(upgrade: Upgrade, fit: &[u64]) -> (Result<JobRecord>, Vec<(u64, u64)>) {
        let own = successor(if matches!(upgrade, Upgrade::Stopped(..)) {
            1
        } else {
            2
        });
        let following = Replacement::of(&own.definition, &record(&own, upgrade));
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
            assert_eq!(record.intent, DesiredState::Pause);
            let drops = definition.settings.contains_key("recovery.drop");
            assert_eq!(drops, record.job.submission == 2);
            record
        });
        (next, asked.into_inner())
    }

    #[test]
    fn the_new_program_follows_with_the_state_of_the_old_one_and_has_to_prove_itself() {
        let left = Upgrade::Stopped(Arc::new(order()), Some(STATE));
        let (next, asked) = next(left, &[2, 3]);
        let next = next.unwrap();
        assert_eq!((next.job.submission, asked), (2, vec![(1, 2)]));
        assert_eq!(next.upgrade, Some(Upgrade::Starting(Arc::new(before()))));
        assert!(next.plan.is_none() && !next.started && !next.finished);
    }

    #[test]
    fn a_program_that_can_not_be_made_ready_is_not_begun_and_the_old_one_goes_on() {
        let left = Upgrade::Stopped(Arc::new(order()), Some(STATE));
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
        let back = Upgrade::RollingBack(Arc::new(before()), "it failed".into());
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
        let left = Upgrade::Stopped(Arc::new(order()), Some(STATE));
        let killed = JobRecord {
            intent: DesiredState::Kill,
            ..record(&own, left)
        };
        let leaving = record(&own, Upgrade::Stopping(Arc::new(order())));
        for record in [killed, leaving] {
            assert!(Replacement::of(&own.definition, &record).is_none());
        }
    }
}
