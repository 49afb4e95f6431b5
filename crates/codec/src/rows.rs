//! The codec of chunks of records.
//!
//! The payload of a records frame:
//!
//! | bytes | |
//! |---|---|
//! | 8 | the earliest event time, microseconds |
//! | 1 | the width of each time in bytes: 0, 1, 2, 4 or 8 |
//! | width × records | each time, as its distance from the earliest |
//! | the rest | the values, written by the codec of the edge |
//!
//! The number of records is in the header. Records without event time, or all of one time, have a
//! width of zero.

use std::fmt;
use std::marker::PhantomData;

use ardea_core::{Chunk, ChunkCodec, Error, ErrorCode, Integer, Result, Schema, Timestamp};

use crate::wire::{Wire, WireError};
use crate::{ExchangeData, SerdeValues};

/// The most records in a frame.
pub const MAX_FRAME_RECORDS: usize = u16::MAX as usize;

/// A serializer of values of one type for payloads.
pub trait ValueCodec<T>: Send + Sync {
    /// Appends values from the front until they take about `limit` bytes. Returns their number, at
    /// least one if there is a value.
    ///
    /// # Errors
    /// If a value cannot be written.
    fn put(&self, values: &[T], limit: usize, out: &mut Vec<u8>) -> Result<usize>;

    /// Appends the `count` values that `input` consists of.
    ///
    /// # Errors
    /// If the input is invalid or holds another number of values.
    fn get(&self, input: &[u8], count: usize, into: &mut Vec<T>) -> Result<(), BadValues>;

    /// Returns the integer that represents the whole value, if any.
    fn integer(&self, value: &T) -> Option<Integer> {
        let _ = value;
        None
    }

    /// Appends the bytes that [`put`](Self::put) writes for a value with this integer. Returns
    /// false if the codec does not support integers.
    fn put_integer(&self, integer: Integer, out: &mut Vec<u8>) -> bool {
        let _ = (integer, out);
        false
    }

    /// Returns the schema of the values, as far as it can be determined without a value. May take a
    /// millisecond.
    fn schema(&self) -> Schema {
        Schema::Any
    }
}

/// The reason why bytes are invalid.
type BadValues = Box<dyn std::error::Error + Send + Sync>;

/// The codec of values in a fixed layout: see [`Wire`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WireValues;

impl<T: Wire> ValueCodec<T> for WireValues {
    fn put(&self, values: &[T], limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        Ok(T::put_some(values, limit, out))
    }

    fn get(&self, mut input: &[u8], count: usize, into: &mut Vec<T>) -> Result<(), BadValues> {
        T::get_some(&mut input, count, into)?;
        if input.is_empty() {
            Ok(())
        } else {
            Err(WireError::Long.into())
        }
    }
}

/// The codec of edges that carry [`Rows<T>`](ardea_core::Rows): event times and values.
pub struct RowsCodec<T, V = WireValues> {
    values: V,
    record: PhantomData<fn(T) -> T>,
}

impl<T: Wire> RowsCodec<T> {
    /// Creates a codec for records in a fixed layout.
    pub fn wire() -> Self {
        RowsCodec::new(WireValues)
    }
}

impl<T: ExchangeData> RowsCodec<T, SerdeValues> {
    /// Creates a codec for serde records.
    pub fn serde() -> Self {
        RowsCodec::new(SerdeValues::default())
    }
}

impl<T, V> RowsCodec<T, V> {
    /// Creates a codec for records written by `values`.
    pub fn new(values: V) -> Self {
        RowsCodec {
            values,
            record: PhantomData,
        }
    }
}

impl<T, V> fmt::Debug for RowsCodec<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsCodec<{}>", std::any::type_name::<T>())
    }
}

impl<T, V> ChunkCodec for RowsCodec<T, V>
where
    T: Send + 'static,
    V: ValueCodec<T>,
{
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        let rows = chunk.rows::<T>()?;
        let most = rows.len().min(MAX_FRAME_RECORDS);
        // The values come last but determine the number of times: all times are written first and
        // then truncated.
        let start = out.len();
        let width = put_times(&rows.times()[..most], out);
        let values_at = out.len();
        let limit = limit
            .saturating_sub(9 + width * most.min(limit / (width + 1)))
            .max(1);
        let count = self.values.put(&rows.values()[..most], limit, out)?;
        if count < most && width > 0 {
            let unused = start + 9 + width * count..values_at;
            out.drain(unused);
        }
        if count == rows.len() {
            rows.clear();
        } else {
            rows.discard_front(count);
        }
        Ok(count)
    }

    fn decode(&self, records: usize, payload: &[u8], chunk: &mut Chunk) -> Result<()> {
        let rows = chunk.rows_or_new::<T>(records)?;
        let mut outcome = Ok(());
        rows.extend_columns(|values, times| {
            let (values_before, times_before) = (values.len(), times.len());
            outcome = self.read(records, payload, values, times);
            if outcome.is_err() {
                values.truncate(values_before);
                times.truncate(times_before);
            }
        });
        outcome.map_err(|error| {
            Error::new(
                ErrorCode::BadRecord,
                format!(
                    "a payload of {} bytes is no batch of {records} {}",
                    payload.len(),
                    std::any::type_name::<T>()
                ),
            )
            .because(error)
            .hint("run the same build of the job on all workers")
        })
    }
}

