//! Event loop of a member: processes commands and received messages, and carries out the resulting
//! actions.
//!
//! Each turn processes all available input and sends the resulting messages together. The thread
//! that runs it is chosen by `driver_lock`.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::protocol::{Member, Message, Node, NodeAction, NodeEvent, Outcome, SequenceSlab, View};
use ardea_network::exchange::Sockets;

use crate::node::clock::Clock;
use crate::node::command_queue::{DriverCommand, OperationRequest};
use crate::node::listeners::{Freshness, ListenerRegistry};
use crate::node::member_status::MemberStatus;
use crate::node::peer_connection::{MessageBatch, PeerStream};
use crate::node::peer_connections::PeerConnections;
use crate::node::request_handle::Requester;

/// Maximum number of commands per turn.
const ORDERS: usize = 512;

/// Maximum number of message batches per connection and turn.
const LETTERS: usize = 8;

/// Event loop of a member.
pub(crate) struct Driver {
    pub node: Node,
    pub clock: Clock,
    pub orders: Receiver<DriverCommand>,
    pub sockets: Sockets,
    pub peers: PeerConnections,
    pub standing: Arc<MemberStatus>,
    pub listeners: ListenerRegistry,
    pub fresh: Arc<Freshness>,
    hears: Vec<IncomingConnection>,
    /// Requesters of outstanding operations by number, and whether the operation writes.
    waiting: SequenceSlab<(Requester, bool)>,
    tick: Duration,
    next_tick: Instant,
    actions: Vec<NodeAction>,
    is_stopped: bool,
}

/// A connection made by another member, and the member's identity once received.
struct IncomingConnection {
    line: PeerStream,
    from: Option<Member>,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollResult {
    /// True if something was processed or sent.
    pub is_busy: bool,
    /// True if input is left for another turn, which is due immediately.
    pub is_cut: bool,
    /// True if the member has been stopped.
    pub is_over: bool,
}

/// The parts of a driver.
pub(crate) struct Parts {
    pub node: Node,
    pub clock: Clock,
    pub orders: Receiver<DriverCommand>,
    pub sockets: Sockets,
    pub peers: PeerConnections,
    pub standing: Arc<MemberStatus>,
    pub fresh: Arc<Freshness>,
}

impl Driver {
    pub fn new(parts: Parts) -> Self {
        let heartbeat = parts.node.config().council.heartbeat;
        let driver = Driver {
            node: parts.node,
            clock: parts.clock,
            orders: parts.orders,
            sockets: parts.sockets,
            peers: parts.peers,
            standing: parts.standing,
            listeners: ListenerRegistry::default(),
            fresh: parts.fresh,
            hears: Vec::new(),
            waiting: SequenceSlab::default(),
            tick: (heartbeat / 4).max(Duration::from_millis(1)),
            next_tick: Instant::now(),
            actions: Vec::new(),
            is_stopped: false,
        };
        if let Some(view) = driver.node.view().cloned() {
            driver.installed(view);
        }
        driver
    }

    /// Returns the time of the next turn if there is no input.
    pub fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Runs one turn: processes available input and sends the resulting messages. If `looks` is
    /// set, reads sockets even if polling has not reported them as ready.
    pub fn turn(&mut self, looks: bool) -> PollResult {
        let now = Instant::now();
        if now >= self.next_tick {
            self.next_tick = now + self.tick;
            self.take_event(NodeEvent::Tick);
            for map in self.listeners.forget() {
                self.take_event(NodeEvent::Unwatch(map));
            }
            self.peers.tidy(now);
            self.hears.iter_mut().for_each(|hears| hears.line.tidy());
        }
        let mut turn = PollResult::default();
        self.take_orders(now, &mut turn);
        self.hear(looks, &mut turn);
        self.node.follow(self.clock.now(), &mut self.actions);
        self.carry_out(now);
        if looks {
            self.peers.look();
        }
        turn.is_busy |= self.peers.push(now);
        turn.is_over = self.is_stopped;
        turn
    }

    /// Processes queued commands.
    fn take_orders(&mut self, now: Instant, turn: &mut PollResult) {
        for _ in 0..ORDERS {
            let Ok(order) = self.orders.try_recv() else {
                return;
            };
            turn.is_busy = true;
            self.take(now, order);
        }
        turn.is_cut = true;
    }

    /// Processes a command after all queued ones. The results are sent by the next
    /// [turn](Self::turn).
    pub fn take_last(&mut self, order: DriverCommand) {
        let now = Instant::now();
        while let Ok(before) = self.orders.try_recv() {
            self.take(now, before);
        }
        self.take(now, order);
    }

