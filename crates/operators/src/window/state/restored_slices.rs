//! Slices that are being restored. Packs arrive in any order, and also contain entries of slices
//! dropped since then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ardea_core::{Key, PARTITION_COUNT, PartitionId, RestoredEntry, Result, Watermark};
use ardea_state::{ChangeStamps, StateCodecs, duplicate_entry, truncated_entry};

use super::SliceId;
use super::delta_format::{place_of, unpack};
use super::delta_index::{DeltaIndex, RowKeys};
use super::open_slices::SliceTable;
use super::partition_watermarks::PartitionWatermarks;
use crate::KeyTable;
use crate::window::spec::{ALL_SLICES, Slice, WindowSpec};

/// Restored tables, until they are laid out.
pub(crate) struct RestoredSlices<K, A> {
    tables: BTreeMap<SliceId, Table<K, A>>,
    /// The rows (the packs of one snapshot each) in the order of arrival.
    rows: Vec<Row>,
    by_sequence: BTreeMap<u64, u32>,
    /// The tables that remain after the restore. A table may have the same number as a pending one
    /// of another instance.
    laid_out: BTreeMap<(SliceId, bool), Table<K, A>>,
    /// The generations of rows in the order of arrival.
    generations: Vec<u32>,
}

struct Row {
    sequence: u64,
    keys: RowKeys,
    entries: u64,
}

struct Table<K, A> {
    keys: KeyTable<K, A>,
    /// The origins of the keys, by position.
    from: Vec<Origin>,
}

#[derive(Clone, Copy)]
struct Origin {
    row: u32,
    sequence: u64,
    is_pending: bool,
}

impl<K, A> Default for Table<K, A> {
    fn default() -> Self {
        Table {
            keys: KeyTable::default(),
            from: Vec::new(),
        }
    }
}

impl<K, A> Default for RestoredSlices<K, A> {
    fn default() -> Self {
        RestoredSlices {
            tables: BTreeMap::new(),
            rows: Vec::new(),
            by_sequence: BTreeMap::new(),
            laid_out: BTreeMap::new(),
            generations: Vec::new(),
        }
    }
}

impl<K: Key, A> RestoredSlices<K, A> {
    /// Reads an entry of the state with this name.
    ///
    /// # Errors
    /// The entry cannot be read, or a part of it is a duplicate.
    pub(crate) fn take(
        &mut self,
        (name, kept): (&str, &StateCodecs<K, A>),
        entry: &RestoredEntry<'_>,
    ) -> Result<()> {
        let Some((sequence, number)) = place_of(entry)? else {
            return self.take_old((name, kept), entry);
        };
        let row = self.row(sequence, || RowKeys::Packs(Vec::new()));
        let Row { keys, entries, .. } = &mut self.rows[row as usize];
        let (RowKeys::Packs(counts), Some(partition)) = (keys, entry.partition) else {
            return Err(truncated_entry());
        };
        let partition = partition.index() as u16;
        match counts.iter_mut().rfind(|(of, _)| *of == partition) {
            Some((_, count)) => *count = (*count).max(number.saturating_add(1)),
            None => counts.push((partition, number.saturating_add(1))),
        }
        let tables = &mut self.tables;
        unpack(kept, entry, |(id, is_pending), key, acc| {
            *entries += 1;
            let from = Origin {
                row,
                sequence,
                is_pending,
            };
            tables.entry(id).or_default().put((key, acc), from)
        })
    }

    /// Reads an entry of a single key in the oldest format. Its key is the canonical bytes, the
    /// slice and the table number; its value is the key, the accumulator and the pending flag.
    fn take_old(
        &mut self,
        (name, kept): (&str, &StateCodecs<K, A>),
        entry: &RestoredEntry<'_>,
    ) -> Result<()> {
        let (key, mut rest) = kept.read_as(name, entry)?;
        let acc = kept.take_state(&mut rest)?;
        let is_pending = rest.array()? != [0];
        let id = id_of(*entry.key.last_chunk().ok_or_else(truncated_entry)?);
        let row = self.row(0, || RowKeys::Entries(Vec::new()));
        let of = &mut self.rows[row as usize];
        let RowKeys::Entries(keys) = &mut of.keys else {
            return Err(truncated_entry());
        };
        keys.push((entry.partition, entry.key.into()));
        of.entries += 1;
        let from = Origin {
            row,
            sequence: 0,
            is_pending,
        };
        self.tables.entry(id).or_default().put((key, acc), from)
    }

