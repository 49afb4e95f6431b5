//! Nodes that a leader publishes for readers of the metadata store: the plan, the scheduler, and
//! the workers' addresses.
//!
//! The content is derived from the job record and from worker messages, and no state machine reads
//! it back. A separate task writes changed nodes asynchronously. Each node contains its submission.
//! A write requires that the node still has the version that was read before. So a late write of a
//! former leader fails, or the new leader detects and corrects it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{JobRef, PlanVersion, WorkerId};
use ardea_coordination::packing::{ContainerId, PackingPlan};
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{Expected, ReadResult, StatePath, Version, read_node};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::leader::JobStore;
use crate::leader::driver::Driver;

/// Retry delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The value of a job's node `packing-plan`, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanState {
    /// The submission of the job, in hexadecimal digits.
    pub submission: String,
    /// The version of the plan.
    pub version: PlanVersion,
    /// The packing plan of this version.
    pub plan: Arc<PackingPlan>,
}

/// The value of a job's node `scheduler`, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchedulerState {
    /// The submission of the job, in hexadecimal digits.
    pub submission: String,
    /// The name of the scheduler.
    pub name: String,
    /// The address of the job's leader, which makes the calls to the scheduler.
    pub address: String,
}

/// The value of a container's node, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerState {
    /// The submission of the job, in hexadecimal digits.
    pub submission: String,
    /// The container and the incarnation of the worker.
    pub worker: WorkerId,
    /// The worker's address for other workers: `host:port`.
    pub endpoint: String,
}

/// The field that all published nodes have in common.
#[derive(Deserialize)]
struct AnyState {
    submission: String,
}

/// Returns the submission of a published node, in hexadecimal digits; `None` if it is unreadable.
pub(crate) fn submission_of(found: &ReadResult) -> Option<String> {
    let ReadResult::Intact(node) = found else {
        return None;
    };
    let fact = serde_json::from_slice::<AnyState>(&node.value);
    fact.ok().map(|fact| fact.submission)
}

pub(crate) fn named(submission: u64) -> String {
    format!("{submission:x}")
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Scheduler,
    Plan,
    Container(ContainerId),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum StatePart {
    Scheduler { name: String, address: String },
    Plan(PlanVersion, Arc<PackingPlan>),
    Worker(WorkerId, Arc<str>),
}

impl StatePart {
    fn encode(&self, job: &JobRef) -> Result<Vec<u8>> {
        let submission = named(job.submission);
        let encoded = match self.clone() {
            StatePart::Scheduler { name, address } => serde_json::to_vec(&SchedulerState {
                submission,
                name,
                address,
            }),
            StatePart::Plan(version, plan) => serde_json::to_vec(&PlanState {
                submission,
                version,
                plan,
            }),
            StatePart::Worker(worker, endpoint) => serde_json::to_vec(&WorkerState {
                submission,
                worker,
                endpoint: endpoint.to_string(),
            }),
        };
        encoded.map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                "a published node of a job can't be encoded",
            )
            .because(error)
        })
    }
}

type PublishedState = BTreeMap<Subject, StatePart>;

/// A publisher of the nodes of one leadership. Dropping it stops all writes.
#[derive(Debug)]
pub(crate) struct Publisher {
    facts: watch::Sender<PublishedState>,
    task: AbortHandle,
}

impl Publisher {
    /// Starts the publisher, and publishes the node of the scheduler.
    pub(crate) fn start(store: JobStore, scheduler: &str, address: &str) -> Self {
        let first = StatePart::Scheduler {
            name: scheduler.to_string(),
            address: address.to_string(),
        };
        let (facts, wanted) = watch::channel(PublishedState::from([(Subject::Scheduler, first)]));
        let task = tokio::spawn(Writer::new(store, wanted).run()).abort_handle();
        Publisher { facts, task }
    }

    /// Publishes the plan, and removes the nodes of containers that the plan lacks.
    pub(crate) fn plan(&self, version: PlanVersion, plan: &Arc<PackingPlan>) {
        self.facts.send_if_modified(|facts| {
            let fact = StatePart::Plan(version, Arc::clone(plan));
            if facts.get(&Subject::Plan) == Some(&fact) {
                return false;
            }
            facts.insert(Subject::Plan, fact);
            facts.retain(|subject, _| match subject {
                Subject::Container(id) => plan.container(*id).is_some(),
                _ => true,
            });
            true
        });
    }

