//! What has to be done with a job's snapshots before something is stored of it: one thing at a time.

use std::sync::Arc;

use ardea_coordination::control::{
    EpochsRecord, Following, JobRecord, Refused, StoreReply, StoreRequest, StoreVersion,
};
use ardea_core::{Error, ErrorCode, Result};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::leader::following;
use ardea_checkpoint::local::Snapshots;

use crate::leader::{JobStore, PastJob};

/// Makes snapshots before they are recorded. Clones are the same.
///
/// A conductor asks again after a second, and a file server that is away may not answer for an hour. So whoever asks meanwhile is told that
/// nobody knows, as if the state manager were away: else each try would hold one more thread, and what a mastership that is over
/// has asked for could be made after what the next one did.
#[derive(Clone, Debug)]
pub(crate) struct Making {
    snapshots: Option<Arc<dyn Snapshots>>,
    turn: Arc<Mutex<()>>,
}

impl Making {
    pub(crate) fn by(snapshots: Option<Arc<dyn Snapshots>>) -> Self {
        Making {
            snapshots,
            turn: Arc::default(),
        }
    }

    /// Asks for the record; of what is to be written, what is new is made a snapshot first.
    pub(crate) async fn answer(
        &self,
        store: &JobStore,
        request: StoreRequest<Arc<EpochsRecord>>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        if let (StoreRequest::Write { value, .. }, Some(snapshots)) = (&request, &self.snapshots) {
            let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
                return StoreReply::Unavailable;
            };
            let (snapshots, job) = (Arc::clone(snapshots), store.job().clone());
            let record = Arc::clone(value);
            if let Err(error) = waiting(turn, move || snapshots.make(&job, &record)).await {
                return StoreReply::Refused(Refused::not_stored(&error));
            }
        }
        let reads = matches!(request, StoreRequest::Read);
        match (store.epochs(request).await, &self.snapshots) {
            (StoreReply::Found(None), Some(snapshots))
                if reads && snapshots.brings(store.job()) =>
            {
                self.first(store, Arc::clone(snapshots)).await
            }
            (reply, _) => reply,
        }
    }

    /// There is no record of epochs yet: if the job begins with state from elsewhere, that is brought, and written to be the first.
    async fn first(
        &self,
        store: &JobStore,
        snapshots: Arc<dyn Snapshots>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            return StoreReply::Unavailable;
        };
        let job = store.job().clone();
        let brought = waiting(turn, move || snapshots.first(&job)).await;
        let first = match brought {
            Ok(Some(first)) => first,
            Ok(None) => return StoreReply::Found(None),
            Err(error) => return StoreReply::Refused(Refused::not_stored(&error)),
        };
        let write = StoreRequest::Write {
            value: Arc::clone(&first),
            expected: None,
        };
        match store.epochs(write).await {
            StoreReply::Written(version) => StoreReply::Found(Some((first, version))),
            // Another master was faster.
            StoreReply::Conflict => store.epochs(StoreRequest::Read).await,
            reply => reply,
        }
    }

    /// Nothing runs any more of a job that gives way: another takes its place, in one write. Told as if the job had been deleted, which
    /// is what that is for whoever leads it.
    pub(crate) async fn follow(
        &self,
        store: &JobStore,
        following: Following,
        past: Option<PastJob>,
        expected: StoreVersion,
    ) -> StoreReply<Arc<JobRecord>> {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            return StoreReply::Unavailable;
        };
        let Some(snapshots) = self.snapshots.clone() else {
            let what = format!("nothing is known here of the state of {}", store.job());
            let error = Error::new(ErrorCode::WrongState, what);
            return StoreReply::Refused(Refused::not_stored(&error));
        };
        let made = waiting(turn, move || following::prepare(following, &*snapshots)).await;
        match made {
            Ok(next) => store.replace(&next, expected, past).await,
            Err(error) => StoreReply::Refused(Refused::not_stored(&error)),
        }
    }
}

/// Does that on a thread that may wait, and has its turn for as long as it does, whoever waits for it.
async fn waiting<T: Send + 'static>(
    turn: OwnedMutexGuard<()>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let working = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    working.await.unwrap_or_else(|error| {
        let what = "what was to be done with snapshots was cut off";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use ardea_coordination::control::{EpochsConfig, JobDefinition, JobRef, Needed};
    use ardea_metastore::{Expected, FileState, StateManager, StateOptions};

    use super::*;
    use crate::leader::stored_job::tests::job;

    /// Long enough for any machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A folder that doesn't answer before it is told to.
    #[derive(Debug)]
    struct Slow {
        asked: AtomicUsize,
        answers: std::sync::Mutex<Receiver<()>>,
    }

    impl Snapshots for Slow {
        fn epochs(&self, _: &JobDefinition) -> Result<Option<EpochsConfig>> {
            Ok(Some(EpochsConfig::default()))
        }

        fn make(&self, _: &JobRef, _: &Arc<EpochsRecord>) -> Result<()> {
            self.asked.fetch_add(1, Ordering::AcqRel);
            let answers = self.answers.lock().unwrap();
            answers.recv_timeout(PATIENCE).unwrap();
            Ok(())
        }

        fn keep(&self, _: &JobRef, _: &Needed) {}
    }

    #[tokio::test]
    async fn while_a_snapshot_is_being_made_who_asks_again_holds_no_other_thread() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn StateManager> = Arc::new(state.unwrap());
        let (stored, _) = job(10, 1);
        let store = JobStore::new(Arc::clone(&state), stored.record.job.clone()).unwrap();
        let definition = store.layout().definition();
        let encoded = stored.encode().unwrap();
        let set = state.set(definition, &encoded, Expected::Absent);
        set.await.unwrap();

        let (answer, answers) = channel();
        let slow = Arc::new(Slow {
            asked: AtomicUsize::new(0),
            answers: std::sync::Mutex::new(answers),
        });
        let asked = || slow.asked.load(Ordering::Acquire);
        let making = Making::by(Some(Arc::clone(&slow) as _));
        let write = || StoreRequest::Write {
            value: Arc::new(EpochsRecord::new(stored.record.job.clone())),
            expected: None,
        };
        let (clone, other, request) = (making.clone(), store.clone(), write());
        let first = tokio::spawn(async move { clone.answer(&other, request).await });
        let begin = Instant::now();
        while asked() == 0 {
            assert!(begin.elapsed() < PATIENCE);
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            let reply = making.answer(&store, write()).await;
            assert_eq!((reply, asked()), (StoreReply::Unavailable, 1));
        }
        let found = making.answer(&store, StoreRequest::Read).await;
        assert_eq!(found, StoreReply::Found(None), "who reads need not wait");
        answer.send(()).unwrap();
        let written = first.await.unwrap();
        assert!(matches!(written, StoreReply::Written(_)), "{written:?}");
        answer.send(()).unwrap();
        let reply = making.answer(&store, write()).await;
        assert_eq!((reply, asked()), (StoreReply::Conflict, 2));
    }
}
