//! Writer of worker manifests: for each epoch, lists the snapshots of a worker in a file and
//! reports the file's name to the worker's agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::io::{
    Alignment, SnapshotEvent, SnapshotLocation, SnapshotTracker, SnapshotWriterPool, TrackerEvent,
};
use crate::store::{Checkpoint, CheckpointId, StateHandle, StoreConfig};
use ardea_coordination::control::{ParticipantEvent, SnapshotAck};
use ardea_core::{Epoch, Error, ErrorCode, Result, SnapshotRequest};
use ardea_engine::JobHandle;
use ardea_grid::cluster::{StoreRequest, StoreResponse};

use crate::cluster::committer::is_full;
use crate::cluster::free_space::{is_of_disk, look_for_room};
use crate::cluster::loss_monitor::LossSource;
use crate::cluster::worker_manifest::{
    WorkerManifest, WorkerManifestKind, WorkerManifestName, fresh_writer,
};

/// The number of commits between two checks for vertices whose state has too many layers.
const LOOK_EVERY: u32 = 16;

/// A message to the worker manifest writer.
pub(crate) enum WriterMessage {
    /// The job's instances in this worker have been created.
    Begun(JobHandle),
    Snapshots(SnapshotEvent),
    /// The end of this epoch was triggered.
    Ends(Epoch),
    /// This epoch is committed. The flag is true if the epoch belongs to this attempt.
    Committed(Epoch, bool),
    Aborted(Epoch),
    Over,
}

/// Writes the worker manifests of one attempt.
pub(crate) struct SnapshotAckWriter {
    pub(crate) gathering: SnapshotTracker,
    pub(crate) taker: Arc<SnapshotWriterPool>,
    pub(crate) place: SnapshotLocation,
    pub(crate) container: u32,
    /// The newest committed epoch, as the base of increments; `None` if increments of this attempt
    /// have no base yet.
    pub(crate) base: Option<Epoch>,
    /// The source of loss counters and their monitor, if checkpoints are in memory only.
    pub(crate) losing: Option<LossSource>,
    pub(crate) tell: Arc<dyn Fn(ParticipantEvent) + Send + Sync>,
    pub(crate) fail: Arc<dyn Fn(Error) + Send + Sync>,
}

/// The writer with its run-time state.
struct Working {
    scribe: SnapshotAckWriter,
    writer: u64,
    job: Option<JobHandle>,
    alignment: Alignment,
    commits: u32,
    /// True if full snapshots were requested for vertices with too many layers.
    wants_all: bool,
    /// The final snapshot of a finished instance could not be written because the store is full.
    /// The attempt is failed as soon as the store accepts writes again, so that the next attempt
    /// can write it.
    no_room: Option<Error>,
}

impl SnapshotAckWriter {
    /// Processes messages until the attempt is over.
    pub(crate) fn work(self, notes: &Receiver<WriterMessage>) {
        let mut working = Working {
            scribe: self,
            writer: fresh_writer(),
            job: None,
            alignment: Alignment::default(),
            commits: 0,
            wants_all: false,
            no_room: None,
        };
        working.report_progress();
        while let Ok(note) = notes.recv() {
            if matches!(note, WriterMessage::Over) {
                return;
            }
            working.take(note);
            working.report_progress();
        }
    }
}

impl Working {
    fn take(&mut self, note: WriterMessage) {
        let gathering = &mut self.scribe.gathering;
        match note {
            WriterMessage::Begun(job) => self.job = Some(job),
            WriterMessage::Snapshots(SnapshotEvent::Saved(of, report, receipt)) => {
                let SnapshotRequest { epoch, is_last, .. } = report.snapshot;
                gathering.saved(&of, epoch, is_last, *receipt);
            }
            WriterMessage::Snapshots(SnapshotEvent::Aborted(snapshot, error)) => {
                self.snapshot_aborted(snapshot, error)
            }
            WriterMessage::Snapshots(SnapshotEvent::CommitProcessed(of, epoch)) => {
                gathering.commit_processed(&of, epoch)
            }
            WriterMessage::Snapshots(SnapshotEvent::InstanceEnded(of)) => {
                gathering.instance_ended(&of)
            }
            WriterMessage::Ends(epoch) => {
                gathering.ends(epoch);
                self.check_losses(epoch);
                self.look_for_room(epoch);
            }
            WriterMessage::Committed(epoch, is_of_this_life) => {
                gathering.committed(epoch);
                gathering.commit_sent(epoch);
                if is_of_this_life {
                    self.scribe.base = Some(epoch);
                    self.look_at_losses(epoch);
                    self.look_at_layers(epoch);
                }
            }
            WriterMessage::Aborted(epoch) => gathering.aborted(epoch),
            WriterMessage::Over => {}
        }
    }

    /// Handles a snapshot that could not be written or was superseded.
    fn snapshot_aborted(&mut self, snapshot: SnapshotRequest, error: Option<Error>) {
        let told = error.as_ref().map(ToString::to_string);
        let why = told.unwrap_or_else(|| "the next epoch has ended".into());
        if snapshot.is_last {
            let what = "the final snapshot of an instance could not be written";
            let is_of_disk = error.as_ref().is_some_and(is_of_disk);
            let error = Error::new(ErrorCode::WriteFailed, what).because(why);
            self.final_snapshot_failed(error, is_of_disk);
        } else if self.scribe.gathering.awaits(snapshot.epoch) {
            (self.scribe.tell)(ParticipantEvent::CannotSave(snapshot.epoch, why));
        }
    }

