//! Batching of entries into put operations.

use std::collections::VecDeque;

use crate::protocol::{APART_BYTES, EntryBatch, MapId, Operation, When};
use ardea_core::{Key, PARTITION_COUNT, PartitionId, Result};
use bytes::Bytes;

use super::coder::Coder;

/// Maximum number of gathered entries, and approximate maximum of their bytes; enough for several
/// entries per partition.
const GATHERED: usize = 64 << 10;
const GATHERED_BYTES: usize = 8 << 20;

/// Size in bytes at which a batch is closed. Bounds the delay of other operations on the partition.
const BUNCH_BYTES: usize = 256 << 10;

/// Maximum initial capacity of a batch, in bytes.
const FIRST_BYTES: usize = 16 << 10;

/// The map into which entries are put, and their encoding.
pub(super) struct Puts<'a, K, V, F, E> {
    pub map: MapId,
    pub coder: &'a Coder<K, V>,
    /// Checks the size of an entry in bytes.
    pub fits: F,
    /// Returns the expiry of entries put now, if any.
    pub expiry: E,
}

/// Iterator that groups entries by partition into operations, which share the cost per operation. A
/// large value gets its own operation, since members store it separately.
pub(super) struct PutBatches<'a, K, V, F, E, I> {
    puts: Puts<'a, K, V, F, E>,
    entries: I,
    /// Open batches with their partitions; and, per partition, the index of its open batch plus
    /// one, 0 for none.
    open: Vec<(PartitionId, EntryBatch)>,
    places: Vec<u16>,
    /// Size of the last batch, in bytes.
    likely_bytes: usize,
    /// Complete operations.
    ready: VecDeque<(PartitionId, Operation)>,
    /// Size of the entries gathered in this round, in bytes.
    bytes: usize,
}

