//! Clears away what jobs that are gone have left in the memory of hosts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_master::StoredJob;
use ardea_shelter::GridShelf;
use ardea_state_manager::StateManager;
use ardea_state_manager::layout::JobLayout;

/// How often it is looked. What is left twice in a row goes: a record may come late.
const EVERY: Duration = Duration::from_secs(30);

/// Looks again and again; of all hosts only one does.
pub(crate) async fn clear_away(state: Arc<dyn StateManager>, shelf: GridShelf) {
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(EVERY).await;
        // What can't be looked at now is looked at again.
        before = match shelf.is_first() {
            true => look(&*state, &shelf, &before).await.unwrap_or_default(),
            false => BTreeSet::new(),
        };
    }
}

/// What is left now, after what was left before has been cleared away.
async fn look(
    state: &dyn StateManager,
    shelf: &GridShelf,
    before: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut left = BTreeSet::new();
    let all = on_shelf(shelf, GridShelf::jobs).await?;
    for job in all {
        if is_there(state, &job).await? {
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

/// Whether the cluster has this submission of a job, which is named as its processes name it.
async fn is_there(state: &dyn StateManager, job: &str) -> Result<bool> {
    let Some((name, submission)) = job.rsplit_once('#') else {
        return Ok(false);
    };
    let Ok(layout) = JobLayout::of(name) else {
        return Ok(false);
    };
    let Some(node) = state.get(layout.definition()).await? else {
        return Ok(false);
    };
    // One that nobody can read may be this one.
    Ok(StoredJob::submission(&node.value).map_or(true, |there| format!("{there:x}") == submission))
}

/// Has a shelf do something, beside the runtime's threads.
async fn on_shelf<T: Send + 'static>(
    shelf: &GridShelf,
    work: impl FnOnce(&GridShelf) -> Result<T> + Send + 'static,
) -> Result<T> {
    let shelf = shelf.clone();
    let done = tokio::task::spawn_blocking(move || work(&shelf)).await;
    done.unwrap_or_else(|error| {
        let what = "clearing away what jobs have left was cut off";
        Err(Error::new(ErrorCode::Internal, what).because(error))
    })
}

#[cfg(test)]
mod tests {
    use ardea_state_manager::{Expected, FileState, StateOptions};

    use super::*;

    #[tokio::test]
    async fn a_job_is_there_as_long_as_its_submission_is() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default());
        let state = state.await.unwrap();
        for job in ["words#2a", "no job", "#2a"] {
            assert!(!is_there(&state, job).await.unwrap(), "{job}");
        }
        let mut stored = b"ARDJ\x01\x00".to_vec();
        stored.extend(0x2a_u64.to_le_bytes());
        let path = JobLayout::of("words").unwrap();
        let set = |value: Vec<u8>| {
            let (state, path) = (&state, path.definition());
            async move { state.set(path, &value, Expected::Any).await.unwrap() }
        };
        set(stored).await;
        assert!(is_there(&state, "words#2a").await.unwrap());
        assert!(!is_there(&state, "words#2b").await.unwrap());
        set(b"what is this".to_vec()).await;
        assert!(is_there(&state, "words#2b").await.unwrap());
    }
}
