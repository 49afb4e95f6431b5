//! The thread that drives a member.
//!
//! It takes orders as they come, some hundred at a time, and sends what follows from all of them together: one letter a member.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{PartitionId, Waker};
use ardea_grid::{
    MapId, Member, MemberId, Node, NodeAction, NodeEvent, Operation, Outcome, Refusal, View, Word,
};

use crate::clock::Clock;
use crate::ears::{Ear, Ears, Fresh};
use crate::post::Post;
use crate::room::Share;

/// How many orders are taken before what follows is sent.
const AT_A_TIME: usize = 512;

/// What the driver is to do.
pub(crate) enum Order {
    /// Have that done, and tell who asks.
    Ask(PartitionId, Operation, Asker),
    /// A member has said that; it takes so much room until it is taken.
    Heard(Member, Vec<Word>, Share),
    /// That was not sent.
    Unsent(Arc<str>, Vec<Word>),
    /// Have that hear of a map, and say when it does.
    Listen(MapId, Arc<dyn Ear>, Sender<()>),
    /// Somebody is proven to be dead.
    Dead(MemberId),
    /// Go when all is elsewhere.
    Leave,
    /// Stop at once.
    Stop,
}

/// Who waits for an outcome, and the room that the operation takes until then. Whoever is forgotten is told that nothing was done.
pub(crate) struct Asker {
    number: u64,
    tell: Option<Sender<(u64, Outcome)>>,
    waker: Option<Waker>,
    _room: Share,
}

impl Asker {
    /// Wants it to be told there, under this number.
    pub fn new(number: u64, tell: Sender<(u64, Outcome)>, room: Share) -> Self {
        Asker {
            number,
            tell: Some(tell),
            waker: None,
            _room: room,
        }
    }

    /// Has it woken as well when it is told.
    pub fn waking(mut self, waker: Waker) -> Self {
        self.waker = Some(waker);
        self
    }

    /// Nobody is told anything.
    pub fn forgotten(mut self) {
        self.tell = None;
    }

    fn told(mut self, outcome: Outcome) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Outcome) {
        if let Some(tell) = self.tell.take() {
            // Whoever asked may have stopped waiting.
            let _ = tell.send((self.number, outcome));
            if let Some(waker) = &self.waker {
                waker.wake();
            }
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.tell(Outcome::Refused(Refusal::CutOff));
    }
}

/// What is known of a member, outside of its driver.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    seen: Mutex<Seen>,
    changed: Condvar,
    is_out: AtomicBool,
}

#[derive(Debug, Default)]
struct Seen {
    view: Option<Arc<View>>,
    is_out: bool,
    has_parted: bool,
}

impl Standing {
    /// The view, if there is one.
    pub fn view(&self) -> Option<Arc<View>> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .view
            .clone()
    }

    /// Whether the member belongs to the grid no more.
    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut seen);
        self.is_out.store(seen.is_out, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits until the view is as wanted, or the member is out; whether it is as wanted.
    pub fn wait(&self, patience: Duration, is_it: impl Fn(Option<&View>, bool) -> bool) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |seen: &mut Seen| !is_it(seen.view.as_deref(), seen.is_out) && !seen.is_out;
        let (seen, _) = self
            .changed
            .wait_timeout_while(seen, patience, goes_on)
            .unwrap_or_else(PoisonError::into_inner);
        is_it(seen.view.as_deref(), seen.is_out)
    }

    /// Waits until those who stay need nothing more of this member, which has left.
    pub fn wait_parted(&self, patience: Duration) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(seen, patience, |seen| !seen.has_parted);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// What is to be sent, and where. Members are few: looking through them is quicker than a hash of their names.
#[derive(Default)]
struct Letters(Vec<(Arc<str>, Vec<Word>)>);

impl Letters {
    fn add(&mut self, to: Arc<str>, word: Word) {
        let is_it = |there: &Arc<str>| Arc::ptr_eq(there, &to) || *there == to;
        match self.0.iter_mut().find(|(there, _)| is_it(there)) {
            Some((_, words)) => words.push(word),
            None => self.0.push((to, vec![word])),
        }
    }
}

