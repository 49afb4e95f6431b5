//! Removes what is left of jobs that are gone.

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::layout::{
    self, JobLayout, number_of, submission_led_by, submission_with_epochs,
};
use ardea_metastore::{Expected, Found, StateManager, StatePath, look};

use crate::leader::facts::{named, submission_of};
use crate::leader::{JobStore, StoredJob, is_unreadable};

/// Removes what is left of a job whose node has been removed: what it told readers, and at last its lease, whoever holds that. What
/// belongs to a later job of its name stays; so does what nobody can read, if there is one: its master writes that anew.
///
/// # Errors
///
/// When the state manager does not answer; to be called again then. Nothing is done while the job's node is there, or one that may be its.
pub(crate) async fn remove(store: &JobStore) -> Result<()> {
    let (state, layout) = (&**store.state(), store.layout());
    let submission = store.job().submission;
    let present = present(state, layout).await?;
    if present == Some(submission) {
        let what = format!("job {} is still there", store.job());
        return Err(Error::new(ErrorCode::WrongState, what));
    }
    let ours = named(submission);
    for path in facts(state, layout).await? {
        let is_left = |found: &Found| match submission_of(found) {
            Some(theirs) => theirs == ours,
            None => present.is_none(),
        };
        delete_if(state, &path, is_left).await?;
    }
    delete_if(state, store.epochs_path(), |_| true).await?;
    delete_if(state, store.lease_path(), |_| true).await?;
    delete_empty(state, layout).await;
    Ok(())
}

/// Removes, of all jobs, what belongs to none that is there: leases and facts that were written late, or that nobody was left to remove.
/// To be called from time to time.
///
/// # Errors
///
/// When the state manager does not answer.
pub async fn sweep(state: &dyn StateManager) -> Result<()> {
    let jobs = layout::jobs()?;
    for name in state.children(&jobs).await? {
        let Some(name) = jobs.child(&name)?.any_name() else {
            continue;
        };
        match sweep_job(state, &JobLayout::of(&name)?).await {
            // Of what can't be read it is not known what belongs to it: that job is left as it is, and others are not.
            Err(error) if is_unreadable(&error) => {}
            swept => swept?,
        }
    }
    Ok(())
}

async fn sweep_job(state: &dyn StateManager, layout: &JobLayout) -> Result<()> {
    // What is there first, the job after that: a lease or a fact that was there before the job was looked at, and does not belong to it,
    // belongs to one that is gone, since these are written after the job's node.
    let mut suspects = Vec::new();
    for child in state.children(layout.base()).await? {
        let submission = submission_led_by(&child).or_else(|| submission_with_epochs(&child));
        if let Some(submission) = submission {
            let path = layout.base().child(&child)?;
            let found = look(state, &path).await?;
            suspects.push((path, found, Some(named(submission))));
        }
    }
    for path in facts(state, layout).await? {
        let found = look(state, &path).await?;
        let theirs = submission_of(&found);
        suspects.push((path, found, theirs));
    }
    suspects.retain(|(_, found, _)| !matches!(found, Found::Absent));
    let there = present(state, layout).await?.map(named);
    for (path, found, theirs) in suspects {
        // What nobody can read may be of the job that is there.
        if there.is_none() || (theirs.is_some() && theirs != there) {
            ignore_conflict(state.delete(&path, found.expected()).await)?;
        }
    }
    if there.is_none() {
        delete_empty(state, layout).await;
    }
    Ok(())
}

/// The submission of the job that is there; `None` if there is none.
///
/// # Errors
///
/// When the state manager does not answer, or what is there can't be read: nobody knows then which job it is.
pub(crate) async fn present(state: &dyn StateManager, layout: &JobLayout) -> Result<Option<u64>> {
    let node = state.get(layout.definition()).await?;
    let submission = node.map(|node| StoredJob::submission(&node.value));
    submission.transpose()
}

/// The nodes that facts are in, and what masters hand over.
async fn facts(state: &dyn StateManager, layout: &JobLayout) -> Result<Vec<StatePath>> {
    let single = [
        layout.packing_plan(),
        layout.scheduler(),
        layout.chronicle(),
    ];
    let mut paths: Vec<_> = single.into_iter().cloned().collect();
    for child in state.children(layout.containers()).await? {
        let id = number_of(&child).and_then(|number| u32::try_from(number).ok());
        if let Some(ContainerId(id)) = id.map(ContainerId) {
            paths.push(layout.container(id)?);
        }
    }
    Ok(paths)
}

