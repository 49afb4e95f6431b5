//! The faults of the checkpoint simulation, and their repair.

use std::time::Duration;

use ardea_coordination::control::{CheckpointCommand, CoordinatorEvent};

use super::simulation::{Event, ProcessIncarnation, Simulation};
use crate::network::NetworkConditions;
use crate::random::Random;

/// The time after which an unreachable process is considered lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(2);

/// The behaviour of the metadata store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetastoreBehavior {
    /// The store executes and answers all requests.
    Fair,
    /// The store executes nothing.
    Down,
    /// The store refuses writes.
    Refuses,
    /// The store loses replies, and executes requests late.
    Odd,
}

/// A fault or its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A process dies.
    Kill,
    /// One process after another dies, for this duration.
    Epidemic(Duration),
    /// A process is unreachable for this duration, and may be considered lost.
    CutOff(Duration),
    /// The unreachable process is reachable again.
    Reached(ProcessIncarnation),
    /// A process is considered lost if it is still unreachable.
    GiveUp(ProcessIncarnation),
    /// The master dies and is replaced.
    KillMaster,
    /// Another master starts while the current one continues for this duration.
    Outrun(Duration),
    /// The metadata store behaves in this way for this duration.
    Store(MetastoreBehavior, Duration),
    /// The metadata store behaves normally again.
    StoreFair,
    /// Disks are full for this duration.
    DiskFull(Duration),
    /// Disks have space again.
    DiskFree,
    /// All or most attempts cannot start for this duration.
    NoRoom(Duration),
    /// Attempts can start again.
    Room,
    /// Checkpoints cannot be read for this duration.
    Damage(Duration),
    /// Checkpoints can be read again.
    Repaired,
    /// Messages are delayed, lost and duplicated for this duration.
    Storm(Duration),
    /// The network is reliable again.
    Calm,
    /// The user requests a savepoint.
    Savepoint,
    /// The user requests the stop of the job.
    Stop,
    /// All faults end.
    Mend,
}

/// Plans `count` random faults, spread over the time until `until`, followed by their repair.
pub fn plan(scene: &mut Simulation, count: u64, until: Duration) {
    let mut random = Random::new(scene.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(6));
        let trouble = match random.below(24) {
            0..=3 => Fault::Kill,
            4 => Fault::Epidemic(long),
            5..=6 => Fault::CutOff(long),
            7..=9 => Fault::KillMaster,
            10..=11 => Fault::Outrun(long),
            12..=14 => Fault::Store(MetastoreBehavior::Odd, long),
            15 => Fault::Store(MetastoreBehavior::Down, long),
            16 => Fault::Store(MetastoreBehavior::Refuses, long),
            17 => Fault::DiskFull(long),
            18 => Fault::NoRoom(long),
            19 => Fault::Damage(long),
            20..=21 => Fault::Storm(long),
            _ => Fault::Savepoint,
        };
        let at = random.time(Duration::ZERO, until);
        scene.timeline.plan(at, Event::Trouble(trouble));
    }
    if random.per_mille(150) {
        let at = random.time(Duration::ZERO, until);
        scene.timeline.plan(at, Event::Trouble(Fault::Stop));
    }
    scene.timeline.plan(until, Event::Trouble(Fault::Mend));
}

impl Simulation {
    pub fn inject(&mut self, trouble: Fault) {
        if self.is_mended {
            return;
        }
        self.remember(format!("trouble: {trouble:?}"));
        match trouble {
            Fault::Kill => self.kill_one(),
            Fault::Epidemic(long) => {
                self.kill_one();
                let next = self
                    .random
                    .time(Duration::from_millis(100), Duration::from_secs(1));
                if let Some(left) = long.checked_sub(next) {
                    self.in_a_while(next, Fault::Epidemic(left));
                }
            }
            Fault::CutOff(long) => {
                let lives: Vec<_> = self.processes.keys().copied().collect();
                if let Some(life) = self.random.pick(&lives) {
                    self.cut_off.insert(life);
                    self.in_a_while(LOSS_TIMEOUT, Fault::GiveUp(life));
                    self.in_a_while(long, Fault::Reached(life));
                }
            }
            Fault::Reached(life) => {
                self.cut_off.remove(&life);
            }
            Fault::GiveUp(life) => self.give_up(life),
            Fault::KillMaster => {
                self.masters.pop_last();
                self.after(200, 4_000, Event::StartMaster);
            }
            Fault::Outrun(long) => {
                let present = self.newest_master;
                let at = self.now + long;
                self.timeline.plan(at, Event::StopMaster(present));
                self.start_master();
            }
            Fault::Store(mood, long) => {
                self.store_mood = mood;
                self.in_a_while(long, Fault::StoreFair);
            }
            Fault::StoreFair => self.store_mood = MetastoreBehavior::Fair,
            Fault::DiskFull(long) => {
                self.disk_full = true;
                self.in_a_while(long, Fault::DiskFree);
            }
            Fault::DiskFree => self.disk_full = false,
            Fault::NoRoom(long) => {
                self.no_room = true;
                self.in_a_while(long, Fault::Room);
            }
            Fault::Room => self.no_room = false,
            Fault::Damage(long) => {
                self.vault.damaged = true;
                self.in_a_while(long, Fault::Repaired);
            }
            Fault::Repaired => self.vault.damaged = false,
            Fault::Storm(long) => self.storm(long),
            Fault::Calm => self.network.conditions = NetworkConditions::FAIR,
            Fault::Savepoint => self.command(CheckpointCommand::Savepoint),
            Fault::Stop => self.command(CheckpointCommand::Stop),
            Fault::Mend => self.mend(),
        }
    }

    fn in_a_while(&mut self, long: Duration, trouble: Fault) {
        self.timeline.plan(self.now + long, Event::Trouble(trouble));
    }

    fn storm(&mut self, long: Duration) {
        let millis = Duration::from_millis;
        self.network.conditions = NetworkConditions {
            delay: self.random.time(millis(1), millis(50)),
            lost: self.random.below(400),
            doubled: self.random.below(300),
            late: self.random.below(100),
        };
        self.in_a_while(long, Fault::Calm);
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
            self.after(50, 1_500, Event::Start(participant, number + 1));
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
            self.after(5, 500, Event::ToMaster(master, event.clone()));
        }
    }

    /// Replaces an unreachable process by another; the old one continues for a while.
    fn give_up(&mut self, life: ProcessIncarnation) {
        if self.cut_off.contains(&life) && self.life(life.0) == Some(life) {
            self.lost(life, "it can't be reached");
            let long = self
                .random
                .time(Duration::from_secs(1), Duration::from_secs(8));
            self.timeline.plan(self.now + long, Event::Stop(life));
        }
    }

    /// Ends all faults for good.
    fn mend(&mut self) {
        self.is_mended = true;
        self.mended_with = self.vault.newest();
        self.network.conditions = NetworkConditions::FAIR;
        self.store_mood = MetastoreBehavior::Fair;
        self.disk_full = false;
        self.no_room = false;
        self.vault.damaged = false;
        self.cut_off.clear();
        if self.masters.is_empty() {
            self.start_master();
        }
    }

    /// Lets the user check the job, and retry or stop it if it is in safe mode.
    pub fn person(&mut self) {
        self.after(500, 3_000, Event::Person);
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
