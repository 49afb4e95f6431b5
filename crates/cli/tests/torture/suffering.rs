//! Faults, as they are carried out.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_coordination::packing::ContainerId;
use ardea_metastore::conformance::Server;
use ardea_rest::{JobDescription, ParallelismUpdate, Phase, RecoverRequest};
use rustix::process::Signal;

use crate::cluster::send;
use crate::job::JOB;
use crate::plan::{Blow, Deed, Fault, Spell};
use crate::world::World;

/// How long an order is given again, and how long a damage may take to be noticed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Lets time pass, in which something is out of order on purpose.
pub fn pass(millis: u64) {
    let end = Instant::now() + Duration::from_millis(millis);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// What undoes a spell.
enum Undo {
    Nothing,
    /// The process goes on.
    GoOn(i32),
    /// This is said to the land.
    Heal(String),
    Kafka,
    Postgres,
    Store,
    State,
    Free,
    BringBack(PathBuf),
    Activate,
}

impl World {
    /// Something goes wrong, until it is over; hosts whose processes are gone are started again then.
    pub fn suffers(&mut self, fault: Fault) {
        match fault {
            Fault::Blow(blow) => self.strike(blow),
            Fault::Spell {
                spell,
                millis,
                amid,
            } => {
                let undo = self.cast(spell);
                pass(millis / 2);
                if let Some(blow) = amid {
                    self.strike(blow);
                }
                pass(millis - millis / 2);
                self.undo(undo);
            }
            Fault::Deed(deed) => self.order(deed),
        }
        self.cluster.start_missing();
    }

    fn host(&self, number: u64) -> usize {
        (number % self.cluster.land.hosts() as u64) as usize + 1
    }

    fn worker(&self, number: u64) -> Option<i32> {
        let workers = self.cluster.workers();
        let index = number.checked_rem(workers.len() as u64)?;
        workers.get(index as usize).map(|(_, pid)| *pid)
    }

    /// The host that leads; any, if nobody says which that is.
    fn leader(&self) -> usize {
        self.cluster.leader().unwrap_or(1)
    }

    fn strike(&mut self, blow: Blow) {
        let kill = |pid| send(pid, Signal::KILL);
        match blow {
            Blow::Worker(number) => self.worker(number).into_iter().for_each(kill),
            Blow::AllWorkers => {
                let workers = self.cluster.workers().into_iter();
                workers.for_each(|(_, pid)| kill(pid));
            }
            Blow::Host(number) => self.cluster.kill_host(self.host(number)),
            Blow::Master => self.cluster.kill_host(self.leader()),
            Blow::MasterAndWorker(number) => {
                let (leader, worker) = (self.leader(), self.worker(number));
                worker.into_iter().for_each(kill);
                self.cluster.kill_host(leader);
            }
            Blow::Machine(number) => self.cluster.kill_machine(self.host(number)),
        }
    }

    fn cast(&mut self, spell: Spell) -> Undo {
        match spell {
            Spell::WorkerStalls(number) => stall(self.worker(number)),
            Spell::HostStalls(number) => stall(self.cluster.host_process(self.host(number))),
            Spell::MasterStalls => stall(self.cluster.host_process(self.leader())),
            Spell::HostCut(number) => self.cut(self.host(number).to_string()),
            Spell::MasterCut => self.cut(self.leader().to_string()),
            Spell::PairCut(one, other) => {
                let one = self.host(one);
                let other = match self.host(other) {
                    same if same == one => one % self.cluster.land.hosts() + 1,
                    other => other,
                };
                self.cut(format!("{one} {other}"))
            }
            Spell::Kafka => {
                self.feeder.has_kafka(false);
                self.services.kafka.kill();
                Undo::Kafka
            }
            Spell::Postgres => {
                self.services.postgres.kill();
                Undo::Postgres
            }
            Spell::State => {
                self.cluster.kill_state();
                Undo::State
            }
            Spell::DiskFull => {
                self.disk.fill();
                Undo::Free
            }
            Spell::FolderAway => match (&self.services.store, self.disk.take_away()) {
                (Some(store), _) => {
                    store.kill();
                    Undo::Store
                }
                (None, Some(folder)) => Undo::BringBack(folder),
                (None, None) => Undo::Nothing,
            },
            Spell::Paused => {
                self.insists("it is paused", |world| {
                    let asked = world
                        .cluster
                        .ask(|client| async move { client.deactivate(JOB).await });
                    asked.is_some()
                });
                Undo::Activate
            }
        }
    }

    fn cut(&mut self, whom: String) -> Undo {
        self.cluster.land.command(&format!("cut {whom}"));
        Undo::Heal(whom)
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Nothing => {}
            Undo::GoOn(pid) => send(pid, Signal::CONT),
            Undo::Heal(whom) => self.cluster.land.command(&format!("heal {whom}")),
            Undo::Kafka => {
                self.services.kafka.restart();
                self.feeder.has_kafka(true);
            }
            Undo::Postgres => self.services.postgres.restart(),
            Undo::Store => self.services.store.iter().for_each(Server::restart),
            Undo::State => self.cluster.restart_state(),
            Undo::Free => self.disk.free(),
            Undo::BringBack(folder) => self.disk.bring_back(&folder),
            Undo::Activate => {
                self.cluster.start_missing();
                self.insists("it goes on", |world| {
                    let asked = world
                        .cluster
                        .ask(|client| async move { client.activate(JOB).await });
                    asked.is_some()
                });
            }
        }
    }

    /// Gives an order until it is taken: whoever led may be gone, and the answer of one that was taken may be lost.
    fn insists(&self, what: &str, take: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !take(self) {
            assert!(Instant::now() < deadline, "nobody takes the order: {what}");
            thread::park_timeout(LOOK);
        }
    }

    fn order(&mut self, deed: Deed) {
        match deed {
            Deed::Rescale(vertex, count) => self.rescale(vertex, count),
            Deed::Restart(number) => {
                let Some(described) = self.cluster.describe() else {
                    return;
                };
                let containers = described.containers;
                let Some(index) = number.checked_rem(containers.len() as u64) else {
                    return;
                };
                let container: ContainerId = containers[index as usize].id;
                // One that is away can't be restarted, and that is no matter.
                let _ = self
                    .cluster
                    .ask(|client| async move { client.restart(JOB, container).await });
            }
            Deed::Upgrade => self.upgrade(),
            Deed::Damage(chance) => self.damage(chance),
        }
    }

    /// Gives a vertex another number of instances than it has. What comes while another update is under way waits for it.
    fn rescale(&self, vertex: &str, count: u32) {
        let described = self.cluster.describe();
        let mut vertices = described.iter().flat_map(|described| &described.vertices);
        let has = vertices
            .find(|it| it.name == vertex)
            .map(|it| it.parallelism);
        let count = match has == Some(count) {
            true => count % 3 + 1,
            false => count,
        };
        let update = ParallelismUpdate {
            parallelism: [(vertex.to_string(), count)].into(),
        };
        let has_it = |world: &World| {
            let described = world.cluster.describe();
            let mut vertices = described.iter().flat_map(|described| &described.vertices);
            vertices.any(|it| it.name == vertex && it.parallelism == count)
        };
        self.insists("another number of instances", |world| {
            let asked = world.cluster.ask(|client| {
                let update = update.clone();
                async move { client.update(JOB, &update).await }
            });
            asked.is_some() || has_it(world)
        });
    }

    /// Has the program followed by itself. What comes while an update is under way, or another program is about to come up, waits for that.
    fn upgrade(&mut self) {
        let submission = |world: &World| {
            let described = world.cluster.describe();
            described.map(|described| described.summary.submission)
        };
        let before = submission(self);
        let deadline = Instant::now() + PATIENCE;
        // The answer to one that was taken may be lost.
        while !self.cluster.upgrade(&self.program) && before == submission(self) {
            assert!(Instant::now() < deadline, "nobody takes the new program");
            self.cluster.start_missing();
            thread::park_timeout(LOOK);
        }
    }

    /// Damages what is newest, and has the job go back to it. If it notices, it waits for somebody; what was damaged is restored then.
    fn damage(&mut self, chance: u64) {
        let Some(before) = self.committed() else {
            return;
        };
        let Some(damaged) = self.disk.damage(chance) else {
            return;
        };
        let since_ms = now_ms();
        self.strike(Blow::AllWorkers);
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.cluster.start_missing();
            let described = self.cluster.describe();
            let waits = |it: &JobDescription| waits_for_what_was_left(it, since_ms);
            let phase = described.as_ref().map(|described| described.summary.phase);
            if described.as_ref().is_some_and(waits) {
                eprintln!("torture:     no program can follow, and it waits for that");
                break;
            }
            let reason = described.as_ref().and_then(|it| it.summary.reason.clone());
            let is_noticed = reason.is_some_and(|reason| reason.contains("is damaged"));
            if phase == Some(Phase::Impossible) && is_noticed {
                eprintln!(
                    "torture:     a program that has just followed can not begin, and waits for what was damaged"
                );
                break;
            }
            let epochs = described.and_then(|described| described.epochs);
            if phase == Some(Phase::SafeMode) {
                eprintln!("torture:     it is in safe mode, and told to recover");
                self.disk.restore(&damaged);
                self.insists("it recovers", |world| world.leaves_safe_mode());
                return;
            }
            // What was damaged was not needed, since there is something newer.
            let committed = epochs.and_then(|epochs| epochs.committed);
            if committed > Some(before + 3) {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "a damage is neither noticed nor left behind"
            );
            thread::park_timeout(LOOK);
        }
        self.disk.restore(&damaged);
    }

    fn leaves_safe_mode(&self) -> bool {
        let request = RecoverRequest::default();
        let _ = self
            .cluster
            .ask(|client| async move { client.recover(JOB, &request).await });
        let described = self.cluster.describe();
        described.is_some_and(|described| described.summary.phase != Phase::SafeMode)
    }
}

/// Whether the job has stopped for another program, and neither can go on from what it has left, as was told since then.
fn waits_for_what_was_left(described: &JobDescription, since_ms: u64) -> bool {
    let mut notes = described.notes.iter();
    notes.any(|note| note.at_ms >= since_ms && note.text.starts_with("no program can follow yet"))
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// A process stands still, if there is one.
fn stall(pid: Option<i32>) -> Undo {
    match pid {
        Some(pid) => {
            send(pid, Signal::STOP);
            Undo::GoOn(pid)
        }
        None => Undo::Nothing,
    }
}
