//! Drives a member: takes what is asked and what others say, and has what follows done.
//!
//! It takes all that is there, and sends what follows from all of it together. Whose thread does that, and when, is up to `helm`.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::protocol::{Member, Node, NodeAction, NodeEvent, Outcome, Roll, View, Word};
use ardea_network::exchange::Sockets;

use crate::node::asker::Asker;
use crate::node::clock::Clock;
use crate::node::ears::{Ears, Fresh};
use crate::node::line::{Letter, Line};
use crate::node::orders::{Ask, Order};
use crate::node::post::Post;
use crate::node::standing::Standing;

/// How many orders are taken before what follows is sent.
const ORDERS: usize = 512;

/// How many letters of each connection are taken before what follows is sent.
const LETTERS: usize = 8;

/// Drives a member.
pub(crate) struct Driver {
    pub node: Node,
    pub clock: Clock,
    pub orders: Receiver<Order>,
    pub sockets: Sockets,
    pub post: Post,
    pub standing: Arc<Standing>,
    pub ears: Ears,
    pub fresh: Arc<Fresh>,
    hears: Vec<Hears>,
    /// Who waits, by what they wait for, and whether that writes.
    waiting: Roll<(Asker, bool)>,
    tick: Duration,
    next_tick: Instant,
    actions: Vec<NodeAction>,
    is_stopped: bool,
}

/// A connection that somebody else has made, and who says that he speaks there.
struct Hears {
    line: Line,
    from: Option<Member>,
}

/// What a turn has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Something was done.
    pub is_busy: bool,
    /// Some of what is there was left for the next turn, which is due at once.
    pub is_cut: bool,
    /// The member has been stopped: there is nothing more to drive.
    pub is_over: bool,
}

/// What a driver is made of.
pub(crate) struct Parts {
    pub node: Node,
    pub clock: Clock,
    pub orders: Receiver<Order>,
    pub sockets: Sockets,
    pub post: Post,
    pub standing: Arc<Standing>,
    pub fresh: Arc<Fresh>,
}

