//! Drives a job from one life to the next: does what its conductor wants, and tells that what happens.
//!
//! * `taking_part`: the process as participant; `people`: what is wanted, and what is told; `room`: waiting for a disk; `saving`:
//!   savepoints.

mod people;
mod room;
mod saving;
mod taking_part;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::io::{Chore, Housekeeper, Swept};
use crate::store::{Commit, Snapshot, SnapshotId};
use ardea_coordination::control::{
    AttemptFailure, Epochs, EpochsAction, EpochsEvent, EpochsOver, EpochsRecord, Generation,
    Needed, RequestId, StoreReply, StoreRequest, StoreVersion,
};
use ardea_core::{Epoch, Error, ErrorCode, MetricsSnapshot, Result};
use ardea_engine::JobStatus;

use crate::local::counts::RecordedCounts;
use crate::local::failure;
use crate::local::home::Home;
use crate::local::life::{Beginning, Event, Life, PARTICIPANT, StartFrom, Wish};
use crate::local::record::{EpochTold, RecordedEnd};
use crate::local::surviving::{Shared, SurvivalEnd, Survived};
use crate::local::{Notice, Survival};
use room::NoRoom;

pub(crate) use saving::SaveWish;
use saving::Saving;

/// How often the conductor is told that time has passed.
const TICK: Duration = Duration::from_millis(20);

/// What a run has come to, once the present life is over.
#[derive(Debug)]
enum Done {
    /// All that was to be done is committed and visible.
    Finished,
    /// Its state is in the snapshot of the committed epoch.
    Stopped,
    /// It was to stop, and its last snapshot could not be made in time.
    Interrupted,
    /// Somebody wanted it to stop at once.
    Cancelled,
    Failed(Error),
}

/// Drives a job until it ends.
pub(crate) struct Driver<'a> {
    with: Beginning<'a>,
    survival: &'a Survival,
    /// Ends before the folder is let go.
    housekeeper: Housekeeper,
    home: Home,
    epochs: Epochs,
    began: Instant,
    events: Receiver<Event>,
    shared: Arc<Shared>,
    life: Option<Life>,
    /// Snapshots that are not to be collected.
    held: BTreeMap<Epoch, Snapshot>,
    /// The number of the next epoch.
    next: Epoch,
    swept: Swept,
    /// What was written for snapshots before this one by processes before this one, and belongs to none, goes when this one has begun a life:
    /// before that one of them may still be at it, or somebody may have to bring a file back that says what it belongs to.
    left_before: Option<SnapshotId>,
    /// What the conductor has to be told.
    untold: VecDeque<EpochsEvent>,
    /// Why the last life failed.
    last_error: Option<Error>,
    wish: Option<Wish>,
    /// When it was asked to stop with a last snapshot.
    stop_asked: Option<Duration>,
    commands: u64,
    /// What the present life has left at its end can't be written at the moment.
    no_room: Option<NoRoom>,
    saving: Saving,
    done: Option<Done>,
}

impl<'a> Driver<'a> {
    /// Of a job that begins, or goes on, from what is at its home.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses a thread.
    pub(crate) fn new(
        with: Beginning<'a>,
        survival: &'a Survival,
        home: Home,
        events: Receiver<Event>,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let (folder, store) = (Arc::clone(home.folder()), home.store().clone());
        let told = with.events.clone();
        let housekeeper = Housekeeper::start(folder, store, move |error| {
            // Without a driver nobody wants to know.
            let _ = told.send(Event::NotTidied(error));
        })?;
        let epochs = Epochs::new(home.job().clone(), home.next_master(), survival.epochs());
        Ok(Driver {
            with,
            survival,
            housekeeper,
            epochs,
            began: Instant::now(),
            events,
            shared,
            life: None,
            held: BTreeMap::new(),
            next: home.committed().unwrap_or_default().next(),
            swept: Swept::default(),
            left_before: None,
            untold: VecDeque::new(),
            last_error: None,
            wish: None,
            stop_asked: None,
            commands: 0,
            no_room: None,
            saving: Saving::of(home.mailbox()),
            done: None,
            home,
        })
    }

