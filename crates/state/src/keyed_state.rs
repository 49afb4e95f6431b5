//! One value per key, with timers and a time-to-live.
//!
//! * `access`: values by key and by slot;
//! * `due`: timers that fire, and keys that expire;
//! * `checkpoint`: snapshots, restore, and handoff;
//! * `timers`, `timer_codec`: the timers of all keys, and their serialization;
//! * `buffered_records`: records that wait for the restore of their partition.

mod access;
pub(crate) mod buffered_records;
mod checkpoint;
mod due;
mod timer_codec;
pub(crate) mod timers;

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{
    Error, ErrorCode, Instance, InstanceContext, InstanceMetrics, Key, RestoredEntry,
    RestoredState, Result, StateChunk, Timestamp, Waker, Watermark,
};

use crate::codec::{StateCodecs, unsaved_without};
use crate::table::StateTable;
use timer_codec::KeyTimes;
use timers::Timers;

pub use crate::table::restoring_partitions::MIN_BUFFERED;

/// The state of an operator with one value per key, its timers, and their time-to-live.
///
/// A key has a slot, a small number that is stable until the key is removed or moved to disk. Every
/// change goes through [`entry`](Self::entry), [`update`](Self::update), [`use_at`](Self::use_at)
/// or [`remove`](Self::remove), which track it for snapshots. That costs a comparison, and a list
/// entry for the first change of a key in each epoch.
///
/// The operator
///
/// 1. calls [`open`](Self::open) in `init`, and returns the state from `checkpointed`;
/// 2. sets the [watermark](Self::set_watermark) before it fires timers
///    ([`next_event_timer`](Self::next_event_timer));
/// 3. with [spilling](Self::allow_spilling), calls [`spill`](Self::spill) before each batch of
///    records, and [`report_size`](Self::report_size) after it.
///
/// ```
/// use std::borrow::Cow;
/// use std::time::Duration;
/// use ardea_core::{Timestamp, Watermark};
/// use ardea_state::KeyedState;
///
/// let mut visits: KeyedState<String, u32> = KeyedState::new("visits");
/// let slot = visits.slot(Cow::Owned("ann".to_string()), || 0)?;
/// if let Some((_, count, mut timers)) = visits.use_at(slot, Timestamp::from_secs(5)) {
///     *count += 1;
///     timers.set_event(Timestamp::from_secs(60));
/// }
/// visits.set_watermark(Watermark(Timestamp::from_secs(61)));
/// assert_eq!(visits.next_event_timer(&mut 1)?, Some((Timestamp::from_secs(60), slot)));
/// assert_eq!(visits.remove(slot), Some(1));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct KeyedState<K, S> {
    table: StateTable<K, TimedValue<S>>,
    timers: Timers,
    /// The serializers. `None` if the state is not checkpointed.
    codecs: Option<StateCodecs<K, S>>,
    is_lazily_restored: bool,
    is_spilled: bool,
    /// The instance with the state; `None` until it is opened.
    instance: Option<Instance>,
    waker: Waker,
    metrics: Arc<InstanceMetrics>,
}

/// The value of a key, and the event time of its last use; the minimum without a time-to-live.
#[derive(Clone, Debug)]
pub(crate) struct TimedValue<S> {
    pub(crate) value: S,
    pub(crate) used: Timestamp,
}

impl<K, S> Default for KeyedState<K, S> {
    /// Creates the state of an operator with a single one.
    fn default() -> Self {
        KeyedState {
            table: StateTable::default(),
            timers: Timers::default(),
            codecs: None,
            is_lazily_restored: false,
            is_spilled: false,
            instance: None,
            waker: Waker::none(),
            metrics: Arc::default(),
        }
    }
}

impl<K: Key, S> KeyedState<K, S> {
    /// Creates an empty state. The name identifies the state in snapshots: unique in its operator,
    /// and the same in all versions of a job.
    pub fn new(name: &'static str) -> Self {
        KeyedState {
            table: StateTable::named(name),
            ..KeyedState::default()
        }
    }

    /// Creates an empty state that is serialized by the default codecs of its types. A
    /// [`Local`](ardea_codec::Local) type has none, and the state is not checkpointed.
    pub fn checkpointed(name: &'static str) -> Self
    where
        K: StateValue,
        S: StateValue,
    {
        let mut state = KeyedState::new(name);
        state.codecs = match (state_codec_of(), state_codec_of()) {
            (Some(keys), Some(values)) => Some(StateCodecs::new(keys, values)),
            _ => None,
        };
        state
    }

    /// Returns the name of the state in snapshots.
    pub fn state_name(&self) -> &'static str {
        self.table.name
    }

    /// Sets the serializers of keys and values, so that the state is checkpointed.
    pub fn set_codecs(&mut self, codecs: StateCodecs<K, S>) {
        self.codecs = Some(codecs);
    }

    /// Sets the time-to-live: a key that was not [used](Self::use_at) for `ttl` of event time is
    /// removed with its timers.
    pub fn set_ttl(&mut self, ttl: Duration) {
        self.timers.ttl = Some(ttl);
    }

    /// Allows that records are processed before all keys are restored. The operator must ask
    /// [`must_buffer`](Self::must_buffer) or [`ready`](Self::ready) for each record then.
    pub fn allow_lazy_restore(&mut self) {
        self.is_lazily_restored = true;
    }