    /// Handles a failed final snapshot: fails the attempt, since no later epoch repeats the
    /// snapshot. If the store is full, waits until the store accepts writes again.
    fn final_snapshot_failed(&mut self, error: Error, is_of_disk: bool) {
        match is_of_disk {
            true => drop(self.no_room.get_or_insert(error)),
            false => (self.scribe.fail)(error),
        }
    }

    /// Checks whether a full store accepts writes again, at the end of each epoch. If it does, the
    /// attempt is failed; otherwise only the epoch is.
    fn look_for_room(&mut self, epoch: Epoch) {
        let Some(error) = self.no_room.take() else {
            return;
        };
        match look_for_room(&*self.scribe.place.folder, self.writer) {
            Ok(()) => (self.scribe.fail)(error),
            Err(_) => {
                let why = error.to_string();
                (self.scribe.tell)(ParticipantEvent::CannotSave(epoch, why));
                self.no_room = Some(error);
            }
        }
    }

    /// Requests full snapshots if data saved in memory may be lost.
    fn check_losses(&mut self, epoch: Epoch) {
        let Some((shelter, job, losing)) = &mut self.scribe.losing else {
            return;
        };
        // A failed request is repeated at the end of the next epoch.
        if let Ok(StoreResponse::Losses(losses)) = shelter.request(job, StoreRequest::Losses)
            && let Some(vertices) = losing.told(epoch, losses)
        {
            self.scribe.taker.want_all_of(vertices);
        }
    }

    fn look_at_losses(&mut self, committed: Epoch) {
        if let Some((_, _, losing)) = &mut self.scribe.losing
            && losing.committed(committed)
        {
            self.scribe.taker.want_all_of(BTreeSet::new());
        }
    }

    fn report_progress(&mut self) {
        for gathered in self.scribe.gathering.take_events() {
            match gathered {
                TrackerEvent::Saved(epoch, snapshots) => {
                    let told = match self.write(WorkerManifestKind::Snapshot, epoch, snapshots) {
                        Ok(receipt) => ParticipantEvent::Saved(epoch, receipt),
                        Err(error) => ParticipantEvent::CannotSave(epoch, error.to_string()),
                    };
                    (self.scribe.tell)(told);
                }
                TrackerEvent::Ended { after, snapshots } => {
                    let first = after.unwrap_or_default().next();
                    match self.write(WorkerManifestKind::Last, first, snapshots) {
                        Ok(receipt) => {
                            (self.scribe.tell)(ParticipantEvent::Ended { after, receipt });
                        }
                        // The coordinator would otherwise wait forever for this acknowledgement.
                        Err(error) => {
                            let is_of_disk = is_of_disk(&error);
                            self.final_snapshot_failed(error, is_of_disk);
                        }
                    }
                }
                TrackerEvent::Visible(epoch) => {
                    (self.scribe.tell)(ParticipantEvent::Visible(epoch))
                }
            }
        }
    }

    fn write(
        &mut self,
        kind: WorkerManifestKind,
        epoch: Epoch,
        snapshots: Vec<StateHandle>,
    ) -> Result<SnapshotAck> {
        let SnapshotLocation {
            folder,
            job,
            generation,
        } = &self.scribe.place;
        let name = WorkerManifestName {
            kind,
            checkpoint: CheckpointId::new(*generation, epoch),
            container: self.scribe.container,
            writer: self.writer,
        };
        let bytes = snapshots.iter().map(StateHandle::bytes).sum();
        let is_all = snapshots.iter().all(is_full);
        let reports = self.job.as_ref().map(JobHandle::metrics);
        let aligned = self.alignment.since_last(reports.unwrap_or_default());
        let micros = |(vertex, held): (String, std::time::Duration)| {
            (vertex, u64::try_from(held.as_micros()).unwrap_or(u64::MAX))
        };
        let part = WorkerManifest {
            job: job.clone(),
            snapshots,
            aligned_micros: aligned.into_iter().map(micros).collect::<BTreeMap<_, _>>(),
        };
        part.write(&**folder, name)?;
        if let (WorkerManifestKind::Snapshot, Some((_, _, losing))) =
            (kind, &mut self.scribe.losing)
        {
            losing.saved(epoch, is_all);
        }
        Ok(SnapshotAck {
            since: self.scribe.base,
            place: name.to_bytes(),
            bytes,
        })
    }

    /// Requests full snapshots of vertices whose state has too many layers for compaction to keep
    /// up. Checked every [`LOOK_EVERY`] commits.
    fn look_at_layers(&mut self, committed: Epoch) {
        self.commits += 1;
        let losing = self.scribe.losing.as_ref();
        if losing.is_some_and(|(_, _, losing)| losing.wants_all()) {
            return;
        }
        if !self.wants_all && !self.commits.is_multiple_of(LOOK_EVERY) {
            return;
        }
        let SnapshotLocation {
            folder,
            job,
            generation,
        } = &self.scribe.place;
        let id = CheckpointId::new(*generation, committed);
        // An unreadable checkpoint is reported elsewhere; this check is repeated.
        let Ok(checkpoint) = Checkpoint::open(Arc::clone(folder), job, id) else {
            return;
        };
        let most = StoreConfig::default().most_layers.saturating_mul(2);
        let vertices = checkpoint.report().vertices.into_iter();
        let long = vertices.filter(|vertex| vertex.layers > most);
        let long: BTreeSet<String> = long.map(|vertex| vertex.vertex).collect();
        self.wants_all = !long.is_empty();
        self.scribe.taker.want_all_of(long);
    }
}
