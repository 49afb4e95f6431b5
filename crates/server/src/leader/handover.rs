//! What a master leaves to the next of what it has seen: for people, who want to know what happened to a job, whoever leads it.
//!
//! It is one node of the job, which the master that leads writes behind what it does, and the next one reads when it begins. It is written
//! when something has changed, but not more often than every [`EVERY`], so what happened in the last seconds before a master
//! died may be missing. It names the mastership that wrote it: a master that has been followed and does not know it yet stops
//! writing when it sees that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{JobPhase, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{Found, look};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::leader::facts::named;
use crate::leader::view::Counted;
use crate::leader::{FailureView, JobStore, NoteView, ProblemView};

/// How often it is written at most.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// How long to wait after it could not be read or written.
const PAUSE: Duration = Duration::from_secs(1);

/// How much of it is kept, in bytes of JSON.
const MOST_BYTES: usize = 64 << 10;

/// Of how many containers lives are handed over.
const MOST_LIVES: usize = 500;

/// Of how many vertices what they counted is handed over.
const MOST_VERTICES: usize = 500;

/// How many notes are handed over.
const MOST_NOTES: usize = 200;

/// What a master leaves to the next.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Handover {
    /// Of which submission, in hexadecimal digits.
    pub(crate) submission: String,
    /// The mastership that wrote it.
    pub(crate) epoch: MasterEpoch,
    /// Who held it.
    pub(crate) holder: String,
    /// What the job did last of what lasts, and since when.
    pub(crate) lasting: Option<(JobPhase, u64)>,
    /// The lives of containers, by number.
    pub(crate) lives: Vec<Life>,
    /// What instances had counted, by vertex.
    pub(crate) counted: BTreeMap<String, Counted>,
    /// What went wrong in instances, the latest first.
    pub(crate) problems: Vec<ProblemView>,
    /// How processes ended that should not have, the latest first.
    pub(crate) failures: Vec<FailureView>,
    /// What has happened, the latest last.
    pub(crate) notes: Vec<NoteView>,
}

/// The lives of a container's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Life {
    pub(crate) container: ContainerId,
    /// The newest that was heard of.
    pub(crate) newest: Option<u64>,
    /// The latest whose end was told.
    pub(crate) ended: Option<u64>,
    /// The newest that the job has done without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) given_back: Option<u64>,
    /// How often it was started again.
    pub(crate) restarts: u32,
}

impl Handover {
    /// As JSON, with as much as there is room for: of the latest problems and notes, and of what was started again most often.
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
                let what = "what was seen of a job can't be encoded";
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

    /// What was found, if it is of this job. [`ErrorCode::StateCorrupt`] if it can't be read.
    fn of(store: &JobStore, found: &Found) -> Result<Option<Self>> {
        let node = match found {
            Found::Absent => return Ok(None),
            Found::Whole(node) => node,
            Found::Damaged(why) => return Err(why.clone()),
        };
        let found: Handover = serde_json::from_slice(&node.value).map_err(|error| {
            let what = format!("{} is damaged", store.layout().chronicle());
            Error::new(ErrorCode::StateCorrupt, what).because(error)
        })?;
        Ok((found.submission == named(store.job().submission)).then_some(found))
    }
}

/// What masters before have left; nothing if there was none, an error if it can't be read. Waits for the state manager as long as it
/// takes.
pub(crate) async fn left_behind(store: &JobStore) -> Result<Option<Handover>> {
    loop {
        match look(&**store.state(), store.layout().chronicle()).await {
            Ok(found) => return Handover::of(store, &found),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Writes what one master hands over. When it is dropped, nothing more is written.
#[derive(Debug)]
pub(crate) struct Scribe {
    wanted: watch::Sender<Arc<Handover>>,
    task: AbortHandle,
}

impl Scribe {
    /// Nothing is written yet. `mended` is told when what was there was damaged, and has been written anew.
    pub(crate) fn start(store: JobStore, mended: impl Fn(Error) + Send + 'static) -> Self {
        let (wanted, written) = watch::channel(Arc::default());
        let task = tokio::spawn(write(store, written, mended)).abort_handle();
        Scribe { wanted, task }
    }

    /// This is to be handed over from now on.
    pub(crate) fn hand_over(&self, handover: Handover) {
        self.wanted.send_replace(Arc::new(handover));
    }
}

impl Drop for Scribe {
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
                // Another master leads, or the state manager never takes it: people do without.
                Ok(Written::Later) => return,
                Err(error) if error.code() == ErrorCode::StateRefused => break,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// What has become of a write.
enum Written {
    /// It is there.
    Here,
    /// It is there, and what was there before could not be read.
    Over(Error),
    /// It is not written where a later master has written already.
    Later,
}

async fn write_once(store: &JobStore, handover: &Handover) -> Result<Written> {
    let (state, path) = (store.state(), store.layout().chronicle());
    let found = look(&**state, path).await?;
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
    use crate::leader::Happening;

    #[test]
    fn what_is_handed_over_is_small_and_the_latest_of_it_stays() {
        let notes = (0..1_000).map(|number| NoteView {
            at_ms: number,
            what: Happening::Notice {
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
        let lives = (0..20_000).map(|number| Life {
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
