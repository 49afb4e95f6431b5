//! Early results: the triggers' states, and the clock that wakes them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Clock, Inbox, Key, Ordinal, Outbox, Result};

use super::Decision;
use super::intake::Intake;
use super::slider::{OpenOf, ResultOf, Slider};
use crate::{Feed, FeedVisitor, KeyTable, KeyedFold};

/// How many keys a call asks for early results before it lets others have their turn.
const KEYS_PER_CALL: usize = 1024;

/// What the trigger remembers of each key that has a record in a window not closed yet.
pub(crate) struct Triggers<K, S> {
    states: KeyTable<K, S>,
}

impl<K, S> Default for Triggers<K, S> {
    fn default() -> Self {
        Triggers {
            states: KeyTable::default(),
        }
    }
}

impl<K: Key, S: Default> Triggers<K, S> {
    /// The key has no record in an open window any more.
    pub(crate) fn forget(&mut self, key: &K) {
        if let Some(slot) = self.states.index().find(key) {
            self.states.values_mut()[slot as usize] = S::default();
            self.states.remove(slot);
        }
    }
}

/// Takes a chunk record by record, asks the trigger about each, and adds early results to `pending`.
pub(crate) struct TakeEarly<'a, F: KeyedFold> {
    pub(crate) fold: &'a F,
    pub(crate) intake: &'a mut Intake<F>,
    pub(crate) slider: &'a mut Slider<F>,
    pub(crate) pending: &'a mut VecDeque<ResultOf<F>>,
    pub(crate) input: Ordinal,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) outbox: &'a mut Outbox,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeEarly<'_, F> {
    type Output = ();

    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let TakeEarly {
            fold,
            intake,
            slider,
            pending,
            input,
            inbox,
            outbox,
        } = self;
        let position = inbox.position();
        let rows = inbox.rows::<I::Record>()?;
        intake.open.require(rows.times(), input, position)?;
        let Intake { open, late } = intake;
        late.sort_out(rows, input, outbox, |record, time, is_late| {
            if is_late {
                return false;
            }
            let key = feed.key(record);
            open.select(time);
            let table = open.current();
            feed.accumulate(
                table
                    .get_or_insert(Cow::Borrowed(&*key), || fold.create())
                    .1,
                record,
            );
            let states = &mut slider.triggers.states;
            let (_, state) = states.get_or_insert(Cow::Borrowed(&*key), F::State::default);
            if feed.on_record(state, record, time) == Decision::Fire {
                slider.early_results(fold, open, &key, pending);
            }
            true
        })
    }
}

/// The clock that wakes a trigger once a period.
pub(crate) struct EarlyClock {
    clock: Clock,
    /// How often, and when next, on the instance's clock.
    round: Option<(Duration, Duration)>,
    /// The next key to ask, while a round is under way.
    asking: Option<usize>,
}

impl EarlyClock {
    pub(crate) fn new(clock: Clock, period: Option<Duration>) -> Self {
        let round = period.map(|period| (period, clock.now().saturating_add(period)));
        EarlyClock {
            clock,
            round,
            asking: None,
        }
    }

    /// Asks some of the keys, if it is time; adds their results to `pending`, which is empty.
    pub(crate) fn ask<F: KeyedFold>(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        slider: &mut Slider<F>,
        pending: &mut VecDeque<ResultOf<F>>,
    ) {
        let now = self.clock.now();
        if let Some((period, next)) = &mut self.round
            && self.asking.is_none()
            && now >= *next
        {
            self.asking = Some(0);
            *next = now.saturating_add(*period);
        }
        let Some(first) = self.asking else { return };
        let slots = slider.triggers.states.index().slots();
        let mut slot = first;
        while slot < slots && slot < first + KEYS_PER_CALL && pending.is_empty() {
            let state = &mut slider.triggers.states.values_mut()[slot];
            if fold.on_wake(state) == Decision::Fire {
                let key = slider.triggers.states.keys()[slot].clone();
                slider.early_results(fold, open, &key, pending);
            }
            slot += 1;
        }
        self.asking = (slot < slots).then_some(slot);
    }

    /// When to be called again: at once if a round is under way or results are `pending`.
    pub(crate) fn deadline(&self, pending: bool) -> Option<Duration> {
        match pending || self.asking.is_some() {
            true => Some(self.clock.now()),
            false => self.round.map(|(_, next)| next),
        }
    }
}
