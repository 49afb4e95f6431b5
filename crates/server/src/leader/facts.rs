//! What a master tells readers of the state manager: the plan, the scheduler, and where each worker is.
//!
//! All of it follows from the record and from what workers say, and no machine reads it back. It is written behind the master's
//! decisions, by a task of its own, and only what has changed. Each fact says of which submission it is, and is written against
//! what was read before, a damaged one too: a late write of an earlier master fails, or is seen and mended by the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{JobRef, PlanVersion, WorkerId};
use ardea_coordination::packing::{ContainerId, PackingPlan};
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{Expected, Found, StatePath, Version, look};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::leader::JobStore;

/// How long to wait after a fact could not be written.
const PAUSE: Duration = Duration::from_secs(1);

/// The value of a job's node `packing-plan`, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanFact {
    /// Of which submission, in hexadecimal digits.
    pub submission: String,
    /// The plan's number.
    pub version: PlanVersion,
    /// The plan.
    pub plan: Arc<PackingPlan>,
}

/// The value of a job's node `scheduler`, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchedulerFact {
    /// Of which submission, in hexadecimal digits.
    pub submission: String,
    /// The scheduler, by name.
    pub name: String,
    /// How it is reached: by the job's master.
    pub address: String,
}

/// The value of a container's node, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerFact {
    /// Of which submission, in hexadecimal digits.
    pub submission: String,
    /// Which worker.
    pub worker: WorkerId,
    /// Where other workers reach it: `host:port`.
    pub endpoint: String,
}

/// What all facts have.
#[derive(Deserialize)]
struct AnyFact {
    submission: String,
}

/// Of which submission a fact is, in hexadecimal digits; `None` if nobody can read it.
pub(crate) fn submission_of(found: &Found) -> Option<String> {
    let Found::Whole(node) = found else {
        return None;
    };
    let fact = serde_json::from_slice::<AnyFact>(&node.value);
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
enum Fact {
    Scheduler { name: String, address: String },
    Plan(PlanVersion, Arc<PackingPlan>),
    Worker(WorkerId, Arc<str>),
}

impl Fact {
    fn encode(&self, job: &JobRef) -> Result<Vec<u8>> {
        let submission = named(job.submission);
        let encoded = match self.clone() {
            Fact::Scheduler { name, address } => serde_json::to_vec(&SchedulerFact {
                submission,
                name,
                address,
            }),
            Fact::Plan(version, plan) => serde_json::to_vec(&PlanFact {
                submission,
                version,
                plan,
            }),
            Fact::Worker(worker, endpoint) => serde_json::to_vec(&WorkerFact {
                submission,
                worker,
                endpoint: endpoint.to_string(),
            }),
        };
        encoded.map_err(|error| {
            Error::new(ErrorCode::Internal, "a fact can't be encoded").because(error)
        })
    }
}

type Facts = BTreeMap<Subject, Fact>;

/// Publishes the facts of one mastership. When it is dropped, nothing more is written.
#[derive(Debug)]
pub(crate) struct Publisher {
    facts: watch::Sender<Facts>,
    task: AbortHandle,
}

impl Publisher {
    /// Begins with who the scheduler is, and where it is reached.
    pub(crate) fn start(store: JobStore, scheduler: &str, address: &str) -> Self {
        let first = Fact::Scheduler {
            name: scheduler.to_string(),
            address: address.to_string(),
        };
        let (facts, wanted) = watch::channel(Facts::from([(Subject::Scheduler, first)]));
        let task = tokio::spawn(Writer::new(store, wanted).run()).abort_handle();
        Publisher { facts, task }
    }

    /// This is the plan now; workers of containers that it doesn't have are forgotten.
    pub(crate) fn plan(&self, version: PlanVersion, plan: &Arc<PackingPlan>) {
        self.facts.send_if_modified(|facts| {
            let fact = Fact::Plan(version, Arc::clone(plan));
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

    /// A worker has come.
    pub(crate) fn worker(&self, worker: WorkerId, endpoint: &str) {
        let subject = Subject::Container(worker.container);
        self.facts.send_modify(|facts| {
            facts.insert(subject, Fact::Worker(worker, endpoint.into()));
        });
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes what has changed, one node after the other.
struct Writer {
    store: JobStore,
    wanted: watch::Receiver<Facts>,
    written: BTreeMap<Subject, (Fact, Version)>,
}

impl Writer {
    fn new(store: JobStore, wanted: watch::Receiver<Facts>) -> Self {
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
                    // Read anew, in case that it has changed; a plan that is too large as JSON is known from the record.
                    if error.code() == ErrorCode::StateRefused {
                        self.forgo(subject);
                    } else {
                        self.written.remove(&subject);
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            if self.wanted.changed().await.is_err() {
                return;
            }
        }
    }

    /// The next node that is not as it should be.
    fn next(&mut self) -> Option<(Subject, Option<Fact>)> {
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

    async fn write(&mut self, subject: Subject, fact: Fact) -> Result<()> {
        let path = self.path(subject)?;
        let state = self.store.state();
        let known = self.written.get(&subject).map(|(_, version)| *version);
        let expected = match known {
            Some(version) => Expected::Version(version),
            None => look(&**state, &path).await?.expected(),
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
            // Whoever has changed it meanwhile is the master now, and decides.
            if gone
                .as_ref()
                .is_err_and(|e| e.code() != ErrorCode::StateConflict)
            {
                return gone;
            }
        }
        self.written.remove(&subject);
        Ok(())
    }

    /// The state manager does not take it, and never will: readers do without.
    fn forgo(&mut self, subject: Subject) {
        let wanted = self.wanted.borrow().get(&subject).cloned();
        if let Some(fact) = wanted {
            self.written.insert(subject, (fact, Version::new(0)));
        }
    }
}
