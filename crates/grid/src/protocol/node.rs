//! A member of a grid, without network, threads or clock.
//!
//! Consists of its [`Membership`], a [`Replica`] for each partition, and the pending operations of
//! its callers. [`on`](Node::on) processes an event and returns the resulting actions. The
//! simulation drives it in the same way as a process.
//!
//! * `config`: settings; `pending_ops`: operations of local callers; `request_dedup`: deduplication
//!   of requests; `resync_rate`: rate limit of resync; `chunk_flow`: limit of entries under way;
//!   `reader`: reads from other threads; `watch_subscriber`, `watch_publisher`: the two sides of
//!   map watches; `dirty_partitions`: partitions with unsent output; `tick`: timers.

mod chunk_flow;
mod config;
mod dirty_partitions;
mod pending_ops;
mod reader;
mod request_dedup;
mod resync_rate;
mod tick;
mod watch_publisher;
mod watch_subscriber;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::PartitionId;
use serde::{Deserialize, Serialize};

use chunk_flow::ChunkFlow;
pub use config::NodeConfig;
use dirty_partitions::DirtyPartitions;
use pending_ops::{PendingOperations, Step};
pub use reader::Reader;
use reader::Shared;
use request_dedup::RequestDedup;
use resync_rate::ResyncRate;
use watch_publisher::WatchPublisher;
use watch_subscriber::WatchSubscriber;

use crate::protocol::membership::{ConsensusAction, ConsensusEvent, Membership, MembershipMessage};
use crate::protocol::operation::{MapId, Operation, Outcome, Refusal, Ticket};
use crate::protocol::reconfiguration::{PartitionNumber, ReplicaClaim};
use crate::protocol::replica::{Functions, Quota, Replica, ReplicaAction, ReplicaMessage};
use crate::protocol::view::{Record, View, ViewNumber};
use crate::protocol::watch_events::{EntryEvent, WatchMessage};
use crate::protocol::{Member, MemberId, Recipient};

/// A message between members. Messages may be lost, duplicated or delayed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// About views.
    Consensus(MembershipMessage),
    /// Between the replicas of a partition.
    Replica(PartitionNumber, ReplicaMessage),
    /// An operation for the primary of a partition.
    Request {
        /// The partition.
        partition: PartitionNumber,
        /// The view with which the recipient became primary, as known to the sender.
        term: ViewNumber,
        /// Sequence number of the sender.
        number: u64,
        /// The sender waits for no request below this number.
        floor: u64,
        /// The operation.
        operation: Operation,
    },
    /// Outcome of the operation with this number.
    Reply(u64, Outcome),
    /// About map watches.
    Watch(WatchMessage),
}

/// Input of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// Time has passed; expected several times per heartbeat.
    Tick,
    /// A message from a member, or from one that requests admission.
    From(Member, Message),
    /// A member is known to be dead.
    Dead(MemberId),
    /// This member shall leave.
    Leave,
    /// Carry out an operation on the primary of its partition. The number must not have been used
    /// before.
    Ask(u64, PartitionId, Operation),
    /// Watch a map. Once [`Watched`](NodeAction::Watched) is returned, all its events are
    /// [returned](NodeAction::Happened).
    Watch(MapId),
    /// Stop watching a map.
    Unwatch(MapId),
    /// The [request](Message::Request) with this number was not and will not be sent.
    Unsent(u64),
}

/// Output of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeAction {
    /// Send a message to this recipient only.
    SendMessage(Recipient, Message),
    /// Drop these requests to a member, sorted by number. For each that has not been sent,
    /// [`Unsent`](NodeEvent::Unsent) must be passed before the next tick; the outcome of the others
    /// is unknown.
    Recall(MemberId, Vec<u64>),
    /// The operation with this number has ended.
    Ended(u64, Outcome),
    /// A new view has been installed.
    Installed(Arc<View>),
    /// From now on all events of the map are returned, or reported as missed.
    Watched(MapId),
    /// Events of a map in a partition, in order.
    Happened(MapId, PartitionNumber, Vec<EntryEvent>),
    /// Events of a map in a partition were missed; it has to be read.
    Missed(MapId, PartitionNumber),
    /// All events up to this time, by this member's clock, have been received from the partitions
    /// whose primary is the given member.
    Confirmed(MemberId, Duration),
    /// This member is no longer part of the grid and holds no data. If it has left, messages and
    /// ticks must still be passed until it has [parted](Self::Parted).
    Out,
    /// This member has left, and the remaining members do not need it any more; its process may
    /// end.
    Parted,
}

