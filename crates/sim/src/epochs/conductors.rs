//! Masters: the conductor of each, and the driver that does what it wants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ardea_coordination::control::{
    CommandId, EpochWord, Epochs, EpochsAction, EpochsCommand, EpochsEvent, EpochsNote, EpochsOver,
    EpochsRecord, Generation, MasterEpoch, Needed, ParticipantId, RequestId, StoreReply,
    StoreRequest, ToParticipant,
};
use ardea_core::{Epoch, Error, ErrorCode};

use super::ledger::Ledger;
use super::process::Process;
use super::scene::{Event, Life, Scene};
use super::troubles::StoreMood;
use crate::world::TICK;

/// A master's process.
#[derive(Debug)]
pub struct Conductor {
    pub epochs: Epochs,
    /// Who takes part in the present life of the job.
    lives: BTreeMap<ParticipantId, Life>,
    /// Who is restored, for which life.
    restored: (Generation, BTreeSet<ParticipantId>),
    /// The epoch that it has sources end, and when the one before was over.
    newest: Epoch,
    over_at: Option<std::time::Duration>,
    commands: u64,
}

impl Scene {
    pub fn start_master(&mut self) {
        if self.over.is_some() {
            return;
        }
        self.newest_master = self.newest_master.next();
        self.report.masters += 1;
        let master = self.newest_master;
        let conductor = Conductor {
            epochs: Epochs::new(self.job.clone(), master, self.config),
            lives: BTreeMap::new(),
            restored: Default::default(),
            newest: Epoch(0),
            over_at: None,
            commands: 0,
        };
        self.remember(format!("master {} begins", master.0));
        self.masters.insert(master, conductor);
        self.timeline.plan(self.now, Event::Tick(master));
    }

    pub fn tick(&mut self, master: MasterEpoch) {
        if self.masters.contains_key(&master) {
            self.timeline.plan(self.now + TICK, Event::Tick(master));
            self.at_master(master, EpochsEvent::Tick);
        }
    }

    pub fn at_master(&mut self, master: MasterEpoch, event: EpochsEvent) {
        let Some(conductor) = self.masters.get_mut(&master) else {
            return;
        };
        let actions = conductor.epochs.on(self.now, event);
        for action in actions {
            self.wants(master, action);
        }
    }

    fn wants(&mut self, master: MasterEpoch, action: EpochsAction) {
        match action {
            EpochsAction::Record(id, request) => {
                // Late or never, but once: no client of a state manager sends a request twice, and a refusal is of all there was of it.
                if let Some(after) = self.network.arrivals(&mut self.random).first() {
                    let event = Event::AtStore(master, id, request);
                    self.timeline.plan(self.now + *after, event);
                }
            }
            EpochsAction::To(participant, message) => self.tells(master, participant, message),
            EpochsAction::RollBack {
                generation,
                to,
                paused,
            } => {
                self.remember(format!(
                    "master {} begins life {generation} from {to:?}, paused: {paused}",
                    master.0
                ));
                self.report.rolled_back += u64::from(generation > Generation(1));
                self.begin_life(master, generation, to);
            }
            EpochsAction::Resume { generation } => {
                self.after(20, 400, Event::LookedFor(master, generation));
            }
            EpochsAction::Keep(Needed {
                epochs,
                below,
                generation,
                ..
            }) => self.after(0, 1_500, Event::Sweep(epochs, below, generation)),
            EpochsAction::Reply(id, reply) => {
                self.remember(format!("master {}: {id:?}: {reply:?}", master.0));
            }
            EpochsAction::Note(note) => self.notes(master, note),
            EpochsAction::Over(over) => self.is_over(master, over),
        }
    }

    fn notes(&mut self, master: MasterEpoch, note: EpochsNote) {
        let over = match &note {
            EpochsNote::GivenUp { epoch, .. } => {
                self.report.given_up += 1;
                self.was_given_up(*epoch);
                true
            }
            EpochsNote::Committed { .. } => {
                self.report.committed += 1;
                true
            }
            EpochsNote::SafeMode(_) => {
                self.report.safe_modes += 1;
                false
            }
            _ => false,
        };
        if let Some(conductor) = self.masters.get_mut(&master).filter(|_| over) {
            conductor.over_at = Some(self.now);
        }
        self.remember(format!("master {}: {note:?}", master.0));
    }

