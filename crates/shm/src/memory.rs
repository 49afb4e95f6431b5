//! The memory of a ring: a sealed memfd, mapped by all processes.
//!
//! This file and `copy` are the only ones with unsafe code. They offer the words of the
//! [layout](crate::layout) as atomics, and checked copies of the slots.
//!
//! # Why this is sound
//!
//! * **The mapping stays.** It is as long as the layout says, because the size of the file was
//!   checked, and its seals forbid to change the size. So no access faults, and every reference
//!   lives as long as the [`Memory`].
//! * **All accesses are atomic**, or copies that behave like atomic accesses (see `copy`). Other
//!   processes can therefore change any byte at any time without a data race.
//! * **No value is trusted.** Every bit pattern is a valid integer. Offsets of words come from this
//!   crate's constants, from numbers of producers below 64 and from masked positions. Ranges of
//!   bytes are checked here on each access.
//! * **Only this file has the address**, so this process accesses the memory in no other way. A
//!   child process does not inherit the mapping.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::thread::futex;

use crate::copy::{copy_in, copy_out};
use crate::layout::{self, Position, RingLayout, UNIT};
use crate::sync::{AtomicU32, AtomicU64, Futex, Ordering, is_within};

/// The seals of a ring's memory: its size never changes.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The owner of the bytes.
#[derive(Debug)]
enum Owner {
    Mapped(OwnedFd),
    /// For tests in one process, above all under Miri, which cannot map files.
    #[cfg(test)]
    Heap(std::alloc::Layout),
}

/// The mapped memory of a ring.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    geometry: RingLayout,
    owner: Owner,
}

// SAFETY: the address belongs to this value alone, and unmapping works on every thread.
unsafe impl Send for Memory {}