/// A member of a grid.
pub struct Node {
    council: Membership,
    config: NodeConfig,
    quota: Arc<Quota>,
    shared: Arc<Shared>,
    pending: PendingOperations,
    refill: ResyncRate,
    chunks: ChunkFlow,
    seen: BTreeMap<MemberId, RequestDedup>,
    /// The primary of each partition and the view with which it became primary, copied from the
    /// view for fast access.
    primaries: Vec<Option<(MemberId, ViewNumber)>>,
    /// Current and former members. A late request of a former member may have been carried out
    /// already.
    members: BTreeSet<MemberId>,
    departed: BTreeSet<MemberId>,
    tellers: WatchPublisher,
    watching: WatchSubscriber,
    /// Partitions whose replicas have unsent output.
    touched: DirtyPartitions,
    /// Partitions whose replicas need ticks.
    awake: DirtyPartitions,
    claims: BTreeMap<PartitionNumber, Vec<ReplicaClaim>>,
    /// True if the claims have changed since they were passed to the membership.
    has_claims: bool,
    ticked: Option<Duration>,
    now: Duration,
    is_out: bool,
    actions: Vec<NodeAction>,
    /// Reused buffer for the actions of a replica; empty between uses.
    said: Vec<ReplicaAction>,
}

impl Node {
    /// Creates the first member of a grid.
    pub fn found(me: Member, config: NodeConfig, functions: Arc<dyn Functions>) -> Self {
        let council = Membership::found(me, config.partitions, config.backups, config.council);
        let mut node = Node::of(council, config, functions);
        if let Some(view) = node.council.view().cloned() {
            node.install(Duration::ZERO, &view);
        }
        node
    }

    /// Creates a member that requests admission to the grid at these endpoints.
    pub fn join(
        me: Member,
        seeds: Vec<Arc<str>>,
        config: NodeConfig,
        functions: Arc<dyn Functions>,
    ) -> Self {
        let council = Membership::join(me, seeds, config.council);
        Node::of(council, config, functions)
    }

    fn of(council: Membership, config: NodeConfig, functions: Arc<dyn Functions>) -> Self {
        let quota = Arc::new(Quota::new(config.limit, config.guest_limit));
        let settings = Arc::new(config.replica);
        let me = council.me().id;
        let replica = |_| {
            let (settings, quota) = (Arc::clone(&settings), Arc::clone(&quota));
            Replica::new(me, settings, quota, Arc::clone(&functions))
        };
        Node {
            shared: Arc::new(Shared::new((0..config.partitions).map(replica))),
            pending: PendingOperations::new(me, config.patience, config.retry),
            refill: ResyncRate::new(config.refill_rate, config.replica.resend),
            chunks: ChunkFlow::new(config.replica.resend),
            council,
            touched: DirtyPartitions::new(config.partitions),
            awake: DirtyPartitions::new(config.partitions),
            config,
            quota,
            seen: BTreeMap::new(),
            primaries: Vec::new(),
            members: BTreeSet::new(),
            departed: BTreeSet::new(),
            tellers: WatchPublisher::default(),
            watching: WatchSubscriber::default(),
            claims: BTreeMap::new(),
            has_claims: false,
            ticked: None,
            now: Duration::ZERO,
            is_out: false,
            actions: Vec::new(),
            said: Vec::new(),
        }
    }

    /// Returns this member.
    pub fn me(&self) -> &Member {
        self.council.me()
    }

