//! The faults of the checkpoint simulation, and their repair.

use std::time::Duration;

use ardea_coordination::control::{CheckpointCommand, CoordinatorEvent};

use super::simulation::{CheckpointSimulation, ProcessIncarnation};
use crate::random::Random;

/// The time after which an unreachable process is considered lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(2);

/// The behaviour of the metadata store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MetastoreBehavior {
    /// The store executes and answers all requests.
    #[default]
    Fair,
    /// The store executes nothing.
    Down,
    /// The store refuses writes.
    Refuses,
    /// The store loses replies, and executes requests late.
    Odd,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointFault {
    /// A process dies.
    Kill,
    /// One process after another dies, for this duration.
    Epidemic(Duration),
    /// A process is unreachable for this duration, and may be considered lost.
    CutOff(Duration),
    /// The master dies and is replaced.
    KillMaster,
    /// Another master starts while the current one continues for this duration.
    Outrun(Duration),
    /// The metadata store behaves in this way for this duration.
    Store(MetastoreBehavior, Duration),
    /// Disks are full for this duration.
    DiskFull(Duration),
    /// All or most attempts cannot start for this duration.
    NoRoom(Duration),
    /// Checkpoints cannot be read for this duration.
    Damage(Duration),
    /// Messages are delayed, lost and duplicated for this duration.
    Storm(Duration),
    /// The user requests a savepoint.
    Savepoint,
    /// The user requests the stop of the job.
    Stop,
}

/// Plans `count` random faults, spread over the time until `until`, followed by their repair.
pub fn plan(sim: &mut CheckpointSimulation, count: u64, until: Duration) {
    let mut random = Random::new(sim.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(6));
        let trouble = match random.below(24) {
            0..=3 => CheckpointFault::Kill,
            4 => CheckpointFault::Epidemic(long),
            5..=6 => CheckpointFault::CutOff(long),
            7..=9 => CheckpointFault::KillMaster,
            10..=11 => CheckpointFault::Outrun(long),
            12..=14 => CheckpointFault::Store(MetastoreBehavior::Odd, long),
            15 => CheckpointFault::Store(MetastoreBehavior::Down, long),
            16 => CheckpointFault::Store(MetastoreBehavior::Refuses, long),
            17 => CheckpointFault::DiskFull(long),
            18 => CheckpointFault::NoRoom(long),
            19 => CheckpointFault::Damage(long),
            20..=21 => CheckpointFault::Storm(long),
            _ => CheckpointFault::Savepoint,
        };
        let at = random.time(Duration::ZERO, until);
        sim.plan(at, move |sim| sim.inject(trouble));
    }
    if random.per_mille(150) {
        let at = random.time(Duration::ZERO, until);
        sim.plan(at, |sim| sim.inject(CheckpointFault::Stop));
    }
    sim.plan(until, CheckpointSimulation::mend);
}

impl CheckpointSimulation {
    fn inject(&mut self, trouble: CheckpointFault) {
        if self.is_mended {
            return;
        }
        self.remember(format!("trouble: {trouble:?}"));
        match trouble {
            CheckpointFault::Kill => self.kill_one(),
            CheckpointFault::Epidemic(long) => {
                self.kill_one();
                let millis = Duration::from_millis;
                let next = self.random.time(millis(100), millis(1_000));
                if let Some(left) = long.checked_sub(next) {
                    self.plan_in(next, move |sim| sim.inject(CheckpointFault::Epidemic(left)));
                }
            }
            CheckpointFault::CutOff(long) => {
                let lives: Vec<_> = self.processes.keys().copied().collect();
                if let Some(life) = self.random.pick(&lives) {
                    self.cut_off.insert(life);
                    self.plan_in(LOSS_TIMEOUT, move |sim| sim.give_up(life));
                    self.plan_in(long, move |sim| sim.cut_off.retain(|cut| *cut != life));
                }
            }
            CheckpointFault::KillMaster => {
                self.masters.pop_last();
                self.after(200, 4_000, CheckpointSimulation::start_master);
            }
            CheckpointFault::Outrun(long) => {
                let present = self.newest_master;
                self.plan_in(long, move |sim| drop(sim.masters.remove(&present)));
                self.start_master();
            }
            CheckpointFault::Store(mood, long) => {
                self.store_mood = mood;
                self.plan_in(long, |sim| sim.store_mood = MetastoreBehavior::Fair);
            }
            CheckpointFault::DiskFull(long) => {
                self.is_full = true;
                self.plan_in(long, |sim| sim.is_full = false);
            }
            CheckpointFault::NoRoom(long) => {
                self.no_room = true;
                self.plan_in(long, |sim| sim.no_room = false);
            }
            CheckpointFault::Damage(long) => {
                self.is_damaged = true;
                self.plan_in(long, |sim| sim.is_damaged = false);
            }
            CheckpointFault::Storm(long) => self.storm(long),
            CheckpointFault::Savepoint => self.command(CheckpointCommand::Savepoint),
            CheckpointFault::Stop => self.command(CheckpointCommand::Stop),
        }
    }

    fn kill_one(&mut self) {
        let lives: Vec<_> = self.processes.keys().copied().collect();
        if let Some(life) = self.random.pick(&lives) {
            self.dies(life);
        }
    }

    /// Kills a process; all masters are notified, and it is restarted.
    fn dies(&mut self, life: ProcessIncarnation) {
        self.remember(format!("{life:?} dies"));
        self.lost(life, "it has died");
        self.processes.remove(&life);
        self.cut_off.remove(&life);
    }

    fn lost(&mut self, life: ProcessIncarnation, why: &str) {
        self.notify_lost(life, why);
        let (participant, number) = life;
        if self.present.get(&participant) == Some(&number) {
            self.after(50, 1_500, move |sim| sim.start(participant, number + 1));
        }
    }

    /// Notifies all masters of the loss of a process.
    pub fn notify_lost(&mut self, life: ProcessIncarnation, why: &str) {
        let Some(process) = self.processes.get(&life) else {
            return;
        };
        let event = CoordinatorEvent::Lost {
            generation: process.agent.generation(),
            participant: life.0,
            reason: why.to_string(),
        };
        let masters: Vec<_> = self.masters.keys().copied().collect();
        for master in masters {
            let event = event.clone();
            self.after(5, 500, move |sim| sim.at_master(master, event));
        }
    }

    /// Replaces an unreachable process by another; the old one continues for a while.
    fn give_up(&mut self, life: ProcessIncarnation) {
        if self.cut_off.contains(&life) && self.life(life.0) == Some(life) {
            self.lost(life, "it can't be reached");
            self.after(1_000, 8_000, move |sim| sim.stop(life));
        }
    }

    /// Ends all faults for good.
    fn mend(&mut self) {
        self.is_mended = true;
        self.mended_with = self.vault.newest();
        self.repair_all();
        self.store_mood = MetastoreBehavior::Fair;
        self.no_room = false;
        self.cut_off.clear();
        if self.masters.is_empty() {
            self.start_master();
        }
    }

    /// Lets the user check the job, and retry or stop it if it is in safe mode.
    pub fn person(&mut self) {
        self.after(500, 3_000, CheckpointSimulation::person);
        let newest = self.masters.last_key_value();
        let record = newest.and_then(|(_, newest)| newest.epochs.record());
        if record.is_some_and(|record| record.safe_mode.is_some()) && self.over.is_none() {
            let stops = !self.is_mended && self.random.per_mille(100);
            self.command(match stops {
                true => CheckpointCommand::Stop,
                false => CheckpointCommand::Retry,
            });
        }
    }
}
