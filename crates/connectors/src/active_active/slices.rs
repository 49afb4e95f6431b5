//! Encoded records grouped into slices of event time until the watermark completes them.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp, Watermark};

/// The version of the snapshot format.
const FORM: u8 = 1;

/// The width of a slice in microseconds; at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Width(i64);

impl Width {
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if it is shorter than a microsecond or too long for a
    /// timestamp.
    pub fn of(width: Duration) -> Result<Self> {
        let micros = i64::try_from(width.as_micros()).ok();
        micros.and_then(Width::of_micros).ok_or_else(|| {
            let what = format!("slices can't be {width:?} wide");
            let hint = "use the slide of the job's windows, or a few milliseconds";
            Error::new(ErrorCode::InvalidConfig, what).hint(hint)
        })
    }

    pub fn of_micros(micros: i64) -> Option<Self> {
        (micros > 0).then_some(Width(micros))
    }

    pub fn micros(self) -> i64 {
        self.0
    }

    /// Returns the slice that contains a time.
    pub fn slice_at(self, time: Timestamp) -> i64 {
        time.as_micros().div_euclid(self.0)
    }

    /// Returns the start of a slice.
    pub fn start_of(self, slice: i64) -> Timestamp {
        Timestamp::from_micros(slice.saturating_mul(self.0))
    }

    /// Returns the first slice that is incomplete at this watermark.
    fn open_from(self, watermark: Watermark) -> i64 {
        match watermark {
            Watermark::END => i64::MAX,
            Watermark(time) => self.slice_at(time),
        }
    }
}

/// The position of a record in the bytes of its slice.
#[derive(Clone, Copy, Debug)]
struct RecordSpan {
    time: Timestamp,
    start: usize,
    end: usize,
}

/// The records of an incomplete slice.
#[derive(Clone, Default, Debug)]
struct Open {
    places: Vec<RecordSpan>,
    /// The concatenated records.
    bytes: Vec<u8>,
}

impl Open {
    /// Adds the bytes after `start`, if any, as a record; returns the number of these bytes.
    fn note(&mut self, time: Timestamp, start: usize) -> usize {
        let end = self.bytes.len();
        if end > start {
            self.places.push(RecordSpan { time, start, end });
        }
        end - start
    }

    fn record(&self, place: &RecordSpan) -> &[u8] {
        self.bytes.get(place.start..place.end).unwrap_or_default()
    }
}

/// The records of incomplete slices.
#[derive(Debug)]
pub(super) struct Slices {
    width: Width,
    open: BTreeMap<i64, Open>,
    /// All slices before this one are complete.
    open_from: i64,
    /// The number of buffered bytes.
    held: usize,
}

impl Slices {
    pub fn new(width: Width) -> Self {
        Slices {
            width,
            open: BTreeMap::new(),
            open_from: i64::MIN,
            held: 0,
        }
    }

    /// Returns the time up to which all slices are complete; `None` before the first complete
    /// slice.
    pub fn over_until(&self) -> Option<Timestamp> {
        (self.open_from != i64::MIN).then(|| self.width.start_of(self.open_from))
    }

    /// Adds a record with the event time `time`, whose bytes `write` appends. Returns false if its
    /// slice is already complete.
    ///
    /// # Errors
    /// Those of `write`.
    #[inline]
    pub fn add(
        &mut self,
        time: Timestamp,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<bool> {
        let slice = self.width.slice_at(time);
        if slice < self.open_from {
            return Ok(false);
        }
        let open = self.open.entry(slice).or_default();
        let start = open.bytes.len();
        write(&mut open.bytes)?;
        self.held += open.note(time, start);
        Ok(true)
    }

    /// Returns the number of buffered bytes.
    pub fn byte_len(&self) -> usize {
        self.held
    }

    /// Returns the first slice with records that is complete at this watermark.
    pub fn first_over(&self, watermark: Watermark) -> Option<i64> {
        let until = self.width.open_from(watermark);
        let first = self.open.first_key_value().map(|(slice, _)| *slice);
        first.filter(|slice| *slice < until)
    }

    /// Writes the content of a slice, ordered by event time, then by bytes. The content does not
    /// depend on the order of arrival.
    pub fn content(&mut self, slice: i64, into: &mut Vec<u8>) {
        into.clear();
        let Some(open) = self.open.get_mut(&slice) else {
            return;
        };
        let mut places = std::mem::take(&mut open.places);
        places.sort_unstable_by(|one, other| {
            let by_time = one.time.cmp(&other.time);
            by_time.then_with(|| open.record(one).cmp(open.record(other)))
        });
        for place in &places {
            into.extend_from_slice(open.record(place));
        }
        open.places = places;
    }

    /// Removes a slice and marks all slices up to it as complete.
    pub fn end(&mut self, slice: i64) {
        let ended = self.open.remove(&slice);
        self.held -= ended.map_or(0, |open| open.bytes.len());
        self.open_from = self.open_from.max(slice.saturating_add(1));
    }

    /// Marks all slices before this watermark as complete.
    pub fn end_until(&mut self, watermark: Watermark) {
        self.open_from = self.open_from.max(self.width.open_from(watermark));
    }

    /// Drops all buffered records.
    pub fn forget(&mut self) {
        self.open.clear();
        self.held = 0;
    }

    /// Appends the encoded state, for [`get`](Self::get).
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(FORM);
        out.extend_from_slice(&self.open_from.to_le_bytes());
        for (slice, open) in &self.open {
            out.extend_from_slice(&slice.to_le_bytes());
            out.extend_from_slice(&(open.places.len() as u64).to_le_bytes());
            for place in &open.places {
                let record = open.record(place);
                out.extend_from_slice(&place.time.as_micros().to_le_bytes());
                out.extend_from_slice(&(record.len() as u64).to_le_bytes());
                out.extend_from_slice(record);
            }
        }
    }