    fn tells(&mut self, master: MasterEpoch, to: ParticipantId, message: ToParticipant) {
        self.check_word(&message);
        let pause = self.config.pause;
        let Some(conductor) = self.masters.get_mut(&master) else {
            return;
        };
        if let EpochWord::End(epoch, _) = message.word
            && epoch > conductor.newest
        {
            conductor.newest = epoch;
            let too_early = conductor.over_at.is_some_and(|at| at + pause > self.now);
            if too_early {
                self.breaks(format!("{epoch:?} ends too early"));
            }
        }
        let life = self
            .masters
            .get(&master)
            .and_then(|master| master.lives.get(&to));
        if let Some(life) = life.copied() {
            for after in self.network.arrivals(&mut self.random) {
                self.timeline
                    .plan(self.now + after, Event::Word(life, message.clone()));
            }
        }
    }

    fn is_over(&mut self, master: MasterEpoch, over: EpochsOver) {
        self.remember(format!("master {}: {over}", master.0));
        match over {
            EpochsOver::Superseded(_) => drop(self.masters.remove(&master)),
            EpochsOver::Gone => self.breaks("the record is gone".to_string()),
            EpochsOver::Finished | EpochsOver::Stopped => {
                self.check_the_end(&over);
                self.over = Some(over);
                self.report.ended += 1;
            }
        }
    }

    /// A request comes to the state manager.
    pub fn at_store(
        &mut self,
        master: MasterEpoch,
        id: RequestId,
        request: StoreRequest<Arc<EpochsRecord>>,
    ) {
        let writes = matches!(request, StoreRequest::Write { .. });
        let reply = match self.store_mood {
            StoreMood::Fair => Some(self.write(request)),
            StoreMood::Down => {
                let says = self.random.per_mille(500);
                says.then_some(StoreReply::Unavailable)
            }
            StoreMood::Refuses if writes => {
                let why = Error::new(ErrorCode::DiskFull, "no space is left");
                Some(StoreReply::Refused(
                    ardea_coordination::control::Refused::not_stored(&why),
                ))
            }
            StoreMood::Refuses => Some(self.write(request)),
            StoreMood::Odd => match self.random.below(5) {
                0 => {
                    self.write(request);
                    None
                }
                1 => {
                    self.write(request);
                    Some(StoreReply::Unavailable)
                }
                2 => {
                    self.after(0, 6_000, Event::LateWrite(request));
                    Some(StoreReply::Unavailable)
                }
                3 => {
                    self.after(0, 3_000, Event::LateWrite(request));
                    None
                }
                _ => Some(self.write(request)),
            },
        };
        if let Some(reply) = reply {
            for after in self.network.arrivals(&mut self.random) {
                let event = EpochsEvent::Record(id, reply.clone());
                self.timeline
                    .plan(self.now + after, Event::ToMaster(master, event));
            }
        }
    }

    /// The state manager does what it is asked for.
    pub fn write(
        &mut self,
        request: StoreRequest<Arc<EpochsRecord>>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        let record = match &request {
            StoreRequest::Write { value, .. } => Some(Arc::clone(value)),
            _ => None,
        };
        let before = self
            .store
            .value
            .as_ref()
            .map(|(record, _)| Arc::clone(record));
        let reply = self.store.carry_out(request);
        if let (Some(record), StoreReply::Written(_)) = (record, &reply) {
            self.check_record(before.as_deref(), &record);
        }
        reply
    }

    /// All processes are told to begin that life of the job.
    fn begin_life(&mut self, master: MasterEpoch, generation: Generation, to: Option<Epoch>) {
        if let Some(conductor) = self.masters.get_mut(&master) {
            conductor.restored = (generation, BTreeSet::new());
        }
        if self.no_room && self.random.per_mille(700) {
            let reason = "there is no room".to_string();
            let event = EpochsEvent::NotBegun { generation, reason };
            return self.after(20, 300, Event::ToMaster(master, event));
        }
        if self.vault.damaged && to.is_some() {
            let reason = "a block is damaged".to_string();
            // For some lives it is the place that does not answer.
            let event = match generation.0 % 2 {
                0 => EpochsEvent::Away { generation, reason },
                _ => EpochsEvent::Unreadable { generation, reason },
            };
            return self.after(20, 300, Event::ToMaster(master, event));
        }
        for participant in self.shape.participants() {
            let event = Event::Restore(master, participant, generation);
            self.after(5, 250, event);
        }
    }

