//! Reads by any thread, of the partitions of which this member is primary.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::PartitionId;

use crate::protocol::operation::{MapId, Refusal};
use crate::protocol::replica::Replica;

/// The replicas of a member, and its lease.
pub(super) struct Shared {
    replicas: Vec<Mutex<Replica>>,
    /// Expiry of the lease in microseconds of the member's clock; 0 for none.
    lease: AtomicU64,
}

impl Shared {
    pub fn new(replicas: impl Iterator<Item = Replica>) -> Self {
        Shared {
            replicas: replicas.map(Mutex::new).collect(),
            lease: AtomicU64::new(0),
        }
    }

    pub fn replica(&self, partition: u32) -> Option<MutexGuard<'_, Replica>> {
        let replica = self.replicas.get(partition as usize)?;
        // A poisoned lock is ignored: the steps that modify a replica cannot panic.
        Some(replica.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Replica>> {
        (0..self.replicas.len()).filter_map(|at| self.replica(at as u32))
    }

    pub fn set_lease(&self, until: Option<Duration>) {
        let micros = until.map_or(0, |until| {
            u64::try_from(until.as_micros()).unwrap_or(u64::MAX)
        });
        self.lease.store(micros, Ordering::SeqCst);
    }

    pub fn may_act(&self, now: Duration) -> bool {
        now < Duration::from_micros(self.lease.load(Ordering::SeqCst))
    }
}

/// Reads the partitions of which a member is primary, from any thread, without the thread that
/// drives the member. Cheap to clone.
#[derive(Clone)]
pub struct Reader(pub(super) Arc<Shared>);

impl Reader {
    /// Applies `look` to the value of a key. Allocates nothing. `clock` must be the member's clock.
    ///
    /// # Errors
    /// If this member may not read the key now. The operation must then be passed to the member.
    pub fn read<R>(
        &self,
        clock: impl Fn() -> Duration,
        partition: PartitionId,
        map: MapId,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Refusal> {
        let replica = self
            .0
            .replica(partition.index())
            .ok_or(Refusal::NotPrimary)?;
        let seen = replica.read(&clock, true, map, key, look)?;
        // Checked last: if the lease is valid now, it was valid during the read.
        match self.0.may_act(clock()) {
            true => Ok(seen),
            false => Err(Refusal::CutOff),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} partitions)", self.0.replicas.len())
    }
}
