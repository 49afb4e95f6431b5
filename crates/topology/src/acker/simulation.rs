//! A simulation of the acker: bolts whose acks arrive late, in any order, twice or never.
//!
//! Within a process, an ack queue neither loses nor duplicates. Between workers, acks may be lost
//! or duplicated when a connection or worker is lost. A spout that emits in bursts, with pauses
//! longer than its message timeout, drives the acker as `SpoutProcessor` does.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;

use super::{AckActions, AckEvent, Acker, FailReason, Update};
use crate::MessageId;
use crate::anchor::{Ids, Root, Task};

/// The message timeout; trees normally take a hundredth of it.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The longest interval between calls of the spout.
const STEP: Duration = Duration::from_millis(50);
/// The longest network delay.
const DELAY_MICROS: u64 = 5_000;

/// The fault rates: the number of messages in a thousand that are lost or duplicated.
#[derive(Clone, Copy, Debug)]
struct FaultRates {
    lost: u64,
    doubled: u64,
}

#[derive(Clone)]
enum Event {
    /// The spout is called.
    Spout,
    /// The spout emits a burst of this number of messages.
    Emit(u64),
    /// A tuple of this tree, with this id, arrives at a bolt.
    Tuple(Root, u64),
    /// The acks of a bolt arrive at the spout.
    News(Vec<Update>, Vec<Root>),
    /// The spout is notified of the loss of a process.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notification {
    Acked,
    Failed(FailReason),
}

/// The true state of a message.
struct ExpectedOutcome {
    emitted: Duration,
    /// The number of emitted tuples that no bolt has processed.
    open: u64,
    failed: bool,
    /// True if a tuple or ack of the message was lost or duplicated. Its account then proves
    /// nothing.
    spoilt: bool,
    told: Option<Notification>,
}

struct Simulation {
    now: Duration,
    ids: Ids,
    weather: FaultRates,
    timeline: BTreeMap<(Duration, u64), Event>,
    planned: u64,
    acker: Acker,
    actions: AckActions,
    truth: Vec<ExpectedOutcome>,
    messages: HashMap<Root, usize>,
    /// The number of messages emitted before the last loss of a process.
    lost_before: usize,
    /// Acks that a bolt has gathered and not yet sent.
    updates: Vec<Update>,
    failed: Vec<Root>,
}

