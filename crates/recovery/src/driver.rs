//! Drives a job from one life to the next: does what its conductor wants, and tells that what happens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ardea_control::{
    CommandId, EpochKind, EpochNotDone, EpochWord, Epochs, EpochsAction, EpochsAgentAction,
    EpochsAgentEvent, EpochsCommand, EpochsEvent, EpochsNote, EpochsOver, EpochsRecord,
    FromParticipant, Generation, Receipt, RequestId, SafeMode, StoreReply, StoreRequest,
    StoreVersion, ToParticipant,
};
use ardea_core::{Cut, Epoch, Error, ErrorCode, Result};
use ardea_engine::JobStatus;
use ardea_snapshot::{Commit, Snapshot, SnapshotId};

use crate::failure::{self, Left};
use crate::home::Home;
use crate::housekeeping::{Chore, Housekeeper};
use crate::life::{Beginning, Event, Life, LifeEvent, PARTICIPANT, Wish};
use crate::record::{EpochTold, RecordedEnd};
use crate::surviving::{Shared, SurvivalEnd, Survived};
use crate::{Notice, Survival};

/// How often the conductor is told that time has passed.
const TICK: Duration = Duration::from_millis(20);

/// How many instances are named that a snapshot waits for.
const MOST_NAMED: usize = 5;

