//! Import of a savepoint: a job without state resumes from the savepoint as if it had stopped at
//! its epoch.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::savepoint::{
    JobStateSchema, Savepoint, SavepointManifest, StateDiff, Verdict, copy, diff,
};
use crate::store::{CheckpointId, ObjectStore};
use ardea_coordination::control::{
    CheckpointRecord, Generation, RecordedCheckpoint, RecordedSnapshot, SnapshotAck, StopState,
};
use ardea_core::{Error, ErrorCode, RUNTIME_STATE, Result};

use crate::local::attempt::PARTICIPANT;
use crate::local::bucket::{address_of, place_of_savepoint};
use crate::local::create_savepoint::whole_place;
use crate::local::failure::is_of_checkpoint;
use crate::local::job_dir::JobDirectory;
use crate::local::record::{LocalJobRecord, WriteResult, is_record};
use crate::local::{FaultTolerance, RecoveryEvent};

impl JobDirectory {
    /// Imports the configured savepoint, unless the job has already imported it.
    ///
    /// All state except dropped state is copied, so the savepoint is not needed afterwards. New
    /// vertices start empty. An import into a folder without committed state is first recorded as
    /// pending. `counts` is true if the folder has committed state. This state stays valid until
    /// the import is done.
    ///
    /// # Errors
    /// `WrongState` if the job has state of another origin, or an import is pending and no
    /// savepoint is configured; `InvalidJob` with all reasons if the job cannot be restored from
    /// the savepoint; those of reading and writing. After an error no imported state is valid.
    pub(crate) fn import_configured(
        &mut self,
        survival: &FaultTolerance,
        counts: bool,
    ) -> Result<()> {
        let Some(from) = &survival.from else {
            return match (self.bringing(), survival.dropping.is_empty()) {
                (Some(from), _) => Err(not_brought(&self.folder.place(), from)),
                (None, true) => Ok(()),
                (None, false) => Err(nothing_to_drop()),
            };
        };
        if self.has_imported(from, survival)? {
            return Ok(());
        }
        let savepoint = match open(from).and_then(Savepoint::open) {
            // The failed import is recorded as pending: the job must not start without it.
            Err(error) if is_of_checkpoint(&error) && !counts => {
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
            // Without this record, the imported checkpoints would look like those of a lost record.
            self.note_bringing(from)?;
        }
        self.import(&savepoint, survival, &found)?;
        let manifest = savepoint.manifest();
        let notice = RecoveryEvent::FromSavepoint {
            place,
            epoch: manifest.checkpoint.epoch,
            at: manifest.at(),
            changes: found,
        };
        survival.notify(&self.job.name, &notice);
        Ok(())
    }

    /// Returns true if the job has already started from the savepoint `from`. Also returns true if
    /// the savepoint cannot be opened and the job has started from any savepoint.
    fn has_imported(&self, from: &Path, survival: &FaultTolerance) -> Result<bool> {
        let record = self.record.as_ref();
        let origin = record.and_then(|record| record.origin.as_ref());
        let manifest = open(from).and_then(|folder| SavepointManifest::read(&*folder));
        match (origin, manifest) {
            (Some(origin), Ok(manifest)) if manifest.id == *origin => Ok(true),
            (Some(_), Err(error)) => {
                let notice = RecoveryEvent::SavepointUnavailable {
                    place: savepoint_place(from),
                    why: error.without_hint().to_string(),
                };
                survival.notify(&self.job.name, &notice);
                Ok(true)
            }
            _ if self.committed().is_some() => Err(of_its_own(&self.folder.place(), from)),
            _ => Ok(false),
        }
    }

    /// Returns the location of the savepoint whose import is pending.
    fn bringing(&self) -> Option<&str> {
        self.record.as_ref()?.bringing.as_deref()
    }

    /// Records the import of `from` as pending. A later run without the savepoint setting then does
    /// not start without state.
    fn note_bringing(&mut self, from: &Path) -> Result<()> {
        let place = whole_place(from)?.display().to_string();
        if self.bringing() == Some(&place) {
            return Ok(());
        }
        let known = self.record.as_ref();
        self.note(LocalJobRecord {
            job: self.job.name.clone(),
            end: None,
            told: BTreeMap::new(),
            states: BTreeMap::new(),
            origin: None,
            bringing: Some(place),
            epochs: known.map_or_else(
                || Arc::new(CheckpointRecord::new(self.job.clone())),
                |record| Arc::clone(&record.epochs),
            ),
        })
    }

    fn import(
        &mut self,
        savepoint: &Savepoint,
        survival: &FaultTolerance,
        found: &StateDiff,
    ) -> Result<()> {
        let known = self
            .record
            .as_ref()
            .map(|record| Arc::clone(&record.epochs));
        let before = known.map_or_else(
            || CheckpointRecord::new(self.job.clone()),
            |epochs| CheckpointRecord::clone(&epochs),
        );
        let manifest = savepoint.manifest();
        let epoch = manifest.checkpoint.epoch;
        let generation = before.generation.next();
        let id = CheckpointId::new(generation.0, epoch);
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
            savepoint.checkpoint(),
            &self.store,
            id,
            &wanted,
            &added,
            threads,
        )?;
        let receipt = SnapshotAck {
            since: None,
            place: epoch.0.to_be_bytes().to_vec(),
            bytes: copied.report.bytes(),
        };
        let snapshot = RecordedSnapshot {
            receipt,
            has_ended: false,
        };
        let checkpoint = RecordedCheckpoint {
            epoch,
            generation,
            over: None,
            is_savepoint: false,
            snapshots: BTreeMap::from([(PARTICIPANT, snapshot)]),
        };
        let epochs = CheckpointRecord {
            numbers: before.numbers.max(epoch),
            generation: Generation(generation.0),
            begun: false,
            restored_from: None,
            committed: Some(epoch),
            checkpoints: vec![Arc::new(checkpoint)],
            stop: StopState::No,
            ..before
        };
        let was = left_of(&manifest.states(), found);
        self.note(LocalJobRecord {
            job: self.job.name.clone(),
            end: None,
            told: BTreeMap::new(),
            states: BTreeMap::from([(epoch.0, Arc::new(was))]),
            origin: Some(manifest.id.clone()),
            bringing: None,
            epochs: Arc::new(epochs),
        })
    }

