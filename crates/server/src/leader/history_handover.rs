//! The event history that a job's leader hands over to the next leader, for display only.
//!
//! The history is one node of the job in the metadata store. The leader writes the node
//! asynchronously after changes, at most once per [`EVERY`]. The next leader reads it at its start.
//! Events of the last seconds before a crash may be missing. The node contains the epoch of its
//! writer, and a former leader stops writing when it reads a later epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{JobPhase, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{ReadResult, read_node};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::leader::published_state::named;
use crate::leader::view::Counted;
use crate::leader::{FailureView, JobStore, NoteView, ProblemView};

/// Minimum interval between two writes of the history.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Retry delay after a failed read or write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum size of the history, in bytes of JSON.
const MOST_BYTES: usize = 64 << 10;

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
    /// The last steady phase of the job and its start time.
    pub(crate) lasting: Option<(JobPhase, u64)>,
    /// The incarnations of the containers' processes.
    pub(crate) lives: Vec<WorkerHandover>,
    /// The failure counters of instances, by vertex.
    pub(crate) counted: BTreeMap<String, Counted>,
    /// Problems of instances, latest first.
    pub(crate) problems: Vec<ProblemView>,
    /// Unexpected exits of container processes, latest first.
    pub(crate) failures: Vec<FailureView>,
    /// Notes on the job's events, oldest first.
    pub(crate) notes: Vec<NoteView>,
}

/// The handed-over incarnations of a container's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerHandover {
    pub(crate) container: ContainerId,
    /// The newest known incarnation.
    pub(crate) newest: Option<u64>,
    /// The newest incarnation with a reported exit.
    pub(crate) ended: Option<u64>,
    /// The newest incarnation that was released because a later plan lacks the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) given_back: Option<u64>,
    /// The number of restarts of the container.
    pub(crate) restarts: u32,
}

impl Handover {
    /// Encodes the history as JSON, truncated to the limits of this module. The latest problems and
    /// notes and the containers with the most restarts are kept.
    fn encode(&self) -> Result<Vec<u8>> {
        let mut kept = self.clone();
        kept.lives
            .sort_by_key(|life| std::cmp::Reverse(life.restarts));
        kept.lives.truncate(MOST_LIVES);
        let restless = |counted: &Counted| counted.restarts.saturating_add(counted.exceptions);
        kept.counted.retain(|_, counted| restless(counted) > 0);
        while kept.counted.len() > MOST_VERTICES {
            kept.counted.pop_last();
        }
        let surplus = kept.notes.len().saturating_sub(MOST_NOTES);
        kept.notes.drain(..surplus);
        loop {
            let value = serde_json::to_vec(&kept).map_err(|error| {
                let what = "the event history of a job can't be encoded";
                Error::new(ErrorCode::Internal, what).because(error)
            })?;
            let is_short =
                kept.notes.is_empty() && kept.problems.is_empty() && kept.failures.is_empty();
            if value.len() <= MOST_BYTES || is_short {
                return Ok(value);
            }
            kept.notes.drain(..kept.notes.len().div_ceil(2));
            kept.problems.truncate(kept.problems.len() / 2);
            kept.failures.truncate(kept.failures.len() / 2);
        }
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
    use ardea_coordination::packing::InstanceId;

    use super::*;
    use crate::leader::JobTimelineEvent;

    #[test]
    fn what_is_handed_over_is_small_and_the_latest_of_it_stays() {
        let notes = (0..1_000).map(|number| NoteView {
            at_ms: number,
            what: JobTimelineEvent::Notice {
                container: None,
                text: "x".repeat(2_000),
            },
        });
        let problems = (0..1_000).map(|number| ProblemView {
            instance: InstanceId::new("v", number),
            count: 1,
            at_ms: 1_000 - u64::from(number),
            message: "y".repeat(2_000),
        });
        let lives = (0..20_000).map(|number| WorkerHandover {
            container: ContainerId(number),
            newest: Some(u64::MAX),
            ended: Some(u64::MAX),
            given_back: None,
            restarts: number,
        });
        let handover = Handover {
            notes: notes.collect(),
            problems: problems.collect(),
            lives: lives.collect(),
            ..Handover::default()
        };
        let value = handover.encode().unwrap();
        assert!(value.len() <= MOST_BYTES, "{}", value.len());
        let kept: Handover = serde_json::from_slice(&value).unwrap();
        assert_eq!(kept.notes.last().map(|note| note.at_ms), Some(999));
        assert_eq!(kept.problems[0].instance, InstanceId::new("v", 0));
        assert_eq!(kept.lives[0].restarts, 19_999);
    }
}
