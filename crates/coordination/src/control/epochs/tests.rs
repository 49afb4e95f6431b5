//! A conductor by hand: the state manager answers as the test wants, participants are played by it.

mod agent;
mod commits;
mod handover;
mod properties;
mod recovery;
mod takeover;

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Epoch, Error, ErrorCode, Guarantee};

use super::*;
use crate::control::{Refused, StoreReply, StoreRequest, StoreVersion};

/// What the state manager does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Store {
    Answers,
    /// It does nothing, and says so.
    Refuses,
    /// It does what it is asked for, and says nothing.
    Mute,
    /// It does nothing, and says nothing.
    Away,
}

struct Desk {
    epochs: Epochs,
    config: EpochsConfig,
    now: Duration,
    stored: Option<(Arc<EpochsRecord>, StoreVersion)>,
    store: Store,
    /// Writes that were asked for while the state manager was away.
    missed: Vec<StoreRequest<Arc<EpochsRecord>>>,
    told: Vec<(ParticipantId, ToParticipant)>,
    notes: Vec<EpochsNote>,
    replies: Vec<(CommandId, Result<Option<Epoch>, EpochNotDone>)>,
    kept: Vec<Epoch>,
    /// What lives have been asked for: which, from where, paused.
    lives: Vec<(Generation, Option<Epoch>, bool)>,
    resumed: Vec<Generation>,
    over: Option<EpochsOver>,
    /// All that it wanted done, and when.
    log: Vec<(Duration, EpochsAction)>,
}

const ALL: [u32; 3] = [1, 2, 3];

fn job() -> JobRef {
    JobRef {
        cluster: "prod".into(),
        name: "word-count".into(),
        submission: 7,
    }
}

fn refused() -> Refused {
    Refused::not_stored(&Error::new(ErrorCode::DiskFull, "no space is left"))
}

fn receipt(since: Option<Epoch>) -> Receipt {
    Receipt {
        since,
        place: vec![1, 2, 3],
        bytes: 10,
    }
}

impl Desk {
    fn new(config: EpochsConfig) -> Self {
        let mut desk = Desk {
            epochs: Epochs::new(job(), MasterEpoch(1), config),
            config,
            now: Duration::ZERO,
            stored: None,
            store: Store::Answers,
            missed: Vec::new(),
            told: Vec::new(),
            notes: Vec::new(),
            replies: Vec::new(),
            kept: Vec::new(),
            lives: Vec::new(),
            resumed: Vec::new(),
            over: None,
            log: Vec::new(),
        };
        desk.happens(EpochsEvent::Tick);
        desk
    }

    /// A job whose first life has begun.
    fn running() -> Self {
        Desk::running_with(EpochsConfig::default())
    }

    fn running_with(config: EpochsConfig) -> Self {
        let mut desk = Desk::new(config);
        desk.begin_asked_for();
        desk
    }

