//! A member of a grid, without network, threads or clock.
//!
//! It is its [`Council`], a [`Replica`] for each partition, and a desk that finds out whom to ask. [`on`](Node::on) takes what happens and
//! says what is to be done. The simulation drives it as any shell does.
//!
//! * `config`: what it is set to; `desk`: who asks; `seen`: what others have asked; `refill`: at which rate copies are filled; `reader`: reads from other threads; `watching`, `tellers`: hearing
//!   what happens to a map, and telling it; `touched`: of what others have still to hear; `ticking`: what follows when time passes.

mod config;
mod desk;
mod reader;
mod refill;
mod seen;
mod tellers;
mod ticking;
mod touched;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::PartitionId;
use serde::{Deserialize, Serialize};

pub use config::NodeConfig;
use desk::{Desk, Step};
pub use reader::Reader;
use reader::Shared;
use refill::Refill;
use seen::Seen;
use tellers::Tellers;
use touched::Touched;
use watching::Watching;

use crate::protocol::council::{Council, CouncilAction, CouncilEvent, CouncilWord};
use crate::protocol::operation::{MapId, Operation, Outcome, Refusal, Ticket};
use crate::protocol::replica::{Functions, Quota, Replica, ReplicaAction, ReplicaWord};
use crate::protocol::succession::{Claim, PartitionNumber};
use crate::protocol::tidings::{Happened, WatchWord};
use crate::protocol::view::{Record, View, ViewNumber};
use crate::protocol::{Member, MemberId, Recipient};

/// What members say to each other. It may be lost, doubled or late.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Word {
    /// About views.
    Council(CouncilWord),
    /// About the copies of a partition.
    Replica(PartitionNumber, ReplicaWord),
    /// An operation for the primary of a partition.
    Request {
        /// Of which.
        partition: PartitionNumber,
        /// Since when it is primary, as the asker knows it.
        reign: ViewNumber,
        /// Counted by the asker.
        number: u64,
        /// The asker waits for nothing below this number.
        floor: u64,
        /// What is to be done.
        operation: Operation,
    },
    /// How an operation has ended.
    Reply(u64, Outcome),
    /// About maps that are watched.
    Watch(WatchWord),
}

/// What a member hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// Time has passed; expected several times a heartbeat.
    Tick,
    /// A member, or who wants to be one, says something.
    From(Member, Word),
    /// Somebody is proven to be dead.
    Dead(MemberId),
    /// This member is to go.
    Leave,
    /// An operation is to be done, wherever its partition is. Each has a number that was not used before.
    Ask(u64, PartitionId, Operation),
    /// What happens to a map is to be [told](NodeAction::Happened) from now on, when that has been [said](NodeAction::Watched).
    Watch(MapId),
    /// That is wanted no more.
    Unwatch(MapId),
    /// The [request](Word::Request) of this number never left, and never will.
    Unsent(u64),
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeAction {
    /// Tell it to that one, and to nobody else.
    Tell(Recipient, Word),
    /// These requests to a member, in order of their numbers, are given up. Of those that have not left yet it is to be [said](NodeEvent::Unsent), before the next tick:
    /// nobody can say of the others whether they were done.
    Recall(MemberId, Vec<u64>),
    /// That operation has ended so.
    Ended(u64, Outcome),
    /// There is a new view.
    Installed(Arc<View>),
    /// All that happens to a map from now on is told, or that something was missed.
    Watched(MapId),
    /// That has happened to a map in a partition, in this order.
    Happened(MapId, PartitionNumber, Vec<Happened>),
    /// Something has happened to a map in a partition that was not told: it has to be read.
    Missed(MapId, PartitionNumber),
    /// Everything has been told that had happened by that time, on this member's clock, where that one is primary.
    Confirmed(MemberId, Duration),
    /// This member belongs to the grid no more, and keeps nothing. If it has left it goes on hearing, and being told that time passes, until it has
    /// [parted](Self::Parted).
    Out,
    /// This member has left, and those who stay need nothing of it any more: its process may end.
    Parted,
}

/// A member of a grid.
pub struct Node {
    council: Council,
    config: NodeConfig,
    quota: Arc<Quota>,
    shared: Arc<Shared>,
    desk: Desk,
    refill: Refill,
    seen: BTreeMap<MemberId, Seen>,
    /// Who is the primary of each partition, since when: what the view says, where it is found at once.
    primaries: Vec<Option<(MemberId, ViewNumber)>>,
    /// Who belongs to the grid, and who did: late requests of those who don't any more may have been carried out.
    members: BTreeSet<MemberId>,
    departed: BTreeSet<MemberId>,
    tellers: Tellers,
    watching: Watching,
    /// Whose copies have done something of which others have not heard yet.
    touched: Touched,
    /// Whose copies time may lead to more.
    awake: Touched,
    claims: BTreeMap<PartitionNumber, Vec<Claim>>,
    /// The claims are others than the council knows.
    has_claims: bool,
    ticked: Option<Duration>,
    now: Duration,
    is_out: bool,
    actions: Vec<NodeAction>,
    /// What a copy has said: empty, its memory kept.
    said: Vec<ReplicaAction>,
}

