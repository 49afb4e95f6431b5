//! Notes about keys for the packs in progress, by slot.
//!
//! A repeated key in a pack is written as its number. Closed slices refer to keys by slots, and
//! notes are indexed by slots, so that neither the key nor its partition is looked up. For open
//! slices, the slot of the key is looked up.

use ardea_core::Integer;

/// The maximum number of slots with notes, which take 24 MiB. With more keys, a key is rarely
/// repeated before a pack is full.
const MOST_SLOTS: usize = 1 << 20;

/// The serial number of a pack, so that notes of earlier packs are recognized.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PackSerial(u64);

impl PackSerial {
    pub(super) fn next(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

/// The notes about a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyMark {
    /// The magnitude of the last accumulator of the key.
    pub(super) magnitude: u64,
    /// The pack that contains the key.
    pub(super) pack: PackSerial,
    /// The number of the key in the pack.
    pub(super) number: u32,
    /// The partition of the key, or an invalid number if it is unknown.
    partition: u16,
    /// The kind of the accumulators of the key in the pack.
    pub(super) kind: u8,
}

impl KeyMark {
    const NOTHING: KeyMark = KeyMark {
        magnitude: 0,
        pack: PackSerial(0),
        number: 0,
        partition: u16::MAX,
        kind: 0,
    };

    /// Records that a key is in this pack under this number, with an accumulator of this kind,
    /// which may be an integer.
    pub(super) fn record_entry(
        &mut self,
        (pack, number): (PackSerial, u32),
        kind: u8,
        acc: Option<Integer>,
    ) {
        (self.pack, self.number, self.kind) = (pack, number, kind);
        self.magnitude = acc.map_or(0, Integer::magnitude);
    }
}

/// The notes about all keys.
#[derive(Debug, Default)]
pub(super) struct PackKeys(Vec<KeyMark>);

impl PackKeys {
    /// Sets the number of slots.
    pub(super) fn grow(&mut self, slots: usize) {
        let wanted = slots.min(MOST_SLOTS);
        if self.0.len() < wanted {
            self.0.resize(wanted, KeyMark::NOTHING);
        }
    }

    /// Removes the notes of a slot, which is going to be reused.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(noted) = self.0.get_mut(slot as usize) {
            *noted = KeyMark::NOTHING;
        }
    }

    /// Returns the notes of a slot, if it can have any.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut KeyMark> {
        self.0.get_mut(slot as usize)
    }

    /// Returns the partition of the key at a slot, which is computed by `partition` if it is
    /// unknown.
    #[inline]
    pub(super) fn partition(&mut self, slot: u32, partition: impl FnOnce() -> u16) -> u16 {
        let Some(noted) = self.at(slot) else {
            return partition();
        };
        if noted.partition == KeyMark::NOTHING.partition {
            noted.partition = partition();
        }
        noted.partition
    }
}