    fn row(&mut self, sequence: u64, keys: impl FnOnce() -> RowKeys) -> u32 {
        let next = self.rows.len() as u32;
        let row = *self.by_sequence.entry(sequence).or_insert(next);
        if row == next {
            let (keys, entries) = (keys(), 0);
            self.rows.push(Row {
                sequence,
                keys,
                entries,
            });
        }
        row
    }

    /// Completes the restore: drops entries that no window needs. Returns the index for further
    /// snapshots.
    pub(crate) fn lay_out(&mut self, spec: &WindowSpec, told: &PartitionWatermarks) -> DeltaIndex {
        let needed = Needed::new(spec, told);
        for (id, table) in std::mem::take(&mut self.tables) {
            self.lay_out_table(id, table, &needed);
        }
        self.generations = vec![0; self.rows.len()];
        for (generation, row) in (1..).zip(self.by_sequence.values()) {
            self.generations[*row as usize] = generation;
        }
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable_by_key(|row| row.sequence);
        self.by_sequence.clear();
        DeltaIndex::restored(
            rows.into_iter()
                .map(|row| (row.sequence, row.keys, row.entries)),
        )
    }

    fn lay_out_table(&mut self, id: SliceId, mut table: Table<K, A>, needed: &Needed) {
        let is_pending = table.from.first().is_some_and(|from| from.is_pending);
        let is_alike = table.from.iter().all(|from| from.is_pending == is_pending);
        if id.0 < needed.least {
            return;
        }
        if id.0 >= needed.most && is_alike {
            self.laid_out.insert((id, is_pending), table);
            return;
        }
        let keys = table.keys.keys().to_vec();
        let entries = keys.into_iter().zip(table.keys.drain_values());
        for ((key, acc), from) in entries.zip(table.from) {
            if id.0 >= needed.of(&key) {
                let own = self.laid_out.entry((id, from.is_pending)).or_default();
                own.keys.get_or_insert(Cow::Owned(key), || acc);
                own.from.push(from);
            }
        }
    }

    /// Returns the slices and numbers of the restored tables, and whether they are pending.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (SliceId, bool)> {
        self.laid_out.keys().copied()
    }

    /// Removes and returns the earliest restored table, and whether it is pending.
    pub(crate) fn take_next(&mut self) -> Option<(SliceTable<K, A>, bool)> {
        let ((id, is_pending), Table { keys, from }) = self.laid_out.pop_first()?;
        let generations = from.iter().map(|from| self.generations[from.row as usize]);
        let mut table = SliceTable::new(id);
        table.stamps = ChangeStamps::changed_in(generations);
        table.keys = keys;
        Some((table, is_pending))
    }
}

impl<K: Key, A> Table<K, A> {
    /// Adds the accumulator of a key, unless a later row contained it.
    fn put(&mut self, (key, acc): (K, A), from: Origin) -> Result<()> {
        let Some(slot) = self.keys.index().find(&key) else {
            self.keys.get_or_insert(Cow::Owned(key), || acc);
            self.from.push(from);
            return Ok(());
        };
        let before = &mut self.from[slot as usize];
        if before.row == from.row {
            return Err(duplicate_entry());
        }
        if before.sequence < from.sequence {
            self.keys.values_mut()[slot as usize] = acc;
            *before = from;
        }
        Ok(())
    }
}

/// The first slice that windows still need, by partition.
struct Needed {
    least: Slice,
    most: Slice,
    /// Empty if all are equal.
    by_partition: Vec<Slice>,
}

impl Needed {
    fn new(spec: &WindowSpec, told: &PartitionWatermarks) -> Self {
        let of = |told: Watermark| match spec.first_kept(told) {
            _ if told == Watermark::NONE => Slice::MIN,
            ALL_SLICES => ALL_SLICES,
            window => spec.first_slice_of(window),
        };
        let Some(ahead) = told.ahead() else {
            let first = of(told.now());
            return Needed {
                least: first,
                most: first,
                by_partition: Vec::new(),
            };
        };
        debug_assert_eq!(ahead.len(), PARTITION_COUNT as usize);
        let by_partition = ahead.iter().map(|ahead| of((*ahead).max(told.now())));
        let by_partition: Vec<Slice> = by_partition.collect();
        Needed {
            least: by_partition.iter().copied().min().unwrap_or(Slice::MIN),
            most: by_partition.iter().copied().max().unwrap_or(Slice::MIN),
            by_partition,
        }
    }

    fn of<K: Key>(&self, key: &K) -> Slice {
        let partition = PartitionId::of(key).index() as usize;
        let own = self.by_partition.get(partition);
        own.copied().unwrap_or(self.least)
    }
}

fn id_of([s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3]: [u8; 12]) -> SliceId {
    let slice = i64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    (slice, u32::from_le_bytes([n0, n1, n2, n3]))
}
