//! The epochs of a job: when each ends, who has saved its cut, and whether it is committed or given up.
//!
//! A master has one conductor, [`Epochs`], for as long as it is master. In a row, again and again: it has the sources end an epoch; everybody
//! who takes part saves a cut, and says so with a [`Receipt`]; the receipts are recorded as one snapshot; and when that is known to be
//! stored, everybody is told that the epoch is committed, so that sinks publish. If somebody who takes part is lost, all go back to the committed
//! epoch, and with that a new [`Generation`] begins.
//!
//! * `message`: what is said to participants and by them; `participant`: the participants' side of it, [`EpochsAgent`];
//! * `interface`: events, actions, commands; `note`: for people; `record`: what is stored; `record_keeper`: what has become of writes;
//! * `attendance`, `under_way`: who has ended, reported, heard; `ending`: how an epoch begins and ends;
//! * `decisions`: what is written down, and commands; `recovery`: rollbacks and safe mode.
//!
//! # What always holds
//!
//! * **A commit is told only if its record is stored**, and epochs are recorded in the order of their numbers. A write whose answer was lost
//!   is settled before anything else is decided; until then no epoch ends, and no life of the job begins.
//! * **What is recorded is never given up**, whoever dies: a successor finds it in the record, and tells the commit again. So participants hear
//!   commits twice, and of commits before that life of theirs.
//! * **A master that was outrun changes nothing.** A master writes the record before it does anything; whatever was on its
//!   way from masters before it comes too late from then on. It uses numbers of epochs that none of them has used
//!   ([`EpochsRecord::numbers`]), so that no cut of theirs is taken for one of its own. And a life of the job that is not known to have begun is
//!   not waited for, but replaced by another.
//! * **A slow snapshot fails no job**: it is given up, the job goes on, and people are told who was slow. What was in an increment that was given
//!   up is in the next one ([`Receipt::since`]).
//! * **Nobody is needed longer than necessary**: the loss of a participant that has ended, whose last state is committed and that has heard of
//!   it, is no loss.
//!
//! # One at a time
//!
//! At most one epoch is under way. For more, what is recorded would have to be apart from what is under way: increments since an
//! epoch that may yet be given up could be saved only together with the name of that one, and be recorded only behind it; participants
//! would have to hold on to the changes of each epoch under way apart, instead of those since the newest committed one; giving one up would
//! take all later ones with it, or have them saved again; and the minimum pause would say nothing any more. It is worth that where saving takes
//! longer than the interval should be. As long as a cut takes much less, which increments are for, a second one under way gains nothing.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_coordination::control::{
//!     Epochs, EpochsAction, EpochsConfig, EpochsEvent, JobRef, MasterEpoch, StoreReply, StoreRequest, StoreVersion,
//! };
//!
//! let job = JobRef { cluster: "prod".into(), name: "word-count".into(), submission: 1 };
//! let mut epochs = Epochs::new(job, MasterEpoch(1), EpochsConfig::default());
//! let now = Duration::ZERO;
//! // It reads the record first, and then writes that it is master, and that the job's first life begins.
//! let [EpochsAction::Record(read, StoreRequest::Read)] = &epochs.on(now, EpochsEvent::Tick)[..] else { panic!() };
//! let nothing = EpochsEvent::Record(*read, StoreReply::Found(None));
//! let [EpochsAction::Record(write, _)] = &epochs.on(now, nothing)[..] else { panic!() };
//! let written = EpochsEvent::Record(*write, StoreReply::Written(StoreVersion(1)));
//! let actions = epochs.on(now, written);
//! assert!(matches!(actions[..], [EpochsAction::Keep(_), EpochsAction::RollBack { to: None, .. }]));
//! ```

mod attempt;
mod attendance;
mod decisions;
mod ending;
mod interface;
mod message;
mod note;
mod participant;
mod record;
mod record_keeper;
mod recovery;
mod under_way;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Epoch, Guarantee};

pub use attempt::AttemptFailure;
pub use interface::{
    EpochNotDone, EpochsAction, EpochsCommand, EpochsConfig, EpochsEvent, EpochsOver, GivenUp,
    Needed,
};
pub use message::{
    EpochKind, EpochWord, FromParticipant, Generation, ParticipantId, Receipt, Report,
    ToParticipant,
};
pub use note::EpochsNote;
pub use participant::{EpochsAgent, EpochsAgentAction, EpochsAgentEvent};
pub use record::{EpochsRecord, RecordedCut, RecordedSnapshot, SafeMode, StopState};

use crate::control::{CommandId, JobRef, MasterEpoch, PlanVersion};
use attempt::Repeats;
use attendance::Attendance;
use decisions::Proposal;
use record_keeper::RecordKeeper;
use recovery::{Away, Failure};
use under_way::UnderWay;

