//! Removal of the nodes of deleted jobs.

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::layout::{
    self, JobLayout, number_of, submission_of_epochs, submission_of_lease,
};
use ardea_metastore::{Expected, MetadataStore, ReadResult, StatePath, read_node};

use crate::leader::published_state::{named, submission_of};
use crate::leader::{JobStore, StoredJob, is_unreadable};

/// Removes the remaining nodes of a deleted job: the published nodes, then the lease, regardless of
/// its holder. Nodes of a later job of the same name stay. Unreadable nodes stay too while a later
/// job exists, because that job's leader overwrites them.
///
/// # Errors
///
/// If the metadata store is unavailable; the caller must retry. If the job's own node still exists
/// or is unreadable; no node is changed then.
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
        let is_left = |found: &ReadResult| match submission_of(found) {
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

/// Removes all leases and published nodes that belong to no existing job. They were written late,
/// or their cleanup was interrupted. To be called periodically.
///
/// # Errors
///
/// If the metadata store is unavailable.
pub async fn sweep(state: &dyn MetadataStore) -> Result<()> {
    let jobs = layout::jobs()?;
    for name in state.children(&jobs).await? {
        let Some(name) = jobs.child(&name)?.any_name() else {
            continue;
        };
        match sweep_job(state, &JobLayout::of(&name)?).await {
            // The owner of an unreadable definition is unknown: skip this job only.
            Err(error) if is_unreadable(&error) => {}
            swept => swept?,
        }
    }
    Ok(())
}

async fn sweep_job(state: &dyn MetadataStore, layout: &JobLayout) -> Result<()> {
    // Leases and published nodes are read before the job's node, and were written after it. So a
    // node that does not belong to the job read later belongs to a deleted job.
    let mut of_submissions = Vec::new();
    for child in state.children(layout.base()).await? {
        let submission = submission_of_lease(&child).or_else(|| submission_of_epochs(&child));
        if let Some(submission) = submission {
            of_submissions.push((layout.base().child(&child)?, named(submission)));
        }
    }
    let mut published = Vec::new();
    for path in facts(state, layout).await? {
        match read_node(state, &path).await? {
            ReadResult::Absent => {}
            found => published.push((path, submission_of(&found))),
        }
    }
    let there = present(state, layout).await?.map(named);
    for (path, theirs) in of_submissions {
        if there.as_ref() != Some(&theirs) {
            delete_if(state, &path, |_| true).await?;
        }
    }
    for (path, theirs) in published {
        // An unreadable node may belong to the existing job.
        if there.is_none() || (theirs.is_some() && theirs != there) {
            delete_if(state, &path, |found| submission_of(found) == theirs).await?;
        }
    }
    if there.is_none() {
        delete_empty(state, layout).await;
    }
    Ok(())
}

/// Returns the submission of the existing job; `None` if there is none.
///
/// # Errors
///
/// If the metadata store is unavailable, or the job's node is unreadable, so that the submission is
/// unknown.
pub(crate) async fn present(state: &dyn MetadataStore, layout: &JobLayout) -> Result<Option<u64>> {
    let node = state.get(layout.definition()).await?;
    let submission = node.map(|node| StoredJob::submission(&node.value));
    submission.transpose()
}

/// Returns the paths of a job's published nodes and of its handed-over history.
async fn facts(state: &dyn MetadataStore, layout: &JobLayout) -> Result<Vec<StatePath>> {
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

/// Removes the node at `path` if its value satisfies `condition`.
async fn delete_if(
    state: &dyn MetadataStore,
    path: &StatePath,
    condition: impl Fn(&ReadResult) -> bool,
) -> Result<()> {
    // Retried on conflicts: the holder of a lease may be renewing it.
    loop {
        let found = read_node(state, path).await?;
        if matches!(found, ReadResult::Absent) || !condition(&found) {
            return Ok(());
        }
        ignore_conflict(state.delete(path, found.expected()).await)?;
    }
}

fn ignore_conflict(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(error) if error.code() == ErrorCode::MetastoreConflict => Ok(()),
        other => other,
    }
}

/// Removes the parent nodes of a job. The metadata store refuses that while a parent node has
/// children.
async fn delete_empty(state: &dyn MetadataStore, layout: &JobLayout) {
    for path in [layout.containers(), layout.base()] {
        let _ = state.delete(path, Expected::Any).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ardea_metastore::conformance::{Fault, FaultyStore};
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
        let state: Arc<dyn MetadataStore> = Arc::new(state.unwrap());
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
        let is_left =
            async |path| !matches!(read_node(&*state, path).await, Ok(ReadResult::Absent));
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
        let state: Arc<dyn MetadataStore> = Arc::new(state.unwrap());
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
        assert_eq!(error.code(), ErrorCode::MetastoreCorrupt);
        sweep(&*state).await.unwrap();
        for (path, _) in &written {
            assert!(state.get(path).await.unwrap().is_some(), "{path}");
        }
    }

    #[tokio::test]
    async fn a_lease_that_its_leader_renews_during_the_sweep_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state = Arc::new(FaultyStore::over(Arc::new(state.unwrap())));
        let job = job(10, 1).0.record.job.clone();
        let store = JobStore::new(state.clone(), job).unwrap();
        let write = state.set(store.lease_path(), b"{}", Expected::Absent);
        write.await.unwrap();
        state.set_fault(Fault::WriteBeforeDelete);
        sweep(&*state).await.unwrap();
        assert_eq!(state.fault(), Fault::None);
        let lease = state.get(store.lease_path()).await.unwrap();
        assert!(lease.is_none(), "{lease:?}");
    }
}