/// Removes a node if what is there is such.
async fn delete_if(
    state: &dyn StateManager,
    path: &StatePath,
    condition: impl Fn(&Found) -> bool,
) -> Result<()> {
    // Looked at again and again: the holder of a lease may be renewing it.
    loop {
        let found = look(state, path).await?;
        if matches!(found, Found::Absent) || !condition(&found) {
            return Ok(());
        }
        ignore_conflict(state.delete(path, found.expected()).await)?;
    }
}

fn ignore_conflict(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(error) if error.code() == ErrorCode::StateConflict => Ok(()),
        other => other,
    }
}

/// Removes the nodes above, unless something is below them: then that is refused.
async fn delete_empty(state: &dyn StateManager, layout: &JobLayout) {
    for path in [layout.containers(), layout.base()] {
        let _ = state.delete(path, Expected::Any).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ardea_metastore::{FileState, StateOptions};

    use super::*;
    use crate::leader::stored_job::tests::job;

    fn damage(root: &Path, path: &StatePath) {
        let mut file = root.join("tree");
        file.extend(path.names());
        std::fs::write(file.join(".node"), "junk").unwrap();
    }

    #[tokio::test]
    async fn what_nobody_can_read_stays_while_there_is_a_later_job() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn StateManager> = Arc::new(state.unwrap());
        let (later, _) = job(10, 1);
        let mut earlier = later.record.job.clone();
        earlier.submission -= 1;
        let store = JobStore::new(Arc::clone(&state), earlier.clone()).unwrap();
        let layout = store.layout();
        let [ours, theirs] = [earlier.submission, later.record.job.submission].map(named);
        let fact = |of: &str| format!(r#"{{"submission":"{of}"}}"#).into_bytes();
        let containers = [1, 2, 3].map(|id| layout.container(id).unwrap());
        let written = [
            (layout.definition(), later.encode().unwrap()),
            (&containers[0], fact(&ours)),
            (&containers[1], fact(&theirs)),
            (&containers[2], fact(&ours)),
            (layout.packing_plan(), b"no fact".to_vec()),
            (store.lease_path(), b"{}".to_vec()),
            (store.epochs_path(), b"junk".to_vec()),
        ];
        for (path, value) in &written {
            state.set(path, value, Expected::Absent).await.unwrap();
        }
        damage(folder.path(), &containers[2]);
        damage(folder.path(), store.lease_path());

        remove(&store).await.unwrap();
        let is_left = async |path| !matches!(look(&*state, path).await, Ok(Found::Absent));
        assert!(
            !is_left(&containers[0]).await,
            "it is of the job that is gone"
        );
        assert!(
            !is_left(store.lease_path()).await,
            "so is its lease, by its path"
        );
        assert!(
            !is_left(store.epochs_path()).await,
            "and what its epochs were"
        );
        for path in [&containers[1], &containers[2], layout.packing_plan()] {
            assert!(
                is_left(path).await,
                "{path} may be of the one that is there"
            );
        }
        state
            .delete(layout.definition(), Expected::Any)
            .await
            .unwrap();
        sweep(&*state).await.unwrap();
        let jobs = state.children(&layout::jobs().unwrap()).await.unwrap();
        assert!(jobs.is_empty(), "{jobs:?}");
    }

    #[tokio::test]
    async fn nothing_is_removed_while_a_job_is_there_that_nobody_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn StateManager> = Arc::new(state.unwrap());
        let job = job(10, 1).0.record.job.clone();
        let store = JobStore::new(Arc::clone(&state), job.clone()).unwrap();
        let layout = store.layout();
        let fact = format!(r#"{{"submission":"{}"}}"#, named(job.submission));
        let written = [
            (layout.definition(), b"junk".to_vec()),
            (layout.packing_plan(), fact.into_bytes()),
            (store.lease_path(), b"{}".to_vec()),
        ];
        for (path, value) in &written {
            state.set(path, value, Expected::Absent).await.unwrap();
        }
        let error = remove(&store).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::StateCorrupt);
        sweep(&*state).await.unwrap();
        for (path, _) in &written {
            assert!(state.get(path).await.unwrap().is_some(), "{path}");
        }
    }
}
