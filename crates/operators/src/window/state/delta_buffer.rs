//! The buffer of a partition's pack.

use super::delta_format::{Group, SMALL_BYTES, put_small};
use super::delta_keys::PackSerial;

/// The approximate maximum size of a pack in bytes. A buffer of this size is held per partition
/// while a snapshot is written.
pub(super) const PACK_BYTES: usize = 16 * 1024;

/// The number of bytes collected per partition before they are appended to its pack. Keys arrive in
/// no order of partitions: the ends of a thousand packs do not fit into the caches near a core,
/// these buffers do.
const NEAR_BYTES: usize = 190;

/// A pack in progress.
#[repr(align(64))]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    /// The serial number of the pack.
    pub(super) serial: PackSerial,
    /// The number of keys in the pack.
    pub(super) keys: u32,
    /// The table and slice of the last group.
    pub(super) group: Option<Group>,
    /// The number of packs written.
    pub(super) written: u32,
    pub(super) is_used: bool,
    /// The number of bytes in `near` that follow `bytes`.
    is_near: u8,
    near: [u8; NEAR_BYTES],
}

/// A whole number of cache lines.
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

    /// Returns the position of the next small entry.
    #[inline]
    fn room_for_small(&mut self) -> Option<&mut [u8; SMALL_BYTES]> {
        if usize::from(self.is_near) + SMALL_BYTES > NEAR_BYTES {
            self.bring_together();
        }
        let near = self.near.get_mut(usize::from(self.is_near)..)?;
        near.first_chunk_mut()
    }

    /// Adds an entry of a key that is already in the pack. Returns false if that is not possible.
    #[inline]
    pub(super) fn add_small(&mut self, number: u32, magnitudes: (u64, u64)) -> bool {
        let Some(near) = self.room_for_small() else {
            return false;
        };
        let bytes = put_small(near, number, magnitudes);
        self.is_near += bytes as u8;
        true
    }

    /// Reads the memory needed to append an entry, which loads it into the cache.
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

    /// Resets the buffer for the next pack, and limits the retained memory.
    pub(super) fn empty(&mut self, next: PackSerial) {
        (self.serial, self.keys) = (next, 0);
        (self.is_near, self.group) = (0, None);
        match self.bytes.capacity() > 4 * PACK_BYTES {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
    }
}
