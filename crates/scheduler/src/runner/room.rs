//! What containers are promised of a machine, one job after the other: not more than it has, if whoever asks for them chose the machine
//! by what it had left.

use std::sync::{MutexGuard, PoisonError};

use ardea_coordination::control::ContainerRequest;
use ardea_coordination::packing::Resources;
use ardea_core::{Error, ErrorCode, Result};

use super::Runner;
use super::folders::JobFolder;

impl Runner {
    /// Held from looking at what is left until what is promised is written.
    pub(super) fn promising(&self) -> MutexGuard<'_, ()> {
        let promising = self.0.promising.lock();
        promising.unwrap_or_else(PoisonError::into_inner)
    }

    /// What the containers that should be here need together, of all jobs but one. Blocks.
    pub(super) fn promised_but(&self, left_out: Option<&JobFolder>) -> Result<Resources> {
        let mut promised = Resources::ZERO;
        for folder in JobFolder::all(&self.0.config.folder)? {
            if Some(&folder) == left_out {
                continue;
            }
            // A job that can't be looked at hinders no other.
            if let Ok(wanted) = self.wanted(&folder) {
                promised = promised
                    .checked_add(sum(&wanted))
                    .unwrap_or(Resources::UNLIMITED);
            }
        }
        Ok(promised)
    }

    /// Whether a job's containers may be these from now on, instead of those before: less always may. Blocks.
    pub(super) fn check_room(
        &self,
        job: &JobFolder,
        before: &[ContainerRequest],
        wanted: &[ContainerRequest],
    ) -> Result<()> {
        let (before, wanted) = (sum(before), sum(wanted));
        let total = self.0.config.capacity;
        let others = self.promised_but(Some(job))?;
        let fits = others
            .checked_add(wanted)
            .is_some_and(|all| all.fits_in(&total));
        if fits || wanted.fits_in(&before) {
            return Ok(());
        }
        let what = format!(
            "host {} has no room any more for containers that need {wanted}",
            self.0.config.host
        );
        Err(Error::new(ErrorCode::NoRoom, what)
            .because(format!(
                "of {total}, other jobs have been promised {others}"
            ))
            .hint("they are placed anew, where there is room"))
    }
}

fn sum(requests: &[ContainerRequest]) -> Resources {
    let mut sum = Resources::ZERO;
    for request in requests {
        sum = sum
            .checked_add(request.required)
            .unwrap_or(Resources::UNLIMITED);
    }
    sum
}
