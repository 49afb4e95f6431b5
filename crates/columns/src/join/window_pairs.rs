//! The pairs of a join in windows.

use std::ops::Range;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result, Timestamp};
use ardea_operators::WindowResult;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_select::take::take;

use super::JoinedLayout;
use crate::batch::{ColumnBatch, emit};
use crate::decode::BATCH_ROWS;
use crate::error::arrow_error;
use crate::key::GroupKey;
use crate::record::EncodedRecord;

/// The left and the right records of a key in a window.
pub(crate) type WindowPairs = WindowResult<GroupKey, (Vec<EncodedRecord>, Vec<EncodedRecord>)>;

/// Converts the records of windows to columns: one record for each pair of a left and a right
/// record of a window, with the event time of the window.
pub(crate) struct WindowPairsP {
    layout: JoinedLayout,
    /// The number of emitted pairs of the first pending window.
    emitted: usize,
}

impl WindowPairsP {
    pub(crate) fn new(layout: JoinedLayout) -> Self {
        WindowPairsP { layout, emitted: 0 }
    }

    /// Returns the next pairs, and the number of windows that are completed by them.
    fn next_pairs(
        &mut self,
        windows: &[WindowPairs],
        times: &[Timestamp],
    ) -> Result<(ColumnBatch, usize)> {
        let mut pairs = PairsBuilder::default();
        let mut completed = 0;
        for (window, time) in windows.iter().zip(times) {
            let (left, right) = &window.value;
            let all = left.len() * right.len();
            let until = all.min(self.emitted + BATCH_ROWS.saturating_sub(pairs.times.len()));
            pairs.add(&window.value, self.emitted..until, *time);
            if until < all {
                self.emitted = until;
                break;
            }
            self.emitted = 0;
            completed += 1;
        }
        let left = self.layout.decode_left(pairs.left.iter().copied())?;
        let right = self
            .layout
            .decode_right(pairs.right.iter().copied().map(Some))?;
        let left = take_each(&left, pairs.left_rows)?;
        let right = take_each(&right, pairs.right_rows)?;
        Ok((self.layout.batch(left, right, pairs.times)?, completed))
    }
}

/// The pairs of a batch: the records of both sides, and the rows of each pair in them.
#[derive(Default)]
struct PairsBuilder<'a> {
    left: Vec<&'a EncodedRecord>,
    right: Vec<&'a EncodedRecord>,
    left_rows: Vec<u32>,
    right_rows: Vec<u32>,
    times: Vec<Timestamp>,
}

impl<'a> PairsBuilder<'a> {
    /// Adds some pairs of a window, numbered by left and then by right record. A record is added
    /// at most twice.
    fn add(
        &mut self,
        (left, right): &'a (Vec<EncodedRecord>, Vec<EncodedRecord>),
        pairs: Range<usize>,
        time: Timestamp,
    ) {
        // The row of the first right record, once all of them are added.
        let mut all_right = None;
        let mut next = pairs.start;
        while next < pairs.end {
            let (left_index, from) = (next / right.len(), next % right.len());
            let to = right.len().min(from + pairs.end - next);
            let left_row = self.left.len() as u32;
            self.left.push(&left[left_index]);
            let first_right = match all_right {
                Some(first) => first + from as u32,
                None => {
                    let first = self.right.len() as u32;
                    self.right.extend(&right[from..to]);
                    all_right = ((from, to) == (0, right.len())).then_some(first);
                    first
                }
            };
            let count = to - from;
            self.left_rows.extend(std::iter::repeat_n(left_row, count));
            self.right_rows
                .extend(first_right..first_right + count as u32);
            self.times.extend(std::iter::repeat_n(time, count));
            next += count;
        }
    }
}

/// Returns the values of each column at these rows.
pub(super) fn take_each(columns: &[ArrayRef], rows: Vec<u32>) -> Result<Vec<ArrayRef>> {
    let rows = UInt32Array::from(rows);
    let columns = columns.iter().map(|column| take(column, &rows, None));
    columns
        .collect::<Result<_, _>>()
        .map_err(|error| arrow_error("joined records could not be taken", error))
}

impl Processor for WindowPairsP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let rows = inbox.rows::<WindowPairs>()?;
        let (batch, completed) = self.next_pairs(rows.values(), rows.times())?;
        rows.discard_front(completed);
        emit(outbox, Ordinal::FIRST, batch)
    }
}
