//! The pack of a partition, while it is being made.

use super::pack_form::{Group, SMALL_BYTES, put_small};
use super::pack_keys::PackSerial;

/// About how many bytes a pack has at the most: so much of each partition is held while a cut is written.
pub(super) const PACK_BYTES: usize = 16 * 1024;

/// How many bytes of each partition gather before they go to its pack. Keys come in no order of their partitions: packs themselves lie so that
/// a thousand ends of them have no room in the caches near a core, these do.
const NEAR_BYTES: usize = 190;

/// A pack that is being made.
#[repr(align(64))]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    /// The pack that it is to be.
    pub(super) serial: PackSerial,
    /// How many keys stand in it.
    pub(super) keys: u32,
    /// What the last group is of.
    pub(super) group: Option<Group>,
    /// How many packs have been written.
    pub(super) written: u32,
    pub(super) is_used: bool,
    /// How many of the bytes that follow belong behind the others.
    is_near: u8,
    near: [u8; NEAR_BYTES],
}

/// It takes whole lines of a processor's cache.
const _: () = assert!(size_of::<Buffer>() == 256);

impl Buffer {
    pub(super) fn new(serial: PackSerial) -> Self {
        Buffer {
            bytes: Vec::new(),
            serial,
            keys: 0,
            group: None,
            written: 0,
            is_used: false,
            is_near: 0,
            near: [0; NEAR_BYTES],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() + usize::from(self.is_near)
    }

    /// Where the bytes of a small entry go.
    #[inline]
    fn room_for_small(&mut self) -> Option<&mut [u8; SMALL_BYTES]> {
        if usize::from(self.is_near) + SMALL_BYTES > NEAR_BYTES {
            self.bring_together();
        }
        let near = self.near.get_mut(usize::from(self.is_near)..)?;
        near.first_chunk_mut()
    }

    /// Adds an entry of a key that stands in the pack; whether it could.
    #[inline]
    pub(super) fn add_small(&mut self, number: u32, magnitudes: (u64, u64)) -> bool {
        let Some(near) = self.room_for_small() else {
            return false;
        };
        let bytes = put_small(near, number, magnitudes);
        self.is_near += bytes as u8;
        true
    }

    /// Reads what is needed to append an entry, and so has its memory come.
    pub(super) fn touch(&self) -> u8 {
        let end = self.near.get(usize::from(self.is_near));
        self.is_near ^ end.copied().unwrap_or_default()
    }

    pub(super) fn append(&mut self, entry: &[u8]) {
        if usize::from(self.is_near) + entry.len() > NEAR_BYTES {
            self.bring_together();
        }
        let near = usize::from(self.is_near);
        match self.near.get_mut(near..near + entry.len()) {
            Some(place) => {
                place.copy_from_slice(entry);
                self.is_near += entry.len() as u8;
            }
            None => self.bytes.extend_from_slice(entry),
        }
    }

    pub(super) fn bring_together(&mut self) {
        let near = usize::from(std::mem::take(&mut self.is_near));
        self.bytes.extend_from_slice(&self.near[..near]);
    }

    /// A pack is written, or void, and this one comes next. Much memory is not kept for it.
    pub(super) fn empty(&mut self, next: PackSerial) {
        (self.serial, self.keys) = (next, 0);
        (self.is_near, self.group) = (0, None);
        match self.bytes.capacity() > 4 * PACK_BYTES {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
    }
}
