//! Brings a savepoint home: a job that has nothing of its own yet goes on from there as if it had stopped there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::savepoint::{JobStates, Savepoint, SavepointManifest, StateDiff, Verdict, copy, diff};
use crate::store::{Folder, SnapshotId};
use ardea_coordination::control::{
    EpochsRecord, Generation, Receipt, RecordedCut, RecordedSnapshot, StopState,
};
use ardea_core::{Error, ErrorCode, RUNTIME_STATE, Result};

use crate::local::bucket::{address_of, place_of_savepoint};
use crate::local::failure::is_of_snapshot;
use crate::local::home::Home;
use crate::local::life::PARTICIPANT;
use crate::local::record::{KeptRecord, Wrote, is_record};
use crate::local::saving::whole_place;
use crate::local::{Notice, Survival};

impl Home {
    /// Brings the savepoint home that the job is to begin from, unless it has done so before.
    ///
    /// All of its state is copied, so that the job needs it no more. What was to be dropped stays behind, and vertices that are new have
    /// nothing. Where the folder has state that `counts` until that is done, it is not noted before that it is under way.
    ///
    /// # Errors
    /// `WrongState` if the job has state that doesn't come from there, or is no longer told where it was to begin; `InvalidJob` if it can't go
    /// on from it, with all reasons; what reading and writing returns. Nothing counts of what was brought by then.
    pub(crate) fn bring(&mut self, survival: &Survival, counts: bool) -> Result<()> {
        let Some(from) = &survival.from else {
            return match (self.bringing(), survival.dropping.is_empty()) {
                (Some(from), _) => Err(not_brought(&self.folder.place(), from)),
                (None, true) => Ok(()),
                (None, false) => Err(nothing_to_drop()),
            };
        };
        if self.has_brought(from, survival)? {
            return Ok(());
        }
        let savepoint = match open(from).and_then(Savepoint::open) {
            // It was meant all the same.
            Err(error) if is_of_snapshot(&error) && !counts => {
                self.note_bringing(from)?;
                return Err(error);
            }
            opened => opened?,
        };
        let found = diff(
            &savepoint.manifest().states(),
            self.states(),
            &survival.dropping,
        );
        let place = savepoint_place(from);
        found.check(&self.job.name, &place)?;
        if !counts {
            // Snapshots without a record would be taken for what is left of a lost one.
            self.note_bringing(from)?;
        }
        self.import(&savepoint, survival, &found)?;
        let manifest = savepoint.manifest();
        let notice = Notice::FromSavepoint {
            place,
            epoch: manifest.snapshot.epoch,
            at: manifest.at(),
            changes: found,
        };
        survival.tell(&self.job.name, &notice);
        Ok(())
    }

    /// Whether the job has begun from that savepoint before. One that can't be opened can't be compared, and isn't needed any more.
    fn has_brought(&self, from: &Path, survival: &Survival) -> Result<bool> {
        let record = self.record.as_ref();
        let origin = record.and_then(|record| record.origin.as_ref());
        let manifest = open(from).and_then(|folder| SavepointManifest::read(&*folder));
        match (origin, manifest) {
            (Some(origin), Ok(manifest)) if manifest.id == *origin => Ok(true),
            (Some(_), Err(error)) => {
                let notice = Notice::SavepointAway {
                    place: savepoint_place(from),
                    why: error.without_hint().to_string(),
                };
                survival.tell(&self.job.name, &notice);
                Ok(true)
            }
            _ if self.committed().is_some() => Err(of_its_own(&self.folder.place(), from)),
            _ => Ok(false),
        }
    }

    /// The place of the savepoint that the job was to begin from, and has not yet.
    fn bringing(&self) -> Option<&str> {
        self.record.as_ref()?.bringing.as_deref()
    }

    /// Notes that the job is to begin from there: run again without being told so it would begin with nothing.
    fn note_bringing(&mut self, from: &Path) -> Result<()> {
        let place = whole_place(from)?.display().to_string();
        if self.bringing() == Some(&place) {
            return Ok(());
        }
        let known = self.record.as_ref();
        self.note(KeptRecord {
            job: self.job.name.clone(),
            end: None,
            told: BTreeMap::new(),
            states: BTreeMap::new(),
            origin: None,
            bringing: Some(place),
            epochs: known.map_or_else(
                || Arc::new(EpochsRecord::new(self.job.clone())),
                |record| Arc::clone(&record.epochs),
            ),
        })
    }

