//! The checkpoints of one job.

mod gc;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

use crate::store::assemble::{self, Commit};
use crate::store::block::BlockRef;
use crate::store::compaction::{Compaction, Finished};
use crate::store::failure::{no_such, refused};
use crate::store::file_name::{StoredName, WriterToken};
use crate::store::manifest::Manifest;
use crate::store::{
    BlockConfig, BlockWriter, Checkpoint, CheckpointId, CheckpointReport, FileState, ObjectStore,
    SnapshotKind, SnapshotOwner,
};

pub use gc::Collected;

/// Settings of a checkpoint store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// The number of newest checkpoints to retain; at least one.
    pub keep: usize,
    /// The intended maximum number of layers per vertex. The state of a vertex with more layers is
    /// due for [compaction](CheckpointStore::begin_compaction).
    pub most_layers: usize,
    /// The sizes of blocks.
    pub blocks: BlockConfig,
}

/// The default: three checkpoints, of up to sixteen layers per vertex. A lower limit of layers
/// means more compaction.
impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            keep: 3,
            most_layers: 16,
            blocks: BlockConfig::default(),
        }
    }
}

/// The checkpoints of one job, in a folder used only by that job.
///
/// Only the store of the job's leader commits, collects and sweeps. A deposed leader may continue
/// to collect and sweep for a while. It removes no file that its successor needs, if the successor
/// has [begun](Self::begin_generation) its generation. Other processes write blocks with a
/// [`BlockWriter`] and read with a [`Checkpoint`]. Cloning is cheap, and all clones are the same
/// store.
///
/// Calls block while the folder is accessed. Readers never wait for a commit or a collection.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    shared: Arc<Shared>,
}

/// The state shared by the clones of a store and its compactions.
pub(crate) struct Shared {
    pub folder: Arc<dyn ObjectStore>,
    pub job: String,
    pub config: StoreConfig,
    /// Locked while manifests are changed.
    work: Mutex<()>,
    state: Mutex<State>,
}

/// The known state of the folder.
#[derive(Default)]
pub(crate) struct State {
    /// The manifests of the valid checkpoints. A reader of a checkpoint shares the `Arc` of its
    /// manifest.
    kept: BTreeMap<CheckpointId, Arc<Manifest>>,
    /// The unusable manifests, with their errors. They are read again on access: a read error can
    /// be temporary, and a file can be restored.
    damaged: BTreeMap<CheckpointId, Error>,
    /// Manifests of failed commits that may exist and could not be removed.
    doubtful: BTreeMap<CheckpointId, Vec<u8>>,
    /// The generation of new checkpoints, as set by the caller.
    generation: u64,
    /// The newest checkpoint that was found at the start or committed by this store. A newer
    /// checkpoint is from another leader, which has taken over.
    own_newest: Option<CheckpointId>,
    /// The vertices in compaction, or whose compacted layer waits for the next commit, each with
    /// the writer of the compacted blocks.
    folding: BTreeMap<String, WriterToken>,
    finished: Vec<Finished>,
    /// Blocks of compactions that no manifest will refer to, since their inputs were removed
    /// meanwhile.
    pub unreferred: Vec<BlockRef>,
    /// The vertices that cannot be compacted because of damaged blocks.
    pub unfoldable: BTreeSet<String>,
}

impl CheckpointStore {
    /// Opens the store of `job` in this folder. Reads all manifests, and changes nothing.
    ///
    /// # Errors
    /// `WrongCluster` if the folder has checkpoints of another job; those of [`ObjectStore::list`].
    /// Manifests that are damaged or cannot be read are no error: see [`damaged`](Self::damaged).
    /// They are read again on access.
    pub fn open(folder: Arc<dyn ObjectStore>, job: &str, config: StoreConfig) -> Result<Self> {
        let shared = Shared {
            folder,
            job: job.to_string(),
            config,
            work: Mutex::default(),
            state: Mutex::default(),
        };
        for listed in shared.folder.list()? {
            let stored = StoredName::parse(&listed.name);
            let (Some(StoredName::Manifest(id)), FileState::Whole) = (stored, listed.state) else {
                continue;
            };
            match shared.learn(id) {
                Err(error) if is_unread(&error) => {
                    shared.state().damaged.insert(id, error);
                }
                learned => learned?,
            }
        }
        {
            let mut state = shared.state();
            state.own_newest = state.newest();
        }
        Ok(CheckpointStore {
            shared: Arc::new(shared),
        })
    }

