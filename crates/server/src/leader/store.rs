//! One job in the metadata store: executes the store requests of the coordination state machines.
//!
//! | coordination | metadata store |
//! |---|---|
//! | the job record | the node [`JobLayout::definition`]: definition and record in one value, so that one write creates a job |
//! | the lease | the node [`JobLayout::master`] of the submission |
//! | the checkpoint record | the node [`JobLayout::epochs`] of the submission |
//! | `Conflict` | [`ErrorCode::MetastoreConflict`] |
//! | `Rejection` | permanent errors: too large, access denied, damaged, another layout |
//! | `Unavailable` | all other errors, including writes with an unknown outcome |
//!
//! **Leases of deleted jobs.** A metadata store has no transaction over two nodes. So the job's
//! node is read before and after the first lease is written; if the job has been deleted, the lease
//! is removed. A process that dies in between leaves a lease that belongs to no job. No later job
//! uses that lease, because its path contains the submission, and [`sweep`](crate::leader::sweep)
//! removes it.

use std::sync::Arc;

use ardea_coordination::control::{
    CheckpointRecord, JobRecord, JobRef, LeaseRecord, Rejection, StoreReply, StoreRequest,
    StoreVersion,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::layout::JobLayout;
use ardea_metastore::{Expected, MetadataStore, StatePath, Version};
use serde::{Deserialize, Serialize};

use crate::leader::leader_error::LeaseError;
use crate::leader::orphan_cleanup::present;
use crate::leader::past_jobs::{self, PastJob};
use crate::leader::stored_epochs;
use crate::leader::{StoredJob, Submitted};

/// The version of the lease's JSON format.
const LEASE_VERSION: u32 = 1;

/// One submission of a job in the metadata store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JobStore {
    state: Arc<dyn MetadataStore>,
    job: Arc<JobRef>,
    layout: Arc<JobLayout>,
    lease: StatePath,
    epochs: StatePath,
    trouble: LeaseError,
}

/// The stored form of a lease.
#[derive(Serialize)]
struct StoredLease {
    version: u32,
    #[serde(flatten)]
    lease: LeaseRecord,
}

/// The version field of a lease, which leases of all versions have.
#[derive(Deserialize)]
struct AnyLease {
    version: u32,
}

impl JobStore {
    /// Returns the store of this submission.
    ///
    /// # Errors
    ///
    /// If the job's name is no valid node name: it is empty, or longer than 200 bytes.
    pub fn new(state: Arc<dyn MetadataStore>, job: JobRef) -> Result<Self> {
        let layout = JobLayout::of(&job.name)?;
        Ok(JobStore {
            lease: layout.master(job.submission)?,
            epochs: layout.epochs(job.submission)?,
            trouble: LeaseError::default(),
            state,
            job: Arc::new(job),
            layout: Arc::new(layout),
        })
    }

    /// Returns the job.
    pub fn job(&self) -> &JobRef {
        &self.job
    }

    /// Returns the paths of the job's nodes.
    pub fn layout(&self) -> &JobLayout {
        &self.layout
    }

    /// Returns the path of the submission's lease.
    pub fn lease_path(&self) -> &StatePath {
        &self.lease
    }

    /// Returns the path of the submission's checkpoint record.
    pub fn epochs_path(&self) -> &StatePath {
        &self.epochs
    }

    /// Returns the error of the last operation on the lease, if that operation failed.
    pub(crate) fn trouble(&self) -> &LeaseError {
        &self.trouble
    }

    /// Returns the metadata store.
    pub fn state(&self) -> &Arc<dyn MetadataStore> {
        &self.state
    }

    /// Reads the stored job; `None` if it has been deleted or a job of the same name has replaced
    /// it.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable, or the node is unreadable.
    pub async fn read(&self) -> Result<Option<StoredJob>> {
        let Some(node) = self.state.get(self.layout.definition()).await? else {
            return Ok(None);
        };
        let stored = StoredJob::decode(&node.value)?;
        Ok(Some(stored).filter(|stored| stored.record.job == *self.job))
    }

    /// Returns true if this submission exists. Reads the job's node, but does not unpack the value.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable, or the submission in the node is unreadable and may be
    /// this one.
    pub async fn exists(&self) -> Result<bool> {
        let present = present(&*self.state, &self.layout).await?;
        Ok(present == Some(self.job.submission))
    }

    /// Reads the lease, which contains the current or the last leader of the job.
    ///
    /// # Errors
    ///
    /// If the metadata store is unavailable, or the lease is unreadable.
    pub async fn leader(&self) -> Result<Option<LeaseRecord>> {
        match self.state.get(&self.lease).await? {
            Some(node) => read_lease(&node.value).map(Some),
            None => Ok(None),
        }
    }