    /// A process is told to begin a life of the job, if it can be reached; otherwise it is tried again.
    pub fn restore(
        &mut self,
        master: MasterEpoch,
        participant: ParticipantId,
        generation: Generation,
    ) {
        let conductor = self.masters.get(&master);
        let record = conductor.and_then(|conductor| conductor.epochs.record());
        let Some(record) = record.filter(|record| record.generation == generation) else {
            return;
        };
        let (restored_from, paused) = (record.restored_from, record.is_paused());
        let life = self
            .life(participant)
            .filter(|life| !self.cut_off.contains(life));
        let Some(life) = life else {
            return self.after(100, 300, Event::Restore(master, participant, generation));
        };
        let held = self
            .processes
            .get(&life)
            .map(|process| process.agent.generation());
        if held > Some(generation) {
            return;
        }
        if held < Some(generation) {
            let entries = match restored_from {
                Some(epoch) => self.vault.restore(epoch, participant),
                None => Some(Default::default()),
            };
            let Some(entries) = entries else {
                return self.breaks(format!("the snapshot of {restored_from:?} is not there"));
            };
            let ledger = Ledger::restored(&entries);
            let process = Process::new(participant, generation, restored_from, ledger, &self.shape);
            self.processes.insert(life, process);
            self.remember(format!("{life:?} begins life {generation}"));
        }
        self.restored(master, life, generation, restored_from, paused);
    }

    /// A process has been restored; the last one begins the life.
    fn restored(
        &mut self,
        master: MasterEpoch,
        life: Life,
        generation: Generation,
        restored_from: Option<Epoch>,
        paused: bool,
    ) {
        let all = self.shape.participants().count();
        let Some(conductor) = self.masters.get_mut(&master) else {
            return;
        };
        conductor.lives.insert(life.0, life);
        let (restoring, done) = &mut conductor.restored;
        if *restoring != generation || !done.insert(life.0) || done.len() < all {
            return;
        }
        let participants = self.shape.participants().collect();
        for participant in self.shape.participants().filter(|_| !paused) {
            self.after(1, 60, Event::Go(participant, generation));
        }
        let event = EpochsEvent::Begun {
            generation,
            restored_from,
            participants,
        };
        self.after(1, 60, Event::ToMaster(master, event));
    }

    /// A master has looked for those who take part in the life that it has found in the record.
    pub fn looked_for(&mut self, master: MasterEpoch, generation: Generation) {
        let conductor = self.masters.get(&master);
        let record = conductor.and_then(|conductor| conductor.epochs.record());
        let Some(record) = record.filter(|record| record.generation == generation) else {
            return;
        };
        let restored_from = record.restored_from;
        let there = |scene: &Scene, participant| {
            let life = scene.life(participant);
            let life = life.filter(|life| !scene.cut_off.contains(life));
            let process = life.and_then(|life| Some((life, scene.processes.get(&life)?)));
            process
                .filter(|(_, process)| process.agent.generation() == generation)
                .map(|(life, _)| life)
        };
        let participants: Vec<_> = self.shape.participants().collect();
        let lives: BTreeMap<_, _> = participants
            .iter()
            .filter_map(|id| Some((*id, there(self, *id)?)))
            .collect();
        let missing = participants.iter().find(|id| !lives.contains_key(id));
        let event = match missing {
            Some(missing) => EpochsEvent::Lost {
                generation,
                participant: *missing,
                reason: "it was not found".to_string(),
            },
            None => EpochsEvent::Begun {
                generation,
                restored_from,
                participants,
            },
        };
        if let Some(conductor) = self.masters.get_mut(&master) {
            conductor.lives = lives;
        }
        self.at_master(master, event);
    }

    /// A person wants something of the newest master.
    pub fn command(&mut self, command: EpochsCommand) {
        let newest = self.masters.last_entry();
        let Some(mut newest) = newest else {
            return;
        };
        newest.get_mut().commands += 1;
        let (master, id) = (*newest.key(), CommandId(newest.get().commands));
        self.remember(format!("a person wants {command:?}"));
        self.at_master(master, EpochsEvent::Command(id, command));
    }
}