/// The conductor of a job's epochs, for one mastership: made when the lease is gained, dropped when it is lost.
///
/// Cost: a report is `O(log participants)`; an epoch's beginning and its end, and words that are said again, are `O(participants)`.
#[derive(Debug)]
pub struct Epochs {
    config: EpochsConfig,
    master: MasterEpoch,
    keeper: RecordKeeper,
    /// What is being written, and who wants to know.
    proposal: Option<(Proposal, Option<CommandId>)>,
    life: Life,
    members: Attendance,
    /// Why the present life of the job is over, until that is written down.
    failure: Option<Failure>,
    /// Failures of a vertex that makes no progress.
    repeats: Repeats,
    /// What the present life should begin from can't be read, and is looked for again and again.
    away: Option<Away>,
    under_way: Option<UnderWay>,
    /// The number of the next epoch.
    next: Epoch,
    /// When it is time for it.
    next_at: Duration,
    /// Until when it has to wait, even if somebody asks for it.
    pause_until: Duration,
    /// When those who have not heard the commit are told again.
    retell_at: Duration,
    given_up_in_a_row: u32,
    /// What was told last of the state manager, until something is stored.
    trouble: Option<EpochsNote>,
    commands: VecDeque<(CommandId, EpochsCommand)>,
    /// Those who have asked for an epoch.
    asks: Vec<(CommandId, EpochKind)>,
    over: Option<EpochsOver>,
    /// The plan that lives are to be arranged by, if there are plans.
    plan: Option<PlanVersion>,
    /// What that was when an epoch was committed last.
    near: Option<PlanVersion>,
}

/// How far the present life of the job has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// What is stored of it is not known yet.
    Reading,
    /// It is written down, and begins then.
    Waiting {
        /// When.
        until: Duration,
    },
    /// It has been asked for.
    Beginning {
        /// Whether it lived before.
        again: bool,
    },
    /// All participants are there.
    Running,
    /// In safe mode, even what is there to look at is gone.
    Down,
}

impl Epochs {
    /// The conductor of that job's epochs, for the mastership of that number.
    pub fn new(job: JobRef, master: MasterEpoch, config: EpochsConfig) -> Self {
        Epochs {
            config,
            master,
            keeper: RecordKeeper::new(job, master),
            proposal: None,
            life: Life::Reading,
            members: Attendance::default(),
            failure: None,
            repeats: Repeats::default(),
            away: None,
            under_way: None,
            next: Epoch(0),
            next_at: Duration::ZERO,
            pause_until: Duration::ZERO,
            retell_at: Duration::ZERO,
            given_up_in_a_row: 0,
            trouble: None,
            commands: VecDeque::new(),
            asks: Vec::new(),
            over: None,
            plan: None,
            near: None,
        }
    }

    /// What is stored, as far as this master has seen.
    pub fn record(&self) -> Option<&EpochsRecord> {
        self.keeper.record()
    }

    /// What the job promises.
    pub fn guarantee(&self) -> Guarantee {
        self.config.guarantee
    }

    /// Why the job waits for what it should go back to, if it does: that can't be read at the moment.
    pub fn waits_because(&self) -> Option<&str> {
        self.away.as_ref().map(Away::reason)
    }

    /// Whether the present life of the job is over, or never came to be, and the next one has not been asked for.
    pub fn is_between_lives(&self) -> bool {
        let is_being_left = matches!(
            self.proposal,
            Some((Proposal::RollBack(_) | Proposal::GoDown, _))
        );
        self.failure.is_some() || is_being_left || matches!(self.life, Life::Waiting { .. })
    }

    /// The epoch that is under way, and who has not reported yet.
    pub fn under_way(&self) -> Option<(Epoch, Vec<ParticipantId>)> {
        let under_way = self.under_way.as_ref()?;
        Some((under_way.epoch, under_way.waiting_for()))
    }

    /// Whether all participants have done what belongs to the newest commit: what sinks had prepared for it is published.
    pub fn is_published(&self) -> bool {
        let hears = |epoch| self.members.unheard(epoch).next().is_none();
        self.life == Life::Running && self.committed().is_some_and(hears)
    }

    /// Whether the loss of that participant would be the end of the present life. It is not if it has ended, its last state is committed, and
    /// it has heard of that.
    pub fn needs(&self, participant: ParticipantId) -> bool {
        match self.life {
            Life::Beginning { .. } => true,
            Life::Running => self.members.needs(participant, self.stopped_at()),
            Life::Reading | Life::Waiting { .. } | Life::Down => false,
        }
    }