    /// Executes a read, write or deletion of the job record. Before a deletion, the summary `past`
    /// is stored.
    pub async fn record(
        &self,
        submitted: Arc<Submitted>,
        request: StoreRequest<Arc<JobRecord>>,
        past: Option<PastJob>,
    ) -> StoreReply<Arc<JobRecord>> {
        let asked = self.ask_record(submitted, request, past).await;
        asked.unwrap_or_else(|error| reply_of(&error))
    }

    pub(crate) async fn ask_record(
        &self,
        submitted: Arc<Submitted>,
        request: StoreRequest<Arc<JobRecord>>,
        past: Option<PastJob>,
    ) -> Result<StoreReply<Arc<JobRecord>>> {
        let path = self.layout.definition();
        Ok(match request {
            StoreRequest::Read => match self.state.get(path).await? {
                Some(node) => {
                    let stored = StoredJob::decode(&node.value)?;
                    StoreReply::Found(Some((stored.record, stored_version(node.version))))
                }
                None => StoreReply::Found(None),
            },
            StoreRequest::Write { value, expected } => {
                let job = StoredJob {
                    submitted,
                    record: value,
                };
                let value = job.encode()?;
                let version = self.state.set(path, &value, expectation(expected)).await?;
                StoreReply::Written(stored_version(version))
            }
            StoreRequest::Delete { expected } => {
                self.remember(past).await?;
                let expected = expectation(Some(expected));
                self.state.delete(path, expected).await?;
                StoreReply::Deleted
            }
        })
    }

    /// Replaces this stopped job with `next` in one write, after the summary `past` has been
    /// stored. The reply is that of a deletion.
    pub(crate) async fn replace(
        &self,
        next: &StoredJob,
        expected: StoreVersion,
        past: Option<PastJob>,
    ) -> StoreReply<Arc<JobRecord>> {
        let replaced = async {
            let value = next.encode()?;
            self.remember(past).await?;
            let expected = expectation(Some(expected));
            let path = self.layout.definition();
            self.state.set(path, &value, expected).await?;
            Ok::<_, Error>(StoreReply::Deleted)
        };
        replaced.await.unwrap_or_else(|error| reply_of(&error))
    }

    /// Stores the summary of the job. If the metadata store refuses it permanently, the error is
    /// ignored, so that the job can be deleted.
    async fn remember(&self, past: Option<PastJob>) -> Result<()> {
        let Some(past) = past else { return Ok(()) };
        match past_jobs::write(&*self.state, &past).await {
            Err(error) if matches!(reply_of::<()>(&error), StoreReply::Unavailable) => Err(error),
            _ => Ok(()),
        }
    }

    /// Executes a read or write of the lease.
    pub async fn lease(&self, request: StoreRequest<LeaseRecord>) -> StoreReply<LeaseRecord> {
        let asked = self.ask_lease(request).await;
        self.trouble.note(&asked);
        asked.unwrap_or_else(|error| reply_of(&error))
    }

    async fn ask_lease(
        &self,
        request: StoreRequest<LeaseRecord>,
    ) -> Result<StoreReply<LeaseRecord>> {
        let path = &self.lease;
        Ok(match request {
            StoreRequest::Read => match self.state.get(path).await? {
                Some(node) => {
                    let lease = read_lease(&node.value)?;
                    StoreReply::Found(Some((lease, stored_version(node.version))))
                }
                None => StoreReply::Found(None),
            },
            StoreRequest::Write { value, expected } => {
                let first = expected.is_none();
                if first && !self.exists().await? {
                    return Ok(StoreReply::JobGone);
                }
                let value = write_lease(value)?;
                let version = self.state.set(path, &value, expectation(expected)).await?;
                match first {
                    true => self.looked_at_again(version).await?,
                    false => StoreReply::Written(stored_version(version)),
                }
            }
            StoreRequest::Delete { expected } => {
                let expected = expectation(Some(expected));
                self.state.delete(path, expected).await?;
                StoreReply::Deleted
            }
        })
    }

    /// Executes a read or write of the checkpoint record. Before the first write, the job's node is
    /// read to check that the job exists. If the job is deleted during the write,
    /// [`sweep`](crate::leader::sweep) removes the record.
    pub async fn epochs(
        &self,
        request: StoreRequest<Arc<CheckpointRecord>>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
        let asked = self.ask_epochs(request).await;
        asked.unwrap_or_else(|error| reply_of(&error))
    }

