//! The memory of a ring under the model checker: each word is one of its atomics, and each unit a
//! cell whose races it reports.

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};

use crate::layout::{Claim, Position, RingLayout, Tail, UNIT};
use crate::sync::{AtomicU32, AtomicU64, Futex};

/// A futex: the kernel compares the value and falls asleep in one step.
#[derive(Debug)]
struct ModelFutex {
    word: AtomicU32,
    lock: Mutex<()>,
    sleepers: Condvar,
}

impl ModelFutex {
    fn new() -> Self {
        ModelFutex {
            word: AtomicU32::new(0),
            lock: Mutex::new(()),
            sleepers: Condvar::new(),
        }
    }
}

/// The number of producers in a model.
const PRODUCERS: usize = 3;

/// The memory of a ring.
#[derive(Debug)]
pub(crate) struct Memory {
    geometry: RingLayout,
    tail: AtomicU64,
    head: AtomicU64,
    flags: [AtomicU32; 4],
    claims: Vec<AtomicU64>,
    closed: Vec<AtomicU32>,
    marks: Vec<AtomicU64>,
    arrivals: ModelFutex,
    releases: ModelFutex,
    units: Vec<UnsafeCell<[u8; UNIT]>>,
}

// SAFETY: the cells are accessed by the protocol, which the model checks.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn private(geometry: RingLayout, start: Position) -> Self {
        let units = 0..geometry.units();
        let producer = u16::MAX;
        let tail = Tail {
            position: start,
            producer,
        };
        Memory {
            geometry,
            tail: AtomicU64::new(tail.word()),
            head: AtomicU64::new(start.get()),
            flags: std::array::from_fn(|_| AtomicU32::new(0)),
            claims: (0..PRODUCERS)
                .map(|_| AtomicU64::new(Claim::new(start, 0).word()))
                .collect(),
            closed: (0..PRODUCERS).map(|_| AtomicU32::new(0)).collect(),
            marks: units.clone().map(|_| AtomicU64::new(0)).collect(),
            arrivals: ModelFutex::new(),
            releases: ModelFutex::new(),
            units: units.map(|_| UnsafeCell::new([0; UNIT])).collect(),
        }
    }

    pub(crate) fn geometry(&self) -> RingLayout {
        self.geometry
    }

    pub(crate) fn tail(&self) -> &AtomicU64 {
        &self.tail
    }

    pub(crate) fn head(&self) -> &AtomicU64 {
        &self.head
    }

    pub(crate) fn sleeping(&self) -> &AtomicU32 {
        &self.flags[0]
    }

    pub(crate) fn closures(&self) -> &AtomicU32 {
        &self.flags[1]
    }

    pub(crate) fn consumer_gone(&self) -> &AtomicU32 {
        &self.flags[2]
    }

    pub(crate) fn waiting(&self) -> &AtomicU32 {
        &self.flags[3]
    }

    pub(crate) fn claim(&self, producer: u8) -> &AtomicU64 {
        &self.claims[usize::from(producer)]
    }

    pub(crate) fn closed(&self, producer: u8) -> &AtomicU32 {
        &self.closed[usize::from(producer)]
    }

    pub(crate) fn mark(&self, position: Position) -> &AtomicU64 {
        &self.marks[self.geometry.index(position) as usize]
    }

    fn model_futex(&self, futex: Futex) -> &ModelFutex {
        match futex {
            Futex::Arrivals => &self.arrivals,
            Futex::Releases => &self.releases,
        }
    }

    pub(crate) fn futex(&self, futex: Futex) -> &AtomicU32 {
        &self.model_futex(futex).word
    }

    pub(crate) fn sleep(&self, futex: Futex, value: u32, _: Option<Duration>) {
        let futex = self.model_futex(futex);
        let lock = futex.lock.lock().unwrap();
        if futex.word.load(crate::sync::Ordering::Relaxed) == value {
            drop(futex.sleepers.wait(lock).unwrap());
        }
    }

    pub(crate) fn wake(&self, futex: Futex) {
        let futex = self.model_futex(futex);
        futex.word.fetch_add(1, crate::sync::Ordering::AcqRel);
        drop(futex.lock.lock().unwrap());
        futex.sleepers.notify_all();
    }

    pub(crate) fn write(&self, position: Position, at: usize, bytes: &[u8]) {
        for (offset, byte) in bytes.iter().enumerate() {
            let (unit, at) = ((at + offset) / UNIT, (at + offset) % UNIT);
            let index = self.geometry.index(position.plus(unit as u64));
            // SAFETY: loom reports accesses at the same time.
            self.units[index as usize].with_mut(|unit| unsafe { (&mut *unit)[at] = *byte });
        }
    }

    pub(crate) fn read(&self, position: Position, at: usize, bytes: &mut [u8]) {
        for (offset, byte) in bytes.iter_mut().enumerate() {
            let (unit, at) = ((at + offset) / UNIT, (at + offset) % UNIT);
            let index = self.geometry.index(position.plus(unit as u64));
            // SAFETY: loom reports accesses at the same time.
            *byte = self.units[index as usize].with(|unit| unsafe { (&*unit)[at] });
        }
    }
}