    fn import(
        &mut self,
        savepoint: &Savepoint,
        survival: &Survival,
        found: &StateDiff,
    ) -> Result<()> {
        let known = self
            .record
            .as_ref()
            .map(|record| Arc::clone(&record.epochs));
        let before = known.map_or_else(
            || EpochsRecord::new(self.job.clone()),
            |epochs| EpochsRecord::clone(&epochs),
        );
        let manifest = savepoint.manifest();
        let epoch = manifest.snapshot.epoch;
        let generation = before.generation.next();
        let id = SnapshotId::new(generation.0, epoch);
        let states = Arc::clone(self.states());
        let dropping = &survival.dropping;
        let wanted = |vertex: &str, state: Option<&str>| {
            let is_there = states.vertices.contains_key(vertex) && !dropping.has_vertex(vertex);
            is_there && state.is_none_or(|state| !dropping.has(vertex, state))
        };
        let is_new =
            |vertex: &&String| !wanted(vertex, None) || !manifest.vertices.contains_key(*vertex);
        let added = states.vertices.keys().filter(is_new);
        let added: BTreeMap<String, u32> = added.map(|vertex| (vertex.clone(), 1)).collect();
        let threads = ardea_engine::allowed_cores().len().clamp(1, 4);
        let copied = copy(
            savepoint.snapshot(),
            &self.store,
            id,
            &wanted,
            &added,
            threads,
        )?;
        let receipt = Receipt {
            since: None,
            place: epoch.0.to_be_bytes().to_vec(),
            bytes: copied.report.bytes(),
        };
        let cut = RecordedCut {
            receipt,
            has_ended: false,
        };
        let snapshot = RecordedSnapshot {
            epoch,
            generation,
            over: None,
            is_savepoint: false,
            cuts: BTreeMap::from([(PARTICIPANT, cut)]),
        };
        let epochs = EpochsRecord {
            numbers: before.numbers.max(epoch),
            generation: Generation(generation.0),
            begun: false,
            restored_from: None,
            committed: Some(epoch),
            snapshots: vec![Arc::new(snapshot)],
            stop: StopState::No,
            ..before
        };
        let was = left_of(&manifest.states(), found);
        self.note(KeptRecord {
            job: self.job.name.clone(),
            end: None,
            told: BTreeMap::new(),
            states: BTreeMap::from([(epoch.0, Arc::new(was))]),
            origin: Some(manifest.id.clone()),
            bringing: None,
            epochs: Arc::new(epochs),
        })
    }

    /// Writes a record, outside of what the conductor does.
    fn note(&mut self, record: KeptRecord) -> Result<()> {
        match self.files.write(&record) {
            Wrote::Yes => {
                self.record = Some(record);
                Ok(())
            }
            Wrote::No(error) | Wrote::InDoubt(error) => Err(error),
        }
    }
}

/// Refuses the folder of a savepoint as that of jobs: one would collect the savepoint's snapshot as one of its own. Changes nothing.
///
/// # Errors
/// `WrongState` if a savepoint is there, whole or not; what reading returns.
pub fn no_savepoint(folder: Arc<dyn Folder>) -> Result<Arc<dyn Folder>> {
    if folder.read(&SavepointManifest::file()?)?.is_none() {
        return Ok(folder);
    }
    let place = folder.place();
    let what = format!("{place} is a savepoint, and can't have a job's snapshots");
    let listed = folder.list()?;
    let hint = match listed.iter().any(|file| is_record(&file.name)) {
        // Of a version that let one begin there.
        true => {
            "a job has its state there as well: save that elsewhere (`ardea savepoint FOLDER --to PLACE`) and begin from there, or remove savepoint.manifest"
        }
        false => "begin from it (recovery.from), and give snapshots.folder another folder",
    };
    Err(Error::new(ErrorCode::WrongState, what).hint(hint))
}

/// What a savepoint has, without what was left behind.
fn left_of(states: &JobStates, found: &StateDiff) -> JobStates {
    let is_left = |vertex: &str, state: &str| {
        let mut dropped = found.states.iter().filter(|of| of.verdict == Verdict::Drop);
        dropped.any(|of| of.vertex == vertex && of.state == state)
    };
    states.having(|vertex, state| !state.starts_with(RUNTIME_STATE) && !is_left(vertex, state))
}

fn open(from: &Path) -> Result<Arc<dyn Folder>> {
    place_of_savepoint(from).map_err(|error| match error.code() {
        ErrorCode::ReadFailed if address_of(from).is_none() => {
            error.hint("name the folder that a savepoint was written to (recovery.from)")
        }
        _ => error,
    })
}

fn of_its_own(own: &str, from: &Path) -> Error {
    let from = from.display();
    let what =
        format!("{own} has state of the job's own, which does not come from the savepoint {from}");
    Error::new(ErrorCode::WrongState, what).hint(
        "leave recovery.from out to go on from the folder; or give the job an empty one; or let it start over from the savepoint (recovery.start_over)",
    )
}

fn not_brought(own: &str, from: &str) -> Error {
    let what = format!("the job in {own} was to begin from the savepoint {from}, and has not yet");
    Error::new(ErrorCode::WrongState, what).hint(format!(
        "say recovery.from={from} again; or begin with nothing (recovery.start_over)"
    ))
}

fn savepoint_place(from: &Path) -> String {
    format!("the savepoint {}", from.display())
}

fn nothing_to_drop() -> Error {
    let what = "state is to be dropped, and the job does not begin from a savepoint";
    Error::new(ErrorCode::InvalidConfig, what)
        .hint("recovery.drop goes with recovery.from; recovery.start_over drops all there is")
}
