//! Early results: the triggers' states, and the clock that wakes them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{
    Clock, Cut, CutWriter, Epoch, Inbox, Key, Ordinal, Outbox, Progress, RestoredEntry,
    RestoredState, Result, StateChunk,
};

use super::Decision;
use super::intake::Intake;
use super::kept_slices::Kept;
use super::slider::{OpenOf, ResultOf, Slider};
use crate::keyed::{KeptAs, KeyedStates};
use crate::{Feed, FeedVisitor, KeyedFold};

/// How many keys a call asks for early results before it lets others have their turn.
const KEYS_PER_CALL: usize = 1024;

/// What the trigger remembers of each key that has a record in a window not closed yet.
pub(crate) struct Triggers<K, S> {
    states: KeyedStates<K, S>,
    /// How that is written where it has to survive.
    kept: Option<KeptAs<K, S>>,
}

impl<K, S> Default for Triggers<K, S> {
    fn default() -> Self {
        Triggers {
            states: KeyedStates::default(),
            kept: None,
        }
    }
}

impl<K: Key, S: Default> Triggers<K, S> {
    /// From now on states have to survive, as `kept` writes them.
    pub(crate) fn survive(&mut self, kept: KeptAs<K, S>) {
        self.kept = Some(kept);
        self.states.keep_track();
    }

    /// The key has no record in an open window any more.
    pub(crate) fn forget(&mut self, key: &K) {
        if let Some(slot) = self.states.find(key) {
            self.touch(slot);
            self.states.remove(slot);
        }
    }

    /// The state of a slot is about to change.
    fn touch(&mut self, slot: u32) {
        let kept = &self.kept;
        self.states
            .touch(slot, |chunk, key, state| write(kept, chunk, key, state));
    }

    /// The key and state of a slot, if it has one; it is about to change.
    fn at(&mut self, slot: u32) -> Option<(&K, &mut S)> {
        self.touch(slot);
        self.states.get_mut(slot)
    }

    pub(crate) fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.states.take_cut(cut)
    }

    pub(crate) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let kept = &self.kept;
        self.states.write_cut(writer, |chunk, key, _, state| {
            write(kept, chunk, key, state)
        })
    }

    pub(crate) fn commit(&mut self, epoch: Epoch) -> Result<Progress> {
        self.states.commit(epoch)
    }

    pub(crate) fn give_up(&mut self, epoch: Epoch) -> Progress {
        self.states.give_up(epoch)
    }

    /// Takes an entry of its state.
    ///
    /// # Errors
    /// If it can't be read, or there is no trigger.
    pub(crate) fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        let Some(kept) = &self.kept else {
            return Err(RestoredState::unknown(entry));
        };
        let (key, state, _) = kept.read(entry)?;
        self.states.restore(key, state).map(drop)
    }
}

fn write<K: Key, S>(
    kept: &Option<KeptAs<K, S>>,
    chunk: &mut StateChunk,
    key: &K,
    state: &S,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write(chunk, key, state, |_| {}),
        None => Ok(()),
    }
}

/// Takes a chunk record by record, asks the trigger about each, and adds early results to `pending`.
pub(crate) struct TakeEarly<'a, F: KeyedFold> {
    pub(crate) fold: &'a F,
    pub(crate) intake: &'a mut Intake<F>,
    pub(crate) slider: &'a mut Slider<F>,
    pub(crate) pending: &'a mut VecDeque<ResultOf<F>>,
    pub(crate) kept: Kept<'a, F>,
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
        let Intake { open, late } = intake;
        late.sort_out(rows, input, outbox, |record, time, is_old| {
            let key = feed.key(record);
            if is_old && late.is_late(&*key, time) {
                return false;
            }
            open.select(time);
            let acc = open.current();
            let acc = acc.acc(fold, Cow::Borrowed(&*key), kept.as_deref_mut());
            feed.accumulate(acc, record);
            let states = &mut slider.triggers.states;
            let slot = states.slot_or_insert(Cow::Borrowed(&*key), F::State::default);
            let decision = match slider.triggers.at(slot) {
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

/// The clock that wakes a trigger once a period.
pub(crate) struct EarlyClock {
    clock: Clock,
    /// How often, and when next, on the instance's clock.
    round: Option<(Duration, Duration)>,
    /// The next key to ask, while a round is under way.
    asking: Option<usize>,
}

impl EarlyClock {
    /// The rounds are at multiples of the period on the clock of the wall: whoever goes on elsewhere has the same ones.
    pub(crate) fn new(clock: Clock, period: Option<Duration>) -> Self {
        let round =
            period.map(|period| (period, clock.now().saturating_add(to_next(period, &clock))));
        EarlyClock {
            clock,
            round,
            asking: None,
        }
    }

    /// Whether a round is under way.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.is_some()
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
            *next = now.saturating_add(to_next(*period, &self.clock));
        }
        let Some(first) = self.asking else { return };
        let slots = slider.triggers.states.slots();
        let mut slot = first;
        while slot < slots && slot < first + KEYS_PER_CALL && pending.is_empty() {
            if let Some((key, state)) = slider.triggers.at(slot as u32)
                && fold.on_wake(state) == Decision::Fire
            {
                let key = key.clone();
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

/// How long it is until the next multiple of `period`.
fn to_next(period: Duration, clock: &Clock) -> Duration {
    let micros = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
    let since = clock.wall().as_micros().rem_euclid(micros);
    Duration::from_micros((micros - since) as u64)
}
