//! The acker, which detects that all tuples derived from a spout's tuple were processed: a pure
//! state machine, one per spout instance.
//!
//! The account of a tree is the exclusive-or of the random ids of its tuples. An id is added when
//! its tuple is emitted and again when it is acked, in any order. The account is zero when every id
//! was added twice, and otherwise by chance with a probability of 2⁻⁶⁴ ("Twitter Heron", section
//! IV-C; the method of Storm). A tree of any size takes one slot of 32 bytes.
//!
//! The [`Root`] of a tree is an index into the table of accounts, so nothing is hashed. Each
//! account has the number of the turn in which it was opened. A turn is a third of the message
//! timeout, and accounts older than three turns fail: rotating buckets without moving entries. A
//! tree thus fails after 1 to 1⅓ message timeouts.

use std::collections::VecDeque;
use std::time::Duration;

use crate::MessageId;
use crate::anchor::{Root, Task};

/// The number of turns per message timeout.
const TURNS: u32 = 3;

/// The number of accounts checked for their age in one step.
const SWEEP: usize = 4096;

/// The exclusive-or of the ids of some emitted or acked tuples of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Update {
    pub(crate) root: Root,
    pub(crate) ids: u64,
}

/// An input event of the acker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AckEvent<'a> {
    /// Tuples were emitted or acked.
    Updates(&'a [Update]),
    /// These trees have failed at a bolt.
    Failed(&'a [Root]),
    /// Time has passed.
    Time,
    /// A process of the topology was lost: open trees may never be acked.
    Lost,
}

/// The reason why a tuple failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailReason {
    /// A bolt failed the tuple, or one derived from it.
    Bolt,
    /// The tuple was not acked within the message timeout.
    Timeout,
    /// The tuple was pending when a process of the topology was lost, and may be lost too.
    WorkerLost,
}

/// The notifications for the spout that result from an event.
#[derive(Debug, Default)]
pub(crate) struct AckActions {
    /// The completed messages.
    pub(crate) acked: Vec<MessageId>,
    /// The latency of each message in `acked`.
    pub(crate) latencies: Vec<Duration>,
    /// The failed messages.
    pub(crate) failed: Vec<(MessageId, FailReason)>,
}

impl AckActions {
    pub(crate) fn is_empty(&self) -> bool {
        self.acked.is_empty() && self.failed.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.acked.clear();
        self.latencies.clear();
        self.failed.clear();
    }
}

/// The account of one tree.
#[derive(Clone, Copy, Debug)]
struct Account {
    ids: u64,
    message: MessageId,
    opened_nanos: u64,
    generation: u32,
    /// The turn in which the account was opened; zero if the slot is free.
    turn: u32,
}

/// Tracks the trees of one spout instance.
#[derive(Debug)]
pub(crate) struct Acker {
    task: Task,
    /// The generation that a slot has on its first use.
    first_generation: u32,
    accounts: Vec<Account>,
    /// Free slots, least recently used first, which leaves the most time for late acks.
    free: VecDeque<u32>,
    open: usize,
    turn: u32,
    turn_length: Duration,
    turn_ends: Duration,
    /// Accounts opened in this turn or earlier may be lost with a process.
    lost: u32,
    /// The position of the running sweep for old and lost accounts, if any.
    sweep: Option<usize>,
}

impl Acker {
    /// Creates the acker of the spout instance `task` of the topology.
    ///
    /// `first_generation` is any number that differs between incarnations of the instance. It
    /// distinguishes late acks for trees of the previous incarnation from acks for trees of this
    /// one.
    pub(crate) fn new(
        task: Task,
        first_generation: u32,
        message_timeout: Duration,
        now: Duration,
    ) -> Self {
        let turn_length = (message_timeout / TURNS).max(Duration::from_nanos(1));
        Acker {
            task,
            first_generation,
            accounts: Vec::new(),
            free: VecDeque::new(),
            open: 0,
            turn: 1,
            turn_length,
            turn_ends: now.saturating_add(turn_length),
            lost: 0,
            sweep: None,
        }
    }

