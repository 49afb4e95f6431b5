//! The buffered records of an interval join.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Key, KeyBytes, Result, Schema, StateCodec, Timestamp, Watermark};
use ardea_state::{
    KeyedState, NamedState, StateCodecs, StateFields, ValueReader, put_time, truncated_entry,
};

use crate::Output;
use crate::join::JoinInterval;

/// The key of a buffered record in the state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RecordKey<K> {
    /// The key of the join, which determines the partition.
    pub(super) key: K,
    pub(super) time: Timestamp,
    /// The position of the record in the order of arrival at its instance.
    pub(super) number: u64,
}

impl<K: Key> Key for RecordKey<K> {
    fn write(&self, bytes: &mut KeyBytes) {
        bytes.part(&self.key);
        bytes.part(&self.time);
        bytes.part(&self.number);
    }

    fn key_hash(&self) -> u64 {
        self.key.key_hash()
    }
}

/// A buffered left record.
pub(crate) struct JoinRecord<L> {
    pub(super) record: L,
    pub(super) is_matched: bool,
}

/// The state of an interval join: each buffered record is one entry, so that an increment contains
/// the records that were added, matched for the first time, or removed.
pub(crate) struct JoinState<K, L, R> {
    pub(super) left: KeyedState<RecordKey<K>, JoinRecord<L>>,
    pub(super) right: KeyedState<RecordKey<K>, R>,
}

impl<K: Key, L, R> Default for JoinState<K, L, R> {
    fn default() -> Self {
        let mut state = JoinState {
            left: KeyedState::new("left"),
            right: KeyedState::new("right"),
        };
        // Records are found in the order of time, by their slots.
        state.left.do_not_index();
        state.right.do_not_index();
        state
    }
}

impl<K: Key, L: Send + 'static, R: Send + 'static> JoinState<K, L, R> {
    pub(super) fn set_codecs(
        &mut self,
        key: Arc<dyn StateCodec<K>>,
        left: Arc<dyn StateCodec<L>>,
        right: Arc<dyn StateCodec<R>>,
    ) {
        let key = Arc::new(RecordKeyCodec(key));
        let left = Arc::new(JoinRecordCodec(left));
        self.left.set_codecs(StateCodecs::new(key.clone(), left));
        self.right.set_codecs(StateCodecs::new(key, right));
    }
}

impl<K: Key, L: Send + 'static, R: Send + 'static> StateFields for JoinState<K, L, R> {
    fn fields(&mut self) -> Vec<&mut dyn NamedState> {
        vec![&mut self.left, &mut self.right]
    }
}

struct RecordKeyCodec<K>(Arc<dyn StateCodec<K>>);

impl<K: Send + Sync> StateCodec<RecordKey<K>> for RecordKeyCodec<K> {
    fn put(&self, value: &RecordKey<K>, out: &mut Vec<u8>) -> Result<()> {
        put_time(out, value.time);
        out.extend_from_slice(&value.number.to_le_bytes());
        self.0.put(&value.key, out)
    }

    fn get(&self, bytes: &[u8]) -> Result<RecordKey<K>> {
        let mut bytes = ValueReader::of(bytes);
        Ok(RecordKey {
            time: bytes.time()?,
            number: u64::from_le_bytes(bytes.array()?),
            key: self.0.get(bytes.bytes())?,
        })
    }

    fn schema(&self) -> Schema {
        self.0.schema()
    }
}

struct JoinRecordCodec<L>(Arc<dyn StateCodec<L>>);

impl<L> StateCodec<JoinRecord<L>> for JoinRecordCodec<L> {
    fn put(&self, value: &JoinRecord<L>, out: &mut Vec<u8>) -> Result<()> {
        out.push(value.is_matched.into());
        self.0.put(&value.record, out)
    }

    fn get(&self, bytes: &[u8]) -> Result<JoinRecord<L>> {
        let (is_matched, record) = bytes.split_first().ok_or_else(truncated_entry)?;
        Ok(JoinRecord {
            record: self.0.get(record)?,
            is_matched: *is_matched != 0,
        })
    }

    fn schema(&self) -> Schema {
        self.0.schema()
    }
}

/// The place of a buffered record: its time, its number, and its slot in the state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RecordSlot {
    pub(super) time: Timestamp,
    pub(super) number: u64,
    pub(super) slot: u32,
}

/// The buffered records of a key, per side in order of time, then of arrival.
#[derive(Debug, Default)]
pub(super) struct KeyBuffers {
    pub(super) left: VecDeque<RecordSlot>,
    pub(super) right: VecDeque<RecordSlot>,
    /// The key's entry in the set of expiry times.
    pub(super) end: Option<Timestamp>,
}

/// The interval and watermark that decide matches and expiry.
#[derive(Clone, Copy)]
pub(super) struct JoinBounds<'a> {
    pub(super) interval: &'a JoinInterval,
    pub(super) watermark: Watermark,
}

impl JoinBounds<'_> {
    /// Returns true if a record that can only match times up to `last` has expired.
    fn is_over(self, last: Timestamp) -> bool {
        end_after(last) <= self.watermark.0
    }
}

