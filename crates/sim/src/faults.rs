//! What befalls the world, and how it is mended.

use std::time::Duration;

use ardea_coordination::control::WorkerId;

use crate::network::{Host, Node, Weather};
use crate::random::Random;
use crate::world::{Event, Message, World};

/// Something that befalls the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A worker's process dies.
    KillWorker,
    /// The master's process dies; another is started later.
    KillMaster,
    /// A host reaches nobody, for so long.
    CutHost(Duration),
    /// The hosts fall into two groups that don't reach each other, for so long.
    Split(Duration),
    /// The state manager doesn't answer, for so long.
    StoreDown(Duration),
    /// The scheduler carries out no calls, for so long.
    SchedulerDown(Duration),
    /// Messages are lost, doubled and late, for so long.
    Storm(Duration),
    /// An instance of a job with a guarantee fails.
    FailInstance,
    /// What is stored of snapshots can't be read, for so long.
    Damage(Duration),
    /// Nothing of snapshots can be written, for so long.
    DiskFull(Duration),
    /// Everything takes longer, as on machines that have too much to do, for so long.
    Slow(Duration),
    /// The connection between a worker and its master breaks.
    Reset,
    /// A host is to be left by all containers.
    Drain(Host),
    /// The scheduler has no room for other containers any more.
    Full,
    /// One of these ends.
    Over(Relief),
    /// All of that ends.
    Mend,
}

/// The end of something that befell the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relief {
    /// The network can be relied on again.
    Calm,
    /// A host is back.
    HostBack(Host),
    /// The groups reach each other again.
    Joined,
    /// The state manager is back.
    StoreBack,
    /// The scheduler is back.
    SchedulerBack,
    /// A host is drained no longer.
    Undrained(Host),
    /// What is stored of snapshots can be read again.
    Readable,
    /// There is room again.
    Room,
}

/// How long a message takes at the most between machines that have too much to do.
const SLOW: Duration = Duration::from_millis(250);

/// So many faults, spread over that time; at its end all is mended.
pub(crate) fn plan(world: &mut World, count: u64, until: Duration) {
    let mut random = Random::new(world.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(15));
        let fault = match random.below(16) {
            0..=3 => Fault::KillWorker,
            4..=6 => Fault::KillMaster,
            7..=8 => Fault::CutHost(long),
            9 => Fault::Split(long),
            10..=11 => Fault::StoreDown(long),
            12 => Fault::SchedulerDown(long),
            _ => Fault::Storm(long),
        };
        let at = random.time(Duration::ZERO, until);
        world.timeline.plan(at, Event::Fault(fault));
    }
    if world.lives.is_some() {
        plan_for_lives(world, &mut random, until);
    }
    world.timeline.plan(until, Event::Fault(Fault::Mend));
}

/// What befalls only a job that keeps something.
fn plan_for_lives(world: &mut World, random: &mut Random, until: Duration) {
    for _ in 0..random.below(6) {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(6));
        let fault = match random.below(6) {
            0..=2 => Fault::FailInstance,
            3 => Fault::Damage(long),
            _ => Fault::DiskFull(long),
        };
        let at = random.time(Duration::ZERO, until);
        world.timeline.plan(at, Event::Fault(fault));
    }
}

/// So many broken connections between machines that have too much to do, once the job runs.
pub(crate) fn plan_resets(world: &mut World, count: u64, until: Duration) {
    let mut random = Random::new(world.random.any());
    let begin = Duration::from_secs(10);
    let mut plan = |at, fault| world.timeline.plan(at, Event::Fault(fault));
    plan(begin, Fault::Slow(until.saturating_sub(begin)));
    for _ in 0..count {
        plan(random.time(begin, until), Fault::Reset);
    }
    plan(until, Fault::Mend);
}

impl World {
    pub(crate) fn befall(&mut self, fault: Fault) {
        self.watch.fault(self.now, fault);
        match fault {
            Fault::KillWorker => {
                if let Some(worker) = self.any_worker() {
                    self.end_worker(worker);
                }
            }
            Fault::KillMaster => self.kill_master(),
            Fault::CutHost(long) => {
                let hosts: Vec<Host> = (0..self.host_count()).map(Host).collect();
                if let Some(host) = self.random.pick(&hosts) {
                    self.network.cut.insert(host);
                    self.plan_after(long, Relief::HostBack(host));
                }
                self.plan_giving_up();
            }
            Fault::Split(long) => {
                let hosts = (0..self.host_count()).map(Host);
                self.network.island = hosts.filter(|_| self.random.per_mille(500)).collect();
                self.plan_after(long, Relief::Joined);
                self.plan_giving_up();
            }
            Fault::StoreDown(long) => {
                self.shelf.down = true;
                self.plan_after(long, Relief::StoreBack);
            }
            Fault::SchedulerDown(long) => {
                self.cluster.down = true;
                self.plan_after(long, Relief::SchedulerBack);
            }
            Fault::Storm(long) => {
                self.network.weather = Weather {
                    delay: self
                        .random
                        .time(Duration::from_millis(1), Duration::from_millis(50)),
                    lost: self.random.below(400),
                    doubled: self.random.below(300),
                    late: self.random.below(100),
                };
                self.plan_after(long, Relief::Calm);
            }
            Fault::FailInstance => {
                if let Some(worker) = self.any_worker() {
                    self.fail_instance(worker);
                }
            }
            Fault::Damage(long) => {
                self.have_vault(Some(true), None);
                self.plan_after(long, Relief::Readable);
            }
            Fault::DiskFull(long) => {
                self.have_vault(None, Some(true));
                self.plan_after(long, Relief::Room);
            }
            Fault::Slow(long) => {
                self.network.weather = Weather {
                    delay: SLOW,
                    ..Weather::FAIR
                };
                self.plan_after(long, Relief::Calm);
            }
            Fault::Reset => self.break_connection(),
            Fault::Drain(host) => self.drain(host),
            Fault::Full => self.fill(),
            Fault::Over(relief) => self.passes(relief),
            Fault::Mend => self.mend(),
        }
        self.stop_leftovers();
    }