    async fn ask_epochs(
        &self,
        request: StoreRequest<Arc<CheckpointRecord>>,
    ) -> Result<StoreReply<Arc<CheckpointRecord>>> {
        let path = &self.epochs;
        Ok(match request {
            StoreRequest::Read => match self.state.get(path).await? {
                Some(node) => {
                    let record = stored_epochs::decode(&node.value)?;
                    StoreReply::Found(Some((record, stored_version(node.version))))
                }
                None => StoreReply::Found(None),
            },
            StoreRequest::Write { value, expected } => {
                if expected.is_none() && !self.exists().await? {
                    return Ok(StoreReply::JobGone);
                }
                let value = stored_epochs::encode(&value)?;
                let version = self.state.set(path, &value, expectation(expected)).await?;
                StoreReply::Written(stored_version(version))
            }
            StoreRequest::Delete { expected } => {
                let expected = expectation(Some(expected));
                self.state.delete(path, expected).await?;
                StoreReply::Deleted
            }
        })
    }

    /// Checks that the job still exists after its first lease was written with this version, and
    /// returns the reply. If the job is gone, the lease is removed. It is also removed before a
    /// permanent error is returned, because that means that nothing was changed.
    async fn looked_at_again(&self, version: Version) -> Result<StoreReply<LeaseRecord>> {
        match self.exists().await {
            Ok(true) => Ok(StoreReply::Written(stored_version(version))),
            Ok(false) => {
                self.take_back(version).await?;
                Ok(StoreReply::JobGone)
            }
            Err(error) => {
                if matches!(reply_of::<()>(&error), StoreReply::Refused(_)) {
                    self.take_back(version).await?;
                }
                Err(error)
            }
        }
    }

    /// Removes the lease that was just written with this version. A conflict counts as removed.
    /// After any other error the outcome of the write is unknown.
    async fn take_back(&self, version: Version) -> Result<()> {
        let written = Expected::Version(version);
        match self.state.delete(&self.lease, written).await {
            Err(error) if error.code() != ErrorCode::MetastoreConflict => {
                let what = "a new lease of a deleted or unreadable job could not be removed";
                let next = error.hint_text().map(str::to_string);
                let lost =
                    Error::new(ErrorCode::OutcomeUnknown, what).because(error.without_hint());
                Err(match next {
                    Some(next) => lost.hint(next),
                    None => lost,
                })
            }
            _ => Ok(()),
        }
    }
}

fn write_lease(lease: LeaseRecord) -> Result<Vec<u8>> {
    let version = LEASE_VERSION;
    serde_json::to_vec(&StoredLease { version, lease })
        .map_err(|error| Error::new(ErrorCode::Internal, "a lease can't be encoded").because(error))
}

/// Decodes a lease. The format's version is read first, because it determines the other fields.
///
/// Fails with [`ErrorCode::VersionMismatch`] for another version of the format, and with
/// [`ErrorCode::MetastoreCorrupt`] if the value is damaged.
pub(crate) fn read_lease(value: &[u8]) -> Result<LeaseRecord> {
    let AnyLease { version } = serde_json::from_slice(value).map_err(damaged_lease)?;
    if version != LEASE_VERSION {
        let what = format!(
            "a job's lease is of version {version}, and this version of Ardea reads {LEASE_VERSION}"
        );
        return Err(Error::new(ErrorCode::VersionMismatch, what)
            .hint("run the same version of ardea in all processes of the cluster"));
    }
    serde_json::from_slice(value).map_err(damaged_lease)
}

fn damaged_lease(error: serde_json::Error) -> Error {
    Error::new(ErrorCode::MetastoreCorrupt, "a job's lease is damaged")
        .because(error)
        .hint("remove its node (`ardea metastore remove`): the next leader writes a new one")
}

fn expectation(version: Option<StoreVersion>) -> Expected {
    match version {
        Some(version) => Expected::Version(Version::new(version.0)),
        None => Expected::Absent,
    }
}

fn stored_version(version: Version) -> StoreVersion {
    StoreVersion(version.get())
}

