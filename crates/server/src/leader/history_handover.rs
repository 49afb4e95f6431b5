//! The event history that a job's leader hands over to the next leader, for display only.
//!
//! The history is one node of the job in the metadata store. The leader writes the node
//! asynchronously after changes, at most once per [`EVERY`]. The next leader reads it at its start.
//! Events of the last seconds before a crash may be missing. The node contains the epoch of its
//! writer, and a former leader stops writing when it reads a later epoch.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::MasterEpoch;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{ReadResult, read_node};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::leader::JobStore;
use crate::leader::encoded_value::encode_bounded;
use crate::leader::event_history::{FailureCounts, JobEvents};
use crate::leader::published_state::named;

/// Minimum interval between two writes of the history.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Retry delay after a failed read or write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of containers whose incarnations are handed over.
const MOST_LIVES: usize = 500;

/// Maximum number of vertices whose counters are handed over.
const MOST_VERTICES: usize = 500;

/// Maximum number of notes that are handed over.
const MOST_NOTES: usize = 200;

/// The event history handed over to the next leader.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Handover {
    /// The submission of the job, in hexadecimal digits.
    pub(crate) submission: String,
    /// The epoch of the leader that wrote the history.
    pub(crate) epoch: MasterEpoch,
    /// The holder name of the leader that wrote the history.
    pub(crate) holder: String,
    /// The events of the job.
    pub(crate) events: JobEvents,
}

impl Handover {
    /// Encodes the history as JSON, truncated to the limits of this module. The latest problems and
    /// notes and the containers with the most restarts are kept.
    fn encode(&self) -> Result<Vec<u8>> {
        let mut kept = self.clone();
        let events = &mut kept.events;
        let mut lives: Vec<_> = std::mem::take(&mut events.lives).into_iter().collect();
        lives.sort_by_key(|(_, life)| std::cmp::Reverse(life.restarts()));
        lives.truncate(MOST_LIVES);
        events.lives = lives.into_iter().collect();
        let restless = |it: &FailureCounts| it.restarts.saturating_add(it.exceptions);
        events.counted.retain(|_, counted| restless(counted) > 0);
        while events.counted.len() > MOST_VERTICES {
            events.counted.pop_last();
        }
        let surplus = events.notes.len().saturating_sub(MOST_NOTES);
        events.notes.drain(..surplus);
        encode_bounded("the event history of a job", &mut kept, |kept| {
            let JobEvents {
                notes, problems, ..
            } = &mut kept.events;
            notes.drain(..notes.len().div_ceil(2));
            problems.truncate(problems.len() / 2);
            notes.is_empty() && problems.is_empty()
        })
    }

    /// Decodes the node; `None` if it belongs to another submission. Fails with
    /// [`ErrorCode::MetastoreCorrupt`] if the node is unreadable.
    fn of(store: &JobStore, found: &ReadResult) -> Result<Option<Self>> {
        let node = match found {
            ReadResult::Absent => return Ok(None),
            ReadResult::Intact(node) => node,
            ReadResult::Damaged(why) => return Err(why.clone()),
        };
        let found: Handover = serde_json::from_slice(&node.value).map_err(|error| {
            let what = format!("{} is damaged", store.layout().chronicle());
            Error::new(ErrorCode::MetastoreCorrupt, what).because(error)
        })?;
        Ok((found.submission == named(store.job().submission)).then_some(found))
    }
}

/// Reads the history of earlier leaders, if any. Fails only if the node is unreadable; retries
/// while the metadata store is unavailable.
pub(crate) async fn read_history(store: &JobStore) -> Result<Option<Handover>> {
    loop {
        match read_node(&**store.state(), store.layout().chronicle()).await {
            Ok(found) => return Handover::of(store, &found),
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

/// A background task that writes the history of one leader. Dropping the writer stops the task.
#[derive(Debug)]
pub(crate) struct HandoverWriter {
    wanted: watch::Sender<Arc<Handover>>,
    task: AbortHandle,
}

impl HandoverWriter {
    /// Starts the task. `mended` is called after a damaged node has been overwritten.
    pub(crate) fn start(store: JobStore, mended: impl Fn(Error) + Send + 'static) -> Self {
        let (wanted, written) = watch::channel(Arc::default());
        let task = tokio::spawn(write(store, written, mended)).abort_handle();
        HandoverWriter { wanted, task }
    }

    /// Replaces the history to be written.
    pub(crate) fn hand_over(&self, handover: Handover) {
        self.wanted.send_replace(Arc::new(handover));
    }
}

impl Drop for HandoverWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(
    store: JobStore,
    mut wanted: watch::Receiver<Arc<Handover>>,
    mended: impl Fn(Error),
) {
    while wanted.changed().await.is_ok() {
        loop {
            let handover = Arc::clone(&wanted.borrow_and_update());
            match write_once(&store, &handover).await {
                Ok(Written::Here) => break,
                Ok(Written::Over(damaged)) => {
                    mended(damaged);
                    break;
                }
                // Another leader exists, or the metadata store refuses the node: no more writes.
                Ok(Written::Later) => return,
                Err(error) if error.code() == ErrorCode::MetastoreRefused => break,
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }
}

/// The outcome of a write.
enum Written {
    /// The node was written.
    Here,
    /// A damaged node was overwritten; the error describes the damage.
    Over(Error),
    /// The node was not written, because a later leader has written it.
    Later,
}

async fn write_once(store: &JobStore, handover: &Handover) -> Result<Written> {
    let (state, path) = (store.state(), store.layout().chronicle());
    let found = read_node(&**state, path).await?;
    let before = Handover::of(store, &found);
    if let Ok(Some(before)) = &before
        && before.epoch > handover.epoch
    {
        return Ok(Written::Later);
    }
    let value = handover.encode()?;
    state.set(path, &value, found.expected()).await?;
    Ok(before.err().map_or(Written::Here, Written::Over))
}

#[cfg(test)]
mod tests {
    use ardea_coordination::control::{MasterStatus, WorkerId};
    use ardea_coordination::packing::{ContainerId, InstanceId};

    use super::*;
    use crate::leader::encoded_value::MOST_JSON_BYTES;
    use crate::leader::event_history::EventHistory;

    #[test]
    fn what_is_handed_over_is_small_and_the_latest_of_it_stays() {
        let mut history = EventHistory::new();
        for number in 0..1_000 {
            let instance = InstanceId::new("v", number);
            history.note(&MasterStatus::Problem(instance, "y".repeat(2_000)));
            history.notice(format!("note {number} {}", "x".repeat(2_000)));
        }
        for container in (0..20_000).map(ContainerId) {
            for incarnation in 0..=u64::from(container == ContainerId(19_999)) {
                history.note(&MasterStatus::Joined(WorkerId {
                    container,
                    incarnation,
                }));
            }
        }
        history.notice("the last one".into());
        let handover = Handover {
            events: history.events().clone(),
            ..Handover::default()
        };
        let value = handover.encode().unwrap();
        assert!(value.len() <= MOST_JSON_BYTES, "{}", value.len());
        let kept: Handover = serde_json::from_slice(&value).unwrap();
        let last = kept.events.notes.back().map(|note| note.view.text.as_str());
        assert_eq!(last, Some("the last one"));
        assert_eq!(kept.events.problems[0].instance, "v#999");
        let restarts = kept.events.lives[&ContainerId(19_999)].restarts();
        assert_eq!(restarts, 1);
    }
}
