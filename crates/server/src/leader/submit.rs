//! How a job gets into a cluster.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    JobDefinition, JobRecord, Submission, SubmissionAction, SubmissionEvent,
};
use ardea_coordination::packing::{JobDemand, PackingConfig, ResourceManagers};
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{StateManager, is_for_want_of_room};
use tokio::sync::mpsc;

use crate::leader::clock::now_ms;
use crate::leader::store::reply_of;
use crate::leader::{JobStore, StoredJob, Submitted};

/// How often a submission is told that time has passed.
const TICK: Duration = Duration::from_millis(50);

/// How long a submission is tried again on a disk that is full: room may just be made.
const FOR_ROOM: Duration = Duration::from_secs(1);

/// A number for a submission, for [`JobRef::submission`](ardea_coordination::control::JobRef): two are never the same in practice.
pub fn new_submission() -> u64 {
    // Seeded by the operating system for each process, and another one each time.
    let pid = NonZeroU32::new(std::process::id());
    RandomState::new().hash_one((pid, now_ms()))
}

/// Puts a job into the cluster whose state this is. Its package has to be in the package store before.
///
/// The job is there, as a whole, from the moment of one write on, and not before: whoever dies while this runs leaves a job or none. It
/// is packed here first, so that what can't be packed or stored is refused before anything is there; the plan is made
/// by the job's master.
///
/// # Errors
///
/// * [`ErrorCode::ResourcesImpossible`], [`ErrorCode::InvalidJob`]: it can't be packed, with the numbers;
/// * [`ErrorCode::InvalidConfig`]: there is no such packing policy, or no node can have the job's name;
/// * [`ErrorCode::LimitReached`]: it is too large to be stored, with both sizes;
/// * [`ErrorCode::NameTaken`]: another job has its name;
/// * [`ErrorCode::StateCorrupt`]: what is stored under its name is damaged;
/// * [`ErrorCode::StateUnavailable`]: the state manager's disk is full, for a second;
/// * [`ErrorCode::StateUnknown`]: the state manager did not answer within `patience`; whether the job is there has to be looked up. To
///   submit the same again, with the same number, is safe.
pub async fn submit(
    state: Arc<dyn StateManager>,
    definition: JobDefinition,
    demand: JobDemand,
    packing: PackingConfig,
    managers: &ResourceManagers,
    patience: Duration,
) -> Result<()> {
    let job = definition.job.clone();
    let store = JobStore::new(state, job.clone())?;
    let manager = managers.get(&definition.packing)?;
    let record = JobRecord::submitted(job.clone(), demand, packing);
    let plan = manager.pack(&record.demand, &record.packing)?;
    let submission = Submission::new(record.clone(), &*manager)?;
    let submitted = Arc::new(Submitted {
        definition,
        at_ms: now_ms(),
    });
    let stored = StoredJob {
        submitted: Arc::clone(&submitted),
        record: Arc::new(record),
    };
    stored.check_size(plan)?;
    let mut trouble = Trouble::default();
    let driven = drive(submission, store, submitted, &mut trouble);
    match tokio::time::timeout(patience, driven).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let what = format!(
                "whether job {job} was submitted is not known: the state manager did not answer within {} s",
                patience.as_secs_f64()
            );
            let error = Error::new(ErrorCode::StateUnknown, what)
                .hint("look at the list of jobs when the state manager is back, and submit it again if it is not there");
            Err(match trouble.last {
                Some(why) => error.because(why.without_hint()),
                None => error,
            })
        }
    }
}

/// Why the state manager has not taken a submission so far.
#[derive(Default)]
struct Trouble {
    last: Option<Error>,
    /// Since when it has wanted room.
    full: Option<Instant>,
}

impl Trouble {
    /// It has refused, for now; whether that is hopeless.
    fn note(&mut self, error: Error) -> bool {
        let is_full = is_for_want_of_room(&error);
        self.last = Some(error);
        match is_full {
            true => self.full.get_or_insert_with(Instant::now).elapsed() >= FOR_ROOM,
            false => {
                self.full = None;
                false
            }
        }
    }
}

async fn drive(
    mut submission: Submission,
    store: JobStore,
    submitted: Arc<Submitted>,
    trouble: &mut Trouble,
) -> Result<()> {
    let begin = Instant::now();
    let (replies, mut replied) = mpsc::unbounded_channel();
    let mut ticks = tokio::time::interval(TICK);
    loop {
        let event = tokio::select! {
            Some((id, asked)) = replied.recv() => {
                let reply = match asked {
                    Ok(reply) => reply,
                    Err(error) => {
                        let reply = reply_of(&error);
                        // Whatever it was, nobody has its name before it is removed.
                        if error.code() == ErrorCode::StateCorrupt {
                            let what = format!("job {} was not submitted", store.job());
                            let hint = error.what_next().unwrap_or_default().to_string();
                            let refused = Error::new(error.code(), what);
                            return Err(refused.because(error.without_hint()).hint(hint));
                        }
                        if trouble.note(error.clone()) {
                            let what = format!("job {} was not submitted", store.job());
                            let error = Error::new(error.code(), what).because(error.without_hint());
                            return Err(error.hint("free some room on that disk, and submit it again"));
                        }
                        reply
                    }
                };
                SubmissionEvent::Reply(id, reply)
            }
            _ = ticks.tick() => SubmissionEvent::Tick,
        };
        for action in submission.on(begin.elapsed(), event) {
            match action {
                SubmissionAction::Store(id, request) => {
                    let (store, replies) = (store.clone(), replies.clone());
                    let submitted = Arc::clone(&submitted);
                    tokio::spawn(async move {
                        let asked = store.ask_record(submitted, request, None).await;
                        // Nobody listens when the submission was given up.
                        let _ = replies.send((id, asked));
                    });
                }
                SubmissionAction::Accepted => return Ok(()),
                SubmissionAction::Refused(refused) => return Err(refused.into()),
            }
        }
    }
}
