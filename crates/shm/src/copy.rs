//! Copies between private memory and memory that other processes may change meanwhile.
//!
//! # Why this is sound
//!
//! Two processes that keep to the protocol never access the same bytes of a slot at the same time.
//! A faulty or hostile one may. An ordinary copy would then be a data race, which is undefined
//! behaviour. Both functions here behave like a loop of relaxed atomic accesses of one byte each.
//! Such a loop has no data race with the atomic accesses of other processes: it merely copies
//! values that are unspecified. On x86-64 the loop is one instruction, `rep movsb`, in a block of
//! assembly. The compiler cannot look into the block, so it must assume the accesses of that loop.
//! Other machines, and Miri, run the loop itself.

#[cfg(any(not(target_arch = "x86_64"), miri))]
use std::sync::atomic::{AtomicU8, Ordering};

/// Copies `length` bytes; at most one of the regions is shared with other processes.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `length` bytes, and the regions don't overlap.
/// The private region is not accessed by other threads meanwhile. This process accesses the shared
/// region by atomics or this module only.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's promise covers all bytes that the instruction accesses. The direction
    // flag is clear on entry to every block of assembly.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies bytes out of shared memory.
///
/// # Safety
///
/// `from` is valid for reads of as many bytes as `to` has. This process accesses them
/// by atomics or this module only.
#[inline]
pub(crate) unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise; `to` is private, and so does not overlap.
    unsafe {
        copy(from, to.as_mut_ptr(), to.len());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: the caller's promise; a byte is always aligned.
        *byte = unsafe { &*from.add(at).cast::<AtomicU8>() }.load(Ordering::Relaxed);
    }
}

/// Copies bytes into shared memory.
///
/// # Safety
///
/// `to` is valid for writes of as many bytes as `from` has. This process accesses them
/// by atomics or this module only.
#[inline]
pub(crate) unsafe fn copy_in(from: &[u8], to: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise; `from` is private, and so does not overlap.
    unsafe {
        copy(from.as_ptr(), to, from.len());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    for (at, byte) in from.iter().enumerate() {
        // SAFETY: the caller's promise; a byte is always aligned.
        unsafe { &*to.add(at).cast::<AtomicU8>() }.store(*byte, Ordering::Relaxed);
    }
}
