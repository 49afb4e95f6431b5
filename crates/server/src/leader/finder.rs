//! How a worker finds its master: it watches the lease, so that a new master is known at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea_coordination::control::{JobRef, LeaseRecord, Lookup, MasterEpoch};
use ardea_core::Result;
use ardea_metastore::StateManager;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::leader::JobStore;
use crate::leader::store::read_lease;

/// How long to wait after the lease could not be watched.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a look-up waits for a new master, when there is none, or when nobody could be met where the known one should be.
const WAITS: Duration = Duration::from_millis(250);

/// Who asks again within this time has not met the master that it was told.
const RECENT: Duration = Duration::from_secs(3);

/// How often the same master is told in vain before it is looked whether its job is still there at all.
const TRUSTED: u32 = 8;

/// Finds the master of one submission of a job.
///
/// A look-up costs nothing as long as a master leads: the lease is watched, not read. Only when there is none, or when nobody was met
/// there time and again, the job itself is looked for.
#[derive(Debug)]
pub struct LeaseFinder {
    store: JobStore,
    lease: watch::Receiver<Option<LeaseRecord>>,
    told: Mutex<Option<Told>>,
    task: AbortHandle,
}

/// Which mastership was told last, when, and how often in a row.
#[derive(Clone, Copy, Debug)]
struct Told {
    epoch: MasterEpoch,
    at: Instant,
    times: u32,
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
            told: Mutex::new(None),
            task,
        })
    }

    /// Where the master is. While the state manager is away this is what was known last.
    ///
    /// Whoever asks again right after an answer has not met anybody there: then, and when there is no master, this waits up to 250 ms for a
    /// new one, and answers as soon as it is there.
    pub async fn look_up(&self) -> Lookup {
        let told = self.recent();
        let fresh = |lease: &LeaseRecord| told.is_none_or(|told| told.epoch != lease.epoch);
        let mut lease = self.lease.clone();
        let found = lease.wait_for(|lease| leader(lease).is_some_and(fresh));
        // Time may be up, and then the master that is known is told once more.
        let _ = tokio::time::timeout(WAITS, found).await;
        let now = lease.borrow().clone();
        let Some(lease) = leader(&now) else {
            return self.without_master().await;
        };
        let times = self.tells(lease.epoch);
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
            Ok(true) | Err(_) => Lookup::Nobody,
        }
    }

    fn recent(&self) -> Option<Told> {
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.filter(|told| told.at.elapsed() < RECENT)
    }

    /// Remembers what is told; how often in a row it has been.
    fn tells(&self, epoch: MasterEpoch) -> u32 {
        let before = self.recent().filter(|told| told.epoch == epoch);
        let times = before.map_or(0, |told| told.times) + 1;
        let told = Told {
            epoch,
            at: Instant::now(),
            times,
        };
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        times
    }
}

/// The one who leads, if somebody does.
fn leader(lease: &Option<LeaseRecord>) -> Option<&LeaseRecord> {
    lease.as_ref().filter(|lease| !lease.resigned)
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
