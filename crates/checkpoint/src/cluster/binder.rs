//! Binds what workers have saved into snapshots, and clears away what is not needed any more: the snapshots of one job, by its master.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::io::{Chore, Housekeeper, Swept, block_config};
use crate::local::KeptNotes;
use crate::store::{
    Commit, CutKind, CutOf, CutReceipt, FileName, FileState, Folder, Snapshot, SnapshotId,
    SnapshotStore, StoreConfig,
};
use ardea_coordination::control::{
    BROUGHT, EpochsRecord, Generation, JobRef, MasterEpoch, Needed, RecordedSnapshot,
};
use ardea_core::{Clock, Epoch, Error, ErrorCode, Result};
use ardea_grid::cluster::Shelter;

use crate::cluster::part::{Part, PartKind, PartName};
use crate::cluster::probe::{find_own_folder, find_place};
use crate::cluster::{Place, Promise};

/// What is told of an epoch that its snapshot doesn't tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ToldOfEpoch {
    /// From its end being asked for until its snapshot was recorded.
    pub took: Option<Duration>,
    /// By vertex, for how long its slowest instance had held inputs that were ahead.
    pub aligned: BTreeMap<String, Duration>,
}

/// What is told of the epochs of a job that its snapshots don't tell. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<BTreeMap<Epoch, ToldOfEpoch>>>);

impl Told {
    fn epochs(&self) -> MutexGuard<'_, BTreeMap<Epoch, ToldOfEpoch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of one epoch; nothing if another process has made its snapshot.
    pub fn of(&self, epoch: Epoch) -> ToldOfEpoch {
        self.epochs().get(&epoch).cloned().unwrap_or_default()
    }

    pub(crate) fn took(&self, epoch: Epoch, took: Duration) {
        self.epochs().entry(epoch).or_default().took = Some(took);
    }

    fn aligned(&self, epoch: Epoch, aligned: BTreeMap<String, Duration>) {
        self.epochs().entry(epoch).or_default().aligned = aligned;
    }

    fn keep(&self, epochs: &[Epoch]) {
        self.epochs().retain(|epoch, _| epochs.contains(epoch));
    }
}

/// What the thread of a job's snapshots is asked for.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Make what this record adds a snapshot, before it is written.
    Make(Arc<EpochsRecord>, Sender<Result<()>>),
    /// Only these snapshots are needed any more, and what the present life is about to hand over.
    Keep(Needed),
    /// The job is gone, and no other snapshot of it will be made.
    Close,
}

/// Binds what workers have saved into the snapshots of one job.
pub(crate) struct Binder {
    job: JobRef,
    promise: Promise,
    told: Told,
    shelter: Option<Arc<dyn Shelter>>,
    open: Option<Open>,
}

/// The folder, as it is seen in one mastership.
struct Open {
    master: MasterEpoch,
    folder: Arc<dyn Folder>,
    store: SnapshotStore,
    housekeeper: Housekeeper,
    /// The snapshots that the record has.
    known: BTreeSet<SnapshotId>,
    /// Those that the next one may be based on: of the records that were seen, since nobody knows yet which of them will be stored.
    before: Vec<Arc<RecordedSnapshot>>,
    /// Those that are not to be collected.
    held: BTreeMap<Epoch, Snapshot>,
    /// Parts whose snapshot has been made.
    bound: Vec<PartName>,
    swept: Swept,
    /// For those who look into the folder when the cluster has forgotten the job.
    notes: Option<KeptNotes>,
}

impl Binder {
    pub(crate) fn new(
        job: JobRef,
        promise: Promise,
        told: Told,
        shelter: Option<Arc<dyn Shelter>>,
    ) -> Self {
        Binder {
            job,
            promise,
            told,
            shelter,
            open: None,
        }
    }

    /// Works until nobody asks any more.
    pub(crate) fn work(mut self, asks: &Receiver<Ask>) {
        while let Ok(ask) = asks.recv() {
            match ask {
                Ask::Make(record, answer) => {
                    // Who does not wait for the answer asks again.
                    let _ = answer.send(self.make(&record));
                }
                Ask::Keep(needed) => self.keep(&needed),
                Ask::Close => self.close(),
            }
        }
    }

    fn make(&mut self, record: &EpochsRecord) -> Result<()> {
        let present = self.open.as_ref().map(|open| open.master);
        if present > Some(record.master) {
            // It would be taken for what the present master has found in the folder.
            let what = format!("master {} has been followed by another", record.master.0);
            return Err(Error::new(ErrorCode::Superseded, what));
        }
        if present != Some(record.master) {
            // What another master has done meanwhile is found in the folder.
            self.open = None;
            self.open = Some(self.open(record)?);
        }
        let (name, told) = (&self.job.name, &self.told);
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        for snapshot in &record.snapshots {
            if !open.known.contains(&id_of(snapshot)) {
                open.bind(snapshot, (name, told))?;
            }
        }
        open.remember(&record.snapshots);
        Ok(())
    }

