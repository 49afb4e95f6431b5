//! The simulated grid: its members, the network between them, and its clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::PartitionId;
use ardea_grid::protocol::{
    ConsensusConfig, Member, MemberId, Message, Node, NodeAction, NodeConfig, NodeEvent, Outcome,
    ReplicaConfig, View,
};

use super::GridReport;
use super::clients::{Adds, PendingOperation};
use super::history::HistoryEvent;
use crate::network::Host;
use crate::random::Random;
use crate::world::{Simulation, SkewedClock, World, in_world};

/// The client of the final reads.
pub const FINAL_READER: u32 = u32::MAX;

const TICK: Duration = Duration::from_millis(20);

/// One incarnation of a member.
pub struct MemberIncarnation {
    pub node: Node,
    pub host: Host,
    pub clock: SkewedClock,
    /// The time until which the member is halted.
    pub halted: Duration,
    pub leaves: bool,
}

/// A simulated grid.
pub struct GridSimulation {
    pub world: World<GridSimulation>,
    config: NodeConfig,
    pub partitions: u32,
    pub hosts: u32,
    pub lives: BTreeMap<u64, MemberIncarnation>,
    last_life: u64,
    /// The incarnations that have ended.
    pub dead: Vec<u64>,
    pub newest: Arc<View>,
    /// The number of complete copies of each partition that were lost since the partition last had
    /// all copies.
    pub lost_copies: BTreeMap<PartitionId, usize>,
    pub history: BTreeMap<u64, Vec<HistoryEvent>>,
    pub under_way: BTreeMap<u64, PendingOperation>,
    /// Requests that have not left their members yet, by member and number, with their receivers.
    held: BTreeMap<(u64, u64), (u64, Message)>,
    pub asked: u64,
    pub values: u64,
    pub last_seen: BTreeMap<u64, u64>,
    pub is_mended: bool,
    pub final_reads: bool,
    pub report: GridReport,
}

in_world!(GridSimulation);

impl Simulation for GridSimulation {
    const CHECK_INTERVAL: Duration = Duration::from_millis(200);

    /// Returns true if no member is alive. The last one is never killed: it has left or was
    /// expelled, bound by its vote, and the members that were to stay died before they knew of that
    /// decision.
    fn has_ended(&mut self) -> bool {
        self.report.ended = u64::from(self.lives.is_empty());
        self.lives.is_empty()
    }

    fn missing(&mut self) -> Option<String> {
        let missing = self.unrecovered();
        let is_stuck = missing.is_some() && self.is_stuck();
        self.report.stuck += u64::from(is_stuck);
        missing.filter(|_| !is_stuck)
    }
}

impl GridSimulation {
    /// Creates a random grid.
    pub fn new(mut random: Random) -> Self {
        let config = chosen_config(&mut random);
        let hosts = 1 + random.below(6) as u32;
        let members = 1 + random.below(6);
        let founder = Member::new(MemberId(1), "0", "1");
        let first = View::first(founder.clone(), config.partitions, config.backups);
        let mut sim = GridSimulation {
            world: World::new(random),
            partitions: config.partitions,
            hosts,
            lives: BTreeMap::new(),
            last_life: 1,
            dead: Vec::new(),
            newest: Arc::new(first),
            lost_copies: BTreeMap::new(),
            history: BTreeMap::new(),
            under_way: BTreeMap::new(),
            held: BTreeMap::new(),
            asked: 0,
            values: 0,
            last_seen: BTreeMap::new(),
            is_mended: false,
            final_reads: false,
            report: GridReport::default(),
            config: config.clone(),
        };
        let founder = Node::found(founder, config, Arc::new(Adds));
        sim.lives_begin(1, founder, Host(0));
        for _ in 1..members {
            let host = Host(sim.random.below(u64::from(hosts)) as u32);
            sim.after(0, 2_000, move |sim| sim.start(host));
        }
        for client in 0..2 + sim.random.below(4) as u32 {
            sim.after(0, 100, move |sim| sim.client_acts(client));
        }
        sim
    }

    fn lives_begin(&mut self, life: u64, node: Node, host: Host) {
        let drift = self.random.below(8_000) as i64 - 4_000;
        let clock = SkewedClock::new(self.now, drift);
        let member = MemberIncarnation {
            node,
            host,
            clock,
            halted: Duration::ZERO,
            leaves: false,
        };
        self.lives.insert(life, member);
        self.plan_in(Duration::ZERO, move |sim| sim.tick(life));
    }

    fn tick(&mut self, life: u64) {
        if self.lives.contains_key(&life) {
            self.plan_in(TICK, move |sim| sim.tick(life));
            self.happens_at(life, NodeEvent::Tick);
        }
    }

    /// Reports the proven end of an incarnation to all members.
    pub fn prove(&mut self, life: u64) {
        let all: Vec<u64> = self.lives.keys().copied().collect();
        for other in all {
            self.happens_at(other, NodeEvent::Dead(MemberId(life)));
        }
    }

    /// Returns true if a write is acknowledged only when the loss of one member cannot lose it.
    pub fn is_synchronous(&self) -> bool {
        self.config.replica.is_synchronous
    }

    pub fn backups(&self) -> usize {
        self.config.backups
    }

    /// Starts a member, which asks existing ones for admission.
    pub fn start(&mut self, host: Host) {
        let lives = self.lives.keys();
        let seeds: Vec<Arc<str>> = lives.map(|life| life.to_string().into()).collect();
        if seeds.is_empty() {
            return;
        }
        self.last_life += 1;
        let life = self.last_life;
        self.remember(format!("{life} comes, on {host:?}"));
        let me = Member::new(MemberId(life), host.0.to_string(), life.to_string());
        let node = Node::join(me, seeds, self.config.clone(), Arc::new(Adds));
        self.lives_begin(life, node, host);
        self.after(4_000, 6_000, move |sim| sim.gives_up(life));
    }

