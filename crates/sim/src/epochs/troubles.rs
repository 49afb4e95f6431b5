//! What befalls a simulated job, and how it is mended.

use std::time::Duration;

use ardea_coordination::control::{EpochsCommand, EpochsEvent};

use super::scene::{Event, Life, Scene};
use crate::network::Weather;
use crate::random::Random;

/// After how long a process that can't be reached is taken for dead.
const TAKEN_FOR_DEAD: Duration = Duration::from_secs(2);

/// How the state manager answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreMood {
    /// It does what it is asked for, and says so.
    Fair,
    /// It does nothing.
    Down,
    /// It takes nothing.
    Refuses,
    /// It loses answers, and does what it is asked for late.
    Odd,
}

/// Something that befalls the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// A process dies.
    Kill,
    /// One process after another dies, for so long.
    Epidemic(Duration),
    /// A process can't be reached for so long, and may be taken for dead.
    CutOff(Duration),
    /// It can be reached again.
    Reached(Life),
    /// A process is taken for dead if it can't be reached yet.
    GiveUp(Life),
    /// The master dies; another comes.
    KillMaster,
    /// Another master comes while the present one goes on for so long.
    Outrun(Duration),
    /// The state manager is in that mood, for so long.
    Store(StoreMood, Duration),
    /// It is fair again.
    StoreFair,
    /// Disks are full, for so long.
    DiskFull(Duration),
    /// They aren't.
    DiskFree,
    /// No life of the job can begin, for so long, or most can't.
    NoRoom(Duration),
    /// There is room.
    Room,
    /// Snapshots can't be read, for so long.
    Damage(Duration),
    /// They can.
    Repaired,
    /// Words are late, lost and doubled, for so long.
    Storm(Duration),
    /// The network can be relied on again.
    Calm,
    /// A person wants a savepoint.
    Savepoint,
    /// A person wants the job stopped.
    Stop,
    /// All of that ends.
    Mend,
}

/// So many troubles, spread over that time; at its end all is mended.
pub fn plan(scene: &mut Scene, count: u64, until: Duration) {
    let mut random = Random::new(scene.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(6));
        let trouble = match random.below(24) {
            0..=3 => Trouble::Kill,
            4 => Trouble::Epidemic(long),
            5..=6 => Trouble::CutOff(long),
            7..=9 => Trouble::KillMaster,
            10..=11 => Trouble::Outrun(long),
            12..=14 => Trouble::Store(StoreMood::Odd, long),
            15 => Trouble::Store(StoreMood::Down, long),
            16 => Trouble::Store(StoreMood::Refuses, long),
            17 => Trouble::DiskFull(long),
            18 => Trouble::NoRoom(long),
            19 => Trouble::Damage(long),
            20..=21 => Trouble::Storm(long),
            _ => Trouble::Savepoint,
        };
        let at = random.time(Duration::ZERO, until);
        scene.timeline.plan(at, Event::Trouble(trouble));
    }
    if random.per_mille(150) {
        let at = random.time(Duration::ZERO, until);
        scene.timeline.plan(at, Event::Trouble(Trouble::Stop));
    }
    scene.timeline.plan(until, Event::Trouble(Trouble::Mend));
}