    fn take(&mut self, now: Instant, order: DriverCommand) {
        match order {
            DriverCommand::Ask(ask) => self.ask(*ask),
            DriverCommand::AskAll(asks) => asks.into_iter().for_each(|ask| self.ask(ask)),
            DriverCommand::Accepted(apart) => {
                let line = PeerStream::new(*apart, &self.sockets).ok();
                let hears = line.map(|line| IncomingConnection { line, from: None });
                self.hears.extend(hears);
            }
            DriverCommand::Connected(to, outcome) => {
                let outcome = outcome.map(|apart| *apart);
                let unsent = self.peers.connected(now, &to, outcome);
                self.are_unsent(unsent);
            }
            DriverCommand::Listen(map, ear, ready) => {
                self.listeners.add(map, ear, ready);
                self.take_event(NodeEvent::Watch(map));
            }
            DriverCommand::Dead(member) => self.take_event(NodeEvent::Dead(member)),
            DriverCommand::Leave => self.take_event(NodeEvent::Leave),
            DriverCommand::Stop => self.is_stopped = true,
        }
    }

    fn ask(&mut self, ask: OperationRequest) {
        let number = self.waiting.enter((ask.asker, ask.operation.writes()));
        self.take_event(NodeEvent::Ask(number, ask.partition, ask.operation));
    }

    fn take_event(&mut self, event: NodeEvent) {
        self.node.take(self.clock.now(), event);
    }

    /// Processes received messages.
    fn hear(&mut self, looks: bool, turn: &mut PollResult) {
        let mut hears = std::mem::take(&mut self.hears);
        hears.retain_mut(|hears| {
            if looks {
                hears.line.look();
            }
            for _ in 0..LETTERS {
                let Ok(letter) = hears.line.receive() else {
                    return false;
                };
                turn.is_busy |= letter.is_some();
                match (letter, &hears.from) {
                    (None, _) => return true,
                    (Some(MessageBatch::From(member)), _) => hears.from = Some(member),
                    (Some(MessageBatch::Batch(words)), Some(from)) => {
                        self.process_messages(from, words);
                    }
                    (Some(MessageBatch::Batch(_)), None) => return false,
                }
            }
            turn.is_cut = true;
            true
        });
        self.hears = hears;
    }

    fn process_messages(&mut self, from: &Member, words: Vec<Message>) {
        let come = self.clock.now();
        for word in words {
            // Only requests need the exact time, for the lease check.
            let now = match word {
                Message::Request { .. } => self.clock.now(),
                _ => come,
            };
            self.node.take(now, NodeEvent::From(from.clone(), word));
        }
    }

    fn carry_out(&mut self, now: Instant) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                NodeAction::SendMessage(to, word) => {
                    let unsent = self.peers.add(now, &to, word);
                    self.are_unsent(unsent);
                }
                NodeAction::Recall(to, numbers) => {
                    for number in self.peers.recall(to, &numbers) {
                        self.take_event(NodeEvent::Unsent(number));
                    }
                }
                NodeAction::Ended(id, outcome) => {
                    if let Some((asker, _)) = self.waiting.remove(id) {
                        asker.told(outcome);
                    }
                }
                NodeAction::Installed(view) => self.installed(view),
                NodeAction::Watched(map) => self.listeners.are_ready(map),
                NodeAction::Happened(map, partition, news) => {
                    self.listeners.hear(map, partition, &news);
                }
                NodeAction::Missed(map, partition) => self.listeners.miss(map, partition),
                NodeAction::Confirmed(by, at) => self.fresh.told(by, at),
                NodeAction::Out => self.standing.change(|seen| seen.is_out = true),
                NodeAction::Parted => self.standing.change(|seen| seen.has_parted = true),
            }
        }
        self.actions = actions;
    }

    fn installed(&self, view: Arc<View>) {
        self.fresh.installed(&view);
        self.standing.change(|seen| seen.view = Some(view));
    }

    /// Reports requests that were not sent. They were not carried out, so they are retried.
    fn are_unsent(&mut self, words: impl IntoIterator<Item = Message>) {
        for word in words {
            if let Message::Request { number, .. } = word {
                self.take_event(NodeEvent::Unsent(number));
            }
        }
    }
}

/// Notifies all outstanding requesters.
impl Drop for Driver {
    fn drop(&mut self) {
        // Before the requesters are notified, since they read the reason afterwards.
        self.standing.change(|seen| {
            seen.is_out = true;
            seen.has_parted = true;
        });
        for (asker, writes) in self.waiting.drain() {
            match writes {
                true => asker.told(Outcome::Unknown),
                // Dropping a requester reports that its operation was not carried out.
                false => drop(asker),
            }
        }
    }
}