    /// Creates a writer for the snapshot of the instance `of` in this store's folder.
    ///
    /// # Errors
    /// Those of [`BlockWriter::new`].
    pub fn writer(&self, of: SnapshotOwner, kind: SnapshotKind) -> Result<BlockWriter> {
        let Shared {
            folder,
            job,
            config,
            ..
        } = &*self.shared;
        BlockWriter::new(Arc::clone(folder), job, of, kind, config.blocks)
    }

    /// Returns the valid checkpoints, oldest first.
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        self.shared.state().kept.keys().copied().collect()
    }

    /// Returns the unusable manifests with the reasons; the reason is `ReadFailed` if the last read
    /// of a manifest failed.
    pub fn damaged(&self) -> Vec<(CheckpointId, Error)> {
        let state = self.shared.state();
        let damaged = state.damaged.iter();
        damaged.map(|(id, error)| (*id, error.clone())).collect()
    }

    /// Opens a checkpoint for reading. The checkpoint is not garbage-collected while the returned
    /// value exists.
    ///
    /// # Errors
    /// `NoSuchCheckpoint`, or the reason for which its manifest cannot be used. The call reads an
    /// unusable manifest again.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<Checkpoint> {
        self.shared.learn_again(id)?;
        let state = self.shared.state();
        if let Some(manifest) = state.kept.get(&id) {
            return Ok(Checkpoint::new(
                Arc::clone(&self.shared.folder),
                Arc::clone(manifest),
            ));
        }
        let damaged = state.damaged.get(&id).cloned();
        Err(damaged.unwrap_or_else(|| no_such(id, &self.shared.folder.place())))
    }

    /// Opens the newest checkpoint, if any. If a metadata store records the valid checkpoint, open
    /// that one by [`checkpoint`](Self::checkpoint) instead.
    ///
    /// # Errors
    /// The reason for which the newest manifest cannot be used. An earlier checkpoint is never
    /// returned silently; see [`newest_whole`](Self::newest_whole).
    pub fn latest(&self) -> Result<Option<Checkpoint>> {
        let newest = self.shared.state().newest();
        newest.map(|id| self.checkpoint(id)).transpose()
    }

    /// Finds the newest checkpoint whose blocks are all undamaged. Also returns the newer
    /// checkpoints, with the reasons against them. Reads all blocks of each candidate.
    pub fn newest_whole(&self) -> LatestValid {
        let (mut known, mut whole) = (BTreeSet::new(), HashSet::new());
        {
            let state = self.shared.state();
            known.extend(state.kept.keys().chain(state.damaged.keys()).copied());
        }
        let mut broken = Vec::new();
        for id in known.into_iter().rev() {
            let verified = self.checkpoint(id).and_then(|checkpoint| {
                checkpoint.verify_but(&mut whole)?;
                Ok(checkpoint)
            });
            match verified {
                Ok(checkpoint) => {
                    let checkpoint = Some(checkpoint);
                    return LatestValid { checkpoint, broken };
                }
                // The checkpoint was garbage-collected meanwhile.
                Err(error) if error.code() == ErrorCode::NoSuchCheckpoint => {}
                Err(error) => broken.push((id, error)),
            }
        }
        LatestValid {
            checkpoint: None,
            broken,
        }
    }

    /// Makes a checkpoint from the snapshots of all instances. The checkpoint is durable when this
    /// function returns. A repeated call with the same commit changes nothing and returns the same
    /// report.
    ///
    /// Costs one file write of about 150 bytes per block of the job's whole state.
    ///
    /// # Errors
    /// * `CheckpointRefused` if the snapshots are not one of each instance, are not based on the
    ///   commit's `base`, or a later checkpoint exists. Nothing was written.
    /// * Those of [`ObjectStore::write`]. Normally the checkpoint does not exist then. Its manifest
    ///   may exist if the folder also refuses to remove it; then the error has a hint, and a
    ///   repeated commit resolves it.
    pub fn commit(&self, commit: &Commit) -> Result<CheckpointReport> {
        let _work = self.shared.work();
        self.shared.resolve_doubtful()?;
        if !self.shared.knows(commit.id) {
            // A previous leader may have made this checkpoint.
            self.shared.learn(commit.id)?;
        }
        if let Some(there) = self.shared.committed(commit)? {
            self.shared.state().owns(commit.id);
            return Ok(CheckpointReport::of(&there));
        }
        let base = commit.base.map(|base| self.checkpoint(base)).transpose()?;
        let finished = self.shared.take_finished();
        let folded: Vec<_> = finished
            .iter()
            .map(|finished| (finished.vertex(), &finished.folded))
            .collect();
        let manifest = assemble::assemble(
            &self.shared.job,
            commit,
            base.as_ref().map(Checkpoint::manifest),
            &folded,
        );
        match manifest.and_then(|manifest| self.shared.write(manifest)) {
            Ok(manifest) => {
                self.shared.note_unreferred(&manifest, finished);
                Ok(CheckpointReport::of(&manifest))
            }
            Err(error) => {
                self.shared.state().finished.extend(finished);
                Err(error)
            }
        }
    }

    /// Sets the generation of new checkpoints, which the job's record must contain already.
    /// Compactions name their blocks for this generation. Must be called before any compaction if a
    /// deposed leader may still sweep.
    pub fn begin_generation(&self, generation: u64) {
        let mut state = self.shared.state();
        state.generation = state.generation.max(generation);
    }

    /// Abandons the compacted layers that are not committed: the next [sweep](Self::sweep) removes
    /// their blocks. For a job that makes no further checkpoint.
    pub fn abandon_compactions(&self) {
        // The drop of the compactions locks the state, so the state must not be locked here.
        drop(self.shared.take_finished());
    }

    /// Begins a compaction of the newest checkpoint, for the vertex with the most layers if it has
    /// more than [`StoreConfig::most_layers`]. `None` if no vertex is due for compaction, or all
    /// such vertices are already being compacted.
    pub fn begin_compaction(&self) -> Option<Compaction> {
        Compaction::begin(&self.shared, self.newest_kept()?)
    }

    /// Returns true if the instances of `vertex` should write full snapshots next. Its state has
    /// more than twice [`StoreConfig::most_layers`], or layers that cannot be compacted.
    pub fn wants_full(&self, vertex: &str) -> bool {
        let most = self.shared.config.most_layers.saturating_mul(2);
        let is_long = self
            .newest_kept()
            .is_some_and(|newest| newest.layers(vertex).len() > most);
        is_long || self.shared.state().unfoldable.contains(vertex)
    }

    fn newest_kept(&self) -> Option<Checkpoint> {
        let state = self.shared.state();
        let (_, manifest) = state.kept.last_key_value()?;
        Some(Checkpoint::new(
            Arc::clone(&self.shared.folder),
            Arc::clone(manifest),
        ))
    }
}

