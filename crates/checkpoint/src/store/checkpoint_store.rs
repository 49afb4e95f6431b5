//! The snapshots of one job.

mod collect;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, Result};

use crate::store::assemble::{self, Commit};
use crate::store::block::BlockRef;
use crate::store::failure::{no_such, refused};
use crate::store::file_name::{StoredName, WriterToken};
use crate::store::fold::{Finished, Fold};
use crate::store::manifest::Manifest;
use crate::store::{
    BlockConfig, BlockWriter, CutKind, CutOf, FileState, Folder, Snapshot, SnapshotId,
    SnapshotReport,
};

pub use collect::Collected;

/// How snapshots are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// How many of the newest snapshots are kept; at least one is.
    pub keep: usize,
    /// From how many layers the state of a vertex is read at most, if folding keeps up: when there are more, it is time to
    /// [fold](SnapshotStore::fold).
    pub most_layers: usize,
    /// How blocks are cut.
    pub blocks: BlockConfig,
}

/// Three snapshots, of up to sixteen layers: half as many were folded twice as often, which took 3 % of the time of 10 ms windows.
impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            keep: 3,
            most_layers: 16,
            blocks: BlockConfig::default(),
        }
    }
}

/// The snapshots of one job, in a folder of its own.
///
/// There is one at a time that commits, collects and sweeps: that of the job's master. One that has been followed by another, and has not heard of it,
/// may go on to collect and sweep for a while: it takes nothing that the other needs, if that has [begun](Self::begin_generation). Other processes write
/// blocks, by a [`BlockWriter`], and read, by a [`Snapshot`] of their own. Cloning is cheap, and all clones are the same store.
///
/// Calls block for as long as the folder does. Looking at what is there never waits for a commit or a collection.
#[derive(Clone, Debug)]
pub struct SnapshotStore {
    shared: Arc<Shared>,
}

/// What the clones of a store and its folds share.
pub(crate) struct Shared {
    pub folder: Arc<dyn Folder>,
    pub job: String,
    pub config: StoreConfig,
    /// Held by whoever changes manifests.
    work: Mutex<()>,
    state: Mutex<State>,
}

/// What a store knows.
#[derive(Default)]
pub(crate) struct State {
    /// The snapshots that are there. Whoever reads one holds its manifest as well.
    kept: BTreeMap<SnapshotId, Arc<Manifest>>,
    /// Manifests that can't be used. They are tried again when somebody asks for them: a disk may answer again, a file be restored.
    damaged: BTreeMap<SnapshotId, Error>,
    /// Manifests of commits that failed, which may be there all the same and could not be removed.
    doubtful: BTreeMap<SnapshotId, Vec<u8>>,
    /// The generation in which snapshots are made, as far as it was told.
    generation: u64,
    /// The newest snapshot that was there at the beginning, or was committed here. What is newer was made by another, who goes on.
    own_newest: Option<SnapshotId>,
    /// Vertices that are being folded, or whose folded layer waits for the next commit, and who writes it.
    folding: BTreeMap<String, WriterToken>,
    finished: Vec<Finished>,
    /// Blocks that were folded for nothing: what they are of went meanwhile.
    pub unreferred: Vec<BlockRef>,
    /// Vertices that can't be folded, since something is damaged.
    pub unfoldable: BTreeSet<String>,
}

impl SnapshotStore {
    /// The snapshots of `job` in this folder. Reads all manifests, and changes nothing.
    ///
    /// # Errors
    /// `WrongCluster` if there are snapshots of another job, and what [`Folder::list`] returns. Manifests that are damaged or can't be read
    /// are no failure: see [`damaged`](Self::damaged). One that can't be used now is tried again when it is asked for.
    pub fn open(folder: Arc<dyn Folder>, job: &str, config: StoreConfig) -> Result<Self> {
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
        Ok(SnapshotStore {
            shared: Arc::new(shared),
        })
    }

