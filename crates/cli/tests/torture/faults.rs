//! The execution of faults.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_coordination::packing::ContainerId;
use ardea_metastore::conformance::Server;
use ardea_rest::{JobDescription, ParallelismUpdate, Phase, RecoverRequest};
use rustix::process::Signal;

use crate::cluster::send;
use crate::environment::TestEnvironment;
use crate::job::JOB;
use crate::plan::{Fault, InstantFault, LastingFault, Operation};

/// The time limit for retrying a command, and for the detection of damage.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits for `millis` milliseconds, during a deliberate fault.
pub fn pass(millis: u64) {
    let end = Instant::now() + Duration::from_millis(millis);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// The action that ends a lasting fault.
enum Undo {
    Nothing,
    /// Continue the process (SIGCONT).
    GoOn(i32),
    /// Send this command to the network.
    Heal(String),
    Kafka,
    Postgres,
    Store,
    State,
    Free,
    BringBack(PathBuf),
    Activate,
}

impl TestEnvironment {
    /// Executes a fault until it is over; then restarts the hosts whose processes are gone.
    pub fn execute(&mut self, fault: Fault) {
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

    /// Returns the host that leads the job, or host 1 if it is unknown.
    fn leader(&self) -> usize {
        self.cluster.leader().unwrap_or(1)
    }

    fn strike(&mut self, blow: InstantFault) {
        let kill = |pid| send(pid, Signal::KILL);
        match blow {
            InstantFault::Worker(number) => self.worker(number).into_iter().for_each(kill),
            InstantFault::AllWorkers => {
                let workers = self.cluster.workers().into_iter();
                workers.for_each(|(_, pid)| kill(pid));
            }
            InstantFault::Host(number) => self.cluster.kill_host(self.host(number)),
            InstantFault::Master => self.cluster.kill_host(self.leader()),
            InstantFault::MasterAndWorker(number) => {
                let (leader, worker) = (self.leader(), self.worker(number));
                worker.into_iter().for_each(kill);
                self.cluster.kill_host(leader);
            }
            InstantFault::Machine(number) => self.cluster.kill_machine(self.host(number)),
        }
    }

    fn cast(&mut self, spell: LastingFault) -> Undo {
        match spell {
            LastingFault::WorkerStalls(number) => stall(self.worker(number)),
            LastingFault::HostStalls(number) => stall(self.cluster.host_process(self.host(number))),
            LastingFault::MasterStalls => stall(self.cluster.host_process(self.leader())),
            LastingFault::HostCut(number) => self.cut(self.host(number).to_string()),
            LastingFault::MasterCut => self.cut(self.leader().to_string()),
            LastingFault::PairCut(one, other) => {
                let one = self.host(one);
                let other = match self.host(other) {
                    same if same == one => one % self.cluster.land.hosts() + 1,
                    other => other,
                };
                self.cut(format!("{one} {other}"))
            }
            LastingFault::Kafka => {
                self.feeder.has_kafka(false);
                self.services.kafka.kill();
                Undo::Kafka
            }
            LastingFault::Postgres => {
                self.services.postgres.kill();
                Undo::Postgres
            }
            LastingFault::State => {
                self.cluster.kill_state();
                Undo::State
            }
            LastingFault::DiskFull => {
                self.disk.fill();
                Undo::Free
            }
            LastingFault::FolderAway => match (&self.services.store, self.disk.take_away()) {
                (Some(store), _) => {
                    store.kill();
                    Undo::Store
                }
                (None, Some(folder)) => Undo::BringBack(folder),
                (None, None) => Undo::Nothing,
            },
            LastingFault::Paused => {
                self.insists("it is paused", |world| {
                    let asked = world
                        .cluster
                        .ask(|client| async move { client.pause(JOB).await });
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
                        .ask(|client| async move { client.resume(JOB).await });
                    asked.is_some()
                });
            }
        }
    }

    /// Repeats a command until it is accepted: the leader may be gone, and a response may be lost.
    fn insists(&self, what: &str, take: impl Fn(&TestEnvironment) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !take(self) {
            assert!(Instant::now() < deadline, "nobody takes the order: {what}");
            thread::park_timeout(POLL_INTERVAL);
        }
    }

    fn order(&mut self, deed: Operation) {
        match deed {
            Operation::Rescale(vertex, count) => self.rescale(vertex, count),
            Operation::Restart(number) => {
                let Some(described) = self.cluster.describe() else {
                    return;
                };
                let containers = described.containers;
                let Some(index) = number.checked_rem(containers.len() as u64) else {
                    return;
                };
                let container: ContainerId = containers[index as usize].id;
                // A container that is gone can't be restarted, which is fine.
                let _ = self
                    .cluster
                    .ask(|client| async move { client.restart(JOB, container).await });
            }
            Operation::Upgrade => self.upgrade(),
            Operation::Damage(chance) => self.damage(chance),
        }
    }

    /// Changes the parallelism of a vertex. Waits for an update in progress.
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
        let has_it = |world: &TestEnvironment| {
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

    /// Upgrades the job to the same program. Waits for an update or upgrade in progress.
    fn upgrade(&mut self) {
        let submission = |world: &TestEnvironment| {
            let described = world.cluster.describe();
            described.map(|described| described.summary.submission)
        };
        let before = submission(self);
        let deadline = Instant::now() + TIMEOUT;
        // The response to an accepted upgrade may be lost.
        while !self.cluster.upgrade(&self.program) && before == submission(self) {
            assert!(Instant::now() < deadline, "nobody takes the new program");
            self.cluster.start_missing();
            thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Damages the newest checkpoint, and makes the job restore it. If the job detects the damage,
    /// it waits in safe mode; then the checkpoint is repaired.
    fn damage(&mut self, chance: u64) {
        let Some(before) = self.committed() else {
            return;
        };
        let Some(damaged) = self.disk.damage(chance) else {
            return;
        };
        let since_ms = now_ms();
        self.strike(InstantFault::AllWorkers);
        let deadline = Instant::now() + TIMEOUT;
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
            // The damaged checkpoint was not needed, since there is a newer one.
            let committed = epochs.and_then(|epochs| epochs.committed);
            if committed > Some(before + 3) {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "a damage is neither noticed nor left behind"
            );
            thread::park_timeout(POLL_INTERVAL);
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

/// Returns true if the job was stopped for an upgrade, and neither program can restore its state,
/// according to a note since then.
fn waits_for_what_was_left(described: &JobDescription, since_ms: u64) -> bool {
    let mut notes = described.notes.iter();
    notes.any(|note| {
        note.at_ms >= since_ms && note.text.starts_with("neither program can take over yet")
    })
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Stops a process (SIGSTOP), if there is one.
fn stall(pid: Option<i32>) -> Undo {
    match pid {
        Some(pid) => {
            send(pid, Signal::STOP);
            Undo::GoOn(pid)
        }
        None => Undo::Nothing,
    }
}
