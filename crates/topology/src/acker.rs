//! Whether all that was made from a spout's tuple has been dealt with: a pure state machine, one a spout instance.
//!
//! A tree's account is the exclusive-or of the random ids of its tuples. An id is put in when its tuple is emitted and again when it is
//! acked, in whatever order the news arrives; the account is zero when every id is in it twice, and by chance with a probability of
//! 2⁻⁶⁴ ("Twitter Heron", section IV-C; it is the method of Storm). So a tree of any size takes one place of 32 bytes.
//!
//! Accounts lie in a table that the [`Root`] points into: no hashing. Each is stamped with the turn in which it was opened; a turn lasts a
//! third of the message timeout, and what is older than three turns has failed: the buckets rotate, and nothing is moved. A tree so
//! fails between one and one and a third of its timeout after it was opened.

use std::collections::VecDeque;
use std::time::Duration;

use crate::MessageId;
use crate::anchor::{Root, Task};

/// How many turns a message timeout has.
const TURNS: u32 = 3;

/// How many accounts are looked at in one go for being too old.
const SWEEP: usize = 4096;

/// That the ids of some tuples of a tree came or went: their exclusive-or.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Update {
    pub(crate) root: Root,
    pub(crate) ids: u64,
}

/// What an acker is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AckEvent<'a> {
    /// Tuples were emitted or acked.
    Updates(&'a [Update]),
    /// These trees have failed somewhere.
    Failed(&'a [Root]),
    /// Time has passed.
    Time,
    /// A process that runs a part of the topology was lost: whatever is open may never be acked.
    Lost,
}

/// Why a tuple failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailReason {
    /// A bolt failed it, or something made from it.
    Bolt,
    /// It was not acked within the message timeout.
    Timeout,
    /// It was pending when a process that ran a part of the topology was lost, and may be lost with it.
    WorkerLost,
}

/// What follows for the spout.
#[derive(Debug, Default)]
pub(crate) struct AckActions {
    /// These messages are complete.
    pub(crate) acked: Vec<MessageId>,
    /// How long each of them took.
    pub(crate) latencies: Vec<Duration>,
    /// These have failed.
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

/// One tree's account.
#[derive(Clone, Copy, Debug)]
struct Account {
    ids: u64,
    message: MessageId,
    opened_nanos: u64,
    generation: u32,
    /// The turn in which it was opened; zero if it is free.
    turn: u32,
}

/// Follows the trees of one spout instance.
#[derive(Debug)]
pub(crate) struct Acker {
    task: Task,
    /// Of places that are used for the first time.
    first_generation: u32,
    accounts: Vec<Account>,
    /// Free places, the longest unused first: what is late for one has the most time to come.
    free: VecDeque<u32>,
    open: usize,
    turn: u32,
    turn_length: Duration,
    turn_ends: Duration,
    /// What was opened in this turn or before it is lost.
    lost: u32,
    /// Where the search for old and lost accounts goes on, if one is going on.
    sweep: Option<usize>,
}

impl Acker {
    /// For the spout instance `task` of the topology.
    ///
    /// `first_generation` is any number, another one for each incarnation of the instance: what comes late for trees of the last
    /// one is told by it from news of this one's.
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

    /// How many trees are open.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.open
    }

    /// How many more can be opened.
    pub(crate) fn room(&self) -> usize {
        Root::MOST_SLOTS - self.open
    }

    /// Opens a tree for `message`; the caller has asked for [`room`](Acker::room). It must be [sealed](Acker::seal).
    #[inline]
    pub(crate) fn open(&mut self, now: Duration, message: MessageId) -> Root {
        let opened_nanos = now.as_nanos() as u64;
        if self.open == 0 && now >= self.turn_ends {
            // Nobody asked for turns while nothing was open: that time counts for no tree.
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

    /// Puts in the ids of the tree's first tuples. Without any the tree is complete at once.
    #[inline]
    pub(crate) fn seal(&mut self, now: Duration, root: Root, ids: u64, actions: &mut AckActions) {
        self.update(now, Update { root, ids }, actions);
    }

    /// Closes a tree that was opened for a tuple that then could not be emitted.
    pub(crate) fn forget(&mut self, root: Root) {
        let _ = self.close(root);
    }

    /// Takes an event in; what follows from it is added to `actions`.
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

    /// When [`AckEvent::Time`] is due next, if any tree is open.
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

    /// The account of an open tree; none for what is over.
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
            // Turns that nobody was there for count as well.
            let late = (now - self.turn_ends).as_nanos() / self.turn_length.as_nanos();
            self.turn += 1 + u32::try_from(late).unwrap_or(TURNS).min(TURNS);
            self.turn_ends = now.saturating_add(self.turn_length);
            self.sweep = Some(0);
        }
    }

    /// Looks through some more of the accounts for those that are too old or lost.
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
            // Something is open all the while, so that turns go on before the tree is opened as well.
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
        // Acks that come late for what was lost change nothing; the others count.
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
        /// Each tree's tuples are emitted and acked in any order, mixed with those of other trees.
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
