//! Reading what this member is primary of, from any thread.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::PartitionId;

use crate::protocol::operation::{MapId, Refusal};
use crate::protocol::replica::Replica;

/// The copies of a member, and until when it may act.
pub(super) struct Shared {
    replicas: Vec<Mutex<Replica>>,
    /// In microseconds by the member's clock; zero if it may not.
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
        // A copy is changed in steps that can't panic.
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

/// Reads what a member is primary of, from any thread, without asking the thread that drives the member. Cheap to clone.
#[derive(Clone)]
pub struct Reader(pub(super) Arc<Shared>);

impl Reader {
    /// Looks at what a key has. Allocates nothing. `clock` is the clock that the member is driven by.
    ///
    /// # Errors
    /// If this member may not read it here and now. Ask through the member then.
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
        // Asked last: if it may act now it could when it looked, however long that took.
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