/// Drives a member.
pub(crate) struct Driver {
    pub node: Node,
    pub clock: Clock,
    pub orders: Receiver<Order>,
    pub post: Post,
    pub standing: Arc<Standing>,
    pub ears: Ears,
    pub fresh: Arc<Fresh>,
    pub waiting: HashMap<u64, Asker>,
    pub asked: u64,
}

impl Driver {
    /// Until it is told to stop, or nobody can tell it anything any more.
    pub fn run(mut self) {
        let tick = (self.node.config().council.heartbeat / 4).max(Duration::from_millis(1));
        let mut next_tick = Instant::now();
        if let Some(view) = self.node.view().cloned() {
            self.installed(view);
        }
        let mut out = Letters::default();
        loop {
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + tick;
                self.on(NodeEvent::Tick, &mut out);
                for map in self.ears.forget() {
                    self.on(NodeEvent::Unwatch(map), &mut out);
                }
            }
            let mut order = match self
                .orders
                .recv_timeout(next_tick.saturating_duration_since(now))
            {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut taken = 0;
            while let Some(next) = order.take() {
                if let Order::Stop = next {
                    return;
                }
                self.take(next, &mut out);
                taken += 1;
                if taken < AT_A_TIME {
                    order = self.orders.try_recv().ok();
                }
            }
            for (to, words) in out.0.drain(..) {
                let unsent = self.post.send(&to, words);
                self.refuse(&to, unsent);
            }
        }
    }

    fn take(&mut self, order: Order, out: &mut Letters) {
        match order {
            Order::Ask(partition, operation, asker) => {
                self.asked += 1;
                let id = self.asked;
                self.waiting.insert(id, asker);
                self.on(NodeEvent::Ask(id, partition, operation), out);
            }
            Order::Heard(from, words, _room) => {
                for word in words {
                    self.on(NodeEvent::From(from.clone(), word), out);
                }
            }
            Order::Unsent(to, words) => self.refuse(&to, words),
            Order::Listen(map, ear, ready) => {
                self.ears.add(map, ear, ready);
                self.on(NodeEvent::Watch(map), out);
            }
            Order::Dead(member) => self.on(NodeEvent::Dead(member), out),
            Order::Leave => self.on(NodeEvent::Leave, out),
            Order::Stop => {}
        }
    }

    fn on(&mut self, event: NodeEvent, out: &mut Letters) {
        let now = self.clock.now();
        for action in self.node.on(now, event) {
            match action {
                NodeAction::Tell(to, word) => out.add(to, word),
                NodeAction::Ended(id, outcome) => {
                    if let Some(asker) = self.waiting.remove(&id) {
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
    }

    fn installed(&self, view: Arc<View>) {
        self.fresh.installed(&view);
        self.standing.change(|seen| seen.view = Some(view));
    }

    /// What was not sent was certainly not done: it is as if it had been refused.
    fn refuse(&mut self, to: &Arc<str>, unsent: Vec<Word>) {
        let view = self.node.view().cloned();
        let mut members = view.iter().flat_map(|view| &view.members);
        let Some(member) = members.find(|member| member.endpoint == *to).cloned() else {
            return;
        };
        let now = self.clock.now();
        for word in unsent {
            if let Word::Request { number, .. } = word {
                let refused = Word::Reply(number, Outcome::Refused(Refusal::NotPrimary));
                // A refusal says nothing to others, so nothing is to be sent.
                for action in self.node.on(now, NodeEvent::From(member.clone(), refused)) {
                    if let NodeAction::Ended(id, outcome) = action
                        && let Some(asker) = self.waiting.remove(&id)
                    {
                        asker.told(outcome);
                    }
                }
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
        for (_, asker) in self.waiting.drain() {
            asker.told(Outcome::Unknown);
        }
    }
}