    fn happens(&mut self, event: EpochsEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.epochs.on(self.now, event) {
                self.log.push((self.now, action.clone()));
                match action {
                    EpochsAction::Record(id, request) => {
                        let reply = self.store(request);
                        events.extend(reply.map(|reply| EpochsEvent::Record(id, reply)));
                    }
                    EpochsAction::To(participant, message) => {
                        self.told.push((participant, message));
                    }
                    EpochsAction::RollBack {
                        generation,
                        to,
                        paused,
                    } => self.lives.push((generation, to, paused)),
                    EpochsAction::Resume { generation } => self.resumed.push(generation),
                    EpochsAction::Keep(needed) => self.kept = needed.epochs,
                    EpochsAction::Reply(id, reply) => self.replies.push((id, reply)),
                    EpochsAction::Note(note) => self.notes.push(note),
                    EpochsAction::Over(over) => self.over = Some(over),
                }
            }
        }
    }

    fn store(
        &mut self,
        request: StoreRequest<Arc<EpochsRecord>>,
    ) -> Option<StoreReply<Arc<EpochsRecord>>> {
        match self.store {
            Store::Answers => Some(self.carry_out(request)),
            Store::Mute => {
                self.carry_out(request);
                None
            }
            Store::Refuses => match request {
                StoreRequest::Read => Some(self.carry_out(request)),
                _ => Some(StoreReply::Refused(refused())),
            },
            Store::Away => {
                self.missed.push(request);
                None
            }
        }
    }

    fn carry_out(
        &mut self,
        request: StoreRequest<Arc<EpochsRecord>>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        let there = self.stored.as_ref().map(|(_, version)| *version);
        match request {
            StoreRequest::Write { value, expected } if expected == there => {
                let version = StoreVersion(there.map_or(1, |version| version.0 + 1));
                self.stored = Some((value, version));
                StoreReply::Written(version)
            }
            StoreRequest::Read => StoreReply::Found(self.stored.clone()),
            _ => StoreReply::Conflict,
        }
    }

    /// What was asked for while the state manager was away is done now; nobody hears of it.
    fn comes_late(&mut self) {
        for request in std::mem::take(&mut self.missed) {
            self.carry_out(request);
        }
    }

    fn record(&self) -> &EpochsRecord {
        &self.stored.as_ref().unwrap().0
    }

    fn committed(&self) -> Option<u64> {
        self.record().committed.map(|epoch| epoch.0)
    }

    /// Time passes, in steps as small as in earnest.
    fn wait(&mut self, long: Duration) {
        let until = self.now + long;
        while self.now < until {
            self.now += Duration::from_millis(50);
            self.happens(EpochsEvent::Tick);
        }
    }

    fn begin(&mut self, generation: Generation, restored_from: Option<Epoch>) {
        self.happens(EpochsEvent::Begun {
            generation,
            restored_from,
            participants: ALL.map(ParticipantId).to_vec(),
        });
    }

    fn begin_asked_for(&mut self) {
        let (generation, to, _) = *self.lives.last().unwrap();
        self.begin(generation, to);
    }

    fn say_in(&mut self, generation: Generation, participant: u32, report: Report) {
        self.happens(EpochsEvent::From(FromParticipant {
            participant: ParticipantId(participant),
            generation,
            report,
        }));
    }

    fn say(&mut self, participant: u32, report: Report) {
        self.say_in(self.record().generation, participant, report);
    }

    fn save(&mut self, participant: u32, epoch: u64) {
        let since = self.record().committed;
        let saved = Report::Saved(Epoch(epoch), receipt(since));
        self.say(participant, saved);
    }

    fn end(&mut self, participant: u32, after: Option<u64>) {
        let (after, receipt) = (after.map(Epoch), receipt(None));
        self.say(participant, Report::Ended { after, receipt });
    }

    fn hear(&mut self, participant: u32, epoch: u64) {
        self.say(participant, Report::Heard(Epoch(epoch)));
    }

    fn all_save(&mut self, epoch: u64) {
        for participant in ALL {
            self.save(participant, epoch);
        }
    }

    fn all_hear(&mut self, epoch: u64) {
        for participant in ALL {
            self.hear(participant, epoch);
        }
    }

    fn lose(&mut self, participant: u32) {
        let generation = self.record().generation;
        self.happens(EpochsEvent::Lost {
            generation,
            participant: ParticipantId(participant),
            reason: "it has died".into(),
        });
    }

    fn fail(&mut self, participant: u32, failure: AttemptFailure) {
        let generation = self.record().generation;
        self.happens(EpochsEvent::Failed {
            generation,
            participant: ParticipantId(participant),
            failure,
        });
    }

    /// Waits until the next life is asked for, and begins it.
    fn next_life(&mut self) {
        let generation = self.record().generation;
        while self.lives.last().is_none_or(|life| life.0 < generation) {
            self.wait(millis(50));
        }
        self.begin_asked_for();
    }

    fn command(&mut self, id: u64, command: EpochsCommand) {
        self.happens(EpochsEvent::Command(CommandId(id), command));
    }

    /// The number of the epoch that is under way.
    fn under_way(&self) -> Option<u64> {
        self.epochs.under_way().map(|(epoch, _)| epoch.0)
    }

    /// Waits for the next epoch; its number.
    fn next_epoch(&mut self) -> u64 {
        for _ in 0..2_000 {
            if let Some(epoch) = self.under_way() {
                return epoch;
            }
            self.wait(Duration::from_millis(50));
        }
        panic!("no epoch ends");
    }

    /// The next epoch, which all save their cuts of, and hear the commit of.
    fn commit_next(&mut self) -> u64 {
        let epoch = self.next_epoch();
        self.all_save(epoch);
        assert_eq!(self.committed(), Some(epoch));
        self.all_hear(epoch);
        epoch
    }

    /// What was said since it was asked last.
    fn words(&mut self) -> Vec<(u32, EpochWord)> {
        let told = std::mem::take(&mut self.told);
        told.into_iter()
            .map(|(id, message)| (id.0, message.word))
            .collect()
    }

    /// Another master takes over; what the one before is waiting for stays on its way.
    fn take_over(&mut self) {
        let master = self.epochs.master.next();
        self.epochs = Epochs::new(job(), master, self.config);
        self.store = Store::Answers;
        self.told.clear();
        self.happens(EpochsEvent::Tick);
    }

    fn reply(&self, id: u64) -> Option<&Result<Option<Epoch>, EpochNotDone>> {
        let mut replies = self.replies.iter();
        let found = replies.find(|(replied, _)| *replied == CommandId(id));
        found.map(|(_, reply)| reply)
    }
}

fn end_of(epoch: u64) -> EpochWord {
    EpochWord::End(Epoch(epoch), EpochKind::Usual)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