/// What a run has come to, once the present life is over.
#[derive(Debug)]
enum Done {
    /// All that was to be done is committed and visible.
    Finished,
    /// Its state is in the snapshot of the committed epoch.
    Stopped,
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
    /// Whether something was written for an epoch that was given up since the last sweep.
    has_garbage: bool,
    /// What the conductor has to be told.
    untold: VecDeque<EpochsEvent>,
    /// Why the last life failed.
    last_error: Option<Error>,
    wish: Option<Wish>,
    commands: u64,
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
            has_garbage: false,
            untold: VecDeque::new(),
            last_error: None,
            wish: None,
            commands: 0,
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
            match self.events.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
            }
        }
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
        let floor = SnapshotId::start_of(generation + 1);
        self.housekeeper.ask(Chore::Sweep(floor));
    }

    fn tell(&self, notice: &Notice) {
        self.survival.tell(self.with.job.job_name(), notice);
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
            Some(Done::Failed(error)) => return Err(error),
            Some(Done::Cancelled) => {
                let what = format!("the job {:?} was cancelled", self.with.job.job_name());
                return Err(Error::new(ErrorCode::Cancelled, what));
            }
        };
        let recorded = match end {
            SurvivalEnd::Drained => RecordedEnd::Drained,
            SurvivalEnd::Stopped => RecordedEnd::Stopped,
            SurvivalEnd::Completed | SurvivalEnd::CompletedBefore => RecordedEnd::Completed,
        };
        self.home.end(recorded)?;
        let stale = self.home.take_stale();
        self.housekeeper.ask(Chore::Tidy(stale));
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
            EpochsAction::Keep { epochs, below, .. } => self.keep(&epochs, below),
            EpochsAction::Reply(_, Ok(_)) => {}
            EpochsAction::Reply(_, Err(why)) => self.not_done(&why),
            EpochsAction::Note(note) => self.note(note),
            EpochsAction::Over(EpochsOver::Finished) => self.is_done(Done::Finished),
            EpochsAction::Over(EpochsOver::Stopped) => self.is_done(Done::Stopped),
            EpochsAction::Over(over) => {
                let what = format!("the job {:?} has lost its record", self.with.job.job_name());
                let error = Error::new(ErrorCode::Superseded, what)
                    .because(over.to_string())
                    .hint("let no two processes use one folder");
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
                    return StoreReply::Refused(ardea_control::Refused::not_stored(&error));
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
        Ok(Some(EpochTold {
            took_micros: took.as_micros() as u64,
            aligned_micros: aligned
                .map(|(vertex, held)| (vertex, held.as_micros() as u64))
                .collect(),
        }))
    }

    /// What has to stay, and what may go.
    fn keep(&mut self, epochs: &[Epoch], below: Epoch) {
        self.next = below;
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
        let newest = self
            .home
            .committed()
            .and_then(|epoch| self.home.id_of(epoch));
        if let Some(newest) = newest.filter(|_| self.has_garbage) {
            // What an instance leaves at its end, and is not in a snapshot yet, was written for one behind this.
            let floor = SnapshotId::new(newest.generation, newest.epoch.next());
            self.housekeeper.ask(Chore::Sweep(floor));
            self.has_garbage = false;
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
        let life = snapshot
            .and_then(|snapshot| Life::begin(&self.with, generation, snapshot.as_ref(), after));
        let life = match life {
            Ok(life) => life,
            Err(error) => return self.not_begun(generation, error),
        };
        if paused {
            life.handle.pause();
        }
        self.shared.lives(&life.handle);
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
        if let Some(life) = self.life.take() {
            life.end();
            // What it came to is known.
            let _ = life.handle.join();
        }
    }

    fn has_begun(&mut self, restored_from: Option<Epoch>) {
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
        let event = match failure::is_of_snapshot(&error) {
            true => EpochsEvent::Unreadable { generation, reason },
            false => EpochsEvent::NotBegun { generation, reason },
        };
        self.last_error = Some(error);
        self.untold.push_back(event);
    }

    /// The present life has failed.
    fn failed(&mut self, error: Error) {
        let Some(life) = &self.life else { return };
        let (generation, has_begun) = (life.generation, life.has_begun);
        life.end();
        if !has_begun {
            return self.not_begun(generation, error);
        }
        if failure::is_final(&error) {
            return self.is_done(Done::Failed(error));
        }
        self.untold.push_back(EpochsEvent::Lost {
            generation,
            participant: PARTICIPANT,
            reason: error.to_string(),
        });
        self.last_error = Some(error);
    }

    /// The participant hears the conductor.
    fn hear(&mut self, message: ToParticipant) {
        if matches!(message.word, EpochWord::End(..)) && self.life.is_none() {
            return;
        }
        self.agent(EpochsAgentEvent::From(message));
    }

    fn agent(&mut self, event: EpochsAgentEvent) {
        let Some(life) = &mut self.life else { return };
        for action in life.agent.on(event) {
            match action {
                EpochsAgentAction::End(epoch, kind) => self.end_epoch(epoch, kind),
                EpochsAgentAction::Commit(epoch) => self.commit(epoch),
                EpochsAgentAction::GivenUp(epoch) => self.give_up(epoch),
                EpochsAgentAction::Tell(message) => self.say(message),
            }
        }
    }

    fn say(&mut self, message: FromParticipant) {
        self.untold.push_back(EpochsEvent::From(message));
    }

    fn end_epoch(&mut self, epoch: Epoch, kind: EpochKind) {
        let now = self.began.elapsed();
        let store = self.home.store();
        let Some(life) = &mut self.life else { return };
        let wanted = life.counts.keys().filter(|vertex| store.wants_full(vertex));
        let wanted: BTreeSet<String> = wanted.cloned().collect();
        life.taker.want_all_of(wanted);
        life.ending = Some((epoch, now));
        if kind == EpochKind::Last {
            life.handle.pause();
        }
        life.handle.end_epochs(epoch);
        self.look_at_cuts();
    }

    fn commit(&mut self, epoch: Epoch) {
        let Some(life) = &mut self.life else { return };
        life.telling = Some(epoch);
        life.handle.epoch_committed(epoch);
        self.look_at_hearers();
    }

    fn give_up(&mut self, epoch: Epoch) {
        self.has_garbage = true;
        let Some(life) = &mut self.life else { return };
        if life.ending.is_some_and(|(ending, _)| ending == epoch) {
            life.ending = None;
        }
        life.handle.epoch_given_up(epoch);
        life.handle.resume();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Asked(wish) => self.wants(wish),
            Event::NotTidied(error) => {
                let why = error.to_string();
                self.tell(&Notice::NotTidied { why });
            }
            Event::Life(generation, event) => {
                let is_present = |life: &Life| life.generation == generation;
                if self.life.as_ref().is_some_and(is_present) {
                    self.lives(event);
                }
            }
        }
        self.settle();
    }

    fn lives(&mut self, event: LifeEvent) {
        let Some(life) = &mut self.life else { return };
        match event {
            LifeEvent::Restored => {
                let from = self.epochs.record().and_then(|record| record.restored_from);
                self.has_begun(from);
            }
            LifeEvent::Saved(of, report, receipt) => {
                let Cut { epoch, is_last, .. } = report.cut;
                life.gathering.saved(&of, epoch, is_last, receipt);
                self.look_at_cuts();
            }
            LifeEvent::GaveUp(cut, error) => self.gave_up(cut, error),
            LifeEvent::Heard(of, epoch) => {
                life.gathering.heard(&of, epoch);
                self.look_at_hearers();
            }
            LifeEvent::Left(of) => {
                life.gathering.left(&of);
                self.look_at_hearers();
            }
            LifeEvent::Over(status) => {
                life.over = Some(status.clone());
                match status {
                    JobStatus::Failed(error) => self.failed(error),
                    JobStatus::Cancelled => self.is_done(Done::Cancelled),
                    JobStatus::Completed | JobStatus::Drained | JobStatus::Running => {
                        self.look_at_hearers();
                    }
                }
            }
        }
    }

    /// A cut will not be.
    fn gave_up(&mut self, cut: Cut, error: Option<Error>) {
        if cut.is_last {
            let late = || Error::new(ErrorCode::Internal, "it was not written to its end");
            let error = failure::last_cut_lost(error.unwrap_or_else(late));
            return self.failed(error);
        }
        let Some(life) = &self.life else { return };
        if life.ending.is_some_and(|(epoch, _)| epoch == cut.epoch) {
            let why = error.map_or("the next epoch has ended".into(), |error| error.to_string());
            self.agent(EpochsAgentEvent::CannotSave(cut.epoch, why));
        }
    }

    /// If all cuts of the epoch under way are safe, or all instances have ended, says so.
    fn look_at_cuts(&mut self) {
        let committed = self.home.committed();
        let Some(life) = &mut self.life else { return };
        let since = committed.filter(|_| life.has_base);
        let generation = life.generation.0;
        let receipt = |place: Option<Epoch>, bytes: u64| Receipt {
            since,
            // Which is there is known by the snapshot's own name.
            place: place.map_or(Vec::new(), |epoch| epoch.0.to_be_bytes().to_vec()),
            bytes,
        };
        let mut saved = None;
        if let Some((epoch, _)) = life.ending
            && life.saved < Some(epoch)
            && life.gathering.missing(epoch).next().is_none()
            && let Some(cuts) = life
                .gathering
                .cuts(SnapshotId::new(generation, epoch), None)
        {
            life.saved = Some(epoch);
            let bytes = cuts.iter().map(|cut| cut.bytes()).sum();
            saved = Some(EpochsAgentEvent::Saved(epoch, receipt(Some(epoch), bytes)));
        }
        let mut ended = None;
        if !life.has_told_its_end
            && let Some(after) = life.gathering.end()
        {
            life.has_told_its_end = true;
            let receipt = receipt(None, 0);
            ended = Some(EpochsAgentEvent::Ended { after, receipt });
        }
        for event in saved.into_iter().chain(ended) {
            self.agent(event);
        }
    }

    /// If all instances have heard of the commit, says so.
    fn look_at_hearers(&mut self) {
        let Some(life) = &mut self.life else { return };
        let Some(epoch) = life.telling else { return };
        if life.over.is_some() || life.gathering.have_heard(epoch) {
            life.telling = None;
            self.agent(EpochsAgentEvent::Visible(epoch));
        }
    }

    /// Somebody wants something.
    fn wants(&mut self, wish: Wish) {
        match wish {
            Wish::Cancel => self.is_done(Done::Cancelled),
            Wish::Drain => {
                self.wish = Some(self.wish.unwrap_or(Wish::Drain));
                if let Some(life) = &self.life {
                    life.handle.drain();
                }
            }
            Wish::Stop if self.wish == Some(Wish::Stop) => {}
            Wish::Stop => {
                self.wish = Some(Wish::Stop);
                match self.life.as_ref().is_some_and(|life| life.has_begun) {
                    true => self.command(EpochsCommand::Stop),
                    // Nothing has been done since that would have to be kept.
                    false => self.is_done(Done::Stopped),
                }
            }
        }
    }

    fn command(&mut self, command: EpochsCommand) {
        self.commands += 1;
        let event = EpochsEvent::Command(CommandId(self.commands), command);
        self.untold.push_back(event);
    }

    /// Something that was wanted has not been done.
    fn not_done(&mut self, why: &EpochNotDone) {
        if self.wish == Some(Wish::Stop)
            && let EpochNotDone::GivenUp { why, .. } = why
        {
            let why = why.to_string();
            self.tell(&Notice::StopDelayed { why });
            self.command(EpochsCommand::Stop);
        }
    }

    fn note(&mut self, note: EpochsNote) {
        match note {
            EpochsNote::Committed { epoch, took, bytes } => self.shared.figures(|figures| {
                figures.snapshots += 1;
                figures.longest = figures.longest.max(took);
                figures.bytes += bytes;
                figures.last = Some((epoch, took));
            }),
            EpochsNote::GivenUp { .. } => {
                self.shared.figures(|figures| figures.given_up += 1);
            }
            EpochsNote::Failing { in_a_row, why } => {
                let why = why.to_string();
                self.tell(&Notice::NoSnapshots { in_a_row, why });
            }
            EpochsNote::RollingBack {
                to,
                reason,
                in_a_row,
                after,
            } => {
                self.shared.figures(|figures| figures.recoveries += 1);
                let why = self.last_error.as_ref().map_or(reason, Error::to_string);
                self.tell(&Notice::Recovering {
                    from: to,
                    why,
                    in_a_row,
                    after: failure::rounded(after),
                });
            }
            EpochsNote::SnapshotSkipped { epoch, why } => {
                self.tell(&Notice::SnapshotSkipped { epoch, why });
            }
            EpochsNote::RecordRefused(why) => {
                let why = why.to_string();
                self.tell(&Notice::RecordRefused { why });
            }
            EpochsNote::SafeMode(why) => self.safe_mode(&why),
            EpochsNote::Slow { epoch, .. } => self.slow(epoch),
            EpochsNote::RecordDoubtful | EpochsNote::Down(_) => {}
        }
    }

    /// Says whom a snapshot waits for.
    fn slow(&self, epoch: Epoch) {
        let Some(life) = &self.life else { return };
        let missing = life.gathering.missing(epoch).take(MOST_NAMED);
        self.tell(&Notice::Slow {
            epoch,
            waiting_for: missing.map(|of| of.to_string()).collect(),
        });
    }

    /// Nothing is tried any more unless somebody decides: by what was decided before, or by running the job again.
    fn safe_mode(&mut self, why: &SafeMode) {
        let before = self.home.before_committed();
        if let SafeMode::Unreadable {
            epoch: Some(epoch),
            why,
        } = why
            && self.survival.goes_back
            && before.is_some()
        {
            let (epoch, why) = (*epoch, why.clone());
            self.tell(&Notice::SnapshotSkipped { epoch, why });
            return self.command(EpochsCommand::GoBackTo(before));
        }
        let left = Left {
            epoch: self.home.committed(),
            place: self.home.lasting_place(),
        };
        let name = self.with.job.job_name();
        let error = failure::gave_up(name, why, self.last_error.take(), &left);
        self.is_done(Done::Failed(error));
    }
}