    /// Runs the job until it ends.
    ///
    /// # Errors
    /// Why it failed for good, or that it was cancelled.
    pub(crate) fn run(mut self) -> Result<Survived> {
        self.greet();
        while !self.is_over() {
            self.happens(EpochsEvent::Tick);
            self.look_for_room();
            self.look_at_stop();
            match self.events.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
            }
            self.look_for_requests();
        }
        self.end_saving();
        self.conclude()
    }

    fn greet(&mut self) {
        if !self.home.is_lasting() {
            self.tell(&Notice::InMemory);
        }
        if let Some(epoch) = self.home.committed() {
            let at = self.home.snapshot(epoch).ok().map(|snapshot| snapshot.at());
            self.shared
                .figures(|figures| figures.began_from = Some(epoch));
            self.tell(&Notice::GoesOn { epoch, at });
        }
        // What a process that was killed had begun to write.
        let generation = self.home.epochs().map_or(0, |epochs| epochs.generation.0);
        self.left_before = Some(SnapshotId::start_of(generation + 1));
    }

    fn tell(&self, notice: &Notice) {
        self.survival.tell(self.with.job.name(), notice);
    }

    /// Whether all that is left is to say how it ended.
    fn is_over(&self) -> bool {
        let lives = self.life.as_ref().is_some_and(|life| life.over.is_none());
        self.done.is_some() && !lives
    }

    fn is_done(&mut self, done: Done) {
        if self.done.is_some() {
            return;
        }
        if let Some(life) = self
            .life
            .as_ref()
            .filter(|_| !matches!(done, Done::Finished))
        {
            life.end();
        }
        self.done = Some(done);
    }

    fn conclude(mut self) -> Result<Survived> {
        let status = self.life.take().and_then(|life| life.over);
        let end = match self.done.take() {
            Some(Done::Finished) if matches!(status, Some(JobStatus::Drained)) => {
                SurvivalEnd::Drained
            }
            Some(Done::Finished) | None => SurvivalEnd::Completed,
            Some(Done::Stopped) => SurvivalEnd::Stopped,
            Some(Done::Interrupted) => SurvivalEnd::Interrupted,
            Some(Done::Failed(error)) => return Err(error),
            Some(Done::Cancelled) => {
                let what = format!("the job {:?} was cancelled", self.with.job.name());
                return Err(Error::new(ErrorCode::Cancelled, what));
            }
        };
        let recorded = match end {
            SurvivalEnd::Drained => Some(RecordedEnd::Drained),
            SurvivalEnd::Stopped => Some(RecordedEnd::Stopped),
            SurvivalEnd::Completed | SurvivalEnd::CompletedBefore => Some(RecordedEnd::Completed),
            // As after the death of the process.
            SurvivalEnd::Interrupted => None,
        };
        if let Some(recorded) = recorded {
            self.keep_end(recorded)?;
        }
        let stale = self.home.take_stale();
        self.housekeeper.ask(Chore::Tidy(stale));
        // Another process may go on already: in a later generation.
        if let Some(over) = self.home.epochs().map(|epochs| epochs.generation) {
            let next = SnapshotId::start_of(over.0 + 1);
            self.housekeeper.ask(Chore::Close(next));
        }
        drop(self.housekeeper);
        while let Ok(event) = self.events.try_recv() {
            if let Event::NotTidied(error) = event {
                let notice = Notice::not_tidied(&error);
                self.survival.tell(self.with.job.name(), &notice);
            }
        }
        let figures = self.shared.figures(|figures| figures.clone());
        Ok(Survived { end, figures })
    }

    /// Tells the conductor what happens, and does what it wants.
    fn happens(&mut self, event: EpochsEvent) {
        self.untold.push_back(event);
        self.settle();
    }

    /// Tells the conductor what it has not been told, and does what it wants.
    fn settle(&mut self) {
        while let Some(event) = self.untold.pop_front() {
            if self.done.is_some() {
                return self.untold.clear();
            }
            let now = self.began.elapsed();
            for action in self.epochs.on(now, event) {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: EpochsAction) {
        match action {
            EpochsAction::Record(id, request) => self.record(id, request),
            EpochsAction::To(_, message) => self.hear(message),
            EpochsAction::RollBack {
                generation,
                to,
                paused,
            } => self.begin(generation, to, paused),
            // The record is opened as one of a job without any life.
            EpochsAction::Resume { generation } => {
                let reason = "there is no life of the job".to_string();
                self.untold
                    .push_back(EpochsEvent::NotBegun { generation, reason });
            }
            EpochsAction::Keep(needed) => self.keep(&needed),
            EpochsAction::Reply(id, outcome) => {
                if !self.saved(id, &outcome)
                    && let Err(why) = outcome
                {
                    self.not_done(&why);
                }
            }
            EpochsAction::Note(note) => self.note(note),
            EpochsAction::Over(EpochsOver::Finished) => self.is_done(Done::Finished),
            EpochsAction::Over(EpochsOver::Stopped) => self.is_done(Done::Stopped),
            EpochsAction::Over(over) => {
                let lost = || {
                    let job = self.with.job.name();
                    let what = format!("the job {job:?} has lost its record");
                    Error::new(ErrorCode::Superseded, what)
                        .because(over.to_string())
                        .hint("let no two processes use one folder")
                };
                let error = self.home.overtaken().cloned().unwrap_or_else(lost);
                self.is_done(Done::Failed(error));
            }
        }
    }

    /// Reads or writes the record; what is new in it is made a snapshot first.
    fn record(&mut self, id: RequestId, request: StoreRequest<Arc<EpochsRecord>>) {
        let reply = match request {
            StoreRequest::Read => self.home.found(),
            StoreRequest::Write { value, expected } => self.write(value, expected),
            StoreRequest::Delete { .. } => StoreReply::Conflict,
        };
        self.untold.push_back(EpochsEvent::Record(id, reply));
    }

    fn write(
        &mut self,
        value: Arc<EpochsRecord>,
        expected: Option<StoreVersion>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        let snapshot = self.home.new_snapshot(&value);
        let mut told = None;
        if let Some(id) = snapshot {
            match self.make(id) {
                Ok(made) => told = made.map(|made| (id.epoch, made)),
                Err(error) => {
                    return StoreReply::Refused(ardea_coordination::control::Refused::not_stored(
                        &error,
                    ));
                }
            }
        }
        let reply = self.home.write(value, expected, told);
        if let (Some(id), StoreReply::Written(_), Some(life)) = (snapshot, &reply, &mut self.life) {
            life.gathering.committed(id.epoch);
            life.has_base = true;
            life.taker.has_base();
        }
        reply
    }

    /// Makes a snapshot of the cuts that have come.
    fn make(&mut self, id: SnapshotId) -> Result<Option<EpochTold>> {
        let Some(life) = &mut self.life else {
            return Err(Error::new(
                ErrorCode::Internal,
                "there is no life of the job",
            ));
        };
        let committed = self.home.committed().filter(|_| life.has_base);
        let base = committed.and_then(|epoch| self.home.id_of(epoch));
        let cuts = life.gathering.cuts(id, base).ok_or_else(|| {
            let what = format!("the cuts of epoch {} are not all there", id.epoch.0);
            Error::new(ErrorCode::Internal, what)
        })?;
        let at = self.with.node.clock().wall();
        self.home.make(&Commit { id, base, at, cuts })?;
        let asked_at = life.ending.filter(|(epoch, _)| *epoch == id.epoch);
        let took = asked_at.map_or(Duration::ZERO, |(_, at)| self.began.elapsed() - at);
        let aligned = life.alignment().into_iter();
        let counts = life.counts_at_cuts.at(id.epoch);
        Ok(Some(EpochTold {
            took_micros: took.as_micros() as u64,
            aligned_micros: aligned
                .map(|(vertex, held)| (vertex, held.as_micros() as u64))
                .collect(),
            counts: Some(RecordedCounts::from(&counts)),
        }))
    }

    /// What has to stay, and what may go.
    fn keep(&mut self, needed: &Needed) {
        let epochs = &needed.epochs;
        self.next = needed.below;
        self.home.store().begin_generation(needed.generation.0);
        self.held.retain(|epoch, _| epochs.contains(epoch));
        for epoch in epochs {
            if !self.held.contains_key(epoch)
                && let Ok(snapshot) = self.home.snapshot(*epoch)
            {
                self.held.insert(*epoch, snapshot);
            }
        }
        let stale = self.home.take_stale();
        self.housekeeper.ask(Chore::Tidy(stale));
        if self.left_before.is_some() {
            return;
        }
        let committed = self.home.committed();
        let committed = committed.and_then(|epoch| self.home.id_of(epoch));
        if let Some(floor) = self.swept.due(committed, needed.generation.0) {
            self.housekeeper.ask(Chore::Sweep(floor));
        }
    }

    /// Begins a life of the job.
    fn begin(&mut self, generation: Generation, to: Option<Epoch>, paused: bool) {
        self.retire();
        // In safe mode: somebody has to decide, and in one process that is whoever runs it again.
        if self.home.safe_mode().is_some() || self.done.is_some() {
            return;
        }
        if self.wish == Some(Wish::Stop) && !paused {
            return self.is_done(Done::Stopped);
        }
        let after = Epoch(self.next.0.saturating_sub(1));
        let snapshot = to.map(|epoch| self.home.snapshot(epoch)).transpose();
        let snapshot = snapshot.map_err(crate::io::waited_for);
        let counts = to.map(|epoch| self.home.counts_of(epoch));
        let counts = counts.unwrap_or_default();
        let counted_before = counts.clone();
        let life = snapshot.and_then(|snapshot| {
            let from = snapshot.as_ref().map(|snapshot| StartFrom {
                snapshot,
                was: self.home.states_of(snapshot.id().epoch),
                states: self.home.states(),
                counts,
            });
            Life::begin(&self.with, generation, from, after)
        });
        let life = match life {
            Ok(life) => life,
            Err(error) => return self.not_begun(generation, error),
        };
        if paused {
            life.handle.pause();
        }
        self.shared.lives(&life.handle, counted_before);
        if let Some(changes) = life.migrates.clone().filter(|_| self.last_error.is_none()) {
            self.tell(&Notice::Migrates { changes });
        }
        self.life = Some(life);
        if to.is_none() {
            self.has_begun(None);
        }
        match self.wish {
            Some(Wish::Drain) => self.shared.drain(),
            Some(Wish::Cancel) => self.is_done(Done::Cancelled),
            _ => {}
        }
    }

    /// Nothing is left of the life before when this returns.
    fn retire(&mut self) {
        self.no_room = None;
        if let Some(life) = self.life.take() {
            life.end();
            // What it came to is known.
            let _ = life.handle.join();
        }
    }

    fn has_begun(&mut self, restored_from: Option<Epoch>) {
        if let Some(floor) = self.left_before.take() {
            self.housekeeper.ask(Chore::Sweep(floor));
        }
        if let Some(life) = &mut self.life {
            life.has_begun = true;
            self.untold.push_back(EpochsEvent::Begun {
                generation: life.generation,
                restored_from,
                participants: vec![PARTICIPANT],
            });
        }
    }

    fn not_begun(&mut self, generation: Generation, error: Error) {
        if failure::is_final(&error) {
            return self.is_done(Done::Failed(error));
        }
        let reason = error.to_string();
        let event = match error.code() {
            ErrorCode::SnapshotsAway | ErrorCode::StillHeld => {
                EpochsEvent::Away { generation, reason }
            }
            _ if failure::is_of_snapshot(&error) => EpochsEvent::Unreadable { generation, reason },
            _ => EpochsEvent::NotBegun { generation, reason },
        };
        self.last_error = Some(error);
        self.untold.push_back(event);
    }

    /// The present life has failed.
    fn failed(&mut self, error: Error) {
        let Some(life) = &mut self.life else { return };
        let (generation, has_begun) = (life.generation, life.has_begun);
        life.has_failed = true;
        life.end();
        if !has_begun {
            return self.not_begun(generation, error);
        }
        if failure::is_final(&error) {
            return self.is_done(Done::Failed(error));
        }
        let processed = |vertex: &str| {
            let counted = |it: &MetricsSnapshot| it.records_in + it.records_out;
            Some(life.handle.sum(vertex, counted))
        };
        let failed = EpochsEvent::Failed {
            generation,
            participant: PARTICIPANT,
            failure: AttemptFailure::of(&error, processed),
        };
        self.untold.push_back(failed);
        self.last_error = Some(error);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Asked(wish) => self.wants(wish),
            Event::Save(wish) => self.save(wish),
            Event::Wrote(epoch) => self.wrote(epoch),
            Event::NotTidied(error) => self.tell(&Notice::not_tidied(&error)),
            Event::Life(generation, event) => {
                let is_present = |life: &Life| life.generation == generation;
                if self.life.as_ref().is_some_and(is_present) {
                    self.lives(event);
                }
            }
        }
        self.settle();
    }
}
