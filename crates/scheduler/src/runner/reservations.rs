//! Reservation of this machine's resources, one job at a time. Reservations of schedulers that
//! choose among several machines never exceed the capacity.

use std::sync::{MutexGuard, PoisonError};

use ardea_coordination::control::ContainerRequest;
use ardea_coordination::packing::Resources;
use ardea_core::{Error, ErrorCode, Result};

use super::Runner;
use super::folders::JobFolder;

impl Runner {
    /// Locks reservations. The lock is held from the read of the free resources until the
    /// reservation is recorded.
    pub(super) fn lock_reservations(&self) -> MutexGuard<'_, ()> {
        let promising = self.0.reservation_lock.lock();
        promising.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the resources required by the requested containers of all jobs except `left_out`.
    /// Blocks.
    pub(super) fn reserved_except(&self, left_out: Option<&JobFolder>) -> Result<Resources> {
        let mut promised = Resources::ZERO;
        for folder in JobFolder::all(&self.0.config.folder)? {
            if Some(&folder) == left_out {
                continue;
            }
            // An unreadable job does not affect others.
            if let Ok(wanted) = self.wanted(&folder) {
                promised = promised
                    .checked_add(sum(&wanted))
                    .unwrap_or(Resources::UNLIMITED);
            }
        }
        Ok(promised)
    }

    /// Checks that the machine has room to change a job's containers from `before` to `wanted`. A
    /// reduction is always permitted. Blocks.
    pub(super) fn check_room(
        &self,
        job: &JobFolder,
        before: &[ContainerRequest],
        wanted: &[ContainerRequest],
    ) -> Result<()> {
        let (before, wanted) = (sum(before), sum(wanted));
        let total = self.0.config.capacity;
        let others = self.reserved_except(Some(job))?;
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
            .because(format!("of {total}, {others} are reserved by other jobs"))
            .hint("they are placed again on a host with room"))
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
