//! A hash join of a stream with a bounded table.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateCodec,
    StateShape, Timestamp, Watermark,
};

use crate::forward::{break_if, take_until};
use crate::join::BuildTable;
use crate::join::build_table::{TABLE, TableCodec};
use crate::{Backlog, Output};

/// The user functions of a [`HashJoinP`], shared by all instances.
#[derive(Clone, Debug)]
pub struct HashJoinLogic<PK, BK, J> {
    /// Returns the key of a record of the stream: `Fn(&T) -> K`.
    pub probe_key: PK,
    /// Returns the key of a record of the table: `Fn(&V) -> K`.
    pub build_key: BK,
    /// Emits the results of a record and its matches: `Fn(T, Timestamp, &[V], &mut Output<U>)`.
    pub join: J,
}

/// Joins a stream (input 0, the probe side) with a table (input 1, the build side, bounded).
///
/// The table is read to its end first. The build edge therefore needs
/// [`Priority::FIRST`](ardea_core::Priority::FIRST); a job without it fails at the first record.
/// The table is broadcast, so that each instance has the whole table and the stream is not
/// repartitioned. Or both sides are [keyed](HashJoinP::keyed), and each instance has a share of the
/// table. Memory: the table. Cost: one lookup per record.
///
/// The table can be [checkpointed](HashJoinP::with_codec), once for all instances. Later
/// checkpoints cost nothing, as a complete table never changes.
///
/// Logic is usually created by [`inner_hash_join`], [`outer_hash_join`] or [`enrich`].
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::{HashJoinP, inner_hash_join};
///
/// let logic = inner_hash_join(
///     |flight: &(&'static str, u32)| flight.0,
///     |carrier: &(&'static str, &'static str)| carrier.0,
///     |flight: &(&'static str, u32), carrier: &(&str, &'static str)| (carrier.1, flight.1),
/// );
/// let mut join = HashJoinP::new(Arc::new(logic));
/// let mut outbox = Outbox::new(1, 16);
///
/// let mut carriers = Inbox::default();
/// carriers.fill(Chunk::new(Rows::from_iter([(("UA", "United"), Timestamp::MIN)])));
/// join.process(Ordinal::SECOND, &mut carriers, &mut outbox)?;
/// assert!(join.on_edge_done(Ordinal::SECOND, &mut outbox)?.done);
///
/// let mut flights = Inbox::default();
/// flights.fill(Chunk::new(Rows::from_iter([(("UA", 15u32), Timestamp::MIN), (("XX", 16), Timestamp::MIN)])));
/// join.process(Ordinal::FIRST, &mut flights, &mut outbox)?;
/// assert_eq!(outbox.lane::<(&str, u32)>(Ordinal::FIRST)?.rows().values(), [("United", 15)]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct HashJoinP<T, K, V, U, PK, BK, J> {
    logic: Arc<HashJoinLogic<PK, BK, J>>,
    table: BuildTable<K, V>,
    /// True if the table is complete. Not checkpointed: the end of the build input is delivered
    /// again.
    built: bool,
    is_keyed: bool,
    /// The serializer of the table. `None` if the table is not checkpointed.
    kept: Option<TableCodec<V>>,
    backlog: Backlog<U>,
    records: PhantomData<fn(T)>,
}

impl<T, K, V, U, PK, BK, J> HashJoinP<T, K, V, U, PK, BK, J>
where
    K: Key,
    PK: Fn(&T) -> K,
    BK: Fn(&V) -> K,
    J: Fn(T, Timestamp, &[V], &mut Output<'_, U>),
{
    /// The input of the stream.
    pub const PROBE: Ordinal = Ordinal::FIRST;
    /// The input of the table.
    pub const BUILD: Ordinal = Ordinal::SECOND;

    /// Creates a join with `logic`, which instances share.
    pub fn new(logic: Arc<HashJoinLogic<PK, BK, J>>) -> Self {
        HashJoinP {
            logic,
            table: BuildTable::default(),
            built: false,
            is_keyed: false,
            kept: None,
            backlog: Backlog::default(),
            records: PhantomData,
        }
    }
}

impl<T, K, V, U, PK, BK, J> HashJoinP<T, K, V, U, PK, BK, J> {
    /// Returns the table, complete after the end of the build input.
    pub fn table(&self) -> &BuildTable<K, V> {
        &self.table
    }

    /// Declares that both sides are partitioned by key, so that each instance has a share of the
    /// table. Otherwise each instance has the whole table.
    pub fn keyed(mut self) -> Self {
        self.is_keyed = true;
        self
    }

    /// Sets the serializer of the table's values, so that the table is checkpointed. Keys are not
    /// written: a restore computes them from the values.
    ///
    /// All values of a key are written at once.
    pub fn with_codec(mut self, values: Arc<dyn StateCodec<V>>) -> Self {
        self.kept = Some(TableCodec::new(values));
        self
    }
}

impl<T, K, V, U, PK, BK, J> HashJoinP<T, K, V, U, PK, BK, J>
where
    T: Send + 'static,
    K: Key,
    V: Send + 'static,
    U: Send + 'static,
    PK: Fn(&T) -> K,
    BK: Fn(&V) -> K,
    J: Fn(T, Timestamp, &[V], &mut Output<'_, U>),
{
    fn build(&mut self, inbox: &mut Inbox) -> Result<()> {
        let mut guard = RecordGuard::new();
        for (value, _) in inbox.rows::<V>()?.drain_front(usize::MAX) {
            let key = (self.logic.build_key)(&value);
            self.table.insert_kept(key, value, self.kept.as_ref());
            guard.advance();
        }
        Ok(())
    }

    fn probe(&mut self, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !self.built {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "a hash join got records of its stream before its table was complete",
            )
            .hint("give the edge of the table, input 1, the priority `Priority::FIRST`"));
        }
        let HashJoinP {
            logic,
            table,
            backlog,
            ..
        } = self;
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        if !output.is_full() {
            take_until(inbox.rows::<T>()?, |record, time| {
                let matches = table.get(&(logic.probe_key)(&record));
                (logic.join)(record, time, matches, &mut output);
                break_if(output.is_full())
            });
        }
        backlog.wake_if_waiting(outbox);
        Ok(())
    }
}