    /// Begins to write the cut of an instance, into this store's folder.
    ///
    /// # Errors
    /// As [`BlockWriter::new`].
    pub fn writer(&self, of: CutOf, kind: CutKind) -> Result<BlockWriter> {
        let Shared {
            folder,
            job,
            config,
            ..
        } = &*self.shared;
        BlockWriter::new(Arc::clone(folder), job, of, kind, config.blocks)
    }

    /// The snapshots that are there, the oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotId> {
        self.shared.state().kept.keys().copied().collect()
    }

    /// The manifests that can't be used, and why; with `ReadFailed` those that could not be read when that was tried last.
    pub fn damaged(&self) -> Vec<(SnapshotId, Error)> {
        let state = self.shared.state();
        let damaged = state.damaged.iter();
        damaged.map(|(id, error)| (*id, error.clone())).collect()
    }

    /// A snapshot, to be read. As long as it is held, it is not collected.
    ///
    /// # Errors
    /// `NoSuchSnapshot`, or why its manifest can't be used. One that could not be used before is tried again, which costs a read.
    pub fn snapshot(&self, id: SnapshotId) -> Result<Snapshot> {
        self.shared.learn_again(id)?;
        let state = self.shared.state();
        if let Some(manifest) = state.kept.get(&id) {
            return Ok(Snapshot::new(
                Arc::clone(&self.shared.folder),
                Arc::clone(manifest),
            ));
        }
        let damaged = state.damaged.get(&id).cloned();
        Err(damaged.unwrap_or_else(|| no_such(id, &self.shared.folder.place())))
    }

    /// The newest snapshot, if there is any. Where a state manager has recorded which one counts, ask for that.
    ///
    /// # Errors
    /// Why the newest manifest can't be used. It is never silently an earlier one: [`newest_whole`](Self::newest_whole) finds that, for
    /// whoever decides to go on from there.
    pub fn latest(&self) -> Result<Option<Snapshot>> {
        let newest = self.shared.state().newest();
        newest.map(|id| self.snapshot(id)).transpose()
    }

    /// The newest snapshot all of whose blocks are there and as they were written, and why the newer ones are not. Reads all blocks until
    /// it finds one.
    pub fn newest_whole(&self) -> NewestWhole {
        let (mut known, mut whole) = (BTreeSet::new(), HashSet::new());
        {
            let state = self.shared.state();
            known.extend(state.kept.keys().chain(state.damaged.keys()).copied());
        }
        let mut broken = Vec::new();
        for id in known.into_iter().rev() {
            let verified = self.snapshot(id).and_then(|snapshot| {
                snapshot.verify_but(&mut whole)?;
                Ok(snapshot)
            });
            match verified {
                Ok(snapshot) => {
                    let snapshot = Some(snapshot);
                    return NewestWhole { snapshot, broken };
                }
                // Collected meanwhile.
                Err(error) if error.code() == ErrorCode::NoSuchSnapshot => {}
                Err(error) => broken.push((id, error)),
            }
        }
        NewestWhole {
            snapshot: None,
            broken,
        }
    }

    /// Makes a snapshot of the cuts of all instances. When this returns it is there, whatever happens then. The same commit again changes
    /// nothing, and says so by the same report.
    ///
    /// Costs writing one file, of about 150 bytes for each block of the whole state.
    ///
    /// # Errors
    /// * `SnapshotRefused`: the cuts are not one of each instance, or not based on `base`, or there is a later snapshot. Nothing was done.
    /// * What [`Folder::write`] returns. Then it is not there as a rule; if the folder refuses even to remove what may be there, the
    ///   error's hint says so, and committing again decides it.
    pub fn commit(&self, commit: &Commit) -> Result<SnapshotReport> {
        let _work = self.shared.work();
        self.shared.resolve_doubtful()?;
        if !self.shared.knows(commit.id) {
            // Somebody else may have made it, who was master before.
            self.shared.learn(commit.id)?;
        }
        if let Some(there) = self.shared.committed(commit)? {
            self.shared.state().owns(commit.id);
            return Ok(SnapshotReport::of(&there));
        }
        let base = commit.base.map(|base| self.snapshot(base)).transpose()?;
        let finished = self.shared.take_finished();
        let folded: Vec<_> = finished
            .iter()
            .map(|finished| (finished.vertex(), &finished.folded))
            .collect();
        let manifest = assemble::assemble(
            &self.shared.job,
            commit,
            base.as_ref().map(Snapshot::manifest),
            &folded,
        );
        match manifest.and_then(|manifest| self.shared.write(manifest)) {
            Ok(manifest) => {
                self.shared.note_unreferred(&manifest, finished);
                Ok(SnapshotReport::of(&manifest))
            }
            Err(error) => {
                self.shared.state().finished.extend(finished);
                Err(error)
            }
        }
    }

    /// From now on snapshots are made in this generation, which is recorded: what is folded is named for it. To be told before anything is folded
    /// where those who made snapshots before may not have heard that they were followed, and sweep once more.
    pub fn begin_generation(&self, generation: u64) {
        let mut state = self.shared.state();
        state.generation = state.generation.max(generation);
    }

    /// No other snapshot will be made that would refer to what was folded since the last: the next [sweep](Self::sweep) removes that.
    pub fn forget_folded(&self) {
        // What was finished tells the state of its end itself.
        drop(self.shared.take_finished());
    }

    /// Begins to fold layers of the newest snapshot, if the state of a vertex has more than [`StoreConfig::most_layers`]: of several such
    /// vertices, that with the most. None if there is nothing to fold, or all is being folded.
    pub fn fold(&self) -> Option<Fold> {
        Fold::begin(&self.shared, self.newest_kept()?)
    }

    /// Whether the instances of a vertex had better hand over all that they have next time: its state has more than twice as many layers
    /// as it should, or layers that can't be folded any more.
    pub fn wants_full(&self, vertex: &str) -> bool {
        let most = self.shared.config.most_layers.saturating_mul(2);
        let is_long = self
            .newest_kept()
            .is_some_and(|newest| newest.layers(vertex).len() > most);
        is_long || self.shared.state().unfoldable.contains(vertex)
    }

    fn newest_kept(&self) -> Option<Snapshot> {
        let state = self.shared.state();
        let (_, manifest) = state.kept.last_key_value()?;
        Some(Snapshot::new(
            Arc::clone(&self.shared.folder),
            Arc::clone(manifest),
        ))
    }
}

