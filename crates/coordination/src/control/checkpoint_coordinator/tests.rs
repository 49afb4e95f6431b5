//! Tests of a checkpoint coordinator with a simulated metadata store and simulated participants.

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
use crate::control::{Rejection, StoreReply, StoreRequest, StoreVersion};

/// The behaviour of the simulated metadata store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Store {
    Answers,
    /// Requests fail with an error.
    Refuses,
    /// Requests are executed without a reply.
    Mute,
    /// Requests are neither executed nor answered.
    Away,
}

struct TestHarness {
    epochs: CheckpointCoordinator,
    config: CoordinatorConfig,
    now: Duration,
    stored: Option<(Arc<CheckpointRecord>, StoreVersion)>,
    store: Store,
    /// Writes that were requested while the metadata store was away.
    missed: Vec<StoreRequest<Arc<CheckpointRecord>>>,
    told: Vec<(ParticipantId, ToParticipant)>,
    notes: Vec<CoordinatorStatus>,
    replies: Vec<(CommandId, Result<Option<Epoch>, EpochNotDone>)>,
    kept: Vec<Epoch>,
    /// The requested attempts: generation, epoch to restore from, and true if the sources are
    /// paused.
    lives: Vec<(Generation, Option<Epoch>, bool)>,
    resumed: Vec<Generation>,
    over: Option<EpochsOver>,
    /// All actions that the coordinator has requested, with their times.
    log: Vec<(Duration, CoordinatorAction)>,
}

const ALL: [u32; 3] = [1, 2, 3];

fn job() -> JobRef {
    JobRef {
        cluster: "prod".into(),
        name: "word-count".into(),
        submission: 7,
    }
}

fn refused() -> Rejection {
    Rejection::not_stored(&Error::new(ErrorCode::DiskFull, "no space is left"))
}

fn receipt(since: Option<Epoch>) -> SnapshotAck {
    SnapshotAck {
        since,
        place: vec![1, 2, 3],
        bytes: 10,
    }
}

impl TestHarness {
    fn new(config: CoordinatorConfig) -> Self {
        let mut desk = TestHarness {
            epochs: CheckpointCoordinator::new(job(), MasterEpoch(1), config),
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
        desk.happens(CoordinatorEvent::Tick);
        desk
    }

    /// Creates a job with its first attempt running.
    fn running() -> Self {
        TestHarness::running_with(CoordinatorConfig::default())
    }

    fn running_with(config: CoordinatorConfig) -> Self {
        let mut desk = TestHarness::new(config);
        desk.begin_asked_for();
        desk
    }

    fn happens(&mut self, event: CoordinatorEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.epochs.on(self.now, event) {
                self.log.push((self.now, action.clone()));
                match action {
                    CoordinatorAction::Record(id, request) => {
                        let reply = self.store(request);
                        events.extend(reply.map(|reply| CoordinatorEvent::Record(id, reply)));
                    }
                    CoordinatorAction::To(participant, message) => {
                        self.told.push((participant, message));
                    }
                    CoordinatorAction::RollBack {
                        generation,
                        to,
                        paused,
                    } => self.lives.push((generation, to, paused)),
                    CoordinatorAction::Resume { generation } => self.resumed.push(generation),
                    CoordinatorAction::Keep(needed) => self.kept = needed.epochs,
                    CoordinatorAction::Reply(id, reply) => self.replies.push((id, reply)),
                    CoordinatorAction::Note(note) => self.notes.push(note),
                    CoordinatorAction::Over(over) => self.over = Some(over),
                }
            }
        }
    }

