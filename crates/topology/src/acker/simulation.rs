//! The acker against what happened in earnest: bolts whose news come late, in any order, twice or never.
//!
//! Within a process a mailbox neither loses nor doubles; what lies between workers may, when a connection is cut or a worker is lost. A spout that emits in
//! bursts, with rests longer than its message timeout, drives the acker as `SpoutP` does.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;

use super::{AckActions, AckEvent, Acker, FailReason, Update};
use crate::MessageId;
use crate::anchor::{Ids, Root, Task};

/// How long a message may take; its trees take a hundredth of it.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How often the spout is called at least.
const STEP: Duration = Duration::from_millis(50);
/// The longest way of a message.
const DELAY_MICROS: u64 = 5_000;

/// How bad the ways are: so many of a thousand messages are lost, or come twice.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u64,
    doubled: u64,
}

#[derive(Clone)]
enum Event {
    /// The spout is called.
    Spout,
    /// The spout emits a burst of so many messages.
    Emit(u64),
    /// A tuple of that tree comes to a bolt.
    Tuple(Root, u64),
    /// A bolt's news come to the spout.
    News(Vec<Update>, Vec<Root>),
    /// A process was lost, and the spout hears of it.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Acked,
    Failed(FailReason),
}

/// What happened to a message in earnest.
struct Truth {
    emitted: Duration,
    /// Tuples that were made and that no bolt has dealt with.
    open: u64,
    failed: bool,
    /// Whether a tuple of it, or news, was lost or doubled: then its account says nothing.
    spoilt: bool,
    told: Option<Told>,
}

struct Simulation {
    now: Duration,
    ids: Ids,
    weather: Weather,
    timeline: BTreeMap<(Duration, u64), Event>,
    planned: u64,
    acker: Acker,
    actions: AckActions,
    truth: Vec<Truth>,
    messages: HashMap<Root, usize>,
    /// How many messages had been emitted when a process was last lost.
    lost_before: usize,
    /// News that a bolt has gathered and not yet sent.
    updates: Vec<Update>,
    failed: Vec<Root>,
}

impl Simulation {
    fn new(seed: u64, weather: Weather) -> Self {
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

    /// Runs until nothing happens any more; what went wrong, if anything.
    fn run(&mut self) -> Result<(), String> {
        self.plan(Duration::ZERO, Event::Spout);
        while let Some(((now, _), event)) = self.timeline.pop_first() {
            self.now = now;
            match event {
                Event::Spout => self.call_again(),
                Event::Emit(burst) => (0..burst).for_each(|_| self.emit()),
                Event::Tuple(root, id) => self.deal_with(root, id),
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
            self.hear()?;
        }
        if self.acker.pending() > 0 || self.acker.deadline().is_some() {
            return Err(format!("{} trees are left open", self.acker.pending()));
        }
        if self.acker.free.len() != self.acker.accounts.len() {
            return Err("a place for an account was lost, or given back twice".to_string());
        }
        match self.truth.iter().position(|truth| truth.told.is_none()) {
            Some(message) => Err(format!("what became of message {message} is never told")),
            None => Ok(()),
        }
    }

    fn call_again(&mut self) {
        // What has gathered at the bolt does not stay there.
        self.send_news();
        if self.acker.pending() > 0 || !self.timeline.is_empty() {
            self.plan(STEP, Event::Spout);
        }
    }

    fn emit(&mut self) {
        let message = self.truth.len();
        let root = self.acker.open(self.now, MessageId(message as u64));
        // Some go to nobody, some to several subscribers.
        let copies: Vec<u64> = (0..self.below(3)).map(|_| self.ids.draw()).collect();
        self.truth.push(Truth {
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

    /// A bolt deals with a tuple: emits some more and acks, or fails.
    fn deal_with(&mut self, root: Root, id: u64) {
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
            // Of a tuple that comes twice, the second is one more that was made.
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

    /// Sends something about these trees over a way that may lose or double it.
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

    /// Compares what the spout is told with what happened.
    fn hear(&mut self) -> Result<(), String> {
        let acked = self
            .actions
            .acked
            .iter()
            .map(|message| (*message, Told::Acked));
        let failed = self.actions.failed.iter();
        let failed = failed.map(|(message, reason)| (*message, Told::Failed(*reason)));
        let lost_before = self.lost_before as u64;
        for (MessageId(message), told) in acked.chain(failed) {
            let truth = &mut self.truth[message as usize];
            if let Some(before) = truth.told.replace(told) {
                return Err(format!("message {message} is {before:?} and {told:?}"));
            }
            let age = self.now - truth.emitted;
            let is_true = match told {
                Told::Acked => truth.spoilt || (truth.open == 0 && !truth.failed),
                Told::Failed(FailReason::Bolt) => truth.failed,
                Told::Failed(FailReason::Timeout) => {
                    let is_due = age >= TIMEOUT && age <= TIMEOUT * 4 / 3 + STEP;
                    is_due && (truth.spoilt || truth.open > 0)
                }
                Told::Failed(FailReason::WorkerLost) => message < lost_before,
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

    fn truth_of(&mut self, root: Root) -> &mut Truth {
        &mut self.truth[self.messages[&root]]
    }

    /// A random number below `end`.
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
        let mut simulation = Simulation::new(seed, Weather { lost, doubled });
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
        let mut simulation = Simulation::new(seed, Weather { lost: 0, doubled: 0 });
        simulation.plan(Duration::ZERO, Event::Emit(100));
        prop_assert_eq!(simulation.run(), Ok(()));
        let in_time = |truth: &Truth| truth.told == Some(Told::Acked) || truth.failed;
        prop_assert!(simulation.truth.iter().all(in_time));
    }
}