impl Node {
    /// The first member of a grid.
    pub fn found(me: Member, config: NodeConfig, functions: Arc<dyn Functions>) -> Self {
        let council = Council::found(me, config.partitions, config.backups, config.council);
        let mut node = Node::of(council, config, functions);
        if let Some(view) = node.council.view().cloned() {
            node.install(Duration::ZERO, &view);
        }
        node
    }

    /// A member of the grid of whoever is at these addresses, when it is let in.
    pub fn join(
        me: Member,
        seeds: Vec<Arc<str>>,
        config: NodeConfig,
        functions: Arc<dyn Functions>,
    ) -> Self {
        let council = Council::join(me, seeds, config.council);
        Node::of(council, config, functions)
    }

    fn of(council: Council, config: NodeConfig, functions: Arc<dyn Functions>) -> Self {
        let quota = Arc::new(Quota::new(config.limit, config.guest_limit));
        let settings = Arc::new(config.replica);
        let me = council.me().id;
        let replica = |_| {
            let (settings, quota) = (Arc::clone(&settings), Arc::clone(&quota));
            Replica::new(me, settings, quota, Arc::clone(&functions))
        };
        Node {
            shared: Arc::new(Shared::new((0..config.partitions).map(replica))),
            desk: Desk::new(me, config.patience, config.retry),
            refill: Refill::new(config.refill_rate, config.replica.resend),
            council,
            touched: Touched::new(config.partitions),
            awake: Touched::new(config.partitions),
            config,
            quota,
            seen: BTreeMap::new(),
            primaries: Vec::new(),
            members: BTreeSet::new(),
            departed: BTreeSet::new(),
            tellers: Tellers::default(),
            watching: Watching::default(),
            claims: BTreeMap::new(),
            has_claims: false,
            ticked: None,
            now: Duration::ZERO,
            is_out: false,
            actions: Vec::new(),
            said: Vec::new(),
        }
    }

    /// This member.
    pub fn me(&self) -> &Member {
        self.council.me()
    }