    /// Returns the number of open trees.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.open
    }

    /// Returns the number of trees that can still be opened.
    pub(crate) fn room(&self) -> usize {
        Root::MOST_SLOTS - self.open
    }

    /// Opens a tree for `message`. The caller must have checked [`room`](Acker::room), and must
    /// [seal](Acker::seal) the tree.
    #[inline]
    pub(crate) fn open(&mut self, now: Duration, message: MessageId) -> Root {
        let opened_nanos = now.as_nanos() as u64;
        if self.open == 0 && now >= self.turn_ends {
            // Turns do not advance while no tree is open: that time counts for no tree.
            self.turn_ends = now.saturating_add(self.turn_length);
        }
        self.open += 1;
        match self.free.pop_front() {
            Some(slot) => {
                let account = &mut self.accounts[slot as usize];
                *account = Account {
                    ids: 0,
                    message,
                    opened_nanos,
                    generation: account.generation.wrapping_add(1),
                    turn: self.turn,
                };
                Root::new(self.task, slot, account.generation)
            }
            None => {
                let slot = self.accounts.len() as u32;
                self.accounts.push(Account {
                    ids: 0,
                    message,
                    opened_nanos,
                    generation: self.first_generation,
                    turn: self.turn,
                });
                Root::new(self.task, slot, self.first_generation)
            }
        }
    }

    /// Adds `ids`, the exclusive-or of the ids of the tree's first tuples. A tree without tuples is
    /// complete at once.
    #[inline]
    pub(crate) fn seal(&mut self, now: Duration, root: Root, ids: u64, actions: &mut AckActions) {
        self.update(now, Update { root, ids }, actions);
    }

    /// Closes a tree whose tuple could not be emitted.
    pub(crate) fn forget(&mut self, root: Root) {
        let _ = self.close(root);
    }

    /// Handles an event, and adds the resulting notifications to `actions`.
    pub(crate) fn on(&mut self, now: Duration, event: AckEvent<'_>, actions: &mut AckActions) {
        match event {
            AckEvent::Updates(updates) => {
                for update in updates {
                    self.update(now, *update, actions);
                }
            }
            AckEvent::Failed(roots) => {
                for root in roots {
                    if let Some(message) = self.close(*root) {
                        actions.failed.push((message, FailReason::Bolt));
                    }
                }
            }
            AckEvent::Time => {
                self.turn_if_due(now);
                self.sweep_on(actions);
            }
            AckEvent::Lost => {
                self.lost = self.turn;
                self.turn += 1;
                self.sweep = Some(0);
                self.sweep_on(actions);
            }
        }
    }

    /// Returns the time at which [`AckEvent::Time`] is due next, if any tree is open.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (self.open > 0).then_some(match self.sweep {
            Some(_) => Duration::ZERO,
            None => self.turn_ends,
        })
    }

    #[inline]
    fn update(&mut self, now: Duration, update: Update, actions: &mut AckActions) {
        let Some(account) = self.account(update.root) else {
            return;
        };
        account.ids ^= update.ids;
        if account.ids == 0 {
            let took = (now.as_nanos() as u64).saturating_sub(account.opened_nanos);
            let message = account.message;
            account.turn = 0;
            self.free.push_back(update.root.slot() as u32);
            self.open -= 1;
            actions.acked.push(message);
            actions.latencies.push(Duration::from_nanos(took));
        }
    }

    /// Returns the account of an open tree; `None` if the tree is closed.
    #[inline]
    fn account(&mut self, root: Root) -> Option<&mut Account> {
        let account = self.accounts.get_mut(root.slot())?;
        let current = Root::new(self.task, root.slot() as u32, account.generation);
        (account.turn != 0 && current == root).then_some(account)
    }

    fn close(&mut self, root: Root) -> Option<MessageId> {
        let account = self.account(root)?;
        let message = account.message;
        account.turn = 0;
        self.free.push_back(root.slot() as u32);
        self.open -= 1;
        Some(message)
    }

    fn turn_if_due(&mut self, now: Duration) {
        if self.sweep.is_none() && now >= self.turn_ends {
            // Turns that were missed count as well.
            let late = (now - self.turn_ends).as_nanos() / self.turn_length.as_nanos();
            self.turn += 1 + u32::try_from(late).unwrap_or(TURNS).min(TURNS);
            self.turn_ends = now.saturating_add(self.turn_length);
            self.sweep = Some(0);
        }
    }

    /// Continues the sweep for old and lost accounts.
    fn sweep_on(&mut self, actions: &mut AckActions) {
        let Some(start) = self.sweep else { return };
        let end = (start + SWEEP).min(self.accounts.len());
        for slot in start..end {
            let account = self.accounts[slot];
            let reason = match account.turn {
                0 => continue,
                turn if turn <= self.lost => FailReason::WorkerLost,
                turn if self.turn - turn > TURNS => FailReason::Timeout,
                _ => continue,
            };
            let root = Root::new(self.task, slot as u32, account.generation);
            if let Some(message) = self.close(root) {
                actions.failed.push((message, reason));
            }
        }
        self.sweep = (end < self.accounts.len()).then_some(end);
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::anchor::Ids;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn task(spout: usize, instance: u32) -> Task {
        Task::new(spout, instance).unwrap()
    }

    fn acker() -> Acker {
        Acker::new(task(0, 3), 0, TIMEOUT, Duration::ZERO)
    }

    fn message(number: u64) -> MessageId {
        MessageId(number)
    }

    #[test]
    fn a_tuple_that_goes_nowhere_is_complete_at_once() {
        let (mut acker, mut actions) = (acker(), AckActions::default());
        let root = acker.open(Duration::ZERO, message(7));
        acker.seal(Duration::from_millis(2), root, 0, &mut actions);
        assert_eq!(actions.acked, [message(7)]);
        assert_eq!(actions.latencies, [Duration::from_millis(2)]);
        assert_eq!(acker.pending(), 0);
    }

    #[test]
    fn news_of_a_tree_that_is_over_is_not_taken_for_its_successor() {
        let (mut acker, mut actions) = (acker(), AckActions::default());
        let old = acker.open(Duration::ZERO, message(1));
        acker.seal(Duration::ZERO, old, 5, &mut actions);
        acker.on(Duration::ZERO, AckEvent::Failed(&[old]), &mut actions);
        let new = acker.open(Duration::ZERO, message(2));
        acker.seal(Duration::ZERO, new, 9, &mut actions);
        assert_eq!(old.slot(), new.slot());
        let late = [Update { root: old, ids: 9 }];
        acker.on(Duration::ZERO, AckEvent::Updates(&late), &mut actions);
        acker.on(Duration::ZERO, AckEvent::Failed(&[old]), &mut actions);
        assert_eq!(actions.acked, []);
        assert_eq!(actions.failed, [(message(1), FailReason::Bolt)]);
        assert_eq!(acker.pending(), 1);
    }

    #[test]
    fn roots_that_nobody_gave_out_change_nothing() {
        let (mut acker, mut actions) = (acker(), AckActions::default());
        for root in [
            Root::new(task(0, 3), 0, 0),
            Root::new(task(1, 3), 1, 1),
            Root::from_bits(!0),
        ] {
            let update = [Update { root, ids: 1 }];
            acker.on(Duration::ZERO, AckEvent::Updates(&update), &mut actions);
            acker.on(Duration::ZERO, AckEvent::Failed(&[root]), &mut actions);
        }
        assert!(actions.is_empty());
    }

    #[test]
    fn what_is_not_acked_fails_within_its_timeout_and_a_third() {
        for seconds in 0..=25 {
            let (mut acker, mut actions) = (acker(), AckActions::default());
            // A tree is open all the time, so that turns advance before the tested one is opened.
            let other = acker.open(Duration::ZERO, message(0));
            acker.seal(Duration::ZERO, other, 1, &mut actions);
            let opened = Duration::from_secs(seconds);
            let mut root = None;
            let mut now = Duration::ZERO;
            while !actions.failed.contains(&(message(1), FailReason::Timeout)) {
                assert!(now < TIMEOUT * 3);
                now += Duration::from_millis(100);
                acker.on(now, AckEvent::Time, &mut actions);
                if now >= opened && root.is_none() {
                    let opened = acker.open(opened, message(1));
                    acker.seal(now, opened, 1, &mut actions);
                    root = Some(opened);
                }
            }
            let (least, most) = (TIMEOUT, TIMEOUT * 4 / 3 + Duration::from_millis(200));
            assert!((least..=most).contains(&(now - opened)), "{opened:?}");
            assert_eq!(acker.deadline(), None);
        }
    }

    #[test]
    fn a_rest_without_open_trees_counts_for_none_that_are_opened_after_it() {
        for rested in [15, 25, 40, 3_000].map(Duration::from_secs) {
            let (mut acker, mut actions) = (acker(), AckActions::default());
            let root = acker.open(rested, message(1));
            acker.seal(rested, root, 1, &mut actions);
            let mut now = rested;
            while actions.is_empty() {
                acker.on(now, AckEvent::Time, &mut actions);
                now += Duration::from_millis(100);
            }
            let age = now - rested;
            assert!(age >= TIMEOUT && age <= TIMEOUT * 4 / 3 + Duration::from_millis(200));
        }
    }

    #[test]
    fn a_long_pause_fails_what_was_open_all_the_while() {
        let (mut acker, mut actions) = (acker(), AckActions::default());
        for number in 0..10_000 {
            let root = acker.open(Duration::ZERO, message(number));
            acker.seal(Duration::ZERO, root, 1, &mut actions);
        }
        let now = TIMEOUT * 100;
        while acker.deadline().is_some_and(|deadline| deadline <= now) {
            acker.on(now, AckEvent::Time, &mut actions);
        }
        assert_eq!(actions.failed.len(), 10_000);
    }

    #[test]
    fn all_that_was_open_when_a_process_was_lost_fails_and_nothing_that_was_opened_later() {
        let (mut acker, mut actions) = (acker(), AckActions::default());
        let open = |acker: &mut Acker, number| {
            let root = acker.open(Duration::ZERO, message(number));
            acker.seal(Duration::ZERO, root, 1, &mut AckActions::default());
            root
        };
        let old: Vec<Root> = (0..10_000).map(|number| open(&mut acker, number)).collect();
        acker.on(Duration::ZERO, AckEvent::Lost, &mut actions);
        let new: Vec<Root> = (10_000..10_100).map(|n| open(&mut acker, n)).collect();
        while acker.deadline() == Some(Duration::ZERO) {
            acker.on(Duration::ZERO, AckEvent::Time, &mut actions);
        }
        let lost: Vec<_> = (0..10_000)
            .map(|number| (message(number), FailReason::WorkerLost))
            .collect();
        assert_eq!(actions.failed, lost);
        assert_eq!(acker.pending(), 100);
        // Late acks for lost trees change nothing; the others count.
        for root in old.iter().chain(&new) {
            let ids = 1;
            let update = [Update { root: *root, ids }];
            acker.on(Duration::ZERO, AckEvent::Updates(&update), &mut actions);
        }
        let acked: Vec<_> = (10_000..10_100).map(message).collect();
        assert_eq!(actions.acked, acked);
        assert_eq!((acker.pending(), acker.deadline()), (0, None));
    }

    #[test]
    fn news_of_an_earlier_incarnations_trees_are_not_taken_for_this_ones() {
        let mut actions = AckActions::default();
        let [mut old, mut new] =
            [7, 8].map(|first| Acker::new(task(0, 0), first, TIMEOUT, Duration::ZERO));
        let late = old.open(Duration::ZERO, message(1));
        let root = new.open(Duration::ZERO, message(1));
        new.seal(Duration::ZERO, root, 5, &mut actions);
        assert_eq!(late.slot(), root.slot());
        new.on(Duration::ZERO, AckEvent::Failed(&[late]), &mut actions);
        assert!(actions.is_empty());
        assert_eq!(new.pending(), 1);
    }

    proptest! {
        /// Each tree's tuples are emitted and acked in any order, interleaved with those of other
        /// trees.
        #[test]
        fn a_tree_is_complete_exactly_when_all_its_tuples_are_acked(
            fans in prop::collection::vec(0usize..6, 1..20),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let (mut acker, mut actions, mut ids) = (acker(), AckActions::default(), Ids::random());
            let mut news: Vec<Update> = Vec::new();
            for (number, fan) in fans.iter().enumerate() {
                let root = acker.open(Duration::ZERO, message(number as u64));
                let first = ids.draw();
                acker.seal(Duration::ZERO, root, first, &mut actions);
                let mut made = 0;
                for _ in 0..*fan {
                    let id = ids.draw();
                    made ^= id;
                    news.push(Update { root, ids: id });
                }
                news.push(Update { root, ids: first ^ made });
            }
            let mut order = order.into_iter().cycle();
            while !news.is_empty() {
                let at = order.next().unwrap().index(news.len());
                let update = news.swap_remove(at);
                let open = news.iter().any(|other| other.root == update.root);
                let before = actions.acked.len();
                acker.on(Duration::ZERO, AckEvent::Updates(&[update]), &mut actions);
                prop_assert_eq!(actions.acked.len() - before, usize::from(!open));
            }
            prop_assert_eq!(acker.pending(), 0);
            prop_assert_eq!(actions.acked.len(), fans.len());
        }
    }
}
