//! Submission of jobs to a cluster.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    JobDefinition, JobRecord, Submission, SubmissionAction, SubmissionEvent,
};
use ardea_coordination::packing::{JobDemand, PackingConfig, PackingPolicies};
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{MetadataStore, is_disk_full};
use tokio::sync::mpsc;

use crate::leader::clock::now_ms;
use crate::leader::store::reply_of;
use crate::leader::{JobStore, StoredJob, Submitted};

/// Interval between two ticks of the submission's state machine.
const TICK: Duration = Duration::from_millis(50);

/// Maximum time for retries while the metadata store's disk is full, since space may be freed soon.
const FOR_ROOM: Duration = Duration::from_secs(1);

/// Returns a practically unique id for [`JobRef::submission`](ardea_coordination::control::JobRef).
pub fn new_submission() -> u64 {
    // The keys are seeded by the operating system for each process and differ with every call.
    let pid = NonZeroU32::new(std::process::id());
    RandomState::new().hash_one((pid, now_ms()))
}

/// Submits a job to the cluster of this metadata store. The job's package must be in the package
/// store.
///
/// One write creates the whole job, so a crash of the caller leaves either the job or nothing. A
/// trial packing rejects a job that cannot be packed before anything is stored. The job's leader
/// makes the effective plan.
///
/// # Errors
///
/// * [`ErrorCode::ResourcesImpossible`], [`ErrorCode::InvalidJob`]: the job can't be packed; the
///   error contains the requested and the available amounts.
/// * [`ErrorCode::InvalidConfig`]: the packing policy is unknown, or the job's name is no valid
///   node name.
/// * [`ErrorCode::LimitReached`]: the job is too large to be stored; the error contains the job's
///   size and the limit.
/// * [`ErrorCode::NameTaken`]: another job has the same name.
/// * [`ErrorCode::MetastoreCorrupt`]: the node under the job's name is damaged.
/// * [`ErrorCode::StateUnavailable`]: the metadata store's disk has been full for a second.
/// * [`ErrorCode::OutcomeUnknown`]: the metadata store did not reply within `patience`. The caller
///   may safely submit the same job again with the same submission number.
pub async fn submit(
    state: Arc<dyn MetadataStore>,
    definition: JobDefinition,
    demand: JobDemand,
    packing: PackingConfig,
    managers: &PackingPolicies,
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
    let mut trouble = SubmitError::default();
    let driven = drive(submission, store, submitted, &mut trouble);
    match tokio::time::timeout(patience, driven).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let what = format!(
                "it is not known whether job {job} was submitted: the metadata store did not reply within {} s",
                patience.as_secs_f64()
            );
            let error = Error::new(ErrorCode::OutcomeUnknown, what)
                .hint("when the metadata store is available again, check the list of jobs, and submit the job again if it is missing");
            Err(match trouble.last {
                Some(why) => error.because(why.without_hint()),
                None => error,
            })
        }
    }
}

/// The last error of the metadata store during the submission.
#[derive(Default)]
struct SubmitError {
    last: Option<Error>,
    /// The start of the current period with a full disk.
    full: Option<Instant>,
}

impl SubmitError {
    /// Records an error. Returns true if the retries should end.
    fn note(&mut self, error: Error) -> bool {
        let is_full = is_disk_full(&error);
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
    trouble: &mut SubmitError,
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
                        // The name stays taken until the damaged node is removed.
                        if error.code() == ErrorCode::MetastoreCorrupt {
                            let what = format!("job {} was not submitted", store.job());
                            let hint = error.hint_text().unwrap_or_default().to_string();
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
                        // Sending fails only if the submission has timed out.
                        let _ = replies.send((id, asked));
                    });
                }
                SubmissionAction::Accepted => return Ok(()),
                SubmissionAction::Refused(refused) => return Err(refused.into()),
            }
        }
    }
}