    fn store(
        &mut self,
        request: StoreRequest<Arc<CheckpointRecord>>,
    ) -> Option<StoreReply<Arc<CheckpointRecord>>> {
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
        request: StoreRequest<Arc<CheckpointRecord>>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
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

    /// Executes the writes that were requested while the metadata store was away, without replies.
    fn comes_late(&mut self) {
        for request in std::mem::take(&mut self.missed) {
            self.carry_out(request);
        }
    }

    fn record(&self) -> &CheckpointRecord {
        &self.stored.as_ref().unwrap().0
    }

    fn committed(&self) -> Option<u64> {
        self.record().committed.map(|epoch| epoch.0)
    }

    /// Lets the time `long` pass, in steps as small as those of a real driver.
    fn wait(&mut self, long: Duration) {
        let until = self.now + long;
        while self.now < until {
            self.now += Duration::from_millis(50);
            self.happens(CoordinatorEvent::Tick);
        }
    }

    fn begin(&mut self, generation: Generation, restored_from: Option<Epoch>) {
        self.happens(CoordinatorEvent::Begun {
            generation,
            restored_from,
            participants: ALL.map(ParticipantId).to_vec(),
        });
    }

    fn begin_asked_for(&mut self) {
        let (generation, to, _) = *self.lives.last().unwrap();
        self.begin(generation, to);
    }

    fn say_in(&mut self, generation: Generation, participant: u32, report: ParticipantReport) {
        self.happens(CoordinatorEvent::From(FromParticipant {
            participant: ParticipantId(participant),
            generation,
            report,
        }));
    }

    fn say(&mut self, participant: u32, report: ParticipantReport) {
        self.say_in(self.record().generation, participant, report);
    }

    fn save(&mut self, participant: u32, epoch: u64) {
        let since = self.record().committed;
        let saved = ParticipantReport::Saved(Epoch(epoch), receipt(since));
        self.say(participant, saved);
    }

    fn end(&mut self, participant: u32, after: Option<u64>) {
        let (after, receipt) = (after.map(Epoch), receipt(None));
        self.say(participant, ParticipantReport::Ended { after, receipt });
    }

    fn hear(&mut self, participant: u32, epoch: u64) {
        self.say(participant, ParticipantReport::CommitDone(Epoch(epoch)));
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
        self.happens(CoordinatorEvent::Lost {
            generation,
            participant: ParticipantId(participant),
            reason: "it has died".into(),
        });
    }

    fn fail(&mut self, participant: u32, failure: AttemptFailure) {
        let generation = self.record().generation;
        self.happens(CoordinatorEvent::Failed {
            generation,
            participant: ParticipantId(participant),
            failure,
        });
    }

    /// Waits until the next attempt is requested, and reports its start.
    fn next_life(&mut self) {
        let generation = self.record().generation;
        while self.lives.last().is_none_or(|life| life.0 < generation) {
            self.wait(millis(50));
        }
        self.begin_asked_for();
    }

    fn command(&mut self, id: u64, command: CheckpointCommand) {
        self.happens(CoordinatorEvent::Command(CommandId(id), command));
    }

    fn under_way(&self) -> Option<u64> {
        self.epochs.under_way().map(|(epoch, _)| epoch.0)
    }

    /// Waits until the next epoch ends, and returns its number.
    fn next_epoch(&mut self) -> u64 {
        for _ in 0..2_000 {
            if let Some(epoch) = self.under_way() {
                return epoch;
            }
            self.wait(Duration::from_millis(50));
        }
        panic!("no epoch ends");
    }

    /// Commits the next epoch: all participants save their snapshots and confirm the commit.
    fn commit_next(&mut self) -> u64 {
        let epoch = self.next_epoch();
        self.all_save(epoch);
        assert_eq!(self.committed(), Some(epoch));
        self.all_hear(epoch);
        epoch
    }

    /// Returns the messages to participants since the last call, with the participants' numbers.
    fn words(&mut self) -> Vec<(u32, CoordinatorMessage)> {
        let told = std::mem::take(&mut self.told);
        told.into_iter()
            .map(|(id, message)| (id.0, message.word))
            .collect()
    }

    /// Replaces the leader by another. Pending writes of the previous leader stay in transit.
    fn take_over(&mut self) {
        let master = self.epochs.master.next();
        self.epochs = CheckpointCoordinator::new(job(), master, self.config);
        self.store = Store::Answers;
        self.told.clear();
        self.happens(CoordinatorEvent::Tick);
    }

    fn reply(&self, id: u64) -> Option<&Result<Option<Epoch>, EpochNotDone>> {
        let mut replies = self.replies.iter();
        let found = replies.find(|(replied, _)| *replied == CommandId(id));
        found.map(|(_, reply)| reply)
    }
}

fn end_of(epoch: u64) -> CoordinatorMessage {
    CoordinatorMessage::End(Epoch(epoch), EpochKind::Usual)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