// SAFETY: all accesses through a shared reference are atomic, or behave like atomic ones.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates the memory of a ring whose head and tail are at `start`.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system has too little memory or too few file handles.
    pub(crate) fn create(geometry: RingLayout, start: Position) -> Result<Self> {
        let create = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("ardea-ring", flags)?;
            // Allocated now: a lack of memory is an error here, and not a signal on an access.
            fallocate(&file, FallocateFlags::empty(), 0, geometry.bytes() as u64)?;
            fcntl_add_seals(&file, SEALS)?;
            Self::map_file(file, geometry)
        };
        let memory = create().map_err(|error: rustix::io::Errno| {
            let what = format!("cannot create a ring of {} bytes", geometry.bytes());
            Error::new(ErrorCode::LimitReached, what)
                .because(error)
                .hint("check free memory, ulimit -n and ulimit -v")
        })?;
        memory.start_at(start);
        Ok(memory)
    }

    /// Maps the memory of a ring that another process has created.
    ///
    /// # Errors
    /// [`ErrorCode::BadMessage`] if the file is not sealed or has another size;
    /// [`ErrorCode::LimitReached`] if it cannot be mapped.
    pub(crate) fn open(file: OwnedFd, geometry: RingLayout) -> Result<Self> {
        let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        let is_whole = fstat(&file).is_ok_and(|stat| stat.st_size == geometry.bytes() as i64);
        if !is_sealed || !is_whole {
            let what = "cannot use the memory of a ring: its size can change or is wrong";
            return Err(Error::new(ErrorCode::BadMessage, what)
                .hint("is the other process of the same version?"));
        }
        Self::map_file(file, geometry).map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot map the memory of a ring")
                .because(error)
                .hint("check free memory and ulimit -v")
        })
    }

    fn map_file(file: OwnedFd, geometry: RingLayout) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let length = geometry.bytes();
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, &file, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        // A child would be a producer that the consumer does not know.
        // SAFETY: the range was mapped just now; the advice concerns children only.
        unsafe { madvise(base.as_ptr().cast(), length, Advice::LinuxDontFork)? };
        Ok(Memory {
            base,
            geometry,
            owner: Owner::Mapped(file),
        })
    }

    /// Creates a ring's memory for the threads of this process.
    #[cfg(test)]
    pub(crate) fn private(geometry: RingLayout, start: Position) -> Self {
        let layout = std::alloc::Layout::from_size_align(geometry.bytes(), 4096).unwrap();
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
        let owner = Owner::Heap(layout);
        let memory = Memory {
            base,
            geometry,
            owner,
        };
        memory.start_at(start);
        memory
    }

    fn start_at(&self, start: Position) {
        let producer = u16::MAX;
        let tail = layout::Tail {
            position: start,
            producer,
        };
        self.tail().store(tail.word(), Ordering::Relaxed);
        self.head().store(start.get(), Ordering::Release);
    }

    /// Returns the file, to hand it to a producer. `None` for a ring in private memory.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.owner {
            Owner::Mapped(file) => Some(file.as_fd()),
            #[cfg(test)]
            Owner::Heap(_) => None,
        }
    }

    pub(crate) fn geometry(&self) -> RingLayout {
        self.geometry
    }

    /// Returns the word at `offset`, which must be a multiple of 8 below the slots.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.geometry.slots());
        // SAFETY: the offset is inside the mapping and aligned. The mapping lives as long as
        // `self`. All accesses to it are atomic.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// Returns the half word at `offset`, which must be a multiple of 4 below the slots.
    #[inline]
    fn half_word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= self.geometry.slots());
        // SAFETY: as in `word`.
        unsafe { self.base.add(offset).cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    pub(crate) fn tail(&self) -> &AtomicU64 {
        self.word(layout::TAIL)
    }

    #[inline]
    pub(crate) fn head(&self) -> &AtomicU64 {
        self.word(layout::HEAD)
    }

    #[inline]
    pub(crate) fn sleeping(&self) -> &AtomicU32 {
        self.half_word(layout::SLEEPING)
    }

    #[inline]
    pub(crate) fn closures(&self) -> &AtomicU32 {
        self.half_word(layout::CLOSURES)
    }

    #[inline]
    pub(crate) fn consumer_gone(&self) -> &AtomicU32 {
        self.half_word(layout::CONSUMER_GONE)
    }

    #[inline]
    pub(crate) fn waiting(&self) -> &AtomicU32 {
        self.half_word(layout::WAITING)
    }

    /// Returns the claim of a producer below [`layout::MAX_PRODUCERS`].
    #[inline]
    pub(crate) fn claim(&self, producer: u8) -> &AtomicU64 {
        self.word(layout::ENTRIES + usize::from(producer) * layout::ENTRY)
    }

    /// Returns the flag that a producer below [`layout::MAX_PRODUCERS`] has closed.
    #[inline]
    pub(crate) fn closed(&self, producer: u8) -> &AtomicU32 {
        self.half_word(layout::ENTRIES + usize::from(producer) * layout::ENTRY + layout::CLOSED)
    }

    #[inline]
    pub(crate) fn mark(&self, position: Position) -> &AtomicU64 {
        self.word(layout::MARKS + 8 * self.geometry.index(position) as usize)
    }

    #[inline]
    pub(crate) fn futex(&self, futex: Futex) -> &AtomicU32 {
        self.half_word(match futex {
            Futex::Arrivals => layout::ARRIVALS,
            Futex::Releases => layout::RELEASES,
        })
    }

    /// Sleeps until the futex is woken, unless it has another value than `value`. May return early.
    pub(crate) fn sleep(&self, futex: Futex, value: u32, timeout: Option<Duration>) {
        #[cfg(miri)]
        {
            let _ = (futex, value, timeout);
            std::thread::yield_now();
        }
        #[cfg(not(miri))]
        {
            // A timeout beyond the range is as good as none.
            let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
            let word = self.futex(futex);
            // An interruption, a timeout and a changed value all end the sleep.
            let _ = futex::wait(word, futex::Flags::empty(), value, timeout.as_ref());
        }
    }

    /// Wakes all that sleep on the futex.
    pub(crate) fn wake(&self, futex: Futex) {
        self.futex(futex).fetch_add(1, Ordering::AcqRel);
        #[cfg(not(miri))]
        {
            // It fails only for an address that is no futex.
            let _ = futex::wake(self.futex(futex), futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Returns the address of byte `at` of the slots, after a check of the range.
    #[inline]
    fn slot_bytes(&self, at: usize, length: usize) -> *mut u8 {
        assert!(
            is_within(self.geometry, at, length),
            "bytes {at}+{length} are outside the ring"
        );
        // SAFETY: the range is inside the mapping.
        unsafe { self.base.add(self.geometry.slots() + at).as_ptr() }
    }

    /// Copies into the slot at `position`, from byte `at` of it.
    #[inline]
    pub(crate) fn write(&self, position: Position, at: usize, bytes: &[u8]) {
        let at = UNIT * self.geometry.index(position) as usize + at;
        // SAFETY: the range was checked; all accesses to it are atomic or of `copy`.
        unsafe { copy_in(bytes, self.slot_bytes(at, bytes.len())) }
    }

    /// Copies out of the slot at `position`, from byte `at` of it.
    #[inline]
    pub(crate) fn read(&self, position: Position, at: usize, bytes: &mut [u8]) {
        let at = UNIT * self.geometry.index(position) as usize + at;
        // SAFETY: as in `write`.
        unsafe { copy_out(self.slot_bytes(at, bytes.len()), bytes) }
    }

    /// Returns bytes of the slot at `position` where they are.
    #[inline]
    pub(crate) fn bytes(&self, position: Position, at: usize, length: usize) -> &[AtomicU8] {
        let at = UNIT * self.geometry.index(position) as usize + at;
        let address = self.slot_bytes(at, length).cast::<AtomicU8>();
        // SAFETY: the range was checked and lives as long as `self`; all accesses are atomic.
        unsafe { std::slice::from_raw_parts(address, length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let base = self.base.as_ptr();
        match self.owner {
            // SAFETY: this value has mapped the range, and no reference outlives it. An error
            // would only leave it mapped.
            Owner::Mapped(_) => unsafe {
                let _ = munmap(base.cast(), self.geometry.bytes());
            },
            #[cfg(test)]
            // SAFETY: this value has allocated the range with this layout.
            Owner::Heap(layout) => unsafe { std::alloc::dealloc(base, layout) },
        }
    }
}