    fn gives_up(&mut self, id: u64) {
        if let Some(life) = self.lives.get(&id)
            && life.node.view().is_none()
            && !life.node.is_out()
        {
            let host = life.host;
            self.ends(id);
            // The member may have been admitted at this moment. After all faults the operator
            // reports ended members.
            if self.is_mended {
                self.plan_in(Duration::ZERO, move |sim| sim.prove(id));
            }
            self.after(0, 100, move |sim| sim.start(host));
        }
    }

    /// Ends a member.
    pub fn ends(&mut self, life: u64) {
        if self.lives.remove(&life).is_none() {
            return;
        }
        self.dead.push(life);
        let ended = self
            .under_way
            .iter()
            .filter(|(_, asked)| asked.life == life);
        let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
        for id in ended {
            self.operation_ended(id, Outcome::Unknown);
        }
    }

    /// Delivers an event to a member, now or when it is no longer halted.
    pub fn happens_at(&mut self, id: u64, event: NodeEvent) {
        let now = self.now;
        let Some(life) = self.lives.get_mut(&id) else {
            if let NodeEvent::Ask(number, ..) = event {
                self.operation_ended(number, Outcome::Unknown);
            }
            return;
        };
        if life.halted > now {
            let halted = life.halted;
            match event {
                NodeEvent::From(..) => self.plan(halted, move |sim| sim.happens_at(id, event)),
                NodeEvent::Ask(number, ..) => self.operation_ended(number, Outcome::Unknown),
                _ => {}
            }
            return;
        }
        let clock = life.clock.read(now);
        let (host, me) = (life.host, life.node.me().clone());
        // Sometimes a member takes the next event before it produces the actions of this one.
        let may_wait = matches!(event, NodeEvent::Ask(..) | NodeEvent::From(..));
        let waits = may_wait && self.world.random.per_mille(200);
        life.node.take(clock, event);
        let mut actions = Vec::new();
        if !waits {
            life.node.follow(clock, &mut actions);
        }
        for action in actions {
            self.carry_out(id, host, &me, action);
        }
        self.check_alone(id);
    }

    /// Sends a message from one member to another, if they are connected.
    fn travels(&mut self, (host, me): (Host, &Member), to: u64, word: Message) {
        let there = self.lives.get(&to).map(|life| life.host);
        if there.is_some_and(|there| self.network.connects(host, there)) {
            let me = me.clone();
            self.transmit(move |sim| sim.happens_at(to, NodeEvent::From(me, word)));
        }
    }

    /// Sends a request that was delayed at its member.
    fn departs(&mut self, from: u64, number: u64) {
        let held = self.held.remove(&(from, number));
        if let (Some((to, word)), Some(life)) = (held, self.lives.get(&from)) {
            let (host, me) = (life.host, life.node.me().clone());
            self.travels((host, &me), to, word);
        }
    }

    fn carry_out(&mut self, id: u64, host: Host, me: &Member, action: NodeAction) {
        match action {
            NodeAction::SendMessage(to, word) => {
                let Ok(to) = to.endpoint.parse::<u64>() else {
                    return;
                };
                if let Message::Request { number, .. } = word
                    && self.random.per_mille(20)
                {
                    self.held.insert((id, number), (to, word));
                    self.after(0, 6_000, move |sim| sim.departs(id, number));
                    return;
                }
                self.travels((host, me), to, word);
            }
            NodeAction::Recall(_, numbers) => {
                for number in numbers {
                    if self.held.remove(&(id, number)).is_some() {
                        self.happens_at(id, NodeEvent::Unsent(number));
                    }
                }
            }
            NodeAction::Ended(number, outcome) => self.operation_ended(number, outcome),
            NodeAction::Installed(view) => self.installed(id, view),
            NodeAction::Parted => self.ends(id),
            // There are no watches here.
            NodeAction::Watched(_)
            | NodeAction::Happened(..)
            | NodeAction::Missed(..)
            | NodeAction::Confirmed(..) => {}
            NodeAction::Out => {
                self.remember(format!("{id} is out"));
                if self.lives.get(&id).is_some_and(|life| life.leaves) {
                    self.after(400, 3_000, move |sim| sim.ends(id));
                } else {
                    // An expelled member restarts with another identity.
                    self.ends(id);
                    self.after(10, 1_000, move |sim| sim.start(host));
                }
            }
        }
    }
}

fn chosen_config(random: &mut Random) -> NodeConfig {
    let millis = Duration::from_millis;
    NodeConfig {
        council: ConsensusConfig {
            heartbeat: millis(50),
            lease: millis(400),
            silence: millis(600) + random.time(millis(0), millis(400)),
            drift: 20,
        },
        replica: ReplicaConfig {
            is_synchronous: random.per_mille(900),
            batch_bytes: 50 + random.below(1_000) as usize,
            window: 1 + random.below(20),
            log_bytes: 500 + random.below(3_000) as usize,
            resend: millis(60),
            began: 0,
        },
        backups: random.below(3) as usize,
        partitions: 1 + random.below(8) as u32,
        refill_rate: 500 + random.below(200_000),
        guest_limit: u64::MAX,
        limit: u64::MAX,
        patience: millis(3_000),
        retry: millis(10),
    }
}
