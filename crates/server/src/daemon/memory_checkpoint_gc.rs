//! Garbage collection of in-memory checkpoints of deleted jobs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::StoredJob;
use ardea_checkpoint::cluster::{CheckpointConfig, Origin};
use ardea_coordination::control::{JobRef, Upgrade};
use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::LocalGridStore;
use ardea_metastore::MetadataStore;
use ardea_metastore::layout::JobLayout;

/// Interval between two runs of the garbage collection. Only checkpoints found unneeded in two
/// successive runs are removed, because the record that needs them may be written late.
const EVERY: Duration = Duration::from_secs(30);

/// Runs the garbage collection periodically, on one of the hosts only.
pub(crate) async fn collect_garbage(state: Arc<dyn MetadataStore>, shelf: LocalGridStore) {
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(EVERY).await;
        // Errors are ignored until the next run.
        before = match shelf.is_first() {
            true => look(&*state, &shelf, &before).await.unwrap_or_default(),
            false => BTreeSet::new(),
        };
    }
}

/// Removes the unneeded checkpoints that were unneeded in the previous run (`before`) too. Returns
/// the newly unneeded ones.
async fn look(
    state: &dyn MetadataStore,
    shelf: &LocalGridStore,
    before: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut left = BTreeSet::new();
    let all = on_shelf(shelf, LocalGridStore::jobs).await?;
    for job in all {
        if is_needed(state, &job).await? {
            continue;
        }
        if before.contains(&job) {
            on_shelf(shelf, move |shelf| shelf.clear(&job)).await?;
        } else {
            left.insert(job);
        }
    }
    Ok(left)
}

/// Returns true if the submission `NAME#SUBMISSION` exists, or another submission of the same name
/// needs its checkpoints.
async fn is_needed(state: &dyn MetadataStore, job: &str) -> Result<bool> {
    let Some((name, submission)) = job.rsplit_once('#') else {
        return Ok(false);
    };
    let Ok(layout) = JobLayout::of(name) else {
        return Ok(false);
    };
    let Some(node) = state.get(layout.definition()).await? else {
        return Ok(false);
    };
    // An unreadable job may be this submission.
    let is_it = StoredJob::submission(&node.value).map(|it| format!("{it:x}") == submission);
    if is_it.unwrap_or(true) {
        return Ok(true);
    }
    let Ok(stored) = StoredJob::decode(&node.value) else {
        return Ok(true);
    };
    let others = stored.record.upgrade.as_ref().and_then(others);
    let mut others = others.into_iter().flatten();
    let is_other = others.any(|it| format!("{it:x}") == submission);
    Ok(is_other || begins_from(&stored, job) && !has_begun(state, &stored.record.job).await?)
}

/// Returns the other submissions whose checkpoints an upgrade needs: the predecessor (for a
/// rollback), and the prepared successor.
fn others(upgrade: &Upgrade) -> Option<[u64; 2]> {
    match upgrade {
        Upgrade::Stopping(order) | Upgrade::Stopped(order, _) => {
            Some([order.next.definition.job.submission, order.back])
        }
        Upgrade::Starting(before) | Upgrade::RollingBack(before, _) => {
            Some([before.job.definition.job.submission, before.back])
        }
        Upgrade::Over(_) => None,
    }
}

/// Returns true if the stored job starts from the checkpoints of the submission `job`.
fn begins_from(stored: &StoredJob, job: &str) -> bool {
    let promise = CheckpointConfig::of(&stored.submitted.definition)
        .ok()
        .flatten();
    let from = promise.and_then(|promise| promise.from);
    matches!(from, Some(Origin::Memory(from)) if from == job)
}

/// Returns true if a job has restored its initial state, that is, if its checkpoint record exists.
async fn has_begun(state: &dyn MetadataStore, job: &JobRef) -> Result<bool> {
    let epochs = JobLayout::of(&job.name)?.epochs(job.submission)?;
    Ok(state.get(&epochs).await?.is_some())
}