impl Simulation {
    fn new(seed: u64, weather: FaultRates) -> Self {
        Simulation {
            now: Duration::ZERO,
            ids: Ids::of_seed(seed),
            weather,
            timeline: BTreeMap::new(),
            planned: 0,
            acker: Acker::new(Task::new(0, 0).unwrap(), 0, TIMEOUT, Duration::ZERO),
            actions: AckActions::default(),
            truth: Vec::new(),
            messages: HashMap::new(),
            lost_before: 0,
            updates: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.planned += 1;
        self.timeline
            .insert((self.now + after, self.planned), event);
    }

    /// Runs until no event is left; returns the first violation.
    fn run(&mut self) -> Result<(), String> {
        self.plan(Duration::ZERO, Event::Spout);
        while let Some(((now, _), event)) = self.timeline.pop_first() {
            self.now = now;
            match event {
                Event::Spout => self.call_again(),
                Event::Emit(burst) => (0..burst).for_each(|_| self.emit()),
                Event::Tuple(root, id) => self.process_tuple(root, id),
                Event::News(updates, failed) => {
                    let updates = AckEvent::Updates(&updates);
                    self.acker.on(now, updates, &mut self.actions);
                    let failed = AckEvent::Failed(&failed);
                    self.acker.on(now, failed, &mut self.actions);
                }
                Event::Lost => {
                    self.lost_before = self.truth.len();
                    self.acker.on(now, AckEvent::Lost, &mut self.actions);
                }
            }
            if self
                .acker
                .deadline()
                .is_some_and(|deadline| deadline <= now)
            {
                self.acker.on(now, AckEvent::Time, &mut self.actions);
            }
            self.check_notifications()?;
        }
        if self.acker.pending() > 0 || self.acker.deadline().is_some() {
            return Err(format!("{} trees are left open", self.acker.pending()));
        }
        if self.acker.free.len() != self.acker.accounts.len() {
            return Err("a place for an account was lost, or given back twice".to_string());
        }
        match self.truth.iter().position(|truth| truth.told.is_none()) {
            Some(message) => Err(format!("the result of message {message} is never reported")),
            None => Ok(()),
        }
    }

    fn call_again(&mut self) {
        // Gathered acks must not stay at the bolt.
        self.send_news();
        if self.acker.pending() > 0 || !self.timeline.is_empty() {
            self.plan(STEP, Event::Spout);
        }
    }

    fn emit(&mut self) {
        let message = self.truth.len();
        let root = self.acker.open(self.now, MessageId(message as u64));
        // Some tuples have no subscriber, some have several.
        let copies: Vec<u64> = (0..self.below(3)).map(|_| self.ids.draw()).collect();
        self.truth.push(ExpectedOutcome {
            emitted: self.now,
            open: copies.len() as u64,
            failed: false,
            spoilt: false,
            told: None,
        });
        self.messages.insert(root, message);
        let ids = copies.iter().fold(0, |ids, id| ids ^ id);
        self.acker.seal(self.now, root, ids, &mut self.actions);
        for id in copies {
            self.send(&[root], Event::Tuple(root, id));
        }
    }

    /// A bolt processes a tuple: emits some more and acks, or fails.
    fn process_tuple(&mut self, root: Root, id: u64) {
        let children = match self.below(4) {
            0 => self.below(4),
            _ => 0,
        };
        let fails = self.below(1000) < 5;
        let truth = self.truth_of(root);
        truth.failed |= fails;
        if fails {
            self.failed.push(root);
        } else {
            // The second copy of a duplicated tuple counts as one more emitted tuple.
            truth.open = truth.open.saturating_sub(1) + children;
            let mut ids = id;
            for _ in 0..children {
                let child = self.ids.draw();
                ids ^= child;
                self.send(&[root], Event::Tuple(root, child));
            }
            self.updates.push(Update { root, ids });
        }
        if self.below(3) == 0 {
            self.send_news();
        }
    }

    fn send_news(&mut self) {
        let updates = std::mem::take(&mut self.updates);
        let failed = std::mem::take(&mut self.failed);
        if updates.is_empty() && failed.is_empty() {
            return;
        }
        let of: Vec<Root> = updates
            .iter()
            .map(|update| update.root)
            .chain(failed.clone())
            .collect();
        self.send(&of, Event::News(updates, failed));
    }

    /// Sends `event`, about the trees `of`, over a link that may lose or duplicate the event.
    fn send(&mut self, of: &[Root], event: Event) {
        let copies = match self.below(1000) {
            chance if chance < self.weather.lost => 0,
            chance if chance < self.weather.lost + self.weather.doubled => 2,
            _ => 1,
        };
        if copies != 1 {
            of.iter()
                .for_each(|root| self.truth_of(*root).spoilt = true);
        }
        for _ in 0..copies {
            let after = Duration::from_micros(self.below(DELAY_MICROS));
            self.plan(after, event.clone());
        }
    }

    /// Compares the notifications of the spout with the true state.
    fn check_notifications(&mut self) -> Result<(), String> {
        let acked = self
            .actions
            .acked
            .iter()
            .map(|message| (*message, Notification::Acked));
        let failed = self.actions.failed.iter();
        let failed = failed.map(|(message, reason)| (*message, Notification::Failed(*reason)));
        let lost_before = self.lost_before as u64;
        for (MessageId(message), told) in acked.chain(failed) {
            let truth = &mut self.truth[message as usize];
            if let Some(before) = truth.told.replace(told) {
                return Err(format!("message {message} is {before:?} and {told:?}"));
            }
            let age = self.now - truth.emitted;
            let is_true = match told {
                Notification::Acked => truth.spoilt || (truth.open == 0 && !truth.failed),
                Notification::Failed(FailReason::Bolt) => truth.failed,
                Notification::Failed(FailReason::Timeout) => {
                    let is_due = age >= TIMEOUT && age <= TIMEOUT * 4 / 3 + STEP;
                    is_due && (truth.spoilt || truth.open > 0)
                }
                Notification::Failed(FailReason::WorkerLost) => message < lost_before,
            };
            if !is_true {
                return Err(format!(
                    "message {message} is {told:?} after {age:?}, and should not be"
                ));
            }
        }
        self.actions.clear();
        Ok(())
    }

    fn truth_of(&mut self, root: Root) -> &mut ExpectedOutcome {
        &mut self.truth[self.messages[&root]]
    }

    /// Returns a random number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.ids.draw() % end
    }
}

proptest! {
    #[test]
    fn each_message_is_told_once_and_only_the_truth(
        seed in any::<u64>(),
        bursts in prop::collection::vec((0u64..12_000, 1u64..60), 1..8),
        lost in 0u64..30,
        doubled in 0u64..30,
        losses in prop::collection::vec(0u64..40_000, 0..4),
    ) {
        let mut simulation = Simulation::new(seed, FaultRates { lost, doubled });
        let mut at = Duration::ZERO;
        for (pause_millis, burst) in bursts {
            at += Duration::from_millis(pause_millis);
            simulation.plan(at, Event::Emit(burst));
        }
        for loss_millis in losses {
            simulation.plan(Duration::from_millis(loss_millis), Event::Lost);
        }
        let outcome = simulation.run();
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }

    #[test]
    fn where_nothing_is_lost_or_doubled_or_fails_nothing_times_out(seed in any::<u64>()) {
        let mut simulation = Simulation::new(seed, FaultRates { lost: 0, doubled: 0 });
        simulation.plan(Duration::ZERO, Event::Emit(100));
        prop_assert_eq!(simulation.run(), Ok(()));
        let in_time = |truth: &ExpectedOutcome| truth.told == Some(Notification::Acked) || truth.failed;
        prop_assert!(simulation.truth.iter().all(in_time));
    }
}
