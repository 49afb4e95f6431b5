//! The simulated user, who sends commands and retries unanswered ones.

use std::num::NonZeroU32;
use std::time::Duration;

use ardea_coordination::control::{
    CandidateEvent, CheckpointCommand, Command, CommandId, MasterEvent, Rejection,
};

use ardea_coordination::packing::ContainerId;

use crate::faults::Fault;
use crate::network::Node;
use crate::random::Random;
use crate::simulation::{ClusterSimulation, TICK};
use crate::upgrades;

/// The simulated user.
#[derive(Debug, Default)]
pub struct User {
    /// The commands to send with their earliest times, in reverse order.
    plans: Vec<(Duration, Command)>,
    waiting: Option<(CommandId, Command)>,
    send_at: Duration,
    count: u64,
}

/// The timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

impl User {
    pub fn plan(&mut self, mut plans: Vec<(Duration, Command)>) {
        plans.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        self.plans = plans;
    }

    /// Returns true if no command is left to send or to answer.
    pub fn is_done(&self) -> bool {
        self.plans.is_empty() && self.waiting.is_none()
    }

    pub fn answered(&mut self, id: CommandId, reply: &Result<(), Rejection>) {
        let Some((_, command)) = self.waiting.take_if(|(waiting, _)| *waiting == id) else {
            return;
        };
        // Another leader may accept it, and a kill is always retried.
        let again = matches!(reply, Err(Rejection::NotMaster { .. }))
            || (matches!(command, Command::Kill) && reply.is_err());
        if again {
            self.count += 1;
            self.waiting = Some((CommandId(self.count), command));
        }
    }
}

/// Plans random commands for a job at random times, with a final kill if `kills`.
pub fn plan(sim: &mut ClusterSimulation, count: u64, until: Duration, kills: bool) {
    let drawn = sim.random.any();
    let mut random = Random::new(drawn);
    let vertices = sim.config.demand.vertices.clone();
    let mut plans = Vec::new();
    for _ in 0..count {
        let of_lives = sim.has_guarantee() && random.per_mille(200);
        let command = match random.below(10) {
            _ if of_lives => Command::Epochs(CheckpointCommand::Savepoint),
            0 => Command::Resume,
            1 => Command::Pause,
            2..=3 => {
                let containers = 1 + random.below(4);
                Command::Restart(ContainerId(containers as u32))
            }
            _ => {
                let Some(vertex) = random.pick(&vertices) else {
                    continue;
                };
                let most = u64::from(vertex.parallelism) * 2;
                let parallelism = 1 + random.below(most) as u32;
                Command::Update([(vertex.name, parallelism)].into())
            }
        };
        let at = random.time(Duration::ZERO, until);
        if random.per_mille(400) {
            // A leader that dies just after a command leaves it half executed.
            let after = random.time(Duration::ZERO, Duration::from_millis(300));
            let at = (at + after).min(until);
            sim.plan(at, |sim| sim.inject(Fault::KillMaster));
        }
        plans.push((at, command));
    }
    if sim.has_guarantee() && random.per_mille(100) {
        let stop = Command::Epochs(CheckpointCommand::Stop);
        plans.push((random.time(Duration::ZERO, until), stop));
    }
    // Rescales are drawn from another stream of random numbers, so that the outcome of known seeds
    // does not change.
    let mut rescales = Random::new(!drawn);
    while count > 0 && rescales.per_mille(300) {
        let containers = NonZeroU32::MIN.saturating_add(rescales.below(6) as u32);
        let at = rescales.time(Duration::ZERO, until);
        plans.push((at, Command::Rescale(containers)));
    }
    if sim.has_guarantee() {
        upgrades::plan(sim, &mut plans, drawn.rotate_left(32), until);
    }
    if kills {
        plans.push((random.time(Duration::ZERO, until), Command::Kill));
    }
    sim.user.plan(plans);
}

impl ClusterSimulation {
    pub fn tick_user(&mut self) {
        self.plan_in(TICK, ClusterSimulation::tick_user);
        // The user sees that the job waits for a decision.
        let record = self.epochs_record();
        let is_stuck = record.is_some_and(|record| record.safe_mode.is_some());
        let now = self.now;
        let user = &mut self.user;
        let killed = match &self.metastore.record.value {
            None => true,
            // A job that is replaced continues as another.
            Some((record, _)) => record.is_ending() && !record.is_being_replaced(),
        };
        if killed {
            user.plans.clear();
            user.waiting = None;
        }
        if user.waiting.is_none() && is_stuck && !killed {
            user.count += 1;
            let retry = Command::Epochs(CheckpointCommand::Retry);
            user.waiting = Some((CommandId(user.count), retry));
            user.send_at = now + COMMAND_TIMEOUT;
        }
        if user.waiting.is_none() {
            let due = user.plans.pop_if(|(at, _)| *at <= now);
            user.count += 1;
            user.waiting = due.map(|(_, command)| (CommandId(user.count), command));
            user.send_at = now;
        }
        if let Some((id, command)) = &user.waiting
            && now >= user.send_at
        {
            user.send_at = now + COMMAND_TIMEOUT;
            let command = MasterEvent::Command(*id, command.clone());
            let lease = self.metastore.leader(self.job.submission);
            if let Some(master) = lease.and_then(|lease| lease.address.parse().ok()) {
                self.send_to_master(Node::User, master, CandidateEvent::Master(command));
            }
        }
    }
}
