//! The person who sends commands, and sends them again when nobody answers.

use std::num::NonZeroU32;
use std::time::Duration;

use ardea_coordination::control::{Command, CommandId, EpochsCommand, Refused};

use crate::faults::Fault;
use crate::network::Node;
use crate::random::Random;
use crate::upgrades;
use crate::world::{Event, Message, TICK, World};

/// The person who sends commands.
#[derive(Debug, Default)]
pub struct User {
    /// What is still to be sent, the last first, each not before that time.
    plans: Vec<(Duration, Command)>,
    waiting: Option<(CommandId, Command)>,
    send_at: Duration,
    count: u64,
}

/// How long a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl User {
    pub(crate) fn plan(&mut self, mut plans: Vec<(Duration, Command)>) {
        plans.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        self.plans = plans;
    }

    /// Whether nothing is left to be sent or answered.
    pub(crate) fn is_done(&self) -> bool {
        self.plans.is_empty() && self.waiting.is_none()
    }

    pub(crate) fn answered(&mut self, id: CommandId, reply: &Result<(), Refused>) {
        let Some((_, command)) = self.waiting.take_if(|(waiting, _)| *waiting == id) else {
            return;
        };
        // Of another master it may be had; and who wants a job killed does not give up.
        let again = matches!(reply, Err(Refused::NotMaster { .. }))
            || (matches!(command, Command::Kill) && reply.is_err());
        if again {
            self.count += 1;
            self.waiting = Some((CommandId(self.count), command));
        }
    }
}

/// So many commands for a job, at random times; at the end it is killed if that is wanted.
pub(crate) fn plan(world: &mut World, count: u64, until: Duration, kills: bool) {
    let drawn = world.random.any();
    let mut random = Random::new(drawn);
    let vertices = world.config.demand.vertices.clone();
    let mut plans = Vec::new();
    for _ in 0..count {
        let of_lives = world.lives.is_some() && random.per_mille(200);
        let command = match random.below(10) {
            _ if of_lives => Command::Epochs(EpochsCommand::Savepoint),
            0 => Command::Activate,
            1 => Command::Deactivate,
            2..=3 => {
                let containers = 1 + random.below(4);
                Command::Restart(ardea_coordination::packing::ContainerId(containers as u32))
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
            // The moments in which a master that dies leaves things half done.
            let after = random.time(Duration::ZERO, Duration::from_millis(300));
            world
                .timeline
                .plan((at + after).min(until), Event::Fault(Fault::KillMaster));
        }
        plans.push((at, command));
    }
    if world.lives.is_some() && random.per_mille(100) {
        let stop = Command::Epochs(EpochsCommand::Stop);
        plans.push((random.time(Duration::ZERO, until), stop));
    }
    // Drawn from elsewhere, so that seeds go on doing what they did.
    let mut rescales = Random::new(!drawn);
    while count > 0 && rescales.per_mille(300) {
        let containers = NonZeroU32::MIN.saturating_add(rescales.below(6) as u32);
        let at = rescales.time(Duration::ZERO, until);
        plans.push((at, Command::Rescale(containers)));
    }
    if world.lives.is_some() {
        upgrades::plan(world, &mut plans, drawn.rotate_left(32), until);
    }
    if kills {
        plans.push((random.time(Duration::ZERO, until), Command::Kill));
    }
    world.user.plan(plans);
}

impl World {
    pub(crate) fn tick_user(&mut self) {
        self.timeline.plan(self.now + TICK, Event::TickUser);
        // Whoever looks at the job sees that it waits for somebody to decide.
        let is_stuck = self
            .epochs_record()
            .is_some_and(|record| record.safe_mode.is_some());
        let user = &mut self.user;
        let killed = match &self.shelf.record.value {
            None => true,
            // One that gives way goes on as another.
            Some((record, _)) => record.is_ending() && !record.gives_way(),
        };
        if killed {
            user.plans.clear();
            user.waiting = None;
        }
        if user.waiting.is_none() && is_stuck && !killed {
            user.count += 1;
            let retry = Command::Epochs(EpochsCommand::Retry);
            user.waiting = Some((CommandId(user.count), retry));
            user.send_at = self.now + PATIENCE;
        }
        if user.waiting.is_none() {
            let due = user.plans.pop_if(|(at, _)| *at <= self.now);
            user.count += 1;
            user.waiting = due.map(|(_, command)| (CommandId(user.count), command));
            user.send_at = self.now;
        }
        if let Some((id, command)) = &user.waiting
            && self.now >= user.send_at
        {
            user.send_at = self.now + PATIENCE;
            let message = Message::Command(*id, command.clone());
            let lease = self.shelf.leader(self.job.submission);
            if let Some(master) = lease.and_then(|lease| lease.address.parse().ok()) {
                self.send(Node::User, Node::Master(master), message);
            }
        }
    }
}