    /// The folder is there since the job was taken. Where it isn't it is another machine's, or not mounted, and must not be made.
    fn open(&self, record: &EpochsRecord) -> Result<Open> {
        let folder = find_place(&self.promise.place, &self.job, self.shelter.as_ref())?;
        let config = StoreConfig {
            keep: self.promise.survival.kept().get(),
            blocks: block_config(),
            ..StoreConfig::default()
        };
        let store = SnapshotStore::open(Arc::clone(&folder), &self.job.name, config)?;
        // Before anything is folded or collected.
        store.begin_generation(record.generation.0);
        // What a master finds in its record was made by those before it.
        let known: BTreeSet<SnapshotId> = record.snapshots.iter().map(|it| id_of(it)).collect();
        let mut held = BTreeMap::new();
        hold(&mut held, &known, &store);
        let job = self.job.clone();
        let housekeeper = Housekeeper::start(Arc::clone(&folder), store.clone(), move |error| {
            eprintln!("job {job}: old snapshots could not be cleared away: {error}");
        })?;
        let noted = find_own_folder(&self.promise.place, &self.job)?;
        Ok(Open {
            master: record.master,
            notes: noted.map(|folder| KeptNotes::new(folder, &self.job.name, record.master)),
            folder,
            store,
            housekeeper,
            known,
            before: record.snapshots.clone(),
            held,
            bound: Vec::new(),
            swept: Swept::default(),
        })
    }

    fn keep(&mut self, needed: &Needed) {
        self.told.keep(&needed.epochs);
        let Some(open) = &mut self.open else {
            return;
        };
        let stale = open.note(needed).unwrap_or_else(|error| {
            let job = &self.job;
            eprintln!("job {job}: its snapshots could not be noted beside them: {error}");
            Vec::new()
        });
        open.keep(&needed.epochs, needed.generation, stale);
    }

    /// Clears away what was written for snapshots that will not be made: the containers of the job have ended. What is in the memory of hosts only goes
    /// with the job.
    fn close(&mut self) {
        if self.promise.place == Place::Memory {
            return;
        }
        // A master that found the job at its end has made nothing.
        let open = match self.open.take() {
            Some(open) => Ok(open),
            None => self.open(&EpochsRecord::new(self.job.clone())),
        };
        if let Err(error) = open.and_then(|open| open.close()) {
            let job = &self.job;
            eprintln!("job {job}: what it had begun to write could not be cleared away: {error}");
        }
    }
}

/// Keeps these snapshots from being collected, as far as they can be read.
fn hold(held: &mut BTreeMap<Epoch, Snapshot>, known: &BTreeSet<SnapshotId>, store: &SnapshotStore) {
    for id in known {
        if !held.contains_key(&id.epoch)
            && let Ok(snapshot) = store.snapshot(*id)
        {
            held.insert(id.epoch, snapshot);
        }
    }
}

fn id_of(snapshot: &RecordedSnapshot) -> SnapshotId {
    SnapshotId::new(snapshot.generation.0, snapshot.epoch)
}

impl Open {
    /// What was made for an earlier record stays, as long as it may be stored after all: what is written in place of a commit whose fate is
    /// not known doesn't have that snapshot, and may come too late.
    fn remember(&mut self, recorded: &[Arc<RecordedSnapshot>]) {
        let is_new = |kept: &Arc<RecordedSnapshot>| !recorded.contains(kept);
        let known = &self.known;
        self.before
            .retain(|kept| is_new(kept) && known.contains(&id_of(kept)));
        self.before.extend_from_slice(recorded);
    }

    /// Makes a snapshot of what workers have saved.
    fn bind(&mut self, snapshot: &RecordedSnapshot, (job, told): (&str, &Told)) -> Result<()> {
        let id = id_of(snapshot);
        let mut before = self.before.iter();
        let over = before
            .find(|before| Some(before.epoch) == snapshot.over)
            .cloned();
        let over = over.as_deref();
        let base = base(snapshot, over);
        let mut cuts = Vec::new();
        let mut aligned: BTreeMap<String, Duration> = BTreeMap::new();
        for (participant, cut) in &snapshot.cuts {
            let name = PartName::from_bytes(&cut.receipt.place)?;
            let part = Part::read(&*self.folder, name, job)?;
            // The last state of who has ended counts once, and is unchanged from then on.
            let before = over.and_then(|over| over.cuts.get(participant));
            let is_bound = before.is_some_and(|before| before == cut) && cut.has_ended;
            cuts.extend(part.cuts.into_iter().map(|receipt| match is_bound {
                true => CutReceipt::unchanged(CutOf {
                    snapshot: id,
                    ..receipt.of().clone()
                }),
                false => receipt.carried_to(id, base),
            }));
            if !is_bound {
                for (vertex, micros) in part.aligned_micros {
                    let held = aligned.entry(vertex).or_default();
                    *held = Duration::from_micros(micros).max(*held);
                }
                self.bound.push(name);
            }
        }
        // What is all there needs nothing of before, which may be lost.
        let is_all = || cuts.iter().all(is_full);
        let base = base.filter(|base| !(self.is_lost(*base) && is_all()));
        let at = Clock::system().wall();
        self.store.commit(&Commit { id, base, at, cuts })?;
        told.aligned(id.epoch, aligned);
        self.known.insert(id);
        Ok(())
    }

