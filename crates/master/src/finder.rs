//! How a worker finds its master: it watches the lease, so that a new master is known at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use ardea_control::{JobRef, LeaseRecord, Lookup};
use ardea_core::Result;
use ardea_state_manager::StateManager;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::JobStore;
use crate::store::read_lease;

/// How long to wait after the lease could not be watched.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the same master is told before it is looked whether its job is still there at all: who asks again could not reach it.
const TRUSTED: u32 = 20;

/// Finds the master of one submission of a job.
///
/// A look-up costs nothing as long as a master leads: the lease is watched, not read. Only when there is none, or when nobody was met
/// there time and again, the job itself is looked for.
#[derive(Debug)]
pub struct LeaseFinder {
    store: JobStore,
    lease: watch::Receiver<Option<LeaseRecord>>,
    /// The mastership that was told last, and how often.
    told: AtomicU64,
    times: AtomicU32,
    task: AbortHandle,
}

impl LeaseFinder {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// When no node can have the job's name.
    pub fn new(state: Arc<dyn StateManager>, job: JobRef) -> Result<Self> {
        let store = JobStore::new(state, job)?;
        let (seen, lease) = watch::channel(None);
        let task = tokio::spawn(look(store.clone(), seen)).abort_handle();
        Ok(LeaseFinder {
            store,
            lease,
            told: AtomicU64::new(0),
            times: AtomicU32::new(0),
            task,
        })
    }

    /// Where the master is. While the state manager is away this is what was known last.
    pub async fn look_up(&self) -> Lookup {
        let lease = self.lease.borrow().clone();
        let Some(lease) = lease.filter(|lease| !lease.resigned) else {
            return self.without_master().await;
        };
        if self.told.swap(lease.epoch.0, Ordering::Relaxed) != lease.epoch.0 {
            self.times.store(0, Ordering::Relaxed);
        }
        let times = self.times.fetch_add(1, Ordering::Relaxed);
        if times % TRUSTED == TRUSTED - 1 && matches!(self.store.exists().await, Ok(false)) {
            return Lookup::JobGone;
        }
        Lookup::Master {
            address: lease.address,
            epoch: lease.epoch,
        }
    }

    async fn without_master(&self) -> Lookup {
        match self.store.exists().await {
            Ok(false) => Lookup::JobGone,
            Ok(true) | Err(_) => Lookup::Nobody,
        }
    }

    /// Waits until somebody else leads, or nobody. Cancel-safe.
    pub async fn changed(&self) {
        let mut lease = self.lease.clone();
        let leader = |lease: &Option<LeaseRecord>| {
            let lease = lease.as_ref().filter(|lease| !lease.resigned);
            lease.map(|lease| lease.epoch)
        };
        let before = leader(&lease.borrow_and_update());
        // The watching task ends only with this finder.
        let _ = lease.wait_for(|now| leader(now) != before).await;
    }
}

impl Drop for LeaseFinder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches the lease for as long as somebody wants to know.
async fn look(store: JobStore, seen: watch::Sender<Option<LeaseRecord>>) {
    loop {
        if let Ok(mut watcher) = store.state().watch_node(store.lease_path()).await {
            while let Ok(node) = watcher.next().await {
                // What can't be read was written by nobody who could be asked.
                let lease = node.and_then(|node| read_lease(&node.value).ok());
                seen.send_if_modified(|before| {
                    let changed = *before != lease;
                    *before = lease;
                    changed
                });
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
