//! Writes down what a worker has saved, epoch by epoch, and tells its agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::io::{Alignment, CutNews, CutPlace, CutTaker, Gathered, Gathering};
use crate::store::{CutReceipt, Snapshot, SnapshotId, StoreConfig};
use ardea_coordination::control::{EpochsAgentEvent, Receipt};
use ardea_core::{Cut, Epoch, Error, ErrorCode, Result};
use ardea_engine::JobHandle;
use ardea_grid::cluster::{Ask, Told};

use crate::cluster::binder::is_full;
use crate::cluster::losing::Watched;
use crate::cluster::part::{Part, PartKind, PartName, fresh_writer};
use crate::cluster::room::{is_of_disk, look_for_room};

/// After how many commits it is looked whether state is read from too many layers.
const LOOK_EVERY: u32 = 16;

/// What a scribe is told.
pub(crate) enum Note {
    /// The job's instances here have been made.
    Begun(JobHandle),
    /// Something has come of cuts.
    Cuts(CutNews),
    /// The end of this epoch is asked for.
    Ends(Epoch),
    /// This epoch is committed; whether it is one of this life.
    Committed(Epoch, bool),
    /// This epoch is given up.
    GivenUp(Epoch),
    /// The life is over.
    Over,
}

/// Writes down what a worker has saved in one life of its job.
pub(crate) struct Scribe {
    pub(crate) gathering: Gathering,
    pub(crate) taker: Arc<CutTaker>,
    pub(crate) place: CutPlace,
    pub(crate) container: u32,
    /// The newest committed epoch, if increments of this life may be based on it.
    pub(crate) base: Option<Epoch>,
    /// Where what is saved may be lost, who tells that, to which job, and what follows from it.
    pub(crate) losing: Option<Watched>,
    pub(crate) tell: Arc<dyn Fn(EpochsAgentEvent) + Send + Sync>,
    pub(crate) fail: Arc<dyn Fn(Error) + Send + Sync>,
}

/// What comes of it while it works.
struct Working {
    scribe: Scribe,
    writer: u64,
    job: Option<JobHandle>,
    alignment: Alignment,
    commits: u32,
    /// Whether some instances are to hand over all that they have.
    wants_all: bool,
    /// What was left at an end could not be written: the life is over when something can be.
    no_room: Option<Error>,
}

impl Scribe {
    /// Works until the life is over.
    pub(crate) fn work(self, notes: &Receiver<Note>) {
        let mut working = Working {
            scribe: self,
            writer: fresh_writer(),
            job: None,
            alignment: Alignment::default(),
            commits: 0,
            wants_all: false,
            no_room: None,
        };
        working.look_at_gathered();
        while let Ok(note) = notes.recv() {
            if matches!(note, Note::Over) {
                return;
            }
            working.take(note);
            working.look_at_gathered();
        }
    }
}

impl Working {
    fn take(&mut self, note: Note) {
        let gathering = &mut self.scribe.gathering;
        match note {
            Note::Begun(job) => self.job = Some(job),
            Note::Cuts(CutNews::Saved(of, report, receipt)) => {
                let Cut { epoch, is_last, .. } = report.cut;
                gathering.saved(&of, epoch, is_last, *receipt);
            }
            Note::Cuts(CutNews::GaveUp(cut, error)) => self.gave_up(cut, error),
            Note::Cuts(CutNews::Heard(of, epoch)) => gathering.heard(&of, epoch),
            Note::Cuts(CutNews::Left(of)) => gathering.left(&of),
            Note::Ends(epoch) => {
                gathering.ends(epoch);
                self.look_for_losses(epoch);
                self.look_for_room(epoch);
            }
            Note::Committed(epoch, is_of_this_life) => {
                gathering.committed(epoch);
                gathering.tells(epoch);
                if is_of_this_life {
                    self.scribe.base = Some(epoch);
                    self.look_at_losses(epoch);
                    self.look_at_layers(epoch);
                }
            }
            Note::GivenUp(epoch) => gathering.given_up(epoch),
            Note::Over => {}
        }
    }

    /// A cut will not be.
    fn gave_up(&mut self, cut: Cut, error: Option<Error>) {
        let told = error.as_ref().map(ToString::to_string);
        let why = told.unwrap_or_else(|| "the next epoch has ended".into());
        if cut.is_last {
            let what = "what an instance has left at its end could not be kept";
            let is_of_disk = error.as_ref().is_some_and(is_of_disk);
            let error = Error::new(ErrorCode::WriteFailed, what).because(why);
            self.end_not_kept(error, is_of_disk);
        } else if self.scribe.gathering.awaits(cut.epoch) {
            (self.scribe.tell)(EpochsAgentEvent::CannotSave(cut.epoch, why));
        }
    }