/// Whether a manifest could not be read, which says nothing of what it is like.
fn is_unread(error: &Error) -> bool {
    error.code() == ErrorCode::ReadFailed
}

/// What [`SnapshotStore::newest_whole`] has found.
#[derive(Clone, Debug)]
pub struct NewestWhole {
    /// The snapshot, if there is any.
    pub snapshot: Option<Snapshot>,
    /// Those that are newer, the newest first, and what is wrong with them.
    pub broken: Vec<(SnapshotId, Error)>,
}

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, State> {
        // All changes are single steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, ()> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the manifest of this snapshot was seen.
    fn knows(&self, id: SnapshotId) -> bool {
        let state = self.state();
        state.kept.contains_key(&id) || state.damaged.contains_key(&id)
    }

    /// Reads a manifest that may be in the folder.
    fn learn(&self, id: SnapshotId) -> Result<()> {
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

    /// Reads a manifest that could not be used before; nothing is done about any other.
    fn learn_again(&self, id: SnapshotId) -> Result<()> {
        let is_damaged = self.state().damaged.contains_key(&id);
        match is_damaged {
            true => self.learn(id),
            false => Ok(()),
        }
    }

    /// Tries all manifests again that could not be read: as long as one is unknown, what it may refer to has to stay.
    fn learn_unread(&self) {
        let unread: Vec<SnapshotId> = {
            let state = self.state();
            let damaged = state.damaged.iter();
            damaged
                .filter(|(_, error)| is_unread(error))
                .map(|(id, _)| *id)
                .collect()
        };
        for id in unread {
            // What can't be read yet stays where it stands.
            let _ = self.learn_again(id);
        }
    }

    /// The manifest of this commit, if it was committed before; made as durable as it should be, since whoever wrote it may have died
    /// before it was.
    fn committed(&self, commit: &Commit) -> Result<Option<Arc<Manifest>>> {
        let (there, newest) = {
            let state = self.state();
            (state.kept.get(&commit.id).cloned(), state.newest())
        };
        let Some(there) = there else {
            return match newest {
                Some(newest) if newest >= commit.id => {
                    Err(refused(commit.id, format!("there is snapshot {newest}")))
                }
                _ => Ok(None),
            };
        };
        if !assemble::is_of(&there, commit) {
            return Err(refused(commit.id, "there is one, of other cuts"));
        }
        let file = there.file();
        if let Some(bytes) = self.folder.read(&file)? {
            self.folder.write(&file, &bytes)?;
            return Ok(Some(there));
        }
        Err(crate::store::failure::gone(&file, &self.folder.place()))
    }

    /// Writes a manifest, and so makes the snapshot.
    fn write(&self, manifest: Manifest) -> Result<Arc<Manifest>> {
        let (id, bytes) = (manifest.snapshot, manifest.encode()?);
        if let Err(error) = self.folder.write(&manifest.file(), &bytes) {
            // If the last step failed it may be there.
            if self.withdraw(id, &bytes).is_ok() {
                return Err(error);
            }
            self.state().doubtful.insert(id, bytes);
            return Err(error.hint("commit it again: it may be there, or not"));
        }
        let manifest = Arc::new(manifest);
        let mut state = self.state();
        for (vertex, part) in &manifest.vertices {
            // What instances left that have ended may still be damaged; then it is found again.
            if part.cut.full > 0 && part.cut.increments == 0 {
                state.unfoldable.remove(vertex);
            }
        }
        state.kept.insert(id, Arc::clone(&manifest));
        state.owns(id);
        Ok(manifest)
    }

    /// Removes a manifest of this store's own, if it is there; never that of another who has this name for its own.
    fn withdraw(&self, id: SnapshotId, bytes: &[u8]) -> Result<()> {
        let file = StoredName::Manifest(id).file();
        match self.folder.read(&file)? {
            Some(there) if there == bytes => self.folder.remove(&[(file, FileState::Whole)]),
            _ => Ok(()),
        }
    }

    /// Removes manifests of commits that failed.
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

    /// Of what was folded before this manifest was made only what that refers to will ever be needed.
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
        // What was finished tells the state of its end itself.
        let unreferred: Vec<_> = unreferred.collect();
        self.state().unreferred.extend(unreferred);
    }
}

impl State {
    /// The newest snapshot of which anything is known.
    fn newest(&self) -> Option<SnapshotId> {
        let damaged = self.damaged.keys().next_back();
        self.kept.keys().next_back().max(damaged).copied()
    }

    fn owns(&mut self, id: SnapshotId) {
        self.own_newest = self.own_newest.max(Some(id));
    }

    /// For which snapshot blocks are written that are folded now: none that whoever made the newest, or an earlier one, knows to be over.
    pub fn folds_for(&self) -> SnapshotId {
        let begun = SnapshotId::start_of(self.generation);
        self.newest()
            .map_or(begun, |newest| newest.next().max(begun))
    }

    /// Takes a vertex for folding; false if somebody has it.
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

    /// Nobody folds this vertex any more.
    pub fn end_fold(&mut self, vertex: &str) {
        self.folding.remove(vertex);
    }

    /// A folded layer waits for the next commit.
    pub fn finish_fold(&mut self, finished: Finished) {
        self.finished.push(finished);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotStore")
            .field("folder", &self.folder)
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}