impl<T, K, V, U, PK, BK, J> Processor for HashJoinP<T, K, V, U, PK, BK, J>
where
    T: Send + 'static,
    K: Key,
    V: Send + 'static,
    U: Send + 'static,
    PK: Fn(&T) -> K + Send + Sync + 'static,
    BK: Fn(&V) -> K + Send + Sync + 'static,
    J: Fn(T, Timestamp, &[V], &mut Output<'_, U>) + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        if let Some(kept) = &mut self.kept {
            kept.set(context.instance, self.is_keyed);
        }
        if context.guarantee.keeps_state() {
            self.table.keep_track();
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if input == Self::BUILD {
            self.build(inbox)
        } else {
            let position = inbox.position();
            self.probe(inbox, outbox)
                .map_err(|error| error.at_record(input.index(), position))
        }
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.backlog.settle(outbox, Ordinal::FIRST)?;
        if progress.done {
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.backlog.settle(outbox, Ordinal::FIRST)
    }

    fn on_edge_done(&mut self, input: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.built |= input == Self::BUILD;
        self.backlog.settle(outbox, Ordinal::FIRST)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.backlog.settle(outbox, Ordinal::FIRST)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.backlog.settle(outbox, Ordinal::FIRST).map(drop)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        match self.kept {
            Some(_) => None,
            None => Some("its table, which has no serializer"),
        }
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, K, V, U, PK, BK, J> Checkpointed for HashJoinP<T, K, V, U, PK, BK, J>
where
    T: Send + 'static,
    K: Key,
    V: Send + 'static,
    U: Send + 'static,
    PK: Fn(&T) -> K + Send + Sync + 'static,
    BK: Fn(&V) -> K + Send + Sync + 'static,
    J: Fn(T, Timestamp, &[V], &mut Output<'_, U>) + Send + Sync + 'static,
{
    fn states(&mut self) -> Vec<StateShape> {
        self.kept.iter().map(TableCodec::shape).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.table.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.table.write_snapshot(writer, self.kept.as_ref())
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.table.commit(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.table.abort(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &self.kept {
                Some(kept) if entry.state == TABLE => {
                    self.table.restore(&entry, kept, &self.logic.build_key)?;
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        self.table = before.table;
        true
    }
}

impl<T, K: Key, V, U, PK, BK, J> fmt::Debug for HashJoinP<T, K, V, U, PK, BK, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashJoinP")
            .field("table", &self.table)
            .field("built", &self.built)
            .finish_non_exhaustive()
    }
}

/// Emits `combine(record, value)` for each match. Records without a match are dropped.
#[expect(
    clippy::type_complexity,
    reason = "an opaque type can't be given a name"
)]
pub fn inner_hash_join<T, V, U, PK, BK, F>(
    probe_key: PK,
    build_key: BK,
    combine: F,
) -> HashJoinLogic<PK, BK, impl Fn(T, Timestamp, &[V], &mut Output<'_, U>) + Send + Sync>
where
    F: Fn(&T, &V) -> U + Send + Sync,
{
    let join = move |record: T, time: Timestamp, matches: &[V], output: &mut Output<'_, U>| {
        matches
            .iter()
            .for_each(|value| output.emit(combine(&record, value), time));
    };
    HashJoinLogic {
        probe_key,
        build_key,
        join,
    }
}

/// Emits `combine(record, Some(value))` for each match, and `combine(record, None)` for a record
/// without one.
#[expect(
    clippy::type_complexity,
    reason = "an opaque type can't be given a name"
)]
pub fn outer_hash_join<T, V, U, PK, BK, F>(
    probe_key: PK,
    build_key: BK,
    combine: F,
) -> HashJoinLogic<PK, BK, impl Fn(T, Timestamp, &[V], &mut Output<'_, U>) + Send + Sync>
where
    F: Fn(&T, Option<&V>) -> U + Send + Sync,
{
    let join = move |record: T, time: Timestamp, matches: &[V], output: &mut Output<'_, U>| {
        if matches.is_empty() {
            output.emit(combine(&record, None), time);
        }
        matches
            .iter()
            .for_each(|value| output.emit(combine(&record, Some(value)), time));
    };
    HashJoinLogic {
        probe_key,
        build_key,
        join,
    }
}

/// Emits `combine(record, matches)` once per record.
#[expect(
    clippy::type_complexity,
    reason = "an opaque type can't be given a name"
)]
pub fn enrich<T, V, U, PK, BK, F>(
    probe_key: PK,
    build_key: BK,
    combine: F,
) -> HashJoinLogic<PK, BK, impl Fn(T, Timestamp, &[V], &mut Output<'_, U>) + Send + Sync>
where
    F: Fn(T, &[V]) -> U + Send + Sync,
{
    let join = move |record: T, time: Timestamp, matches: &[V], output: &mut Output<'_, U>| {
        output.emit(combine(record, matches), time);
    };
    HashJoinLogic {
        probe_key,
        build_key,
        join,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, LaneOutput, at, untimed};
    use proptest::prelude::*;

    type Pair = (u8, u32);

    fn key(record: &Pair) -> u8 {
        record.0
    }

    fn drive_table(drive: Drive, table: &[Pair], stream: &[Pair]) -> Drive {
        drive
            .records_on(Ordinal::SECOND, untimed(table.iter().copied()))
            .edge_done(Ordinal::SECOND)
            .records(
                stream
                    .iter()
                    .map(|record| (*record, at(i64::from(record.1)))),
            )
    }

    #[test]
    fn the_stream_before_the_table_is_an_error_that_says_what_to_do() {
        let mut join = HashJoinP::new(Arc::new(enrich(key, key, |record: Pair, _: &[Pair]| {
            record
        })));
        let error = Drive::default()
            .records(untimed([(1u8, 1u32)]))
            .try_run::<Pair>(&mut join)
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.to_string().contains("Priority::FIRST"), "{error}");
    }

    #[test]
    fn many_matches_come_out_before_the_watermark() {
        Drive::every_schedule(|drive| {
            let logic = inner_hash_join(key, key, |left: &Pair, right: &Pair| left.1 + right.1);
            let table: Vec<_> = (0..40).map(|n| (1, n)).collect();
            let drive = drive_table(drive, &table, &[(1, 100)]).watermark(at(100));
            let seen = drive.run::<u32>(&mut HashJoinP::new(Arc::new(logic)));
            let mut expected: Vec<_> = (0..40)
                .map(|n| LaneOutput::Record(100 + n, at(100)))
                .collect();
            expected.push(LaneOutput::Watermark(at(100)));
            assert_eq!(seen.events(), expected);
        });
    }

    fn pairs() -> impl Strategy<Value = Vec<Pair>> {
        prop::collection::vec((0u8..6, 0u32..100), 0..40)
    }

    proptest! {
        #[test]
        fn all_variants_agree_with_nested_loops(table in pairs(), stream in pairs(), room in 1usize..9) {
            let (mut inner, mut left, mut all) = (Vec::new(), Vec::new(), Vec::new());
            for record in &stream {
                let matches: Vec<_> = table.iter().copied().filter(|value| value.0 == record.0).collect();
                inner.extend(matches.iter().map(|value| (*record, *value)));
                left.extend(matches.iter().map(|value| (*record, Some(*value))));
                if matches.is_empty() {
                    left.push((*record, None));
                }
                all.push((*record, matches));
            }
            let drive = drive_table(Drive::with_room(room), &table, &stream);
            let logic = Arc::new(inner_hash_join(key, key, |left: &Pair, right: &Pair| (*left, *right)));
            prop_assert_eq!(drive.clone().run::<(Pair, Pair)>(&mut HashJoinP::new(logic)).values(), inner);
            let logic = Arc::new(outer_hash_join(key, key, |left: &Pair, right: Option<&Pair>| (*left, right.copied())));
            prop_assert_eq!(drive.clone().run::<(Pair, Option<Pair>)>(&mut HashJoinP::new(logic)).values(), left);
            let logic = Arc::new(enrich(key, key, |left: Pair, right: &[Pair]| (left, right.to_vec())));
            prop_assert_eq!(drive.run::<(Pair, Vec<Pair>)>(&mut HashJoinP::new(logic)).values(), all);
        }
    }
}