impl Driver {
    pub fn new(parts: Parts) -> Self {
        let heartbeat = parts.node.config().council.heartbeat;
        let driver = Driver {
            node: parts.node,
            clock: parts.clock,
            orders: parts.orders,
            sockets: parts.sockets,
            post: parts.post,
            standing: parts.standing,
            ears: Ears::default(),
            fresh: parts.fresh,
            hears: Vec::new(),
            waiting: Roll::default(),
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

    /// When it is to be driven again if nothing happens.
    pub fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Takes what is there, and sends what follows. With `looks` sockets are asked of which polling has told nothing.
    pub fn turn(&mut self, looks: bool) -> Turn {
        let now = Instant::now();
        if now >= self.next_tick {
            self.next_tick = now + self.tick;
            self.take_event(NodeEvent::Tick);
            for map in self.ears.forget() {
                self.take_event(NodeEvent::Unwatch(map));
            }
            self.post.tidy(now);
            self.hears.iter_mut().for_each(|hears| hears.line.tidy());
        }
        let mut turn = Turn::default();
        self.take_orders(now, &mut turn);
        self.hear(looks, &mut turn);
        self.node.follow(self.clock.now(), &mut self.actions);
        self.carry_out(now);
        if looks {
            self.post.look();
        }
        turn.is_busy |= self.post.push(now);
        turn.is_over = self.is_stopped;
        turn
    }

    /// Takes the orders that wait.
    fn take_orders(&mut self, now: Instant, turn: &mut Turn) {
        for _ in 0..ORDERS {
            let Ok(order) = self.orders.try_recv() else {
                return;
            };
            turn.is_busy = true;
            self.take(now, order);
        }
        turn.is_cut = true;
    }

    /// Takes an order, behind those that wait. What follows of it is sent with the next [turn](Self::turn).
    pub fn take_last(&mut self, order: Order) {
        let now = Instant::now();
        while let Ok(before) = self.orders.try_recv() {
            self.take(now, before);
        }
        self.take(now, order);
    }

    fn take(&mut self, now: Instant, order: Order) {
        match order {
            Order::Ask(ask) => self.ask(*ask),
            Order::AskAll(asks) => asks.into_iter().for_each(|ask| self.ask(ask)),
            Order::Accepted(apart) => {
                let line = Line::new(*apart, &self.sockets).ok();
                let hears = line.map(|line| Hears { line, from: None });
                self.hears.extend(hears);
            }
            Order::Connected(to, outcome) => {
                let outcome = outcome.map(|apart| *apart);
                let unsent = self.post.connected(now, &to, outcome);
                self.are_unsent(unsent);
            }
            Order::Listen(map, ear, ready) => {
                self.ears.add(map, ear, ready);
                self.take_event(NodeEvent::Watch(map));
            }
            Order::Dead(member) => self.take_event(NodeEvent::Dead(member)),
            Order::Leave => self.take_event(NodeEvent::Leave),
            Order::Stop => self.is_stopped = true,
        }
    }

    fn ask(&mut self, ask: Ask) {
        let number = self.waiting.enter((ask.asker, ask.operation.writes()));
        self.take_event(NodeEvent::Ask(number, ask.partition, ask.operation));
    }

    fn take_event(&mut self, event: NodeEvent) {
        self.node.take(self.clock.now(), event);
    }

    /// Takes what others have said.
    fn hear(&mut self, looks: bool, turn: &mut Turn) {
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
                    (Some(Letter::From(member)), _) => hears.from = Some(member),
                    (Some(Letter::Words(words)), Some(from)) => {
                        self.hear_words(from, words);
                    }
                    (Some(Letter::Words(_)), None) => return false,
                }
            }
            turn.is_cut = true;
            true
        });
        self.hears = hears;
    }

    fn hear_words(&mut self, from: &Member, words: Vec<Word>) {
        let come = self.clock.now();
        for word in words {
            // Only who serves needs to know the time exactly.
            let now = match word {
                Word::Request { .. } => self.clock.now(),
                _ => come,
            };
            self.node.take(now, NodeEvent::From(from.clone(), word));
        }
    }

    fn carry_out(&mut self, now: Instant) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                NodeAction::Tell(to, word) => {
                    let unsent = self.post.add(now, &to, word);
                    self.are_unsent(unsent);
                }
                NodeAction::Recall(to, numbers) => {
                    for number in self.post.recall(to, &numbers) {
                        self.take_event(NodeEvent::Unsent(number));
                    }
                }
                NodeAction::Ended(id, outcome) => {
                    if let Some((asker, _)) = self.waiting.remove(id) {
                        asker.told(outcome);
                    }
                }
                NodeAction::Installed(view) => self.installed(view),
                NodeAction::Watched(map) => self.ears.are_ready(map),
                NodeAction::Happened(map, partition, news) => {
                    self.ears.hear(map, partition, &news);
                }
                NodeAction::Missed(map, partition) => self.ears.miss(map, partition),
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

    /// What was not sent was certainly not done: the requests among it are tried again.
    fn are_unsent(&mut self, words: impl IntoIterator<Item = Word>) {
        for word in words {
            if let Word::Request { number, .. } = word {
                self.take_event(NodeEvent::Unsent(number));
            }
        }
    }
}

/// However it ends, nobody waits for it any more.
impl Drop for Driver {
    fn drop(&mut self) {
        // Said before they are told: who is told asks why.
        self.standing.change(|seen| {
            seen.is_out = true;
            seen.has_parted = true;
        });
        for (asker, writes) in self.waiting.drain() {
            match writes {
                true => asker.told(Outcome::Unknown),
                // Who is forgotten is told that nothing was done.
                false => drop(asker),
            }
        }
    }
}