/// Maps a store error to the reply for the state machine.
pub(crate) fn reply_of<T>(error: &Error) -> StoreReply<T> {
    match error.code() {
        ErrorCode::MetastoreConflict => StoreReply::Conflict,
        ErrorCode::MetastoreRefused
        | ErrorCode::MetastoreCorrupt
        | ErrorCode::LimitReached
        | ErrorCode::VersionMismatch
        | ErrorCode::Internal => StoreReply::Refused(Rejection::not_stored(error)),
        _ => StoreReply::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use ardea_coordination::control::MasterEpoch;
    use ardea_metastore::conformance::{Fault, FaultyStore};
    use ardea_metastore::{FileState, StateOptions};

    use super::*;
    use crate::leader::stored_job::tests;

    #[test]
    fn a_lease_reads_back_as_it_was_written() {
        let lease = LeaseRecord {
            holder: "host-1@2a".into(),
            address: "10.0.0.7:41".into(),
            epoch: MasterEpoch(3),
            resigned: false,
        };
        let value = write_lease(lease.clone()).unwrap();
        assert_eq!(read_lease(&value).unwrap(), lease);
    }

    #[tokio::test]
    async fn a_lease_is_said_to_be_refused_only_if_none_is_left_of_it() {
        for is_removable in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let state = FileState::open(folder.path(), StateOptions::default()).await;
            let state = Arc::new(FaultyStore::over(Arc::new(state.unwrap())));
            let (job, _) = tests::job(10, 1);
            let layout = JobLayout::of(&job.record.job.name).unwrap();
            let encoded = job.encode().unwrap();
            let set = state.set(layout.definition(), &encoded, Expected::Absent);
            set.await.unwrap();
            let store = JobStore::new(Arc::clone(&state) as _, job.record.job.clone()).unwrap();
            state.set_fault(Fault::DamagedByWrite { is_removable });
            let answer = store.lease(claim()).await;
            let trouble = store.trouble().get().unwrap().code();
            state.set_fault(Fault::None);
            let is_there = store.leader().await.unwrap().is_some();
            match is_removable {
                true => {
                    assert!(matches!(answer, StoreReply::Refused(_)), "{answer:?}");
                    assert_eq!((trouble, is_there), (ErrorCode::MetastoreCorrupt, false));
                }
                false => {
                    assert_eq!(answer, StoreReply::Unavailable);
                    assert_eq!((trouble, is_there), (ErrorCode::OutcomeUnknown, true));
                }
            }
        }
    }

    fn claim() -> StoreRequest<LeaseRecord> {
        StoreRequest::Write {
            value: LeaseRecord {
                holder: "host-1@2a".into(),
                address: "10.0.0.7:41".into(),
                epoch: MasterEpoch(1),
                resigned: false,
            },
            expected: None,
        }
    }

    #[tokio::test]
    async fn a_record_of_epochs_is_written_for_a_job_that_is_there_and_against_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn MetadataStore> = Arc::new(state.unwrap());
        let (job, _) = tests::job(10, 1);
        let store = JobStore::new(Arc::clone(&state), job.record.job.clone()).unwrap();
        let record = Arc::new(CheckpointRecord::new(job.record.job.clone()));
        let write = |expected| StoreRequest::Write {
            value: Arc::clone(&record),
            expected,
        };
        assert_eq!(
            store.epochs(StoreRequest::Read).await,
            StoreReply::Found(None)
        );
        assert_eq!(store.epochs(write(None)).await, StoreReply::JobGone);

        let encoded = job.encode().unwrap();
        let definition = store.layout().definition();
        let set = state.set(definition, &encoded, Expected::Absent);
        set.await.unwrap();
        let StoreReply::Written(version) = store.epochs(write(None)).await else {
            panic!("the job is there");
        };
        assert_eq!(store.epochs(write(None)).await, StoreReply::Conflict);
        let found = StoreReply::Found(Some((Arc::clone(&record), version)));
        assert_eq!(store.epochs(StoreRequest::Read).await, found);
        let again = store.epochs(write(Some(version))).await;
        assert!(matches!(again, StoreReply::Written(_)), "{again:?}");

        let junk = state.set(store.epochs_path(), b"junk", Expected::Any);
        junk.await.unwrap();
        let damaged = store.epochs(StoreRequest::Read).await;
        assert!(matches!(damaged, StoreReply::Refused(_)), "{damaged:?}");
    }

    #[tokio::test]
    async fn a_job_that_can_not_be_read_is_not_taken_for_one_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn MetadataStore> = Arc::new(state.unwrap());
        let (job, _) = tests::job(10, 1);
        let store = JobStore::new(Arc::clone(&state), job.record.job.clone()).unwrap();
        let claim = claim();
        assert_eq!(store.lease(claim.clone()).await, StoreReply::JobGone);

        let mut later = job.encode().unwrap();
        later[4] = 9;
        for (unread, code) in [
            (&b"junk"[..], ErrorCode::MetastoreCorrupt),
            (&later, ErrorCode::VersionMismatch),
        ] {
            let definition = store.layout().definition();
            let set = state.set(definition, unread, Expected::Any).await;
            set.unwrap();
            let answer = store.lease(claim.clone()).await;
            assert!(matches!(answer, StoreReply::Refused(_)), "{answer:?}");
            assert_eq!(store.trouble().get().map(|it| it.code()), Some(code));
            assert_eq!(store.leader().await.unwrap(), None);
        }
    }

    #[test]
    fn a_lease_of_another_version_is_not_damaged_whatever_else_it_has() {
        let code = |value: &[u8]| read_lease(value).unwrap_err().code();
        for other in [&br#"{"version":2}"#[..], br#"{"holder":7,"version":0}"#] {
            assert_eq!(code(other), ErrorCode::VersionMismatch);
        }
        for damaged in [&br#"{"version":1}"#[..], br#"{"version":2"#, b"{}", b""] {
            assert_eq!(code(damaged), ErrorCode::MetastoreCorrupt);
        }
    }
}
