//! A gate that serializes the checkpoint operations that precede a write of a job's records.

use std::sync::Arc;

use ardea_coordination::control::{
    CheckpointRecord, JobRecord, Rejection, Replacement, StoreReply, StoreRequest, StoreVersion,
};
use ardea_core::{Error, ErrorCode, Result};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::leader::job_replacement;
use ardea_checkpoint::local::LeaderCheckpointBackend;

use crate::leader::{JobStore, PastJob};

/// A gate that writes checkpoints before they are recorded. Clones share one lock.
///
/// Only one request runs at a time. Concurrent requests return `Unavailable`, and the coordinator
/// retries them. One lock bounds the number of blocked threads if a file system hangs. It also
/// keeps a former leader's write from running after its successor's.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointGate {
    checkpoints: Option<Arc<dyn LeaderCheckpointBackend>>,
    turn: Arc<Mutex<()>>,
}

impl CheckpointGate {
    pub(crate) fn by(checkpoints: Option<Arc<dyn LeaderCheckpointBackend>>) -> Self {
        CheckpointGate {
            checkpoints,
            turn: Arc::default(),
        }
    }

    /// Executes a request for the checkpoint record. Before a write, new checkpoints are created.
    pub(crate) async fn execute(
        &self,
        store: &JobStore,
        request: StoreRequest<Arc<CheckpointRecord>>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
        if let (StoreRequest::Write { value, .. }, Some(checkpoints)) =
            (&request, &self.checkpoints)
        {
            let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
                return StoreReply::Unavailable;
            };
            let (checkpoints, job) = (Arc::clone(checkpoints), store.job().clone());
            let record = Arc::clone(value);
            if let Err(error) = run_blocking(turn, move || checkpoints.make(&job, &record)).await {
                return StoreReply::Refused(Rejection::not_stored(&error));
            }
        }
        let reads = matches!(request, StoreRequest::Read);
        match (store.epochs(request).await, &self.checkpoints) {
            (StoreReply::Found(None), Some(checkpoints))
                if reads && checkpoints.has_initial_state(store.job()) =>
            {
                self.first(store, Arc::clone(checkpoints)).await
            }
            (reply, _) => reply,
        }
    }

    /// Creates and stores the first checkpoint record of a job that starts from external state,
    /// such as a savepoint.
    async fn first(
        &self,
        store: &JobStore,
        checkpoints: Arc<dyn LeaderCheckpointBackend>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            return StoreReply::Unavailable;
        };
        let job = store.job().clone();
        let brought = run_blocking(turn, move || checkpoints.import_initial_state(&job)).await;
        let first = match brought {
            Ok(Some(first)) => first,
            Ok(None) => return StoreReply::Found(None),
            Err(error) => return StoreReply::Refused(Rejection::not_stored(&error)),
        };
        let write = StoreRequest::Write {
            value: Arc::clone(&first),
            expected: None,
        };
        match store.epochs(write).await {
            StoreReply::Written(version) => StoreReply::Found(Some((first, version))),
            // Another leader stored its record first.
            StoreReply::Conflict => store.epochs(StoreRequest::Read).await,
            reply => reply,
        }
    }

    /// Replaces a job that is stopped for an upgrade with its successor, in one write. The reply is
    /// that of a deletion, because the job's leadership ends.
    pub(crate) async fn follow(
        &self,
        store: &JobStore,
        following: Replacement,
        past: Option<PastJob>,
        expected: StoreVersion,
    ) -> StoreReply<Arc<JobRecord>> {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            return StoreReply::Unavailable;
        };
        let Some(checkpoints) = self.checkpoints.clone() else {
            let what = format!("no checkpoint backend is configured for {}", store.job());
            let error = Error::new(ErrorCode::WrongState, what);
            return StoreReply::Refused(Rejection::not_stored(&error));
        };
        let rates = past.as_ref().map(|past| past.rates.clone());
        let made = run_blocking(turn, move || {
            job_replacement::prepare(following, &rates.unwrap_or_default(), &*checkpoints)
        })
        .await;
        match made {
            Ok(next) => store.replace(&next, expected, past).await,
            Err(error) => StoreReply::Refused(Rejection::not_stored(&error)),
        }
    }
}

/// Runs `work` on a blocking thread. Holds the lock until `work` ends, even if the caller is
/// cancelled.
async fn run_blocking<T: Send + 'static>(
    turn: OwnedMutexGuard<()>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let working = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    working.await.unwrap_or_else(|error| {
        let what = "a checkpoint operation was interrupted";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use ardea_coordination::control::{
        CoordinatorConfig, JobDefinition, JobRef, RequiredCheckpoints,
    };
    use ardea_metastore::{Expected, FileState, MetadataStore, StateOptions};

    use super::*;
    use crate::leader::stored_job::tests::job;

    /// A timeout that is long enough for any machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A checkpoint backend that blocks until the test releases it.
    #[derive(Debug)]
    struct Slow {
        asked: AtomicUsize,
        answers: std::sync::Mutex<Receiver<()>>,
    }

    impl LeaderCheckpointBackend for Slow {
        fn epochs(&self, _: &JobDefinition) -> Result<Option<CoordinatorConfig>> {
            Ok(Some(CoordinatorConfig::default()))
        }

        fn make(&self, _: &JobRef, _: &Arc<CheckpointRecord>) -> Result<()> {
            self.asked.fetch_add(1, Ordering::AcqRel);
            let answers = self.answers.lock().unwrap();
            answers.recv_timeout(PATIENCE).unwrap();
            Ok(())
        }

        fn keep(&self, _: &JobRef, _: &RequiredCheckpoints) {}
    }

    #[tokio::test]
    async fn while_a_checkpoint_is_being_made_who_asks_again_holds_no_other_thread() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn MetadataStore> = Arc::new(state.unwrap());
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
        let making = CheckpointGate::by(Some(Arc::clone(&slow) as _));
        let write = || StoreRequest::Write {
            value: Arc::new(CheckpointRecord::new(stored.record.job.clone())),
            expected: None,
        };
        let (clone, other, request) = (making.clone(), store.clone(), write());
        let first = tokio::spawn(async move { clone.execute(&other, request).await });
        let begin = Instant::now();
        while asked() == 0 {
            assert!(begin.elapsed() < PATIENCE);
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            let reply = making.execute(&store, write()).await;
            assert_eq!((reply, asked()), (StoreReply::Unavailable, 1));
        }
        let found = making.execute(&store, StoreRequest::Read).await;
        assert_eq!(found, StoreReply::Found(None), "reads do not wait");
        answer.send(()).unwrap();
        let written = first.await.unwrap();
        assert!(matches!(written, StoreReply::Written(_)), "{written:?}");
        answer.send(()).unwrap();
        let reply = making.execute(&store, write()).await;
        assert_eq!((reply, asked()), (StoreReply::Conflict, 2));
    }
}
