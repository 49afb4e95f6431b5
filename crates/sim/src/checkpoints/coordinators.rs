//! The masters: each with a checkpoint coordinator, and the driver that executes its actions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    CheckpointCommand, CheckpointCoordinator, CommandId, CoordinatorAction, CoordinatorEvent,
    CoordinatorMessage, CoordinatorStatus, EpochsOver, Generation, JobRef, MasterEpoch,
    ParticipantId, Rejection, RequestId, StoreReply, StoreRequest, ToParticipant,
};
use ardea_core::{Epoch, Error, ErrorCode};

use super::faults::MetastoreBehavior;
use super::model_state::ModelState;
use super::process::Process;
use super::simulation::{CheckpointSimulation, ProcessIncarnation};
use crate::metastore::{CheckpointReply, CheckpointRequest};
use crate::simulation::TICK;

/// A master's process.
#[derive(Debug)]
pub struct Coordinator {
    pub epochs: CheckpointCoordinator,
    /// The processes that participate in the current attempt.
    lives: BTreeMap<ParticipantId, ProcessIncarnation>,
    /// The attempt that is being restored, and the participants that are ready.
    restored: (Generation, BTreeSet<ParticipantId>),
    /// The last epoch that was triggered, and the time at which the previous one was committed or
    /// aborted.
    newest: Epoch,
    over_at: Option<Duration>,
    commands: u64,
}

impl CheckpointSimulation {
    pub fn start_master(&mut self) {
        if self.over.is_some() {
            return;
        }
        self.newest_master = self.newest_master.next();
        self.report.masters += 1;
        let master = self.newest_master;
        let job = JobRef {
            cluster: "sim".to_string(),
            name: "epochs".to_string(),
            submission: 1,
        };
        let coordinator = Coordinator {
            epochs: CheckpointCoordinator::new(job, master, self.config),
            lives: BTreeMap::new(),
            restored: Default::default(),
            newest: Epoch(0),
            over_at: None,
            commands: 0,
        };
        self.remember(format!("master {} begins", master.0));
        self.masters.insert(master, coordinator);
        self.plan_in(Duration::ZERO, move |sim| sim.tick(master));
    }

    pub fn tick(&mut self, master: MasterEpoch) {
        if self.masters.contains_key(&master) {
            self.plan_in(TICK, move |sim| sim.tick(master));
            self.at_master(master, CoordinatorEvent::Tick);
        }
    }

    pub fn at_master(&mut self, master: MasterEpoch, event: CoordinatorEvent) {
        let Some(coordinator) = self.masters.get_mut(&master) else {
            return;
        };
        let actions = coordinator.epochs.on(self.world.now, event);
        for action in actions {
            self.wants(master, action);
        }
    }

    fn wants(&mut self, master: MasterEpoch, action: CoordinatorAction) {
        match action {
            CoordinatorAction::Record(id, request) => {
                // A request arrives late or never, but at most once: clients of a metadata store do
                // not repeat requests, and a refusal applies to the only copy.
                let arrivals = self.world.network.arrivals(&mut self.world.random);
                if let Some(delay) = arrivals.first() {
                    self.plan_in(*delay, move |sim| sim.at_store(master, id, request));
                }
            }
            CoordinatorAction::To(participant, message) => self.tells(master, participant, message),
            CoordinatorAction::RollBack {
                generation,
                to,
                paused,
            } => {
                self.remember(format!(
                    "master {} starts attempt {generation} from {to:?}, paused: {paused}",
                    master.0
                ));
                self.report.rolled_back += u64::from(generation > Generation(1));
                self.begin_life(master, generation, to);
            }
            CoordinatorAction::Resume { generation } => {
                self.after(20, 400, move |sim| sim.looked_for(master, generation));
            }
            CoordinatorAction::Keep(kept) => {
                self.after(0, 1_500, move |sim| sim.vault.keep(&kept));
            }
            CoordinatorAction::Reply(id, reply) => {
                self.remember(format!("master {}: {id:?}: {reply:?}", master.0));
            }
            CoordinatorAction::Note(note) => self.notes(master, note),
            CoordinatorAction::Over(over) => self.is_over(master, over),
        }
    }

