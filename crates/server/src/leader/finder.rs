//! Leader lookup for workers: watches the job's lease, so that a new leader is known at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea_coordination::control::{JobRef, LeaseRecord, Lookup, MasterEpoch};
use ardea_core::Result;
use ardea_metastore::MetadataStore;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::leader::JobStore;
use crate::leader::store::read_lease;

/// Retry delay after a failed watch of the lease.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum time that a lookup waits for a new leader.
const WAITS: Duration = Duration::from_millis(250);

/// Time in which a repeated lookup implies that the worker could not reach the returned leader.
const RECENT: Duration = Duration::from_secs(3);

/// Number of consecutive lookups with the same leader after which the existence of the job is
/// checked.
const TRUSTED: u32 = 8;

/// Leader lookup for one submission of a job.
///
/// A lookup reads no node of the metadata store while there is a leader, because the lease is
/// watched. The job's node is read only without a leader, or if the same leader was returned
/// repeatedly.
#[derive(Debug)]
pub struct LeaseFinder {
    store: JobStore,
    lease: watch::Receiver<Option<LeaseRecord>>,
    told: Mutex<Option<LastLease>>,
    task: AbortHandle,
}

/// The last returned leader: its epoch, the time of the lookup, and the number of consecutive
/// lookups with it.
#[derive(Clone, Copy, Debug)]
struct LastLease {
    epoch: MasterEpoch,
    at: Instant,
    times: u32,
}

impl LeaseFinder {
    /// Starts to watch the lease.
    ///
    /// # Errors
    ///
    /// If the job's name is no valid node name.
    pub fn new(state: Arc<dyn MetadataStore>, job: JobRef) -> Result<Self> {
        let store = JobStore::new(state, job)?;
        let (seen, lease) = watch::channel(None);
        let task = tokio::spawn(watch_lease(store.clone(), seen)).abort_handle();
        Ok(LeaseFinder {
            store,
            lease,
            told: Mutex::new(None),
            task,
        })
    }

    /// Returns the current leader, or the last known one while the metadata store is unavailable.
    ///
    /// If there is no leader, or the worker could not reach the last returned one, the call waits
    /// up to 250 ms for a new leader.
    pub async fn look_up(&self) -> Lookup {
        let told = self.recent();
        let fresh = |lease: &LeaseRecord| told.is_none_or(|told| told.epoch != lease.epoch);
        let mut lease = self.lease.clone();
        let found = lease.wait_for(|lease| leader(lease).is_some_and(fresh));
        // On a timeout the known leader is returned again.
        let _ = tokio::time::timeout(WAITS, found).await;
        let now = lease.borrow().clone();
        let Some(lease) = leader(&now) else {
            return self.without_master().await;
        };
        let times = self.record_lookup(lease.epoch);
        if times.is_multiple_of(TRUSTED) && matches!(self.store.exists().await, Ok(false)) {
            return Lookup::JobGone;
        }
        Lookup::Master {
            address: lease.address.clone(),
            epoch: lease.epoch,
        }
    }

    async fn without_master(&self) -> Lookup {
        match self.store.exists().await {
            Ok(false) => Lookup::JobGone,
            Ok(true) | Err(_) => Lookup::NoLeader,
        }
    }

    fn recent(&self) -> Option<LastLease> {
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.filter(|told| told.at.elapsed() < RECENT)
    }

    /// Records the leader that a lookup returns. Returns the number of consecutive lookups with it.
    fn record_lookup(&self, epoch: MasterEpoch) -> u32 {
        let before = self.recent().filter(|told| told.epoch == epoch);
        let times = before.map_or(0, |told| told.times) + 1;
        let told = LastLease {
            epoch,
            at: Instant::now(),
            times,
        };
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        times
    }
}

/// Returns the lease, unless there is none or its holder has resigned.
fn leader(lease: &Option<LeaseRecord>) -> Option<&LeaseRecord> {
    lease.as_ref().filter(|lease| !lease.resigned)
}

impl Drop for LeaseFinder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches the lease until the finder is dropped.
async fn watch_lease(store: JobStore, seen: watch::Sender<Option<LeaseRecord>>) {
    loop {
        if let Ok(mut watcher) = store.state().watch_node(store.lease_path()).await {
            while let Ok(node) = watcher.next().await {
                // An unreadable lease was written by no reachable leader.
                let lease = node.and_then(|node| read_lease(&node.value).ok());
                seen.send_if_modified(|before| {
                    let changed = *before != lease;
                    *before = lease;
                    changed
                });
            }
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}
