//! A hash join of records in columns with a table.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use ardea_codec::state_codec_of;
use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, Result, Timestamp, Watermark,
};
use ardea_operators::{HashJoinLogic, HashJoinP, KeyIndex, Output};
use arrow_array::builder::UInt32Builder;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_select::take::take;

use super::JoinedLayout;
use crate::batch::{ColumnBatch, emit};
use crate::decode::BATCH_ROWS;
use crate::error::arrow_error;
use crate::key::{EncodedKeys, GroupKey, KeyColumns};
use crate::record::KeyedRecord;

/// Joins a stream of records in columns (input 0) with a table (input 1, bounded): emits one record
/// for each record and each row of the table with an equal key.
///
/// Input 1 carries rows of the table as encoded records, and is read to its end first; each
/// instance receives the whole table. It is held, and checkpointed, by a [`HashJoinP`]. When it is
/// complete, its rows are also held in columns, ordered by key. Memory: about twice the table.
/// Cost: a lookup per record, and a copy of its values per pair.
pub struct ColumnHashJoinP {
    key: KeyColumns,
    layout: JoinedLayout,
    is_outer: bool,
    /// Holds the table. It receives no record of the stream.
    build: TableState,
    /// The complete table in columns.
    table: Option<ColumnTable>,
}

/// The operator that holds the table.
type TableState =
    HashJoinP<NoRecord, GroupKey, KeyedRecord, NoRecord, StreamKey, TableKey, TableMatches>;

/// The key of a record of the stream. There is none.
type StreamKey = fn(&NoRecord) -> GroupKey;

/// The key of a row of the table.
type TableKey = fn(&KeyedRecord) -> GroupKey;

/// The results of a record of the stream. There is none.
type TableMatches = fn(NoRecord, Timestamp, &[KeyedRecord], &mut Output<'_, NoRecord>);

/// A record of an input that has none.
enum NoRecord {}

/// A table in columns, ordered by key.
struct ColumnTable {
    keys: KeyIndex<GroupKey>,
    /// The end of the rows of each key.
    ends: Vec<u32>,
    columns: Vec<ArrayRef>,
}

impl ColumnHashJoinP {
    /// The input of the stream.
    pub const PROBE: Ordinal = Ordinal::FIRST;
    /// The input of the table.
    pub const BUILD: Ordinal = Ordinal::SECOND;

    /// Creates a join by the key columns of the stream. An outer join also emits the records
    /// without a match, whose columns of the table are null.
    pub(crate) fn new(key: KeyColumns, layout: JoinedLayout, is_outer: bool) -> Self {
        let logic: HashJoinLogic<StreamKey, TableKey, TableMatches> = HashJoinLogic {
            probe_key: |none| match *none {},
            build_key: |row| row.key.clone(),
            join: no_join,
        };
        let build = HashJoinP::new(Arc::new(logic));
        ColumnHashJoinP {
            key,
            layout,
            is_outer,
            build: match state_codec_of() {
                Some(codec) => build.with_codec(codec),
                None => build,
            },
            table: None,
        }
    }

    /// Returns the table in columns.
    fn complete_table(&self) -> Result<ColumnTable> {
        let (mut keys, mut ends, mut rows) = (KeyIndex::default(), Vec::new(), Vec::new());
        for values in self.build.table().values() {
            let Some(first) = values.first() else {
                continue;
            };
            keys.insert(first.key.clone());
            rows.extend(values.iter().map(|row| Some(&row.record)));
            ends.push(u32::try_from(rows.len()).map_err(|_| too_many_rows())?);
        }
        Ok(ColumnTable {
            keys,
            ends,
            columns: self.layout.decode_right(rows.into_iter())?,
        })
    }

    /// Returns the pairs of records from the front of a batch, and the number of these records.
    fn pairs(&self, batch: &ColumnBatch) -> Result<(ColumnBatch, usize)> {
        let table = self.table.as_ref().ok_or_else(incomplete)?;
        let keys = self.key.encode(batch.records())?;
        let pairs = table.match_rows(&keys, self.is_outer);
        let left_rows = UInt32Array::from(pairs.left);
        let left = batch.take_rows(&left_rows)?;
        let right = table.columns.iter();
        let right = right.map(|column| take(column, &pairs.right, None));
        let right: Vec<ArrayRef> = right
            .collect::<Result<_, _>>()
            .map_err(|error| arrow_error("rows of a table could not be taken", error))?;
        let (records, times) = left.into_parts();
        let batch = self
            .layout
            .batch(records.columns().to_vec(), right, times)?;
        Ok((batch, pairs.records))
    }
}

/// The rows of pairs: of the stream's batch, and of the table.
struct JoinedRows {
    left: Vec<u32>,
    right: UInt32Array,
    /// The number of records of the batch whose pairs these are.
    records: usize,
}

impl ColumnTable {
    /// Returns the matches of records from the front of a batch: of all of them, unless there are
    /// very many. A record without a match has null, if `is_outer`.
    fn match_rows(&self, keys: &EncodedKeys, is_outer: bool) -> JoinedRows {
        let mut left = Vec::with_capacity(keys.len());
        let mut right = UInt32Builder::with_capacity(keys.len());
        let mut records = 0;
        while records < keys.len() && (records == 0 || left.len() < BATCH_ROWS) {
            let row = records as u32;
            match self.keys.find(&keys.key(records)) {
                Some(slot) => {
                    let rows = self.rows_of(slot as usize);
                    left.extend(rows.clone().map(|_| row));
                    rows.for_each(|matched| right.append_value(matched));
                }
                None if is_outer => {
                    left.push(row);
                    right.append_null();
                }
                None => {}
            }
            records += 1;
        }
        JoinedRows {
            left,
            right: right.finish(),
            records,
        }
    }

    /// Returns the rows of a key, which are not empty.
    fn rows_of(&self, slot: usize) -> Range<u32> {
        let start = slot.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[slot]
    }
}

/// The join of the operator that holds the table: it has no record to join.
fn no_join(none: NoRecord, _: Timestamp, _: &[KeyedRecord], _: &mut Output<'_, NoRecord>) {
    match none {}
}

#[cold]
fn incomplete() -> Error {
    let what = "a hash join got records of its stream before its table was complete";
    Error::new(ErrorCode::InvalidJob, what)
        .hint("give the edge of the table, input 1, the priority `Priority::FIRST`")
}

#[cold]
fn too_many_rows() -> Error {
    Error::new(
        ErrorCode::LimitReached,
        "the table of a join has over 4 billion rows",
    )
    .hint("join the streams by an interval of time")
    .permanent()
}

impl Processor for ColumnHashJoinP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.build.init(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if input == Self::BUILD {
            return self.build.process(input, inbox, outbox);
        }
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let position = inbox.position();
        let batch = inbox.batch::<ColumnBatch>()?;
        let pairs = self.pairs(batch);
        let (pairs, count) = pairs.map_err(|error| error.at_record(input.index(), position))?;
        batch.take_front(count);
        emit(outbox, Ordinal::FIRST, pairs)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.build.on_watermark(watermark, outbox)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.build.on_epoch(epoch, outbox)
    }

    fn on_edge_done(&mut self, input: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        if input == Self::BUILD {
            self.table = Some(self.complete_table()?);
        }
        self.build.on_edge_done(input, outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.build.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Box::new(self.build).hand_over_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.build.checkpointed()
    }
}