/// Inserts a record in order of time and arrival, usually at the end.
pub(super) fn insert(side: &mut VecDeque<RecordSlot>, place: RecordSlot) {
    let index = match side.back() {
        Some(last) if *last > place => side.partition_point(|other| *other < place),
        _ => side.len(),
    };
    side.insert(index, place);
}

/// Returns the records of a side with times from `first` to `last`.
fn within(
    side: &VecDeque<RecordSlot>,
    first: Timestamp,
    last: Timestamp,
) -> impl Iterator<Item = &RecordSlot> {
    let start = side.partition_point(|place| place.time < first);
    side.range(start..)
        .take_while(move |place| place.time <= last)
}

/// Returns the time at which a record expires that can only match times up to `last`.
fn end_after(last: Timestamp) -> Timestamp {
    last + Duration::from_micros(1)
}

impl KeyBuffers {
    /// Pairs a left record with the buffered right records. Buffers the left record if it can still
    /// match.
    pub(super) fn add_left<K: Key, L, R, U>(
        &mut self,
        state: &mut JoinState<K, L, R>,
        (at, record): (RecordKey<K>, L),
        bounds: JoinBounds<'_>,
        join: &impl Fn(&L, Option<&R>) -> Option<U>,
        output: &mut Output<'_, U>,
    ) -> Result<()> {
        let (interval, time) = (bounds.interval, at.time);
        let (first, last) = (interval.first_right(time), interval.last_right(time));
        let mut is_matched = false;
        for place in within(&self.right, first, last) {
            let other = state.right.get(place.slot);
            if let Some(pair) = other.and_then(|other| join(&record, Some(other))) {
                output.emit(pair, time.max(place.time));
                is_matched = true;
            }
        }
        if !bounds.is_over(last) {
            let new = JoinRecord { record, is_matched };
            let place = buffer(&mut state.left, at, new)?;
            insert(&mut self.left, place);
        } else if !is_matched && let Some(single) = join(&record, None) {
            output.emit(single, time);
        }
        Ok(())
    }

    /// Pairs a right record with the buffered left records. Buffers the right record if it can
    /// still match.
    pub(super) fn add_right<K: Key, L, R, U>(
        &mut self,
        state: &mut JoinState<K, L, R>,
        (at, record): (RecordKey<K>, R),
        bounds: JoinBounds<'_>,
        join: &impl Fn(&L, Option<&R>) -> Option<U>,
        output: &mut Output<'_, U>,
    ) -> Result<()> {
        let (interval, time) = (bounds.interval, at.time);
        let (first, last) = (interval.first_left(time), interval.last_left(time));
        for place in within(&self.left, first, last) {
            let other = state.left.get(place.slot);
            let pair = other.and_then(|other| join(&other.record, Some(&record)));
            let Some(pair) = pair else { continue };
            output.emit(pair, time.max(place.time));
            if other.is_some_and(|other| !other.is_matched)
                && let Some((_, other)) = state.left.update(place.slot)
            {
                other.is_matched = true;
            }
        }
        if !bounds.is_over(last) {
            let place = buffer(&mut state.right, at, record)?;
            insert(&mut self.right, place);
        }
        Ok(())
    }

    /// Removes expired records while there is room for unmatched left records. Returns true if
    /// there was room for all.
    pub(super) fn expire<K: Key, L, R, U>(
        &mut self,
        state: &mut JoinState<K, L, R>,
        bounds: JoinBounds<'_>,
        join: &impl Fn(&L, Option<&R>) -> Option<U>,
        output: &mut Output<'_, U>,
    ) -> bool {
        let interval = bounds.interval;
        let is_over = |place: &mut RecordSlot| bounds.is_over(interval.last_left(place.time));
        while let Some(place) = self.right.pop_front_if(is_over) {
            state.right.remove(place.slot);
        }
        while let Some(&RecordSlot { time, slot, .. }) = self.left.front() {
            let last = interval.last_right(time);
            if !bounds.is_over(last) {
                break;
            }
            if output.is_full() {
                return false;
            }
            self.left.pop_front();
            if let Some(left) = state.left.remove(slot)
                && !left.is_matched
                && let Some(single) = join(&left.record, None)
            {
                // The end of an interval beyond the maximum event time is that maximum.
                output.emit(single, time.max(last.min(Timestamp::LAST_EVENT)));
            }
        }
        true
    }

    /// Returns the time at which the first record expires; `None` if there are no records.
    pub(super) fn next_end(&self, interval: &JoinInterval) -> Option<Timestamp> {
        let (left, right) = (self.left.front(), self.right.front());
        let left = left.map(|place| end_after(interval.last_right(place.time)));
        let right = right.map(|place| end_after(interval.last_left(place.time)));
        left.into_iter().chain(right).min()
    }
}

/// Adds a record to the state of its side.
fn buffer<K: Key, T>(
    side: &mut KeyedState<RecordKey<K>, T>,
    at: RecordKey<K>,
    record: T,
) -> Result<RecordSlot> {
    let (time, number) = (at.time, at.number);
    let slot = side.slot(Cow::Owned(at), || record)?;
    Ok(RecordSlot { time, number, slot })
}
