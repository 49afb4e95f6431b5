//! Early results: the state of triggers, and the clock that wakes them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Clock, Inbox, Ordinal, Outbox, Result};

use crate::window::result::ResultOf;
use crate::window::slice_assigner::SliceAssigner;
use crate::window::sliding::sliding_aggregator::{OpenOf, SlidingAggregator};
use crate::window::state::window_state::WindowStateRef;
use crate::window::triggers::trigger::Decision;
use crate::{Feed, FeedVisitor, KeyedFold};

/// The maximum number of keys whose triggers are woken per call.
const KEYS_PER_CALL: usize = 1024;

/// A visitor that processes a chunk record by record, calls the trigger for each, and adds early
/// results to `pending`.
pub(crate) struct TakeEarly<'a, F: KeyedFold> {
    pub(crate) fold: &'a F,
    pub(crate) intake: &'a mut SliceAssigner<F>,
    pub(crate) slider: &'a mut SlidingAggregator<F>,
    pub(crate) pending: &'a mut VecDeque<ResultOf<F>>,
    pub(crate) kept: WindowStateRef<'a, F>,
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
            mut kept,
            input,
            inbox,
            outbox,
        } = self;
        let position = inbox.position();
        let rows = inbox.rows::<I::Record>()?;
        intake.open.require(rows.times(), input, position)?;
        let SliceAssigner { open, late } = intake;
        late.separate_late(rows, input, outbox, |record, time, is_old| {
            let key = feed.key(record);
            if is_old && late.is_late(&*key, time) {
                return false;
            }
            open.select(time);
            let acc = open.current();
            let acc = acc.acc(fold, Cow::Borrowed(&*key), kept.as_deref_mut());
            feed.accumulate(acc, record);
            let triggers = &mut slider.triggers;
            let slot = triggers.slot_in_memory(Cow::Borrowed(&*key), F::State::default);
            let decision = match triggers.update(slot) {
                Some((_, state)) => feed.on_record(state, record, time),
                None => Decision::Wait,
            };
            if decision == Decision::Fire {
                slider.early_results(fold, open, &key, pending);
            }
            true
        })
    }
}

/// The clock that wakes a trigger once per period.
pub(crate) struct EarlyClock {
    clock: Clock,
    /// The period, and the next round on the instance's clock.
    round: Option<(Duration, Duration)>,
    /// The next key, while a round is in progress.
    asking: Option<usize>,
}

impl EarlyClock {
    /// Creates a clock. Rounds (one wake-up of every trigger) are at multiples of the period on the
    /// wall clock, so that they are the same after a restore elsewhere.
    pub(crate) fn new(clock: Clock, period: Option<Duration>) -> Self {
        let round =
            period.map(|period| (period, clock.now().saturating_add(to_next(period, &clock))));
        EarlyClock {
            clock,
            round,
            asking: None,
        }
    }

    /// Returns true if a round is in progress.
    pub(crate) fn is_in_round(&self) -> bool {
        self.asking.is_some()
    }

    /// Wakes the triggers of some keys if a round is due, and adds their results to `pending`,
    /// which must be empty.
    pub(crate) fn wake_triggers<F: KeyedFold>(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        slider: &mut SlidingAggregator<F>,
        pending: &mut VecDeque<ResultOf<F>>,
    ) {
        let now = self.clock.now();
        if let Some((period, next)) = &mut self.round
            && self.asking.is_none()
            && now >= *next
        {
            self.asking = Some(0);
            *next = now.saturating_add(to_next(*period, &self.clock));
        }
        let Some(first) = self.asking else { return };
        let slots = slider.triggers.slots() as usize;
        let mut slot = first;
        while slot < slots && slot < first + KEYS_PER_CALL && pending.is_empty() {
            if let Some((key, state)) = slider.triggers.update(slot as u32)
                && fold.on_wake(state) == Decision::Fire
            {
                let key = key.clone();
                slider.early_results(fold, open, &key, pending);
            }
            slot += 1;
        }
        self.asking = (slot < slots).then_some(slot);
    }

    /// Returns the time at which `wake_triggers` must be called next: now if a round is in progress
    /// or results are `pending`.
    pub(crate) fn deadline(&self, pending: bool) -> Option<Duration> {
        match pending || self.asking.is_some() {
            true => Some(self.clock.now()),
            false => self.round.map(|(_, next)| next),
        }
    }
}

/// Returns the time until the next multiple of `period`.
fn to_next(period: Duration, clock: &Clock) -> Duration {
    let micros = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
    let since = clock.wall().as_micros().rem_euclid(micros);
    Duration::from_micros((micros - since) as u64)
}