    fn is_lost(&self, id: SnapshotId) -> bool {
        let found = self.store.snapshot(id);
        found.is_err_and(|error| error.code() == ErrorCode::NoSuchSnapshot)
    }

    /// Notes what counts, before anything that did is cleared away. What was brought from elsewhere doesn't: it is in the form of another program.
    fn note(&mut self, needed: &Needed) -> Result<Vec<(FileName, FileState)>> {
        let Some(notes) = &mut self.notes else {
            return Ok(Vec::new());
        };
        let known = self.known.iter().copied();
        let own = known.filter(|id| id.generation != BROUGHT.0);
        let kept = own.filter(|id| needed.epochs.contains(&id.epoch));
        notes.note(needed.committed, kept)
    }

    /// What the record needs stays; all else goes, and so do these files.
    fn keep(
        &mut self,
        epochs: &[Epoch],
        present: Generation,
        mut stale: Vec<(FileName, FileState)>,
    ) {
        self.store.begin_generation(present.0);
        self.held.retain(|epoch, _| epochs.contains(epoch));
        self.known.retain(|id| epochs.contains(&id.epoch));
        hold(&mut self.held, &self.known, &self.store);
        let bound = std::mem::take(&mut self.bound);
        let bound = bound.into_iter().filter(|part| is_stale(part, present));
        stale.extend(bound.filter_map(|part| Some((part.file().ok()?, FileState::Whole))));
        self.housekeeper.ask(Chore::Tidy(stale));
        self.sweep(present);
    }

    /// No other snapshot will be made of the job, and nobody goes on in its folder.
    fn close(&self) -> Result<()> {
        let listed = self.folder.list()?.into_iter();
        let parts = listed.filter(|file| PartName::parse(file.name.as_str()).is_some());
        let parts = parts.map(|file| (file.name, file.state)).collect();
        self.housekeeper.ask(Chore::Tidy(parts));
        let all = SnapshotId::start_of(u64::MAX);
        self.housekeeper.ask(Chore::Close(all));
        Ok(())
    }

    /// Removes what was begun and never became part of a snapshot, if there can be some.
    fn sweep(&mut self, present: Generation) {
        let committed = self.known.iter().max().copied();
        let Some(floor) = self.swept.due(committed, present.0) else {
            return;
        };
        // What can't be listed now is when the next epoch is committed.
        let Ok(listed) = self.folder.list() else {
            self.swept = Swept::default();
            return;
        };
        // Those of a life that has ended, and of epochs that were given up.
        let left = listed.into_iter().filter_map(|file| {
            let part = PartName::parse(file.name.as_str())?;
            let is_left = match part.kind {
                PartKind::Cut => part.snapshot < floor,
                PartKind::Last => part.snapshot.generation < present.0,
            };
            is_left.then_some((file.name, file.state))
        });
        self.housekeeper.ask(Chore::Tidy(left.collect()));
        self.housekeeper.ask(Chore::Sweep(floor));
    }
}

/// Whether a cut has all that its instance remembers.
pub(crate) fn is_full(cut: &CutReceipt) -> bool {
    matches!(cut.kind(), CutKind::Full { .. })
}

/// The snapshot that the increments are based on. A life that begins with other numbers of instances than those of the snapshot that it
/// begins from hands over everything first, based on nothing.
fn base(snapshot: &RecordedSnapshot, over: Option<&RecordedSnapshot>) -> Option<SnapshotId> {
    let over = over?;
    let is_first = over.generation != snapshot.generation;
    let mut cuts = snapshot.cuts.values();
    let is_whole = is_first && cuts.any(|cut| cut.receipt.since.is_none());
    (!is_whole).then(|| id_of(over))
}

/// Whether a part is not needed any more, now that its snapshot has been recorded.
fn is_stale(part: &PartName, present: Generation) -> bool {
    match part.kind {
        PartKind::Cut => true,
        // It counts in later snapshots of its life too.
        PartKind::Last => part.snapshot.generation < present.0,
    }
}

#[cfg(test)]
#[path = "binder_tests.rs"]
mod tests;