/// Runs a blocking operation of the store outside the async runtime.
async fn on_shelf<T: Send + 'static>(
    shelf: &LocalGridStore,
    work: impl FnOnce(&LocalGridStore) -> Result<T> + Send + 'static,
) -> Result<T> {
    let shelf = shelf.clone();
    let done = tokio::task::spawn_blocking(move || work(&shelf)).await;
    done.unwrap_or_else(|error| {
        let what = "the garbage collection of checkpoints was interrupted";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}

#[cfg(test)]
mod tests {
    use crate::leader::Submitted;
    use ardea_coordination::control::{
        JobDefinition, JobRecord, Predecessor, ProgramRef, Successor, UpgradeEnd, UpgradeOrder,
    };
    use ardea_coordination::packing::{JobDemand, PackingConfig};
    use ardea_metastore::{Expected, FileState, StateOptions, StatePath};

    use super::*;

    async fn state(folder: &tempfile::TempDir) -> FileState {
        let state = FileState::open(folder.path(), StateOptions::default());
        state.await.unwrap()
    }

    async fn set(state: &FileState, path: &StatePath, value: &[u8]) {
        state.set(path, value, Expected::Any).await.unwrap();
    }

    fn job(submission: u64) -> JobRef {
        JobRef {
            cluster: "harbour".into(),
            name: "words".into(),
            submission,
        }
    }

    fn successor(submission: u64, settings: &[(&str, &str)]) -> Successor {
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
        Successor {
            definition: JobDefinition {
                job: job(submission),
                program: ProgramRef {
                    package: "0".repeat(64),
                    executable: "words".into(),
                    arguments: Vec::new(),
                },
                packing: "round-robin".into(),
                scheduler: "local".into(),
                settings: settings.collect(),
                version: "0.1.0".into(),
            },
            demand: JobDemand::new("words"),
            packing: PackingConfig::default(),
        }
    }

    /// Returns the stored value of a job during an upgrade.
    fn stored(successor: Successor, upgrade: Option<Upgrade>) -> Vec<u8> {
        let Successor {
            definition,
            demand,
            packing,
        } = successor;
        let record = JobRecord {
            upgrade,
            ..JobRecord::submitted(definition.job.clone(), demand, packing)
        };
        let stored = StoredJob {
            submitted: Arc::new(Submitted {
                definition,
                at_ms: 0,
            }),
            record: Arc::new(record),
        };
        stored.encode().unwrap()
    }

    #[tokio::test]
    async fn what_a_job_has_is_needed_as_long_as_its_submission_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(&folder).await;
        for job in ["words#2a", "no job", "#2a"] {
            assert!(!is_needed(&state, job).await.unwrap(), "{job}");
        }
        let layout = JobLayout::of("words").unwrap();
        let value = stored(successor(0x2a, &[]), None);
        set(&state, layout.definition(), &value).await;
        assert!(is_needed(&state, "words#2a").await.unwrap());
        assert!(!is_needed(&state, "words#2b").await.unwrap());
        set(&state, layout.definition(), b"what is this").await;
        assert!(is_needed(&state, "words#2b").await.unwrap());
    }

    #[tokio::test]
    async fn what_a_job_has_left_is_needed_until_the_one_that_follows_it_has_come_up() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(&folder).await;
        let layout = JobLayout::of("words").unwrap();
        let needed = async |value: Vec<u8>| {
            set(&state, layout.definition(), &value).await;
            let mut needed = Vec::new();
            for submission in 1..=4_u64 {
                let job = format!("words#{submission:x}");
                if is_needed(&state, &job).await.unwrap() {
                    needed.push(submission);
                }
            }
            needed
        };
        let patience = Duration::from_secs(60);
        let order = UpgradeOrder {
            next: successor(2, &[]),
            back: 3,
            commit_timeout: patience,
        };
        let left = Upgrade::Stopped(Arc::new(order), None);
        assert_eq!(
            needed(stored(successor(1, &[]), Some(left))).await,
            [1, 2, 3]
        );

        let before = Arc::new(Predecessor {
            job: successor(1, &[]),
            plan: None,
            state: None,
            back: 3,
            commit_timeout: patience,
        });
        let proving = Upgrade::Starting(Arc::clone(&before));
        assert_eq!(
            needed(stored(successor(2, &[]), Some(proving))).await,
            [1, 2, 3]
        );
        let over = Upgrade::Over(UpgradeEnd::Upgraded { from: 1 });
        assert_eq!(needed(stored(successor(2, &[]), Some(over))).await, [2]);

        // After a rollback the earlier checkpoints are needed until they are restored.
        let from = [
            ("guarantee", "exactly-once"),
            ("recovery.from", "memory:words#1"),
        ];
        let over = Upgrade::Over(UpgradeEnd::RolledBack {
            tried: 2,
            why: "it failed".into(),
        });
        let back = || stored(successor(3, &from), Some(over.clone()));
        assert_eq!(needed(back()).await, [1, 3]);
        set(&state, &layout.epochs(3).unwrap(), b"a record").await;
        assert_eq!(needed(back()).await, [3]);
    }
}