impl<T, V: ValueCodec<T>> RowsCodec<T, V> {
    fn read(
        &self,
        records: usize,
        mut payload: &[u8],
        values: &mut Vec<T>,
        times: &mut Vec<Timestamp>,
    ) -> Result<(), BadValues> {
        let before = values.len();
        get_times(&mut payload, records, times)?;
        self.values.get(payload, records, values)?;
        if values.len() != before + records {
            return Err(WireError::Short.into());
        }
        Ok(())
    }
}

/// Appends the times and returns the width of each.
fn put_times(times: &[Timestamp], out: &mut Vec<u8>) -> usize {
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    for time in times {
        low = low.min(time.as_micros());
        high = high.max(time.as_micros());
    }
    // Both are within 64 bits, so their distance fits into an unsigned number.
    let span = if low <= high {
        (high as u64).wrapping_sub(low as u64)
    } else {
        0
    };
    let width = match span {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    low.put(out);
    (width as u8).put(out);
    match width {
        0 => {}
        1 => put_distances::<1>(times, low, out),
        2 => put_distances::<2>(times, low, out),
        4 => put_distances::<4>(times, low, out),
        _ => put_distances::<8>(times, low, out),
    }
    width
}

fn put_distances<const WIDTH: usize>(times: &[Timestamp], low: i64, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + times.len() * WIDTH, 0);
    for (slot, time) in out[start..].chunks_exact_mut(WIDTH).zip(times) {
        let distance = (time.as_micros() as u64).wrapping_sub(low as u64);
        slot.copy_from_slice(&distance.to_le_bytes()[..WIDTH]);
    }
}

fn get_times(input: &mut &[u8], count: usize, into: &mut Vec<Timestamp>) -> Result<(), WireError> {
    let low = i64::get(input)?;
    let width = usize::from(u8::get(input)?);
    let column = input
        .split_off(..count * width.min(8))
        .ok_or(WireError::Short)?;
    match width {
        0 => into.extend(std::iter::repeat_n(Timestamp::from_micros(low), count)),
        1 => get_distances::<1>(column, low, into),
        2 => get_distances::<2>(column, low, into),
        4 => get_distances::<4>(column, low, into),
        8 => get_distances::<8>(column, low, into),
        _ => return Err(WireError::Invalid),
    }
    Ok(())
}

fn get_distances<const WIDTH: usize>(column: &[u8], low: i64, into: &mut Vec<Timestamp>) {
    let (distances, _) = column.as_chunks::<WIDTH>();
    into.extend(distances.iter().map(|distance| {
        let mut bytes = [0; 8];
        bytes[..WIDTH].copy_from_slice(distance);
        Timestamp::from_micros((low as u64).wrapping_add(u64::from_le_bytes(bytes)) as i64)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Rows;
    use proptest::prelude::*;

    /// Encodes to payloads of about `limit` bytes and decodes them.
    fn round_trip<T: Send + Clone + 'static>(
        codec: &impl ChunkCodec,
        rows: &Rows<T>,
        limit: usize,
    ) -> Rows<T> {
        let (mut from, mut to) = (Chunk::new(rows.clone()), Chunk::default());
        to.rows_or_new::<T>(0).unwrap();
        while !from.is_empty() {
            let mut payload = Vec::new();
            let count = codec.encode(&mut from, limit, &mut payload).unwrap();
            assert!(count > 0);
            codec.decode(count, &payload, &mut to).unwrap();
        }
        to.rows::<T>().unwrap().clone()
    }

    fn times() -> impl Strategy<Value = i64> {
        prop_oneof![
            Just(i64::MIN),
            Just(5),
            0i64..200,
            -70_000i64..70_000,
            any::<i64>()
        ]
    }

    proptest! {
        #[test]
        fn records_and_times_come_back_in_order(
            records in prop::collection::vec((any::<(u64, String)>(), times()), 0..80), limit in 0usize..2000,
        ) {
            let rows: Rows<(u64, String)> = records
                .into_iter()
                .map(|(value, time)| (value, Timestamp::from_micros(time)))
                .collect();
            prop_assert_eq!(&round_trip(&RowsCodec::<(u64, String)>::wire(), &rows, limit), &rows);
            prop_assert_eq!(&round_trip(&RowsCodec::<(u64, String), _>::serde(), &rows, limit), &rows);
        }

        #[test]
        fn any_payload_gives_records_or_an_error(
            payload in prop::collection::vec(any::<u8>(), 0..100), records in 0usize..70_000,
        ) {
            let mut chunk = Chunk::default();
            let wire = RowsCodec::<(u16, String)>::wire();
            if wire.decode(records, &payload, &mut chunk).is_err() {
                prop_assert!(chunk.is_empty());
            }
            let mut chunk = Chunk::default();
            let _ = RowsCodec::<Vec<String>, _>::serde().decode(records, &payload, &mut chunk);
        }
    }

    #[test]
    fn records_of_one_time_carry_it_once() {
        let rows: Rows<u8> = (0..100).map(|v| (v, Timestamp::MIN)).collect();
        let mut payload = Vec::new();
        let mut chunk = Chunk::new(rows);
        RowsCodec::<u8>::wire()
            .encode(&mut chunk, 1000, &mut payload)
            .unwrap();
        assert_eq!(payload.len(), 9 + 100);
    }

    #[test]
    fn a_payload_with_something_behind_its_records_is_refused() {
        let mut payload = Vec::new();
        let mut chunk = Chunk::new(Rows::from_iter([(1u8, Timestamp::MIN)]));
        let codec = RowsCodec::<u8>::wire();
        codec.encode(&mut chunk, 100, &mut payload).unwrap();
        payload.push(0);
        let error = codec.decode(1, &payload, &mut chunk).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRecord);
    }
}