    fn any_worker(&mut self) -> Option<WorkerId> {
        let workers: Vec<_> = self.workers.keys().copied().collect();
        self.random.pick(&workers)
    }

    fn mend(&mut self) {
        self.network.weather = Weather::FAIR;
        self.network.cut.clear();
        self.network.island.clear();
        self.shelf.down = false;
        self.cluster.down = false;
        self.have_vault(Some(false), Some(false));
        self.note_mended();
    }

    fn passes(&mut self, relief: Relief) {
        match relief {
            Relief::Calm => self.network.weather = Weather::FAIR,
            Relief::HostBack(host) => {
                self.network.cut.remove(&host);
            }
            Relief::Joined => self.network.island.clear(),
            Relief::StoreBack => self.shelf.down = false,
            Relief::SchedulerBack => self.cluster.down = false,
            Relief::Undrained(host) => {
                self.drained.remove(&host);
            }
            Relief::Readable => self.have_vault(Some(false), None),
            Relief::Room => self.have_vault(None, Some(false)),
        }
    }

    /// Both ends hear of it, each in its time.
    fn break_connection(&mut self) {
        let workers: Vec<_> = self.workers.keys().copied().collect();
        let masters: Vec<_> = self.acting_masters().collect();
        let Some((worker, master)) = self.random.pick(&workers).zip(self.random.pick(&masters))
        else {
            return;
        };
        let at_master = Message::WorkerClosed(worker);
        self.send(Node::Worker(worker), Node::Master(master), at_master);
        self.send(
            Node::Master(master),
            Node::Worker(worker),
            Message::MasterClosed,
        );
    }

    /// The end of the fault; nothing befalls the world after it has been mended.
    fn plan_after(&mut self, long: Duration, end: Relief) {
        let end = Event::Fault(Fault::Over(end));
        self.timeline.plan(self.now + long, end);
    }

    fn have_vault(&mut self, is_damaged: Option<bool>, is_full: Option<bool>) {
        if let Some(lives) = &mut self.lives {
            lives.is_damaged = is_damaged.unwrap_or(lives.is_damaged);
            lives.is_full = is_full.unwrap_or(lives.is_full);
        }
    }

    fn host_count(&self) -> u32 {
        2 + self.config.masters + self.config.hosts
    }

    fn kill_master(&mut self) {
        let acting: Vec<_> = self.acting_masters().collect();
        let all: Vec<_> = self.masters.keys().copied().collect();
        let Some(id) = self.random.pick(&acting).or_else(|| self.random.pick(&all)) else {
            return;
        };
        let host = self.master_host(id);
        self.masters.remove(&id);
        let workers: Vec<_> = self.workers.keys().copied().collect();
        for worker in workers {
            if self.random.per_mille(500) {
                self.send_from(host, Node::Worker(worker), Message::MasterClosed);
            }
        }
        let after = self
            .random
            .time(Duration::from_millis(500), Duration::from_secs(10));
        self.timeline.plan(self.now + after, Event::StartMaster);
    }

    /// A framework that starts containers again by itself gives hosts up after a while.
    fn plan_giving_up(&mut self) {
        let at = self.now + Duration::from_secs(8);
        for worker in self.workers.keys() {
            self.timeline.plan(at, Event::GiveUp(*worker));
        }
    }

    /// A thorough scheduler stops what it could not reach before.
    fn stop_leftovers(&mut self) {
        if self.config.stops_leftovers {
            let reachable: Vec<_> = self
                .leftovers
                .iter()
                .copied()
                .filter(|worker| {
                    let host = self.host(Node::Worker(*worker));
                    host.is_some_and(|host| self.network.connects(Host(1), host))
                })
                .collect();
            for worker in reachable {
                self.end_worker(worker);
            }
        }
    }
}
