//! What the packs under way know of keys, by the keys' slots.
//!
//! Where a key comes again in a pack, its number there is enough. Closed slices name keys by slots, and what is noted lies by these: so nothing is looked up, neither the key nor the
//! partition that it belongs to. For open slices the slot is.

use ardea_core::Integer;

/// Of so many slots that is known, which takes 24 MiB. Where there are more keys, few come again before a pack is full.
const MOST_SLOTS: usize = 1 << 20;

/// Numbers a pack among all, so that what was noted of an earlier one counts no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PackSerial(u64);

impl PackSerial {
    pub(super) fn next(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// The magnitude of the accumulator that stands last behind it.
    pub(super) magnitude: u64,
    /// The pack that it stands in.
    pub(super) pack: PackSerial,
    /// Its number there.
    pub(super) number: u32,
    /// The partition that it belongs to; none of them if that is not known.
    partition: u16,
    /// The kind of its accumulators in the pack.
    pub(super) kind: u8,
}

impl Noted {
    const NOTHING: Noted = Noted {
        magnitude: 0,
        pack: PackSerial(0),
        number: 0,
        partition: u16::MAX,
        kind: 0,
    };

    /// A key stands in this pack under that number, before an accumulator of this kind, which may be an integer.
    pub(super) fn stands(
        &mut self,
        (pack, number): (PackSerial, u32),
        kind: u8,
        acc: Option<Integer>,
    ) {
        (self.pack, self.number, self.kind) = (pack, number, kind);
        self.magnitude = acc.map_or(0, Integer::magnitude);
    }
}

/// What is known of all keys.
#[derive(Debug, Default)]
pub(super) struct PackKeys(Vec<Noted>);

impl PackKeys {
    /// There are so many slots.
    pub(super) fn grow(&mut self, slots: usize) {
        let wanted = slots.min(MOST_SLOTS);
        if self.0.len() < wanted {
            self.0.resize(wanted, Noted::NOTHING);
        }
    }

    /// The slot's key is another one from now on.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(noted) = self.0.get_mut(slot as usize) {
            *noted = Noted::NOTHING;
        }
    }

    /// What is known of the key at this slot, if anything can be.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Noted> {
        self.0.get_mut(slot as usize)
    }

    /// The partition of the key at this slot, which is `partition` if it is not known yet.
    #[inline]
    pub(super) fn partition(&mut self, slot: u32, partition: impl FnOnce() -> u16) -> u16 {
        let Some(noted) = self.at(slot) else {
            return partition();
        };
        if noted.partition == Noted::NOTHING.partition {
            noted.partition = partition();
        }
        noted.partition
    }
}
