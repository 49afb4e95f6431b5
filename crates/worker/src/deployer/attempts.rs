//! The transition between two attempts of the job: the next attempt starts after the former one has
//! ended completely.

use ardea_coordination::control::{Change, ExecutionAttempt, Generation, ParticipantAction};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Error, Result};
use ardea_engine::{ModeChoice, Program, Site};

use super::{Active, DeployerState};
use crate::attempt::{self, RunningAttempt};
use crate::attempt_recovery::AttemptRecovery;
use crate::driver::Event;
use crate::plan::Names;

impl DeployerState<'_> {
    /// Ends the deployment of any attempt other than that of the change. Returns true while that
    /// deployment has not ended completely.
    pub(super) fn end_former_attempt(&mut self, change: &Change) -> bool {
        let wanted = change.attempt.map(|life| life.generation);
        let present = self
            .current_attempt
            .as_ref()
            .map(RunningAttempt::generation);
        if wanted != present
            && let Some(active) = self.active.take()
        {
            active.deployment.end();
            self.former = Some(active);
            self.unsettled = None;
            self.running = None;
        }
        let is_left = |former: &Active| !former.deployment.status().is_over();
        let waits = self.former.as_ref().is_some_and(is_left);
        if !waits {
            self.former = None;
        }
        if wanted != present
            && !waits
            && let Some(living) = self.current_attempt.take()
        {
            self.handed_off = Some(living.into_handed_off());
        }
        waits
    }

    /// Reports that an attempt cannot start or continue in this container. The process waits for
    /// the next attempt.
    pub(super) fn fail_attempt(&mut self, life: Option<ExecutionAttempt>, error: &Error) {
        self.failed = life.map(|life| life.generation);
        match (&mut self.current_attempt, life) {
            (Some(living), _) => {
                living.fail(error, processed(self.active.as_ref()));
            }
            (None, Some(life)) => self.report(attempt::over(life, error, |_| Some(0))),
            (None, None) => {}
        }
    }

    pub(super) fn in_epochs(&mut self, generation: Generation, action: ParticipantAction) {
        if let (Some(living), Some(active)) = (&mut self.current_attempt, &self.active)
            && living.generation() == generation
        {
            if let ParticipantAction::Commit(epoch) = &action {
                active.crossings.recovery().committed(*epoch);
            }
            living.act(action, &active.deployment);
        }
    }

    /// Starts the attempt of the change, if there is one.
    pub(super) fn begin_attempt(
        &mut self,
        change: &Change,
        instances: &[InstanceId],
    ) -> Result<()> {
        if let Some(life) = change.attempt.filter(|_| self.current_attempt.is_none()) {
            let (name, keeper) = (&self.with.name, self.with.snapshots.as_ref());
            let tells = (&self.with.events, &self.with.look);
            let begins = (life, change, self.handed_off.take());
            let living = RunningAttempt::begin(begins, instances, name, keeper, tells)?;
            self.current_attempt = Some(living);
        }
        Ok(())
    }

    /// Determines the workers that can be restored alone in the attempt of `change`, and reports
    /// whether this worker is one of them.
    pub(super) fn recovery(
        &self,
        program: &Program,
        names: &Names,
        change: &Change,
    ) -> Result<AttemptRecovery> {
        let (Some(attempt), Some(living)) = (change.attempt, &self.current_attempt) else {
            return Ok(AttemptRecovery::default());
        };
        let (dag, config) = (&program.dag, self.with.node.config());
        let mode = ModeChoice::of_part(dag, config, living.guarantee())?;
        let placement = names.placement(&change.routes, self.with.here)?;
        let has_side_channels = !program.side_channels.is_empty();
        let here = Site(self.with.here.0);
        let mut restarted = change.restarted.iter();
        let is_restored_alone = restarted.any(|it| it.worker.container == self.with.here);
        let place = (here, is_restored_alone);
        let recovery =
            AttemptRecovery::of(dag, &placement, attempt, &mode, has_side_channels, place);
        let scope = recovery.scope(here);
        self.report(Event::Scope(attempt.generation, scope));
        Ok(recovery)
    }

    /// Handles the error of a deployment. Returns true if the error ends only the attempt, and not
    /// the worker.
    pub(super) fn ends_with_attempt(&mut self, error: &Error) -> bool {
        let Some(living) = &mut self.current_attempt else {
            return false;
        };
        if living.fail(error, processed(self.active.as_ref()))
            && let Some((vertex, instance)) = error.vertex()
        {
            self.with.failures.fails(vertex, instance, error.code());
        }
        true
    }
}

/// Returns a function for the number of records that the local instances of a vertex have
/// processed; `None` if nothing is deployed.
fn processed(active: Option<&Active>) -> impl FnOnce(&str) -> Option<u64> {
    move |vertex| {
        let job = active.map(|active| active.deployment.handle());
        job.map(|job| job.sum(vertex, |counted| counted.records_in + counted.records_out))
    }
}