    /// Why there are no epochs any more, if it is so.
    pub fn over(&self) -> Option<&EpochsOver> {
        self.over.as_ref()
    }

    /// Deals with an event.
    pub fn on(&mut self, now: Duration, event: EpochsEvent) -> Vec<EpochsAction> {
        let mut actions = Vec::new();
        if self.over.is_some() {
            return actions;
        }
        match event {
            EpochsEvent::Tick => {}
            EpochsEvent::Record(id, reply) => {
                if let Some(kept) = self.keeper.answered(now, id, reply) {
                    self.kept(now, kept, &mut actions);
                }
            }
            EpochsEvent::Begun {
                generation,
                restored_from,
                participants,
            } if self.awaits(generation) => {
                self.begun(now, restored_from, participants, &mut actions);
            }
            EpochsEvent::NotBegun { generation, reason } if self.awaits(generation) => {
                self.failure.get_or_insert(Failure::NotBegun(reason));
            }
            EpochsEvent::Unreadable { generation, reason } if self.awaits(generation) => {
                self.failure.get_or_insert(Failure::Unreadable(reason));
            }
            EpochsEvent::Away { generation, reason } if self.awaits(generation) => {
                self.failure.get_or_insert(Failure::Away(reason));
            }
            // Of lives that are over, or not known to have begun.
            EpochsEvent::Begun { .. }
            | EpochsEvent::NotBegun { .. }
            | EpochsEvent::Unreadable { .. }
            | EpochsEvent::Away { .. } => {}
            EpochsEvent::From(message) => self.reported(now, message, &mut actions),
            EpochsEvent::Lost {
                generation,
                participant,
                reason,
            } => self.lost(generation, participant, Failure::Lost(reason)),
            EpochsEvent::Failed {
                generation,
                participant,
                failure,
            } => self.lost(generation, participant, Failure::Failed(failure)),
            EpochsEvent::Arranged(plan) => self.plan = Some(plan),
            EpochsEvent::Command(id, command) => self.commands.push_back((id, command)),
        }
        self.settle(now, &mut actions);
        actions
    }

    /// What follows from what is known by now.
    fn settle(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        self.watch_the_clock(now, actions);
        if self.keeper.is_idle() && self.over.is_none() {
            self.decide(now, actions);
        }
        if self.keeper.is_idle() && self.over.is_none() {
            self.begin_life(now, actions);
            self.begin_epoch(now, actions);
            self.tell_again(now, actions);
            self.look_for_the_end(actions);
        }
        if self.over.is_none() {
            let (doubtful, request) = self.keeper.ask(now);
            if let Some(kept) = doubtful {
                self.kept(now, kept, actions);
            }
            actions.extend(request.map(|(id, request)| EpochsAction::Record(id, request)));
        }
    }

    /// Whether it is that life that is to begin.
    fn awaits(&self, generation: Generation) -> bool {
        matches!(self.life, Life::Beginning { .. }) && self.is_present(generation)
    }

    fn is_present(&self, generation: Generation) -> bool {
        self.record()
            .is_some_and(|record| record.generation == generation)
    }

    fn committed(&self) -> Option<Epoch> {
        self.record().and_then(|record| record.committed)
    }

    /// After which epoch the job stops, if it does.
    fn stopped_at(&self) -> Option<Epoch> {
        let record = self.record()?;
        record
            .committed
            .filter(|_| record.stop == StopState::WhenHeard)
    }

    /// Says something to a participant.
    fn word(&self, to: ParticipantId, word: EpochWord) -> EpochsAction {
        let generation = self
            .record()
            .map_or(Generation(0), |record| record.generation);
        let message = ToParticipant {
            master: self.master,
            generation,
            committed: self.committed(),
            word,
        };
        EpochsAction::To(to, message)
    }

    /// The commands that have not been answered, which nobody will answer any more.
    pub(crate) fn open_commands(&mut self) -> Vec<CommandId> {
        let proposed = self.proposal.take().and_then(|(_, asked_by)| asked_by);
        let under_way = self.under_way.take().map(|under_way| under_way.asked_by);
        let commands = self.commands.drain(..).map(|(id, _)| id);
        let asks = self.asks.drain(..).map(|(id, _)| id);
        let unanswered = (proposed.into_iter()).chain(under_way.into_iter().flatten());
        unanswered.chain(asks).chain(commands).collect()
    }

    fn end(&mut self, over: EpochsOver, actions: &mut Vec<EpochsAction>) {
        for id in self.open_commands() {
            let not_done = EpochNotDone::Over(over.clone());
            actions.push(EpochsAction::Reply(id, Err(not_done)));
        }
        actions.push(EpochsAction::Over(over.clone()));
        self.over = Some(over);
    }
}