    /// Omits the index from keys to slots, for states whose operator finds keys by their slots.
    /// [`slot`](Self::slot) then takes every key for a new one. Called before the first key.
    pub fn do_not_index(&mut self) {
        self.table.do_not_index();
    }

    /// Allows that keys are moved to disk if memory is short.
    pub fn allow_spilling(&mut self) {
        self.is_spilled = true;
    }

    /// Attaches the state to its instance. Called once per attempt, in
    /// [`init`](ardea_core::Processor::init).
    ///
    /// # Errors
    /// No local store can be opened; `InvalidJob` if the job's guarantee keeps state and this state
    /// has no serializers, so that it would be lost.
    pub fn open(&mut self, context: &InstanceContext) -> Result<()> {
        if context.guarantee.keeps_state() && self.codecs.is_none() {
            let what = format!("the state {:?} has no serializers", self.table.name);
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("create it by `checkpointed`, or run the job without a guarantee"));
        }
        if context.guarantee.keeps_state() {
            context.state_registry.register(self.table.name);
        }
        self.instance = Some(context.instance);
        self.timers.clock = context.clock.clone();
        self.waker = context.waker.clone();
        self.metrics = Arc::clone(&context.metrics);
        let is_spilled = self.is_spilled && self.codecs.is_some();
        self.table.attach(context, is_spilled)
    }

    /// Returns a description of the state if it has no serializers, for
    /// [`unsaved_state`](ardea_core::Processor::unsaved_state).
    pub fn unsaved_state(&self) -> Option<&'static str> {
        unsaved_without(self.codecs.as_ref())
    }

    /// Appends the entries of all keys in memory, for tests.
    ///
    /// # Errors
    /// A key or value cannot be serialized.
    #[cfg(any(test, feature = "testing"))]
    pub fn write_all(&self, chunk: &mut StateChunk) -> Result<()> {
        let format = (self.table.name, &self.codecs, &self.timers);
        (0..self.slots()).try_for_each(|slot| match self.table.get(slot) {
            Some(state) => write(format, chunk, (self.table.key(slot), slot), state),
            None => Ok(()),
        })
    }

    /// Moves the keys with their values and timers out.
    pub(crate) fn take(&mut self) -> Self {
        let name = self.table.name;
        KeyedState {
            table: mem::replace(&mut self.table, StateTable::named(name)),
            timers: mem::take(&mut self.timers),
            ..KeyedState::default()
        }
    }

    /// Returns the state in memory, for
    /// [`hand_over_state`](ardea_core::Processor::hand_over_state).
    pub fn into_memory(self) -> Option<Box<dyn Any + Send>>
    where
        S: Send + 'static,
    {
        Some(Box::new(self))
    }

    /// Returns the watermark of the state.
    pub fn watermark(&self) -> Watermark {
        self.timers.watermark
    }

    /// Sets the watermark, up to which timers fire and keys expire.
    pub fn set_watermark(&mut self, watermark: Watermark) {
        self.timers.watermark = watermark;
    }

    /// Returns the number of keys, in memory and on disk.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves keys to disk if memory is short. Called between batches of records, as it frees slots.
    ///
    /// # Errors
    /// Those of writing. No state is lost, but memory continues to grow.
    pub fn spill(&mut self) -> Result<()> {
        let (name, codecs, timers) = (self.table.name, &self.codecs, &mut self.timers);
        self.table.spill(|chunk, key, slot, state| {
            write((name, codecs, timers), chunk, (key, slot), state)?;
            Ok(timers.move_to_disk(slot, state.used))
        })
    }

    /// Reports the approximate size of the state to the metrics of the instance. Called after each
    /// batch of records.
    #[inline]
    pub fn report_size(&mut self) {
        let format = (self.table.name, &self.codecs, &self.timers);
        self.table
            .account(&self.metrics, |chunk, key, slot, state| {
                write(format, chunk, (key, slot), state)
            });
    }
}

/// The parts of a state that its entries consist of.
type Format<'a, K, S> = (&'static str, &'a Option<StateCodecs<K, S>>, &'a Timers);

/// Appends the entry of a key.
fn write<K: Key, S>(
    (name, codecs, timers): Format<'_, K, S>,
    chunk: &mut StateChunk,
    (key, slot): (&K, u32),
    state: &TimedValue<S>,
) -> Result<()> {
    match codecs {
        Some(codecs) => codecs.write(name, chunk, key, &state.value, |out| {
            timers.put(slot, state.used, out);
        }),
        None => Ok(()),
    }
}

/// Returns the key, value and times of an entry.
fn read<K: Key, S>(
    name: &'static str,
    codecs: &Option<StateCodecs<K, S>>,
    entry: &RestoredEntry<'_>,
) -> Result<(K, TimedValue<S>, KeyTimes)> {
    let codecs = codecs.as_ref();
    let codecs = codecs.ok_or_else(|| RestoredState::unknown(entry))?;
    let (key, value, rest) = codecs.read(name, entry)?;
    let times = KeyTimes::read(rest)?;
    let used = times.used;
    Ok((key, TimedValue { value, used }, times))
}

impl<K: Key, S> fmt::Debug for KeyedState<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedState({} keys)", self.len())
    }
}
