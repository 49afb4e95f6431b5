//! Rings in private memory, and producers that die at a chosen step.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::consumer::{RingConfig, RingConsumer, RingEvent};
use crate::layout::{Position, RingLayout};
use crate::memory::Memory;
use crate::message::RingMessage;
use crate::peers::ProducerEnd;
use crate::producer::RingProducer;
use crate::registry::Dead;

/// The panic that stands for `kill -9`.
#[derive(Debug)]
pub(crate) struct Killed;

/// The number of steps until a producer dies; by default it lives.
#[derive(Default, Debug)]
pub(crate) struct Death(Cell<Option<u32>>);

impl Death {
    /// Dies at step `steps` from now, counted from zero.
    pub(crate) fn after(&self, steps: Option<u32>) {
        self.0.set(steps);
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.get() == Some(u32::MAX)
    }

    pub(crate) fn step(&self) {
        match self.0.get() {
            None | Some(u32::MAX) => {}
            Some(0) => {
                self.0.set(Some(u32::MAX));
                panic::resume_unwind(Box::new(Killed));
            }
            Some(steps) => self.0.set(Some(steps - 1)),
        }
    }
}

/// Creates a ring of `units` units at a position, whose consumer never spins.
pub(crate) fn ring(units: u64, start: u64) -> RingConsumer {
    let memory = Memory::private(RingLayout::new(units), Position::new(start));
    let config = RingConfig {
        spin: Duration::ZERO,
        ..RingConfig::default()
    };
    RingConsumer::with_memory(Arc::new(memory), config)
}

/// Adds a producer. The flag says that its process has died.
pub(crate) fn add(consumer: &RingConsumer) -> (RingProducer, Dead) {
    let (memory, registry) = consumer.shared();
    let (number, dead) = registry.add(memory).unwrap();
    (RingProducer::new(Arc::clone(memory), number, None), dead)
}

/// Runs `action`, in which the producer dies at a step; returns true if it got so far.
pub(crate) fn dies(
    producer: &mut RingProducer,
    step: u32,
    action: impl FnOnce(&mut RingProducer),
) -> bool {
    producer.die_after(Some(step));
    let result = catch_unwind(AssertUnwindSafe(|| action(producer)));
    match result {
        Ok(()) => {
            producer.die_after(None);
            false
        }
        Err(cause) => {
            assert!(cause.is::<Killed>(), "it panicked by itself");
            true
        }
    }
}

/// An event without its borrow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Message(u8, Vec<u8>),
    Closed(u8),
    Lost(u8),
    Faulty(u8),
}

/// Polls once.
pub(crate) fn poll(consumer: &mut RingConsumer) -> Option<Seen> {
    consumer.poll().unwrap().map(|event| match event {
        RingEvent::Message(RingMessage {
            producer, payload, ..
        }) => Seen::Message(producer, payload.to_vec()),
        RingEvent::Ended { producer, end } => match end {
            ProducerEnd::Closed => Seen::Closed(producer),
            ProducerEnd::Lost => Seen::Lost(producer),
            ProducerEnd::Faulty(_) => Seen::Faulty(producer),
        },
    })
}

/// Polls until there is nothing.
pub(crate) fn drain(consumer: &mut RingConsumer) -> Vec<Seen> {
    std::iter::from_fn(|| poll(consumer)).collect()
}