    /// Returns the settings.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Returns the current view, if there is one.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.council.view().filter(|_| !self.is_out)
    }

    /// Returns true if this member is no longer part of the grid.
    pub fn is_out(&self) -> bool {
        self.is_out
    }

    /// Returns the memory size of all replicas of this member in bytes.
    pub fn used(&self) -> u64 {
        self.quota.used()
    }

    /// Applies `look` to the local replica of a partition, if the grid has that partition.
    pub fn look_at<R>(
        &self,
        partition: PartitionId,
        look: impl FnOnce(&Replica) -> R,
    ) -> Option<R> {
        self.shared
            .replica(partition.index())
            .map(|replica| look(&replica))
    }

    /// Returns a reader for the partitions of which this member is primary, for any thread.
    pub fn reader(&self) -> Reader {
        Reader(Arc::clone(&self.shared))
    }

    /// Returns true if this member holds a lease.
    pub fn may_act(&self, now: Duration) -> bool {
        self.shared.may_act(now)
    }

    /// Returns true if this member serves reads and writes of the partition.
    pub fn serves(&self, now: Duration, partition: PartitionId) -> bool {
        self.may_act(now) && self.look_at(partition, Replica::is_ready).unwrap_or(false)
    }

    /// Processes an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: NodeEvent) -> Vec<NodeAction> {
        let mut actions = Vec::new();
        self.take(now, event);
        self.follow(now, &mut actions);
        actions
    }

    /// Processes an event. The resulting actions of all events since the last call are returned by
    /// [`follow`](Self::follow), so that changes of a partition are replicated and acknowledged in
    /// batches.
    pub fn take(&mut self, now: Duration, event: NodeEvent) {
        self.now = now;
        if self.is_out {
            return self.take_outside(now, event);
        }
        match event {
            NodeEvent::Tick => self.tick(now),
            NodeEvent::From(from, word) => self.hear(now, from, word),
            NodeEvent::Dead(member) => self.council(now, ConsensusEvent::Dead(member)),
            NodeEvent::Leave => self.council(now, ConsensusEvent::Leave),
            NodeEvent::Ask(number, partition, operation) => {
                let step = self.pending.ask(now, number, partition, operation);
                self.try_it(now, step);
            }
            NodeEvent::Watch(map) => self.watch(now, map, true),
            NodeEvent::Unwatch(map) => self.watch(now, map, false),
            NodeEvent::Unsent(number) => self.pending.unsent(now, number),
        }
    }

    /// Processes an event after this member has been removed or has left.
    fn take_outside(&mut self, now: Duration, event: NodeEvent) {
        match event {
            NodeEvent::Ask(number, ..) => {
                let refused = Outcome::Refused(Refusal::CutOff);
                self.actions.push(NodeAction::Ended(number, refused));
            }
            NodeEvent::From(from, Message::Consensus(word)) => {
                self.council(now, ConsensusEvent::From(from, word));
            }
            NodeEvent::Tick => self.council(now, ConsensusEvent::Tick),
            _ => {}
        }
    }

    /// Appends the actions that result from all events since the last call.
    pub fn follow(&mut self, now: Duration, actions: &mut Vec<NodeAction>) {
        while let Some(partition) = self.touched.next() {
            self.spread(now, partition);
        }
        self.tell_ended();
        actions.append(&mut self.actions);
    }

    fn hear(&mut self, now: Duration, from: Member, word: Message) {
        match word {
            Message::Consensus(word) => self.council(now, ConsensusEvent::From(from, word)),
            Message::Replica(partition, word) => self.hear_replica(now, from.id, partition, word),
            Message::Request {
                partition,
                term: reign,
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
                let present = replica.and_then(|replica| Some(replica.record()?.term));
                // The sender may be a member only in a later view; it could not be answered.
                if present == Some(reign) && self.members.contains(&from.id) {
                    self.request(now, partition, ticket, operation);
                } else {
                    let refused = Outcome::Refused(Refusal::NotPrimary);
                    self.actions.push(NodeAction::SendMessage(
                        (&from).into(),
                        Message::Reply(number, refused),
                    ));
                }
            }
            Message::Reply(number, outcome) => {
                self.pending.ended(now, number, Some(from.id), outcome);
            }
            Message::Watch(word) => self.hear_watch_word(now, from.id, word),
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

    /// Runs `act` on a replica. Its replication messages are sent by [`follow`](Self::follow).
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
        // Watchers get the event of a change before its writer gets the response.
        if !noted.is_empty() {
            self.tell_noted(partition, noted);
        }
        self.carry_out_all(now, partition, out);
    }

    /// Sends the replication messages of a replica.
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
            match claims.is_empty() {
                true => self.claims.remove(&partition),
                false => self.claims.insert(partition, claims),
            };
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
        // Reuses its memory.
        self.said = out;
    }

    fn claim(&mut self, now: Duration) {
        self.has_claims = false;
        let all = self.claims.values().flatten().copied().collect();
        self.council(now, ConsensusEvent::Claims(all));
    }

    fn carry_out(&mut self, now: Duration, partition: PartitionNumber, action: ReplicaAction) {
        match action {
            ReplicaAction::SendMessage(member, word) => {
                self.chunks.sent(now, member, partition, &word);
                self.tell(member, Message::Replica(partition, word));
            }
            ReplicaAction::Answer(ticket, outcome) if ticket.member == self.me().id => {
                self.pending.ended(now, ticket.number, None, outcome);
            }
            ReplicaAction::Answer(ticket, outcome) => {
                self.tell(ticket.member, Message::Reply(ticket.number, outcome));
            }
        }
    }

    fn tell(&mut self, member: MemberId, word: Message) {
        if let Some(member) = self.council.view().and_then(|view| view.member(member)) {
            self.actions
                .push(NodeAction::SendMessage(member.into(), word));
        }
    }

    /// Sends an attempt of a pending operation.
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
        self.pending
            .sent(now, number, primary.map(|(member, _)| member));
        match primary {
            Some((member, _)) if member == me => {
                let ticket = Ticket { member, number };
                self.request(now, partition, ticket, operation);
            }
            Some((member, reign)) => self.tell(
                member,
                Message::Request {
                    partition,
                    term: reign,
                    number,
                    floor,
                    operation,
                },
            ),
            None => {
                let refused = Outcome::Refused(Refusal::CutOff);
                self.pending.ended(now, number, None, refused);
            }
        }
    }

    fn tell_ended(&mut self) {
        let may_act = self.may_act(self.now);
        for (number, outcome) in self.pending.ended.drain(..) {
            // Without a lease the reason is that this member is cut off.
            let outcome = match outcome {
                Outcome::Refused(refusal) if refusal.may_pass() && !may_act => {
                    Outcome::Refused(Refusal::CutOff)
                }
                other => other,
            };
            self.actions.push(NodeAction::Ended(number, outcome));
        }
        let recalls = std::mem::take(&mut self.pending.recalls).into_iter();
        self.actions.extend(
            recalls.map(|(to, numbers)| NodeAction::Recall(to, numbers.into_iter().collect())),
        );
    }

    fn council(&mut self, now: Duration, event: ConsensusEvent) {
        for action in self.council.on(now, event) {
            match action {
                ConsensusAction::SendMessage(to, word) => {
                    self.actions
                        .push(NodeAction::SendMessage(to, Message::Consensus(word)));
                }
                ConsensusAction::Installed(view) => self.install(now, &view),
                ConsensusAction::Out => self.leave(),
                ConsensusAction::Parted => self.actions.push(NodeAction::Parted),
            }
        }
        self.shared.set_lease(self.council.lease());
    }

    fn install(&mut self, now: Duration, view: &Arc<View>) {
        // No lease while the replicas install the view: the lease of the previous view is void.
        self.shared.set_lease(None);
        let members: BTreeSet<MemberId> = view.members.iter().map(|member| member.id).collect();
        let before = std::mem::replace(&mut self.members, members);
        self.departed.extend(before.difference(&self.members));
        self.seen
            .retain(|member, _| !self.departed.contains(member));
        let primary = |record: &Arc<Record>| Some((record.primary()?, record.term));
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
        self.pending.members_are(now, &self.members);
        self.actions.push(NodeAction::Installed(Arc::clone(view)));
    }

    /// Drops all data after this member has been removed or has left.
    fn leave(&mut self) {
        self.is_out = true;
        self.primaries.clear();
        self.shared.set_lease(None);
        for mut replica in self.shared.all() {
            replica.give_up(&mut Vec::new());
        }
        self.pending.give_up();
        self.tell_ended();
        self.actions.push(NodeAction::Out);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view().map(|view| view.number);
        write!(f, "Node({}, view {view:?})", self.me().id)
    }
}