impl Scene {
    pub fn befall(&mut self, trouble: Trouble) {
        if self.is_mended {
            return;
        }
        self.remember(format!("trouble: {trouble:?}"));
        match trouble {
            Trouble::Kill => self.kill_one(),
            Trouble::Epidemic(long) => {
                self.kill_one();
                let next = self
                    .random
                    .time(Duration::from_millis(100), Duration::from_secs(1));
                if let Some(left) = long.checked_sub(next) {
                    self.in_a_while(next, Trouble::Epidemic(left));
                }
            }
            Trouble::CutOff(long) => {
                let lives: Vec<_> = self.processes.keys().copied().collect();
                if let Some(life) = self.random.pick(&lives) {
                    self.cut_off.insert(life);
                    self.in_a_while(TAKEN_FOR_DEAD, Trouble::GiveUp(life));
                    self.in_a_while(long, Trouble::Reached(life));
                }
            }
            Trouble::Reached(life) => {
                self.cut_off.remove(&life);
            }
            Trouble::GiveUp(life) => self.give_up(life),
            Trouble::KillMaster => {
                self.masters.pop_last();
                self.after(200, 4_000, Event::StartMaster);
            }
            Trouble::Outrun(long) => {
                let present = self.newest_master;
                let at = self.now + long;
                self.timeline.plan(at, Event::StopMaster(present));
                self.start_master();
            }
            Trouble::Store(mood, long) => {
                self.store_mood = mood;
                self.in_a_while(long, Trouble::StoreFair);
            }
            Trouble::StoreFair => self.store_mood = StoreMood::Fair,
            Trouble::DiskFull(long) => {
                self.disk_full = true;
                self.in_a_while(long, Trouble::DiskFree);
            }
            Trouble::DiskFree => self.disk_full = false,
            Trouble::NoRoom(long) => {
                self.no_room = true;
                self.in_a_while(long, Trouble::Room);
            }
            Trouble::Room => self.no_room = false,
            Trouble::Damage(long) => {
                self.vault.damaged = true;
                self.in_a_while(long, Trouble::Repaired);
            }
            Trouble::Repaired => self.vault.damaged = false,
            Trouble::Storm(long) => self.storm(long),
            Trouble::Calm => self.network.weather = Weather::FAIR,
            Trouble::Savepoint => self.command(EpochsCommand::Savepoint),
            Trouble::Stop => self.command(EpochsCommand::Stop),
            Trouble::Mend => self.mend(),
        }
    }

    fn in_a_while(&mut self, long: Duration, trouble: Trouble) {
        self.timeline.plan(self.now + long, Event::Trouble(trouble));
    }

    fn storm(&mut self, long: Duration) {
        let millis = Duration::from_millis;
        self.network.weather = Weather {
            delay: self.random.time(millis(1), millis(50)),
            lost: self.random.below(400),
            doubled: self.random.below(300),
            late: self.random.below(100),
        };
        self.in_a_while(long, Trouble::Calm);
    }

    fn kill_one(&mut self) {
        let lives: Vec<_> = self.processes.keys().copied().collect();
        if let Some(life) = self.random.pick(&lives) {
            self.dies(life);
        }
    }

    /// A process dies; all masters hear of it, and it is started again.
    fn dies(&mut self, life: Life) {
        self.remember(format!("{life:?} dies"));
        self.lost(life, "it has died");
        self.processes.remove(&life);
        self.cut_off.remove(&life);
    }

    fn lost(&mut self, life: Life, why: &str) {
        self.tell_lost(life, why);
        let (participant, number) = life;
        if self.present.get(&participant) == Some(&number) {
            self.after(50, 1_500, Event::Start(participant, number + 1));
        }
    }

    /// All masters hear that a process is gone.
    pub fn tell_lost(&mut self, life: Life, why: &str) {
        let Some(process) = self.processes.get(&life) else {
            return;
        };
        let event = EpochsEvent::Lost {
            generation: process.agent.generation(),
            participant: life.0,
            reason: why.to_string(),
        };
        let masters: Vec<_> = self.masters.keys().copied().collect();
        for master in masters {
            self.after(5, 500, Event::ToMaster(master, event.clone()));
        }
    }

    /// Another process takes the place of one that can't be reached, and goes on for a while.
    fn give_up(&mut self, life: Life) {
        if self.cut_off.contains(&life) && self.life(life.0) == Some(life) {
            self.lost(life, "it can't be reached");
            let long = self
                .random
                .time(Duration::from_secs(1), Duration::from_secs(8));
            self.timeline.plan(self.now + long, Event::Stop(life));
        }
    }

    /// From now on nothing befalls the job.
    fn mend(&mut self) {
        self.is_mended = true;
        self.mended_with = self.vault.newest();
        self.network.weather = Weather::FAIR;
        self.store_mood = StoreMood::Fair;
        self.disk_full = false;
        self.no_room = false;
        self.vault.damaged = false;
        self.cut_off.clear();
        if self.masters.is_empty() {
            self.start_master();
        }
    }

    /// A person looks at the job now and then, and tries again if it is in safe mode.
    pub fn person(&mut self) {
        self.after(500, 3_000, Event::Person);
        let newest = self.masters.last_key_value();
        let record = newest.and_then(|(_, newest)| newest.epochs.record());
        if record.is_some_and(|record| record.safe_mode.is_some()) && self.over.is_none() {
            let stops = !self.is_mended && self.random.per_mille(100);
            self.command(match stops {
                true => EpochsCommand::Stop,
                false => EpochsCommand::Retry,
            });
        }
    }
}
