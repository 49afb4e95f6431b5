//! Slices on their way back: packs come in any order, and hold what has been dropped since as well.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ardea_core::{Key, PARTITION_COUNT, PartitionId, RestoredEntry, Result, Watermark};

use super::open_slices::{SliceId, SliceTable};
use super::pack_form::{place_of, unpack};
use super::pack_ledger::{PackLedger, RowKeys};
use super::spec::{ALL_SLICES, Slice, WindowSpec};
use super::told::Told;
use crate::KeyTable;
use crate::keyed::{KeptAs, Stamps, cut_short, twice};

/// What has come back, until it is laid out.
pub(crate) struct RestoredSlices<K, A> {
    tables: BTreeMap<SliceId, Table<K, A>>,
    /// The rows of packs, in the order in which they came.
    rows: Vec<Row>,
    by_sequence: BTreeMap<u64, u32>,
    /// What is left when all has come. A table may have the number of a pending one of another instance.
    laid_out: BTreeMap<(SliceId, bool), Table<K, A>>,
    /// By the order in which rows came, their generations.
    generations: Vec<u32>,
}

struct Row {
    sequence: u64,
    keys: RowKeys,
    entries: u64,
}

struct Table<K, A> {
    keys: KeyTable<K, A>,
    /// Beside the keys, where each comes from.
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
    /// Takes an entry of the state of this name.
    ///
    /// # Errors
    /// If it can't be read, or something of it has come already.
    pub(crate) fn take(
        &mut self,
        (name, kept): (&str, &KeptAs<K, A>),
        entry: &RestoredEntry<'_>,
    ) -> Result<()> {
        let Some((sequence, number)) = place_of(entry)? else {
            return self.take_old((name, kept), entry);
        };
        let row = self.row(sequence, || RowKeys::Packs(Vec::new()));
        let Row { keys, entries, .. } = &mut self.rows[row as usize];
        let (RowKeys::Packs(counts), Some(partition)) = (keys, entry.partition) else {
            return Err(cut_short());
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

    /// Takes an entry of one key: the canonical bytes, the slice and the number of the table; the key, the accumulator, and whether it is
    /// pending.
    fn take_old(
        &mut self,
        (name, kept): (&str, &KeptAs<K, A>),
        entry: &RestoredEntry<'_>,
    ) -> Result<()> {
        let (key, mut rest) = kept.read_as(name, entry)?;
        let acc = kept.take_state(&mut rest)?;
        let is_pending = rest.array()? != [0];
        let id = id_of(*entry.key.last_chunk().ok_or_else(cut_short)?);
        let row = self.row(0, || RowKeys::Entries(Vec::new()));
        let of = &mut self.rows[row as usize];
        let RowKeys::Entries(keys) = &mut of.keys else {
            return Err(cut_short());
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

    /// Everything has come back: what no window needs any more is left out. What cuts go on with.
    pub(crate) fn lay_out(&mut self, spec: &WindowSpec, told: &Told) -> PackLedger {
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
        PackLedger::restored(
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

    /// The slices and numbers of the tables that are laid out, and whether they are pending.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (SliceId, bool)> {
        self.laid_out.keys().copied()
    }

    /// The earliest table that is laid out and was not taken yet, and whether it is pending.
    pub(crate) fn take_next(&mut self) -> Option<(SliceTable<K, A>, bool)> {
        let ((id, is_pending), Table { keys, from }) = self.laid_out.pop_first()?;
        let generations = from.iter().map(|from| self.generations[from.row as usize]);
        let mut table = SliceTable::new(id);
        table.stamps = Stamps::changed_in(generations);
        table.keys = keys;
        Some((table, is_pending))
    }
}

impl<K: Key, A> Table<K, A> {
    /// What a key has, unless that has come already from a later row.
    fn put(&mut self, (key, acc): (K, A), from: Origin) -> Result<()> {
        let Some(slot) = self.keys.index().find(&key) else {
            self.keys.get_or_insert(Cow::Owned(key), || acc);
            self.from.push(from);
            return Ok(());
        };
        let before = &mut self.from[slot as usize];
        if before.row == from.row {
            return Err(twice());
        }
        if before.sequence < from.sequence {
            self.keys.values_mut()[slot as usize] = acc;
            *before = from;
        }
        Ok(())
    }
}

/// The first slices that windows still need, by partition.
struct Needed {
    least: Slice,
    most: Slice,
    /// If they are not all the same.
    by_partition: Vec<Slice>,
}

impl Needed {
    fn new(spec: &WindowSpec, told: &Told) -> Self {
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
