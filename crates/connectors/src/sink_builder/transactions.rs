//! The prepared transactions of an instance of an exactly-once sink.

use std::collections::VecDeque;
use std::sync::Arc;

use ardea_core::instance_state::{key_of, written_by};
use ardea_core::{
    Epoch, Error, ErrorCode, Instance, Progress, RemovedKeys, RestoredEntry, RestoredState, Result,
    SmallSnapshot, SnapshotRequest, SnapshotWriter, StateEntry,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::PrepareFn;
use crate::user_functions::UserResult;

/// The name of the state. Each instance has one entry.
pub(super) const STATE: &str = "transactions";

type CommitFn<S, H> = Arc<dyn Fn(&mut S, &H) -> UserResult<()> + Send + Sync>;
type AbortFn<S> = Arc<dyn Fn(&mut S) -> UserResult<()> + Send + Sync>;

/// A function that decodes the prepared handles of an entry, with their epochs.
type DecodeHandles<H> = fn(&[u8]) -> serde_json::Result<Vec<(Epoch, H)>>;

/// The functions for transactions, and the encoding of handles.
pub(super) struct TwoPhaseCommit<S, H> {
    pub prepare: PrepareFn<S, H>,
    pub commit: CommitFn<S, H>,
    pub abort: Option<AbortFn<S>>,
    encode: fn(&VecDeque<Prepared<H>>) -> serde_json::Result<Vec<u8>>,
    decode: DecodeHandles<H>,
}

impl<S, H> Clone for TwoPhaseCommit<S, H> {
    fn clone(&self) -> Self {
        TwoPhaseCommit {
            prepare: Arc::clone(&self.prepare),
            commit: Arc::clone(&self.commit),
            abort: self.abort.clone(),
            ..*self
        }
    }
}

impl<S, H> TwoPhaseCommit<S, H> {
    pub fn new(prepare: PrepareFn<S, H>, commit: CommitFn<S, H>) -> Self
    where
        H: Serialize + DeserializeOwned,
    {
        TwoPhaseCommit {
            prepare,
            commit,
            abort: None,
            encode: |all| {
                let all: Vec<_> = all.iter().map(|it| (it.epoch, &it.handle)).collect();
                serde_json::to_vec(&all)
            },
            decode: |bytes| serde_json::from_slice(bytes),
        }
    }
}

/// A transaction that is prepared and not committed.
pub(super) struct Prepared<H> {
    /// The epoch; `None` until the last snapshot of an ended instance is taken.
    epoch: Option<Epoch>,
    handle: H,
}

/// The transactions of an instance, from the preparation to the commit.
pub(super) struct Transactions<S, H> {
    pub functions: TwoPhaseCommit<S, H>,
    instance: Instance,
    /// Prepared transactions, oldest first.
    prepared: VecDeque<Prepared<H>>,
    /// The latest epoch known to be committed.
    committed: Option<Epoch>,
    /// The number of the last epoch that has ended, or was restored.
    last_epoch: Epoch,
    /// Keys of instances whose transactions this one has taken over.
    taken_over: RemovedKeys,
    snapshot: SmallSnapshot,
}

impl<S, H> Transactions<S, H> {
    pub fn new(functions: TwoPhaseCommit<S, H>, instance: Instance) -> Self {
        Transactions {
            functions,
            instance,
            prepared: VecDeque::new(),
            committed: None,
            last_epoch: Epoch(0),
            taken_over: RemovedKeys::default(),
            snapshot: SmallSnapshot::default(),
        }
    }

    /// Returns the number of the epoch that has not ended yet.
    pub fn next_epoch(&self) -> Epoch {
        self.last_epoch.next()
    }

    /// Records the end of an epoch.
    pub fn end_epoch(&mut self, epoch: Epoch) {
        self.last_epoch = self.last_epoch.max(epoch);
    }

    /// Adds a transaction of `epoch`; `None` stands for the epoch in which the instance ends.
    pub fn add(&mut self, epoch: Option<Epoch>, handle: H) {
        self.prepared.push_back(Prepared { epoch, handle });
    }

    /// Returns true if transactions wait for the commit of their epoch.
    pub fn is_pending(&self) -> bool {
        !self.prepared.is_empty()
    }

    /// Records that an epoch is committed, and so are all earlier ones.
    pub fn commit(&mut self, epoch: Epoch) {
        self.taken_over.commit(epoch);
        self.committed = self.committed.max(Some(epoch));
    }

    /// Returns the oldest transaction whose epoch is committed.
    pub fn due(&self) -> Option<&H> {
        let first = self.prepared.front()?;
        let is_due = first.epoch.is_some() && first.epoch <= self.committed;
        is_due.then_some(&first.handle)
    }

    /// Removes the oldest transaction after its commit.
    pub fn remove_first(&mut self) {
        self.prepared.pop_front();
    }

    pub fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        for prepared in &mut self.prepared {
            prepared.epoch.get_or_insert(snapshot.epoch);
        }
        let handles = (self.functions.encode)(&self.prepared).map_err(|error| {
            let what = "the handle of a transaction cannot be written as JSON";
            Error::new(ErrorCode::UserError, what)
                .because(error)
                .hint("use a handle of numbers, text and structs of these")
                .permanent()
        })?;
        let entries = self.snapshot.begin();
        let mut put = |key: &[u8], value| {
            entries.push(StateEntry {
                state: STATE,
                partition: None,
                key,
                value,
            })
        };
        put(&key_of(self.instance.index, &[]), Some(&handles))?;
        if !snapshot.is_full() {
            self.taken_over.iter().try_for_each(|key| put(key, None))?;
        }
        self.taken_over.freeze(snapshot.epoch);
        Ok(())
    }

    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.snapshot.write(writer)
    }

    /// Restores the transactions of an instance that this one replaces.
    pub fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        if entry.state != STATE {
            return Err(RestoredState::unknown(entry));
        }
        let (index, _) = written_by(entry)?;
        let handles = (self.functions.decode)(entry.value).map_err(|error| {
            let what = "the handle of a transaction in the checkpoint cannot be read";
            Error::new(ErrorCode::BadRecord, what)
                .because(error)
                .hint("restore the former type of the handle, or start without the checkpoint")
                .permanent()
        })?;
        if !self.instance.owns(index.into()) {
            return Ok(());
        }
        if index != self.instance.index {
            self.taken_over.add(entry.key.to_vec());
        }
        for (epoch, handle) in handles {
            self.add(Some(epoch), handle);
        }
        Ok(())
    }

    /// Handles the restore from `epoch`: all restored transactions are to be committed.
    pub fn resume(&mut self, epoch: Epoch) {
        let restored = self.prepared.make_contiguous();
        restored.sort_by_key(|prepared| prepared.epoch);
        self.end_epoch(epoch);
        self.commit(epoch);
    }
}
