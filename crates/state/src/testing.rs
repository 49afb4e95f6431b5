//! Codecs and an in-memory disk for tests.

mod codecs;
mod memory_disk;

pub use codecs::{EightBytes, EvenIntegers};
pub use memory_disk::MemoryDisk;