    /// Writes the job's record, bypassing the checkpoint coordinator.
    fn note(&mut self, record: LocalJobRecord) -> Result<()> {
        match self.files.write(&record) {
            WriteResult::Yes => {
                self.record = Some(record);
                Ok(())
            }
            WriteResult::No(error) | WriteResult::InDoubt(error) => Err(error),
        }
    }
}

/// Checks that a job's folder is not a savepoint, and returns the folder. The job would
/// garbage-collect the savepoint's checkpoint. Changes nothing.
///
/// # Errors
/// `WrongState` if the folder contains a savepoint, complete or not; those of reading.
pub fn ensure_no_savepoint(folder: Arc<dyn ObjectStore>) -> Result<Arc<dyn ObjectStore>> {
    if folder.read(&SavepointManifest::file()?)?.is_none() {
        return Ok(folder);
    }
    let place = folder.place();
    let what = format!("{place} is a savepoint, and can't have a job's checkpoints");
    let listed = folder.list()?;
    let hint = match listed.iter().any(|file| is_record(&file.name)) {
        // An earlier version allowed jobs in such a folder.
        true => {
            "the folder has the state of a job as well: write a savepoint of it elsewhere (`ardea savepoint FOLDER --to PLACE`) and start from that, or remove savepoint.manifest"
        }
        false => "begin from it (recovery.from), and give checkpoints.folder another folder",
    };
    Err(Error::new(ErrorCode::WrongState, what).hint(hint))
}

/// Returns the state schema `states` of the savepoint without the states that `found` drops.
fn left_of(states: &JobStateSchema, found: &StateDiff) -> JobStateSchema {
    let is_left = |vertex: &str, state: &str| {
        let mut dropped = found.states.iter().filter(|of| of.verdict == Verdict::Drop);
        dropped.any(|of| of.vertex == vertex && of.state == state)
    };
    states.having(|vertex, state| !state.starts_with(RUNTIME_STATE) && !is_left(vertex, state))
}

fn open(from: &Path) -> Result<Arc<dyn ObjectStore>> {
    place_of_savepoint(from).map_err(|error| match error.code() {
        ErrorCode::ReadFailed if address_of(from).is_none() => {
            error.hint("name the folder that a savepoint was written to (recovery.from)")
        }
        _ => error,
    })
}

fn of_its_own(own: &str, from: &Path) -> Error {
    let from = from.display();
    let what = format!("{own} has state of the job that does not come from the savepoint {from}");
    Error::new(ErrorCode::WrongState, what).hint(
        "leave recovery.from out to continue from the folder; or give the job an empty folder; or discard the state in the folder (recovery.start_over)",
    )
}

fn not_brought(own: &str, from: &str) -> Error {
    let what = format!("the job in {own} has not finished its start from the savepoint {from}");
    Error::new(ErrorCode::WrongState, what).hint(format!(
        "set recovery.from={from} again; or start without state (recovery.start_over)"
    ))
}

fn savepoint_place(from: &Path) -> String {
    format!("the savepoint {}", from.display())
}

fn nothing_to_drop() -> Error {
    let what = "recovery.drop is set, but the job does not start from a savepoint";
    Error::new(ErrorCode::InvalidConfig, what)
        .hint("recovery.drop needs recovery.from; recovery.start_over discards all state")
}