    /// Decodes the state written by [`put`](Self::put); `None` if it is invalid.
    pub fn get(width: Width, mut from: &[u8]) -> Option<Self> {
        let mut slices = Slices::new(width);
        let [form] = *take(&mut from)?;
        if form != FORM {
            return None;
        }
        slices.open_from = i64::from_le_bytes(*take(&mut from)?);
        while !from.is_empty() {
            let slice = i64::from_le_bytes(*take(&mut from)?);
            let count = u64::from_le_bytes(*take(&mut from)?);
            let open = slices.open.entry(slice).or_default();
            for _ in 0..count {
                let time = Timestamp::from_micros(i64::from_le_bytes(*take(&mut from)?));
                let length = usize::try_from(u64::from_le_bytes(*take(&mut from)?)).ok()?;
                let (record, rest) = from.split_at_checked(length)?;
                from = rest;
                let start = open.bytes.len();
                open.bytes.extend_from_slice(record);
                slices.held += open.note(time, start);
            }
        }
        Some(slices)
    }
}

/// Takes the next `N` bytes.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (array, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(array)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slices() -> Slices {
        Slices::new(Width::of(Duration::from_micros(10)).unwrap())
    }

    fn add(slices: &mut Slices, time: i64, record: &str) -> bool {
        let time = Timestamp::from_micros(time);
        let write = |bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(record.as_bytes());
            Ok(())
        };
        slices.add(time, write).unwrap()
    }

    fn all_over(slices: &mut Slices, watermark: Watermark) -> Vec<(i64, String)> {
        let (mut over, mut content) = (Vec::new(), Vec::new());
        while let Some(slice) = slices.first_over(watermark) {
            slices.content(slice, &mut content);
            over.push((slice, String::from_utf8(content.clone()).unwrap()));
            slices.end(slice);
        }
        slices.end_until(watermark);
        let held = slices.open.values().map(|open| open.bytes.len());
        assert_eq!(slices.byte_len(), held.sum::<usize>());
        over
    }

    #[test]
    fn a_slice_is_over_when_nothing_of_it_can_come_any_more() {
        let mut slices = slices();
        let at = |micros| Watermark(Timestamp::from_micros(micros));
        assert!(add(&mut slices, -1, "a") && add(&mut slices, 9, "b"));
        assert_eq!(all_over(&mut slices, at(-1)), []);
        assert_eq!(all_over(&mut slices, at(9)), [(-1, "a".into())]);
        assert!(add(&mut slices, 0, "c"), "of a slice that goes on");
        assert_eq!(all_over(&mut slices, at(10)), [(0, "cb".into())]);
        assert!(!add(&mut slices, 9, "late"));
        assert_eq!(slices.over_until(), Some(Timestamp::from_micros(10)));
        assert!(add(&mut slices, 10, "d"));
        assert_eq!(all_over(&mut slices, Watermark::END), [(1, "d".into())]);
    }

    #[test]
    fn slices_without_a_width_are_refused() {
        for width in [Duration::ZERO, Duration::from_nanos(999), Duration::MAX] {
            assert_eq!(
                Width::of(width).unwrap_err().code(),
                ErrorCode::InvalidConfig
            );
        }
    }

    proptest! {
        #[test]
        fn the_same_records_make_the_same_slices_in_whichever_order_they_come(
            mut records in prop::collection::vec((-40i64..40, "[a-c]{1,2}"), 0..30), seed in any::<u64>()
        ) {
            let over = |records: &[(i64, String)]| {
                let mut slices = slices();
                for (time, record) in records {
                    add(&mut slices, *time, record);
                }
                all_over(&mut slices, Watermark::END)
            };
            let first = over(&records);
            let length = records.len().max(1);
            for at in 0..records.len() {
                records.swap(at, (seed as usize).wrapping_mul(at + 1) % length);
            }
            prop_assert_eq!(over(&records), first);
        }

        #[test]
        fn what_is_put_down_comes_back(
            records in prop::collection::vec((-40i64..40, "[a-c]{1,2}"), 0..30), over in -50i64..50
        ) {
            let mut slices = slices();
            for (time, record) in &records {
                add(&mut slices, *time, record);
            }
            all_over(&mut slices, Watermark(Timestamp::from_micros(over)));
            let mut bytes = Vec::new();
            slices.put(&mut bytes);
            let mut back = Slices::get(slices.width, &bytes).unwrap();
            prop_assert_eq!(back.byte_len(), slices.byte_len());
            prop_assert_eq!(back.over_until(), slices.over_until());
            prop_assert_eq!(
                all_over(&mut back, Watermark::END),
                all_over(&mut slices, Watermark::END)
            );
            bytes.pop();
            prop_assert!(Slices::get(slices.width, &bytes).is_none());
        }
    }
}