    /// What an instance has left at its end has no next epoch to be in: another life has to come to that end, and would come to the same one
    /// while nothing can be written.
    fn end_not_kept(&mut self, error: Error, is_of_disk: bool) {
        match is_of_disk {
            true => drop(self.no_room.get_or_insert(error)),
            false => (self.scribe.fail)(error),
        }
    }

    /// An epoch is asked for again and again: each time it is looked whether something can be written, and told why not.
    fn look_for_room(&mut self, epoch: Epoch) {
        let Some(error) = self.no_room.take() else {
            return;
        };
        match look_for_room(&*self.scribe.place.folder, self.writer) {
            Ok(()) => (self.scribe.fail)(error),
            Err(_) => {
                let why = error.to_string();
                (self.scribe.tell)(EpochsAgentEvent::CannotSave(epoch, why));
                self.no_room = Some(error);
            }
        }
    }

    /// Whether something of what was saved may be lost: then all that there is is handed over anew.
    fn look_for_losses(&mut self, epoch: Epoch) {
        let Some((shelter, job, losing)) = &mut self.scribe.losing else {
            return;
        };
        // What can't be asked now is asked at the next end.
        if let Ok(Told::Losses(losses)) = shelter.ask(job, Ask::Losses)
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

    fn look_at_gathered(&mut self) {
        for gathered in self.scribe.gathering.news() {
            match gathered {
                Gathered::Saved(epoch, cuts) => {
                    let told = match self.write(PartKind::Cut, epoch, cuts) {
                        Ok(receipt) => EpochsAgentEvent::Saved(epoch, receipt),
                        Err(error) => EpochsAgentEvent::CannotSave(epoch, error.to_string()),
                    };
                    (self.scribe.tell)(told);
                }
                Gathered::Ended { after, cuts } => {
                    let first = after.unwrap_or_default().next();
                    match self.write(PartKind::Last, first, cuts) {
                        Ok(receipt) => {
                            (self.scribe.tell)(EpochsAgentEvent::Ended { after, receipt });
                        }
                        // It would be waited for without end.
                        Err(error) => {
                            let is_of_disk = is_of_disk(&error);
                            self.end_not_kept(error, is_of_disk);
                        }
                    }
                }
                Gathered::Visible(epoch) => (self.scribe.tell)(EpochsAgentEvent::Visible(epoch)),
            }
        }
    }

    fn write(&mut self, kind: PartKind, epoch: Epoch, cuts: Vec<CutReceipt>) -> Result<Receipt> {
        let CutPlace {
            folder,
            job,
            generation,
        } = &self.scribe.place;
        let name = PartName {
            kind,
            snapshot: SnapshotId::new(*generation, epoch),
            container: self.scribe.container,
            writer: self.writer,
        };
        let bytes = cuts.iter().map(CutReceipt::bytes).sum();
        let is_all = cuts.iter().all(is_full);
        let reports = self.job.as_ref().map(JobHandle::metrics);
        let aligned = self.alignment.since_last(reports.unwrap_or_default());
        let micros = |(vertex, held): (String, std::time::Duration)| {
            (vertex, u64::try_from(held.as_micros()).unwrap_or(u64::MAX))
        };
        let part = Part {
            job: job.clone(),
            cuts,
            aligned_micros: aligned.into_iter().map(micros).collect::<BTreeMap<_, _>>(),
        };
        part.write(&**folder, name)?;
        if let (PartKind::Cut, Some((_, _, losing))) = (kind, &mut self.scribe.losing) {
            losing.saved(epoch, is_all);
        }
        Ok(Receipt {
            since: self.scribe.base,
            place: name.to_bytes(),
            bytes,
        })
    }

    /// Now and then: has vertices hand over all that they have whose state lies in so many layers that folding can't keep up.
    fn look_at_layers(&mut self, committed: Epoch) {
        self.commits += 1;
        let losing = self.scribe.losing.as_ref();
        if losing.is_some_and(|(_, _, losing)| losing.wants_all()) {
            return;
        }
        if !self.wants_all && !self.commits.is_multiple_of(LOOK_EVERY) {
            return;
        }
        let CutPlace {
            folder,
            job,
            generation,
        } = &self.scribe.place;
        let id = SnapshotId::new(*generation, committed);
        // Another look follows; what can't be read is told by whoever has to.
        let Ok(snapshot) = Snapshot::open(Arc::clone(folder), job, id) else {
            return;
        };
        let most = StoreConfig::default().most_layers.saturating_mul(2);
        let vertices = snapshot.report().vertices.into_iter();
        let long = vertices.filter(|vertex| vertex.layers > most);
        let long: BTreeSet<String> = long.map(|vertex| vertex.vertex).collect();
        self.wants_all = !long.is_empty();
        self.scribe.taker.want_all_of(long);
    }
}
