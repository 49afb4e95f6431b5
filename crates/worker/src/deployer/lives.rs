//! From one life of the job to the next: what ran of the former is gone before anything of the next begins.

use ardea_coordination::control::{Change, EpochsAgentAction, Generation, Life};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Error, Result};

use super::{Active, Work};
use crate::living::{self, Living};

impl Work<'_> {
    /// Ends what runs of another life than that of the change; whether something of it is left.
    pub(super) fn ends_former_life(&mut self, change: &Change) -> bool {
        let wanted = change.life.map(|life| life.generation);
        let present = self.living.as_ref().map(Living::generation);
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
            && let Some(living) = self.living.take()
        {
            self.legacy = Some(living.into_legacy());
        }
        waits
    }

    /// The life can't go on here, or not begin. The process stays: another one will.
    pub(super) fn fail_life(&mut self, life: Option<Life>, error: &Error) {
        self.failed = life.map(|life| life.generation);
        match (&mut self.living, life) {
            (Some(living), _) => {
                living.fail(error, processed(self.active.as_ref()));
            }
            (None, Some(life)) => self.tell(living::over(life, error, |_| Some(0))),
            (None, None) => {}
        }
    }

    pub(super) fn in_epochs(&mut self, generation: Generation, action: EpochsAgentAction) {
        if let (Some(living), Some(active)) = (&mut self.living, &self.active)
            && living.generation() == generation
        {
            living.act(action, &active.deployment);
        }
    }

    /// The life of the change begins, if it has one.
    pub(super) fn begin_life(&mut self, change: &Change, instances: &[InstanceId]) -> Result<()> {
        if let Some(life) = change.life.filter(|_| self.living.is_none()) {
            let (name, keeper) = (&self.with.name, self.with.cuts.as_ref());
            let tells = (&self.with.events, &self.with.look);
            let begins = (life, change, self.legacy.take());
            let living = Living::begin(begins, instances, name, keeper, tells)?;
            self.living = Some(living);
        }
        Ok(())
    }

    /// What runs has failed: whether only a life ends with it. It does so once.
    pub(super) fn ends_with_life(&mut self, error: &Error) -> bool {
        let Some(living) = &mut self.living else {
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

/// Returns the number of records that the instances of a vertex have processed here; `None` if
/// nothing runs here.
fn processed(active: Option<&Active>) -> impl FnOnce(&str) -> Option<u64> {
    move |vertex| {
        let job = active.map(|active| active.deployment.handle());
        job.map(|job| job.sum(vertex, |counted| counted.records_in + counted.records_out))
    }
}