/// Returns true if the error means that a manifest could not be read, which may be temporary.
fn is_unread(error: &Error) -> bool {
    error.code() == ErrorCode::ReadFailed
}

/// The result of [`CheckpointStore::newest_whole`].
#[derive(Clone, Debug)]
pub struct LatestValid {
    /// The newest checkpoint without damage, if any.
    pub checkpoint: Option<Checkpoint>,
    /// The newer checkpoints, newest first, with the reasons for which they cannot be used.
    pub broken: Vec<(CheckpointId, Error)>,
}

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a single step, so a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, ()> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the manifest of this checkpoint was read.
    fn knows(&self, id: CheckpointId) -> bool {
        let state = self.state();
        state.kept.contains_key(&id) || state.damaged.contains_key(&id)
    }

    /// Reads the manifest of the checkpoint `id`, if it exists in the folder.
    fn learn(&self, id: CheckpointId) -> Result<()> {
        let Some(file) = self.folder.read(&StoredName::Manifest(id).file())? else {
            self.state().damaged.remove(&id);
            return Ok(());
        };
        let manifest = Manifest::decode(id, &self.job, &file, &self.folder.place());
        let mut state = self.state();
        match manifest {
            Ok(manifest) => {
                state.damaged.remove(&id);
                state.kept.insert(id, Arc::new(manifest));
            }
            Err(error) if error.code() == ErrorCode::WrongCluster => return Err(error),
            Err(error) => {
                state.damaged.insert(id, error);
            }
        }
        Ok(())
    }

    /// Reads the manifest of the checkpoint `id` again if it was unusable.
    fn learn_again(&self, id: CheckpointId) -> Result<()> {
        let is_damaged = self.state().damaged.contains_key(&id);
        match is_damaged {
            true => self.learn(id),
            false => Ok(()),
        }
    }

    /// Reads again all manifests that could not be read, since files that they may refer to cannot
    /// be removed.
    fn learn_unread(&self) {
        let unread: Vec<CheckpointId> = {
            let state = self.state();
            let damaged = state.damaged.iter();
            damaged
                .filter(|(_, error)| is_unread(error))
                .map(|(id, _)| *id)
                .collect()
        };
        for id in unread {
            // A manifest that is still unreadable stays in `damaged`.
            let _ = self.learn_again(id);
        }
    }

    /// Returns the manifest of this commit if it already exists. Writes the manifest again for
    /// durability, since the original writer may have died before its sync.
    fn committed(&self, commit: &Commit) -> Result<Option<Arc<Manifest>>> {
        let (there, newest) = {
            let state = self.state();
            (state.kept.get(&commit.id).cloned(), state.newest())
        };
        let Some(there) = there else {
            return match newest {
                Some(newest) if newest >= commit.id => {
                    Err(refused(commit.id, format!("there is checkpoint {newest}")))
                }
                _ => Ok(None),
            };
        };
        if !assemble::is_of(&there, commit) {
            return Err(refused(commit.id, "there is one, of other snapshots"));
        }
        let file = there.file();
        if let Some(bytes) = self.folder.read(&file)? {
            self.folder.write(&file, &bytes)?;
            return Ok(Some(there));
        }
        Err(crate::store::failure::gone(&file, &self.folder.place()))
    }

    /// Writes a manifest, and thereby makes the checkpoint.
    fn write(&self, manifest: Manifest) -> Result<Arc<Manifest>> {
        let (id, bytes) = (manifest.checkpoint, manifest.encode()?);
        if let Err(error) = self.folder.write(&manifest.file(), &bytes) {
            // The file may exist if only the last step of the write failed.
            if self.withdraw(id, &bytes).is_ok() {
                return Err(error);
            }
            self.state().doubtful.insert(id, bytes);
            return Err(error.hint("commit it again: it may be there, or not"));
        }
        let manifest = Arc::new(manifest);
        let mut state = self.state();
        for (vertex, part) in &manifest.vertices {
            // The state of finished instances may still be damaged. Then the damage is detected
            // again.
            if part.snapshot.full > 0 && part.snapshot.increments == 0 {
                state.unfoldable.remove(vertex);
            }
        }
        state.kept.insert(id, Arc::clone(&manifest));
        state.owns(id);
        Ok(manifest)
    }

    /// Removes the manifest with the content `bytes` that this store has written, if it exists.
    /// Never removes another writer's manifest of the same name.
    fn withdraw(&self, id: CheckpointId, bytes: &[u8]) -> Result<()> {
        let file = StoredName::Manifest(id).file();
        match self.folder.read(&file)? {
            Some(there) if there == bytes => self.folder.remove(&[(file, FileState::Whole)]),
            _ => Ok(()),
        }
    }

    /// Removes the manifests of failed commits.
    fn resolve_doubtful(&self) -> Result<()> {
        let doubtful = self.state().doubtful.clone();
        for (id, bytes) in doubtful {
            self.withdraw(id, &bytes)?;
            self.state().doubtful.remove(&id);
        }
        Ok(())
    }

    fn take_finished(&self) -> Vec<Finished> {
        std::mem::take(&mut self.state().finished)
    }

    /// Records the compacted blocks that the new `manifest` does not refer to. No later manifest
    /// will refer to them.
    fn note_unreferred(&self, manifest: &Manifest, finished: Vec<Finished>) {
        if finished.is_empty() {
            return;
        }
        let referred: HashSet<&str> = manifest.blocks().map(|block| &*block.file).collect();
        let blocks = finished
            .into_iter()
            .flat_map(|finished| finished.folded.states);
        let blocks = blocks.flat_map(|(_, blocks)| blocks);
        let unreferred = blocks.filter(|block| !referred.contains(&*block.file));
        // The drop of the finished compactions locks the state. They are therefore consumed before
        // the state is locked here.
        let unreferred: Vec<_> = unreferred.collect();
        self.state().unreferred.extend(unreferred);
    }
}

