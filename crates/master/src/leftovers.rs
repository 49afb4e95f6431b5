//! Removes what is left of jobs that are gone.

use ardea_core::{Error, ErrorCode, Result};
use ardea_packing::ContainerId;
use ardea_state_manager::layout::{self, JobLayout, number_of, submission_led_by};
use ardea_state_manager::{StateManager, StatePath};

use crate::facts::{belongs_to, is_foreign};
use crate::{JobStore, StoredJob};

/// Removes what is left of a job whose node has been removed: what it told readers, and at last its lease, whoever holds that. What
/// belongs to a later job of its name stays.
///
/// # Errors
///
/// When the state manager does not answer; to be called again then. Nothing is done while the job's node is there.
pub(crate) async fn remove(store: &JobStore) -> Result<()> {
    if store.exists().await? {
        let what = format!("job {} is still there", store.job());
        return Err(Error::new(ErrorCode::WrongState, what));
    }
    let (state, layout) = (&**store.state(), store.layout());
    let submission = store.job().submission;
    for path in facts(state, layout).await? {
        delete_if(state, &path, |value| belongs_to(value, submission)).await?;
    }
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
            // Of what can't be read it is not known what it belongs to: that job is left as it is, and others are not.
            Err(error) if error.code() == ErrorCode::StateCorrupt => {}
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
        if let Some(submission) = submission_led_by(&child) {
            let path = layout.base().child(&child)?;
            let node = state.get(&path).await?;
            suspects.extend(node.map(|node| (path, node.version, Some(submission))));
        }
    }
    for path in facts(state, layout).await? {
        let node = state.get(&path).await?;
        suspects.extend(node.map(|node| (path, node.version, None)));
    }
    let there = match state.get(layout.definition()).await? {
        // Of what can't be read it is not known what belongs to it.
        Some(node) => match StoredJob::submission(&node.value) {
            Ok(submission) => Some(submission),
            Err(_) => return Ok(()),
        },
        None => None,
    };
    for (path, version, led) in suspects {
        let foreign = match led {
            Some(submission) => Some(submission) != there,
            None => match state.get(&path).await? {
                Some(node) => node.version == version && is_foreign(&node.value, there),
                None => false,
            },
        };
        if foreign {
            ignore_conflict(state.delete(&path, Some(version)).await)?;
        }
    }
    if there.is_none() {
        delete_empty(state, layout).await;
    }
    Ok(())
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

/// Removes a node if its value is such, or if it is damaged, so that nobody can read it.
async fn delete_if(
    state: &dyn StateManager,
    path: &StatePath,
    condition: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    // Read again and again: the holder of a lease may be renewing it.
    loop {
        let version = match state.get(path).await {
            Err(error) if error.code() == ErrorCode::StateCorrupt => None,
            node => match node?.filter(|node| condition(&node.value)) {
                Some(node) => Some(node.version),
                None => return Ok(()),
            },
        };
        ignore_conflict(state.delete(path, version).await)?;
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
        let _ = state.delete(path, None).await;
    }
}