impl<'a, 'e, K, V, F, E, I> PutBatches<'a, K, V, F, E, I>
where
    K: Key + 'e,
    V: 'e,
    F: Fn(usize) -> Result<()>,
    E: Fn() -> Option<i64>,
    I: Iterator<Item = (&'e K, &'e V)>,
{
    pub fn new(puts: Puts<'a, K, V, F, E>, entries: I) -> Self {
        PutBatches {
            puts,
            entries,
            open: Vec::new(),
            places: vec![0; PARTITION_COUNT as usize],
            likely_bytes: 0,
            ready: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Gathers the next round of entries.
    fn gather(&mut self) -> Result<()> {
        self.bytes = 0;
        for _ in 0..GATHERED {
            let Some((key, value)) = self.entries.next() else {
                break;
            };
            self.take(key, value)?;
            if self.bytes >= GATHERED_BYTES {
                break;
            }
        }
        for at in 0..self.open.len() {
            self.close(at);
        }
        for (partition, _) in self.open.drain(..) {
            self.places[partition.index() as usize] = 0;
        }
        Ok(())
    }

    /// Returns the index of the open batch of a partition.
    fn place(&mut self, partition: PartitionId) -> usize {
        let place = &mut self.places[partition.index() as usize];
        if *place == 0 {
            self.open.push((partition, EntryBatch::default()));
            *place = self.open.len() as u16;
        }
        usize::from(*place) - 1
    }

    fn take(&mut self, key: &K, value: &V) -> Result<()> {
        let (at, coder) = (self.place(PartitionId::of(key)), self.puts.coder);
        let is_long = |value: &Bytes| value.len() >= APART_BYTES;
        if coder.as_it_is(value).is_some_and(is_long) {
            let entry = coder.entry(key, value, &self.puts.fits)?;
            self.bytes += entry.0.len() + entry.1.len();
            self.put_alone(at, entry);
            return Ok(());
        }
        let (_, bunch) = &mut self.open[at];
        if bunch.is_empty() {
            *bunch = EntryBatch::with_capacity(self.likely_bytes.min(FIRST_BYTES));
        }
        let before = bunch.bytes();
        let key_bytes = bunch.write(|bytes| {
            coder.put_key(key, bytes)?;
            let key_bytes = bytes.len() - before;
            coder.put_value(value, bytes)?;
            (self.puts.fits)(bytes.len() - before)?;
            Ok(key_bytes)
        })?;
        let more = bunch.bytes() - before;
        self.bytes += more;
        if more - key_bytes >= APART_BYTES
            && let Some(entry) = bunch.take_last()
        {
            self.put_alone(at, entry);
        } else if bunch.bytes() >= BUNCH_BYTES {
            self.close(at);
        }
        Ok(())
    }

    /// Appends a single put after the batch at this index.
    fn put_alone(&mut self, at: usize, (key, value): (Bytes, Bytes)) {
        self.close(at);
        let put = Operation::Put {
            map: self.puts.map,
            key,
            value,
            expires: (self.puts.expiry)(),
            when: When::Always,
        };
        self.ready.push_back((self.open[at].0, put));
    }

    /// Closes the batch at this index and makes it an operation.
    fn close(&mut self, at: usize) {
        let (partition, bunch) = &mut self.open[at];
        let (partition, bunch) = (*partition, std::mem::take(bunch));
        if bunch.is_empty() {
            return;
        }
        self.likely_bytes = bunch.bytes();
        let put = Operation::PutAll {
            map: self.puts.map,
            pairs: bunch.finish(),
            expires: (self.puts.expiry)(),
        };
        self.ready.push_back((partition, put));
    }
}

impl<'e, K, V, F, E, I> Iterator for PutBatches<'_, K, V, F, E, I>
where
    K: Key + 'e,
    V: 'e,
    F: Fn(usize) -> Result<()>,
    E: Fn() -> Option<i64>,
    I: Iterator<Item = (&'e K, &'e V)>,
{
    type Item = Result<(PartitionId, Operation)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && let Err(error) = self.gather()
        {
            return Some(Err(error));
        }
        self.ready.pop_front().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use ardea_core::{Error, ErrorCode};
    use proptest::prelude::*;

    use super::*;
    use crate::node::raw_bytes::RawBytes;

    const MAP: MapId = MapId(1);

    type Put = Vec<(Vec<u8>, Vec<u8>)>;

    /// Returns the entries put into each partition, in order, and the number of operations.
    fn put_by<K: Key, V>(coder: &Coder<K, V>, entries: &[(K, V)]) -> (BTreeMap<u32, Put>, usize) {
        let puts = Puts {
            map: MAP,
            coder,
            fits: |_| Ok(()),
            expiry: || Some(3),
        };
        let (mut all, mut count) = (BTreeMap::<u32, Put>::new(), 0);
        for bunch in PutBatches::new(puts, entries.iter().map(|(key, value)| (key, value))) {
            let (partition, operation) = bunch.unwrap();
            let put = all.entry(partition.index()).or_default();
            count += 1;
            match operation {
                Operation::Put {
                    map: MAP,
                    key,
                    value,
                    expires: Some(3),
                    when: When::Always,
                } => {
                    assert!(value.len() >= APART_BYTES);
                    put.push((key.to_vec(), value.to_vec()));
                }
                Operation::PutAll {
                    map: MAP,
                    pairs,
                    expires: Some(3),
                } => {
                    assert!(pairs.lengths().all(|(_, value)| value < APART_BYTES));
                    assert!(pairs.cost() < BUNCH_BYTES + 2 * APART_BYTES);
                    put.extend(
                        pairs
                            .iter()
                            .map(|(key, value)| (key.to_vec(), value.to_vec())),
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        (all, count)
    }

    proptest! {
        #[test]
        fn each_entry_is_put_once_into_its_partition_in_the_order_of_those_of_one(
            entries in prop::collection::vec((0..10_u8, prop_oneof![0..100_usize, APART_BYTES - 10..APART_BYTES + 10]), 0..100),
        ) {
            let plain = |(key, length): (u8, usize)| {
                (RawBytes::from(vec![key]), RawBytes::from(vec![key ^ length as u8; length]))
            };
            let entries: Vec<(RawBytes, RawBytes)> = entries.into_iter().map(plain).collect();
            let mut wanted = BTreeMap::<u32, Put>::new();
            for (key, value) in &entries {
                let put = wanted.entry(PartitionId::of(key).index()).or_default();
                put.push((key.0.to_vec(), value.0.to_vec()));
            }
            prop_assert_eq!(put_by(&Coder::plain(), &entries).0, wanted);
        }
    }

    #[test]
    fn values_that_have_to_be_written_are_put_as_those_that_are_bytes_already() {
        let coder = Coder::<u64, Vec<u8>>::of_types().unwrap();
        let lengths = [10, APART_BYTES + 1, 20, 0, 2 * APART_BYTES];
        let entries: Vec<(u64, Vec<u8>)> =
            lengths.iter().map(|length| (7, vec![5; *length])).collect();
        let (put, operations) = put_by(&coder, &entries);
        let put = put.into_values().next().unwrap();
        assert_eq!((put.len(), operations), (5, 4));
        for ((_, written), (_, value)) in put.iter().zip(&entries) {
            assert_eq!(&coder.value(written).unwrap(), value);
        }
    }

    #[test]
    fn a_partition_that_has_much_is_not_held_up_for_long() {
        let key = RawBytes::from(vec![1]);
        let entries: Vec<_> = (0..1_000)
            .map(|_| (key.clone(), RawBytes::from(vec![7; 1_000])))
            .collect();
        let (put, operations) = put_by(&Coder::plain(), &entries);
        assert_eq!(put.into_values().map(|put| put.len()).sum::<usize>(), 1_000);
        assert_eq!(operations, 1_001_000_usize.div_ceil(BUNCH_BYTES));
    }

    #[test]
    fn no_more_is_gathered_than_is_said() {
        let value = RawBytes::from(vec![1; 1_000]);
        let entries: Vec<RawBytes> = (0..20_000_u32)
            .map(|key| RawBytes::from(key.to_le_bytes().to_vec()))
            .collect();
        let taken = Cell::new(0);
        let counted = entries.iter().map(|key| {
            taken.set(taken.get() + 1);
            (key, &value)
        });
        let (coder, fits) = (Coder::plain(), |_| Ok(()));
        let puts = Puts {
            map: MAP,
            coder: &coder,
            fits,
            expiry: || None,
        };
        let mut bunches = PutBatches::new(puts, counted);
        assert!(bunches.next().is_some());
        assert_eq!(taken.get(), GATHERED_BYTES.div_ceil(1_004));
        assert!(bunches.count() <= 3 * PARTITION_COUNT as usize);
        assert_eq!(taken.get(), 20_000);
    }

    #[test]
    fn what_can_not_be_put_ends_it() {
        let entry =
            |key: u8, length: usize| (RawBytes::from(vec![key]), RawBytes::from(vec![1; length]));
        let entries = [entry(1, 50), entry(1, 100), entry(2, 50)];
        let (coder, error) = (Coder::plain(), || Error::new(ErrorCode::LimitReached, "no"));
        let puts = Puts {
            map: MAP,
            coder: &coder,
            fits: |bytes| if bytes > 100 { Err(error()) } else { Ok(()) },
            expiry: || None,
        };
        let mut bunches = PutBatches::new(puts, entries.iter().map(|(key, value)| (key, value)));
        assert!(bunches.next().unwrap().is_err());
        let left: Vec<Operation> = bunches.map(|bunch| bunch.unwrap().1).collect();
        let kept = left.iter().map(|operation| match operation {
            Operation::PutAll { pairs, .. } => pairs.lengths().collect(),
            other => panic!("{other:?}"),
        });
        assert_eq!(kept.collect::<Vec<Vec<_>>>(), [[(1, 50)], [(1, 50)]]);
    }
}