impl State {
    /// Returns the newest known checkpoint, usable or not.
    fn newest(&self) -> Option<CheckpointId> {
        let damaged = self.damaged.keys().next_back();
        self.kept.keys().next_back().max(damaged).copied()
    }

    fn owns(&mut self, id: CheckpointId) {
        self.own_newest = self.own_newest.max(Some(id));
    }

    /// Returns the checkpoint that blocks of new compactions are named for. An earlier leader
    /// sweeps only files of checkpoints before this one.
    pub fn folds_for(&self) -> CheckpointId {
        let begun = CheckpointId::start_of(self.generation);
        self.newest()
            .map_or(begun, |newest| newest.next().max(begun))
    }

    /// Marks `vertex` as in compaction. Returns false if it is already marked.
    pub fn begin_fold(&mut self, vertex: &str, writer: WriterToken) -> bool {
        if self.folding.contains_key(vertex) {
            return false;
        }
        self.folding.insert(vertex.to_string(), writer);
        true
    }

    pub fn is_folding(&self, vertex: &str) -> bool {
        self.folding.contains_key(vertex)
    }

    /// Clears the mark of `vertex` as in compaction.
    pub fn end_fold(&mut self, vertex: &str) {
        self.folding.remove(vertex);
    }

    /// Queues a compacted layer for the next commit.
    pub fn finish_fold(&mut self, finished: Finished) {
        self.finished.push(finished);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointStore")
            .field("folder", &self.folder)
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}