    fn notes(&mut self, master: MasterEpoch, note: CoordinatorStatus) {
        match &note {
            CoordinatorStatus::Aborted { epoch, .. } => {
                self.report.aborted += 1;
                self.was_aborted(*epoch);
            }
            CoordinatorStatus::Committed { .. } => self.report.committed += 1,
            CoordinatorStatus::SafeMode(_) => self.report.safe_modes += 1,
            _ => {}
        }
        let over = matches!(
            note,
            CoordinatorStatus::Aborted { .. } | CoordinatorStatus::Committed { .. }
        );
        if let Some(coordinator) = self.masters.get_mut(&master).filter(|_| over) {
            coordinator.over_at = Some(self.world.now);
        }
        self.remember(format!("master {}: {note:?}", master.0));
    }

    fn tells(&mut self, master: MasterEpoch, to: ParticipantId, message: ToParticipant) {
        self.check_word(&message);
        let pause = self.config.pause;
        let Some(coordinator) = self.masters.get_mut(&master) else {
            return;
        };
        if let CoordinatorMessage::End(epoch, _) = message.word
            && epoch > coordinator.newest
        {
            coordinator.newest = epoch;
            let over_at = coordinator.over_at;
            if over_at.is_some_and(|at| at + pause > self.world.now) {
                self.world.breaks(format!("{epoch:?} ends too early"));
            }
        }
        if let Some(life) = coordinator.lives.get(&to).copied() {
            self.transmit(move |sim| sim.word(life, message));
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

    /// Handles a request at the metadata store.
    pub fn at_store(&mut self, master: MasterEpoch, id: RequestId, request: CheckpointRequest) {
        let writes = matches!(request, StoreRequest::Write { .. });
        let reply = match self.store_mood {
            MetastoreBehavior::Fair => Some(self.write(request)),
            MetastoreBehavior::Down => {
                let says = self.random.per_mille(500);
                says.then_some(StoreReply::Unavailable)
            }
            MetastoreBehavior::Refuses if writes => {
                let why = Error::new(ErrorCode::DiskFull, "no space is left");
                Some(StoreReply::Refused(Rejection::not_stored(&why)))
            }
            MetastoreBehavior::Refuses => Some(self.write(request)),
            MetastoreBehavior::Odd => {
                let behavior = self.random.below(5);
                let reply = match behavior {
                    2 | 3 => {
                        let most = if behavior == 2 { 6_000 } else { 3_000 };
                        self.after(0, most, |sim| drop(sim.write(request)));
                        StoreReply::Unavailable
                    }
                    _ => self.write(request),
                };
                match behavior {
                    0 | 3 => None,
                    1 | 2 => Some(StoreReply::Unavailable),
                    _ => Some(reply),
                }
            }
        };
        if let Some(reply) = reply {
            let event = CoordinatorEvent::Record(id, reply);
            self.transmit(move |sim| sim.at_master(master, event));
        }
    }

    /// Executes a request at the metadata store.
    pub fn write(&mut self, request: CheckpointRequest) -> CheckpointReply {
        let record = match &request {
            StoreRequest::Write { value, .. } => Some(Arc::clone(value)),
            _ => None,
        };
        let before = self.store.get().map(Arc::clone);
        let reply = self.store.carry_out(request);
        if let (Some(record), StoreReply::Written(_)) = (record, &reply) {
            self.check_record(before.as_deref(), &record);
        }
        reply
    }

    /// Requests all processes to start the attempt `generation`.
    fn begin_life(&mut self, master: MasterEpoch, generation: Generation, to: Option<Epoch>) {
        if let Some(coordinator) = self.masters.get_mut(&master) {
            coordinator.restored = (generation, BTreeSet::new());
        }
        if self.no_room && self.random.per_mille(700) {
            let reason = "there is no room".to_string();
            let event = CoordinatorEvent::NotBegun { generation, reason };
            return self.after(20, 300, move |sim| sim.at_master(master, event));
        }
        if self.is_damaged && to.is_some() {
            let reason = "a block is damaged".to_string();
            // In some attempts the storage is unavailable instead of damaged.
            let event = match generation.0 % 2 {
                0 => CoordinatorEvent::Away { generation, reason },
                _ => CoordinatorEvent::Unreadable { generation, reason },
            };
            return self.after(20, 300, move |sim| sim.at_master(master, event));
        }
        for participant in self.shape.participants() {
            self.after(5, 250, move |sim| {
                sim.restore(master, participant, generation)
            });
        }
    }

    /// Requests a process to start an attempt; retried if it is unreachable.
    pub fn restore(
        &mut self,
        master: MasterEpoch,
        participant: ParticipantId,
        generation: Generation,
    ) {
        let coordinator = self.masters.get(&master);
        let record = coordinator.and_then(|coordinator| coordinator.epochs.record());
        let Some(record) = record.filter(|record| record.generation == generation) else {
            return;
        };
        let (restored_from, paused) = (record.restored_from, record.is_paused());
        let taken_in = record.attempt().taken_in;
        let Some(life) = self.reachable(participant) else {
            return self.after(100, 300, move |sim| {
                sim.restore(master, participant, generation)
            });
        };
        let process = self.processes.get(&life);
        let held = process.map(|process| process.agent.generation());
        if held > Some(generation) {
            return;
        }
        if held < Some(generation) {
            let states = restored_from.map(|epoch| self.vault.restore(epoch, taken_in));
            let entries = match states.transpose() {
                Ok(states) => states.and_then(|states| states.get(&participant)),
                Err(broken) => return self.breaks(broken),
            };
            let ledger = entries.map_or_else(ModelState::default, ModelState::restored);
            let process = Process::new(participant, generation, restored_from, ledger, &self.shape);
            self.processes.insert(life, process);
            self.remember(format!("{life:?} starts attempt {generation}"));
        }
        self.restored(master, life, generation, restored_from, paused);
    }

    /// Records that a process is restored. The attempt starts when all processes are restored.
    fn restored(
        &mut self,
        master: MasterEpoch,
        life: ProcessIncarnation,
        generation: Generation,
        restored_from: Option<Epoch>,
        paused: bool,
    ) {
        let all = self.shape.participants().count();
        let Some(coordinator) = self.masters.get_mut(&master) else {
            return;
        };
        coordinator.lives.insert(life.0, life);
        let (restoring, done) = &mut coordinator.restored;
        if *restoring != generation || !done.insert(life.0) || done.len() < all {
            return;
        }
        let participants = self.shape.participants().collect();
        for participant in self.shape.participants().filter(|_| !paused) {
            self.after(1, 60, move |sim| sim.goes(participant, generation));
        }
        let event = CoordinatorEvent::Begun {
            generation,
            restored_from,
            participants,
        };
        self.after(1, 60, move |sim| sim.at_master(master, event));
    }

    /// Reports to the master the participants that exist for the attempt in the checkpoint record.
    pub fn looked_for(&mut self, master: MasterEpoch, generation: Generation) {
        let coordinator = self.masters.get(&master);
        let record = coordinator.and_then(|coordinator| coordinator.epochs.record());
        let Some(record) = record.filter(|record| record.generation == generation) else {
            return;
        };
        let restored_from = record.restored_from;
        let participants: Vec<_> = self.shape.participants().collect();
        let there = participants.iter().filter_map(|id| {
            let life = self.reachable(*id)?;
            let process = self.processes.get(&life)?;
            (process.agent.generation() == generation).then_some((*id, life))
        });
        let lives: BTreeMap<_, _> = there.collect();
        let missing = participants.iter().find(|id| !lives.contains_key(id));
        let event = match missing {
            Some(missing) => CoordinatorEvent::Lost {
                generation,
                participant: *missing,
                reason: "it was not found".to_string(),
            },
            None => CoordinatorEvent::Begun {
                generation,
                restored_from,
                participants,
            },
        };
        if let Some(coordinator) = self.masters.get_mut(&master) {
            coordinator.lives = lives;
        }
        self.at_master(master, event);
    }

    fn reachable(&self, participant: ParticipantId) -> Option<ProcessIncarnation> {
        let life = self.life(participant)?;
        (!self.cut_off.contains(&life)).then_some(life)
    }

    /// Sends a user's command to the newest master.
    pub fn command(&mut self, command: CheckpointCommand) {
        let newest = self.masters.last_entry();
        let Some(mut newest) = newest else {
            return;
        };
        newest.get_mut().commands += 1;
        let (master, id) = (*newest.key(), CommandId(newest.get().commands));
        self.remember(format!("a person wants {command:?}"));
        self.at_master(master, CoordinatorEvent::Command(id, command));
    }
}