    /// What it is set to.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The view, if it has one.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.council.view().filter(|_| !self.is_out)
    }

    /// Whether it belongs to the grid no more.
    pub fn is_out(&self) -> bool {
        self.is_out
    }

    /// What its copies take, in bytes.
    pub fn used(&self) -> u64 {
        self.quota.used()
    }

    /// Looks at its copy of a partition, if the grid has so many.
    pub fn look_at<R>(
        &self,
        partition: PartitionId,
        look: impl FnOnce(&Replica) -> R,
    ) -> Option<R> {
        self.shared
            .replica(partition.index())
            .map(|replica| look(&replica))
    }

    /// Reads what this member is primary of, from any thread.
    pub fn reader(&self) -> Reader {
        Reader(Arc::clone(&self.shared))
    }

    /// Whether it may act as its view says.
    pub fn may_act(&self, now: Duration) -> bool {
        self.shared.may_act(now)
    }

    /// Whether it reads and writes this partition now.
    pub fn serves(&self, now: Duration, partition: PartitionId) -> bool {
        self.may_act(now) && self.look_at(partition, Replica::is_ready).unwrap_or(false)
    }

    /// What follows from something that happened.
    pub fn on(&mut self, now: Duration, event: NodeEvent) -> Vec<NodeAction> {
        let mut actions = Vec::new();
        self.take(now, event);
        self.follow(now, &mut actions);
        actions
    }

    /// Takes something that happened. What follows is said by [`follow`](Self::follow), of all that was taken since together: so changes of a partition that
    /// come together travel together, and are acknowledged together.
    pub fn take(&mut self, now: Duration, event: NodeEvent) {
        self.now = now;
        if self.is_out {
            return self.take_outside(now, event);
        }
        match event {
            NodeEvent::Tick => self.tick(now),
            NodeEvent::From(from, word) => self.hear(now, from, word),
            NodeEvent::Dead(member) => self.council(now, CouncilEvent::Dead(member)),
            NodeEvent::Leave => self.council(now, CouncilEvent::Leave),
            NodeEvent::Ask(number, partition, operation) => {
                let step = self.desk.ask(now, number, partition, operation);
                self.try_it(now, step);
            }
            NodeEvent::Watch(map) => self.watch(now, map, true),
            NodeEvent::Unwatch(map) => self.watch(now, map, false),
            NodeEvent::Unsent(number) => self.desk.unsent(now, number),
        }
    }

    /// Takes something that happened to who belongs to the grid no more.
    fn take_outside(&mut self, now: Duration, event: NodeEvent) {
        match event {
            NodeEvent::Ask(number, ..) => {
                let refused = Outcome::Refused(Refusal::CutOff);
                self.actions.push(NodeAction::Ended(number, refused));
            }
            NodeEvent::From(from, Word::Council(word)) => {
                self.council(now, CouncilEvent::From(from, word));
            }
            NodeEvent::Tick => self.council(now, CouncilEvent::Tick),
            _ => {}
        }
    }

    /// What follows from all that was taken, behind what is there already.
    pub fn follow(&mut self, now: Duration, actions: &mut Vec<NodeAction>) {
        while let Some(partition) = self.touched.next() {
            self.spread(now, partition);
        }
        self.tell_ended();
        actions.append(&mut self.actions);
    }

    fn hear(&mut self, now: Duration, from: Member, word: Word) {
        match word {
            Word::Council(word) => self.council(now, CouncilEvent::From(from, word)),
            Word::Replica(partition, word) => {
                let came = Refill::cost(&word);
                self.with(now, partition, |replica, out| {
                    replica.hear(from.id, word, out)
                });
                if came > 0 {
                    self.refill.came(partition, came);
                    self.refill(now);
                }
            }
            Word::Request {
                partition,
                reign,
                number,
                floor,
                operation,
            } => {
                let is_gone = self.departed.contains(&from.id);
                if is_gone || !self.seen.entry(from.id).or_default().is_new(number, floor) {
                    return;
                }
                let ticket = Ticket {
                    member: from.id,
                    number,
                };
                let replica = self.shared.replica(partition);
                let present = replica.and_then(|replica| Some(replica.record()?.reign));
                // Whoever is a member in a later view only could not be answered.
                if present == Some(reign) && self.members.contains(&from.id) {
                    self.request(now, partition, ticket, operation);
                } else {
                    let refused = Outcome::Refused(Refusal::NotPrimary);
                    self.actions.push(NodeAction::Tell(
                        (&from).into(),
                        Word::Reply(number, refused),
                    ));
                }
            }
            Word::Reply(number, outcome) => {
                self.desk.ended(now, number, Some(from.id), outcome);
            }
            Word::Watch(word) => self.hear_watch_word(now, from.id, word),
        }
    }

    fn request(
        &mut self,
        now: Duration,
        partition: PartitionNumber,
        ticket: Ticket,
        operation: Operation,
    ) {
        let may_act = self.may_act(now);
        self.with(now, partition, |replica, out| {
            replica.request(now, may_act, ticket, operation, out);
        });
    }

    /// Lets a copy do something. What others are to hear of it is seen to when all has been [taken](Self::follow) that has come.
    fn with(
        &mut self,
        now: Duration,
        partition: PartitionNumber,
        act: impl FnOnce(&mut Replica, &mut Vec<ReplicaAction>),
    ) {
        let Some(mut replica) = self.shared.replica(partition) else {
            return;
        };
        let mut out = std::mem::take(&mut self.said);
        act(&mut replica, &mut out);
        let noted = replica.take_noted();
        drop(replica);
        self.touched.add(partition);
        self.awake.add(partition);
        // Who watches hears of a change before who made it is answered.
        if !noted.is_empty() {
            self.tell_noted(partition, noted);
        }
        self.carry_out_all(now, partition, out);
    }

    /// Sees to it that others hear what a copy has done.
    fn spread(&mut self, now: Duration, partition: PartitionNumber) {
        let replica = self.shared.replica(partition);
        let Some(mut replica) = replica.filter(|_| !self.is_out) else {
            return;
        };
        let mut out = std::mem::take(&mut self.said);
        replica.flush(now, &mut out);
        let claims = replica.claims(partition);
        drop(replica);
        self.carry_out_all(now, partition, out);
        let is_known = match self.claims.get(&partition) {
            Some(before) => *before == claims,
            None => claims.is_empty(),
        };
        if !is_known {
            self.claims.insert(partition, claims);
            self.claims.retain(|_, claims| !claims.is_empty());
            self.has_claims = true;
        }
        if self.has_claims && self.touched.is_empty() {
            self.claim(now);
        }
    }

    fn carry_out_all(
        &mut self,
        now: Duration,
        partition: PartitionNumber,
        mut out: Vec<ReplicaAction>,
    ) {
        for action in out.drain(..) {
            self.carry_out(now, partition, action);
        }
        // Its memory is used again.
        self.said = out;
    }

    fn claim(&mut self, now: Duration) {
        self.has_claims = false;
        let all = self.claims.values().flatten().copied().collect();
        self.council(now, CouncilEvent::Claims(all));
    }

    fn carry_out(&mut self, now: Duration, partition: PartitionNumber, action: ReplicaAction) {
        match action {
            ReplicaAction::Tell(member, word) => self.tell(member, Word::Replica(partition, word)),
            ReplicaAction::Answer(ticket, outcome) if ticket.member == self.me().id => {
                self.desk.ended(now, ticket.number, None, outcome);
            }
            ReplicaAction::Answer(ticket, outcome) => {
                self.tell(ticket.member, Word::Reply(ticket.number, outcome));
            }
        }
    }

    fn tell(&mut self, member: MemberId, word: Word) {
        if let Some(member) = self.council.view().and_then(|view| view.member(member)) {
            self.actions.push(NodeAction::Tell(member.into(), word));
        }
    }

    /// Carries a step of the desk out.
    fn try_it(&mut self, now: Duration, step: Option<Step>) {
        let Some(Step {
            partition,
            number,
            floor,
            operation,
        }) = step
        else {
            return;
        };
        let me = self.me().id;
        let primary = self.primaries.get(partition as usize).copied().flatten();
        self.desk
            .sent(now, number, primary.map(|(member, _)| member));
        match primary {
            Some((member, _)) if member == me => {
                let ticket = Ticket { member, number };
                self.request(now, partition, ticket, operation);
            }
            Some((member, reign)) => self.tell(
                member,
                Word::Request {
                    partition,
                    reign,
                    number,
                    floor,
                    operation,
                },
            ),
            None => {
                let refused = Outcome::Refused(Refusal::CutOff);
                self.desk.ended(now, number, None, refused);
            }
        }
    }

    fn tell_ended(&mut self) {
        let may_act = self.may_act(self.now);
        for (number, outcome) in self.desk.ended.drain(..) {
            // Whoever is cut off finds nobody: that is what has to be told.
            let outcome = match outcome {
                Outcome::Refused(refusal) if refusal.may_pass() && !may_act => {
                    Outcome::Refused(Refusal::CutOff)
                }
                other => other,
            };
            self.actions.push(NodeAction::Ended(number, outcome));
        }
        let recalls = std::mem::take(&mut self.desk.recalls).into_iter();
        self.actions.extend(
            recalls.map(|(to, numbers)| NodeAction::Recall(to, numbers.into_iter().collect())),
        );
    }

    fn council(&mut self, now: Duration, event: CouncilEvent) {
        for action in self.council.on(now, event) {
            match action {
                CouncilAction::Tell(to, word) => {
                    self.actions.push(NodeAction::Tell(to, Word::Council(word)));
                }
                CouncilAction::Installed(view) => self.install(now, &view),
                CouncilAction::Out => self.leave(),
                CouncilAction::Parted => self.actions.push(NodeAction::Parted),
            }
        }
        self.shared.set_lease(self.council.lease());
    }

    fn install(&mut self, now: Duration, view: &Arc<View>) {
        // What is asked of the copies meanwhile finds no lease: that of the view before counts no more.
        self.shared.set_lease(None);
        let members: BTreeSet<MemberId> = view.members.iter().map(|member| member.id).collect();
        let before = std::mem::replace(&mut self.members, members);
        self.departed.extend(before.difference(&self.members));
        self.seen
            .retain(|member, _| !self.departed.contains(member));
        let primary = |record: &Arc<Record>| Some((record.primary()?, record.reign));
        self.primaries = view.records.iter().map(primary).collect();
        let records: Vec<_> = view
            .partitions()
            .map(|(partition, record)| (partition.index(), Arc::clone(record)))
            .collect();
        for (partition, record) in records {
            self.with(now, partition, |replica, out| {
                replica.install(now, &record, out)
            });
        }
        let me = self.me().id;
        let filling = view
            .partitions()
            .filter(|(_, record)| record.is_kept_by(me) && !record.is_whole(me));
        self.refill
            .is_filling(filling.map(|(partition, _)| partition.index()).collect());
        self.desk.members_are(now, &self.members);
        self.actions.push(NodeAction::Installed(Arc::clone(view)));
    }

    /// It is a member no more.
    fn leave(&mut self) {
        self.is_out = true;
        self.primaries.clear();
        self.shared.set_lease(None);
        for mut replica in self.shared.all() {
            replica.give_up(&mut Vec::new());
        }
        self.desk.give_up();
        self.tell_ended();
        self.actions.push(NodeAction::Out);
    }

    fn refill(&mut self, now: Duration) {
        let wants = |partition: &PartitionNumber| {
            let replica = self.shared.replica(*partition);
            replica.is_some_and(|replica| replica.wants_entries())
        };
        for partition in self.refill.next(now, wants) {
            self.with(now, partition, Replica::pull);
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view().map(|view| view.number);
        write!(f, "Node({}, view {view:?})", self.me().id)
    }
}