    /// Publishes a worker's address.
    pub(crate) fn worker(&self, worker: WorkerId, endpoint: &str) {
        let subject = Subject::Container(worker.container);
        self.facts.send_modify(|facts| {
            facts.insert(subject, StatePart::Worker(worker, endpoint.into()));
        });
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes changed nodes, one after the other.
struct Writer {
    store: JobStore,
    wanted: watch::Receiver<PublishedState>,
    written: BTreeMap<Subject, (StatePart, Version)>,
}

impl Writer {
    fn new(store: JobStore, wanted: watch::Receiver<PublishedState>) -> Self {
        Writer {
            store,
            wanted,
            written: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        loop {
            while let Some((subject, fact)) = self.next() {
                let done = match fact {
                    Some(fact) => self.write(subject, fact).await,
                    None => self.remove(subject).await,
                };
                if let Err(error) = done {
                    // The node is read again because it may have changed. A node that is refused,
                    // as a plan that is too large, is skipped.
                    if error.code() == ErrorCode::MetastoreRefused {
                        self.forgo(subject);
                    } else {
                        self.written.remove(&subject);
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
            if self.wanted.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the next node whose wanted value differs from the written one.
    fn next(&mut self) -> Option<(Subject, Option<StatePart>)> {
        let wanted = self.wanted.borrow_and_update();
        let mut facts = wanted.iter();
        let changed = facts.find(|(subject, fact)| {
            let written = self.written.get(subject);
            written.is_none_or(|(written, _)| written != *fact)
        });
        if let Some((subject, fact)) = changed {
            return Some((*subject, Some(fact.clone())));
        }
        let mut written = self.written.keys();
        let gone = written.find(|subject| !wanted.contains_key(subject));
        gone.map(|subject| (*subject, None))
    }

    fn path(&self, subject: Subject) -> Result<StatePath> {
        let layout = self.store.layout();
        match subject {
            Subject::Scheduler => Ok(layout.scheduler().clone()),
            Subject::Plan => Ok(layout.packing_plan().clone()),
            Subject::Container(id) => layout.container(id.0),
        }
    }

    async fn write(&mut self, subject: Subject, fact: StatePart) -> Result<()> {
        let path = self.path(subject)?;
        let state = self.store.state();
        let known = self.written.get(&subject).map(|(_, version)| *version);
        let expected = match known {
            Some(version) => Expected::Version(version),
            None => read_node(&**state, &path).await?.expected(),
        };
        let value = fact.encode(self.store.job())?;
        let version = state.set(&path, &value, expected).await?;
        self.written.insert(subject, (fact, version));
        Ok(())
    }

    async fn remove(&mut self, subject: Subject) -> Result<()> {
        let path = self.path(subject)?;
        if let Some((_, version)) = self.written.get(&subject) {
            let expected = Expected::Version(*version);
            let gone = self.store.state().delete(&path, expected).await;
            // On a conflict, another leader has changed the node, and that value stays.
            if gone
                .as_ref()
                .is_err_and(|e| e.code() != ErrorCode::MetastoreConflict)
            {
                return gone;
            }
        }
        self.written.remove(&subject);
        Ok(())
    }

    /// Marks a node as written if the metadata store refuses it permanently.
    fn forgo(&mut self, subject: Subject) {
        let wanted = self.wanted.borrow().get(&subject).cloned();
        if let Some(fact) = wanted {
            self.written.insert(subject, (fact, Version::new(0)));
        }
    }
}

impl Driver {
    /// Publishes the present plan.
    pub(super) fn publish_plan(&self) {
        let record = self.candidate.master().and_then(|master| master.record());
        if let (Some(publisher), Some(record)) = (&self.publisher, record)
            && let Some(plan) = &record.plan
        {
            publisher.plan(record.plan_version, plan);
        }
    }

    /// Publishes the address of a worker.
    pub(super) fn publish_worker(&self, worker: WorkerId) {
        let endpoint = self.candidate.master();
        let endpoint = endpoint.and_then(|master| master.endpoint(worker.container));
        if let (Some(publisher), Some(endpoint)) = (&self.publisher, endpoint) {
            publisher.worker(worker, endpoint);
        }
    }
}
