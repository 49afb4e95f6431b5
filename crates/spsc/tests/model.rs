//! Property tests of the queue: random sequences of operations, compared with a `VecDeque` with a
//! bound and two flags.
#![cfg(not(loom))]

use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::rc::Rc;

/// One call on either end. Calls on an end that has been dropped are skipped.
#[derive(Clone, Debug)]
enum Step {
    Push,
    PushBatch(usize),
    PushFrom(usize),
    Pop,
    PopBatch(usize),
    Peek,
    DropProducer,
    DropConsumer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => Just(Step::Push),
        8 => (0..7_usize).prop_map(Step::PushBatch),
        8 => (0..7_usize).prop_map(Step::PushFrom),
        20 => Just(Step::Pop),
        8 => (0..7_usize).prop_map(Step::PopBatch),
        8 => Just(Step::Peek),
        1 => Just(Step::DropProducer),
        1 => Just(Step::DropConsumer),
    ]
}

/// An item whose drop is visible in the reference count of `alive`.
#[derive(Debug)]
struct Item {
    number: u64,
    _alive: Rc<()>,
}

/// The real queue and its model.
struct Pair {
    producer: Option<Producer<Item>>,
    consumer: Option<Consumer<Item>>,
    model: VecDeque<u64>,
    capacity: usize,
    next: u64,
    alive: Rc<()>,
}

impl Pair {
    fn new(capacity: usize) -> Self {
        let (producer, consumer) = ring(Capacity::clamped(capacity));
        Self {
            producer: Some(producer),
            consumer: Some(consumer),
            model: VecDeque::new(),
            capacity,
            next: 0,
            alive: Rc::new(()),
        }
    }

    fn make(&mut self) -> Item {
        self.next += 1;
        Item {
            number: self.next,
            _alive: Rc::clone(&self.alive),
        }
    }

    /// Returns the number of items for which the model has room.
    fn room_for(&self, items: usize) -> usize {
        match self.consumer {
            Some(_) => items.min(self.capacity - self.model.len()),
            None => 0,
        }
    }

    fn push(&mut self) -> Result<(), TestCaseError> {
        let item = self.make();
        let (number, gone) = (item.number, self.consumer.is_none());
        let fits = self.room_for(1) == 1;
        let Some(producer) = &mut self.producer else {
            return Ok(());
        };
        match producer.push(item) {
            Ok(()) => {
                prop_assert!(fits);
                self.model.push_back(number);
            }
            Err(PushError::Full(item)) => {
                prop_assert!(!fits && !gone && item.number == number);
            }
            Err(PushError::Gone(item)) => prop_assert!(gone && item.number == number),
        }
        Ok(())
    }

    fn push_many(&mut self, count: usize, from_iterator: bool) -> Result<(), TestCaseError> {
        let mut items: Vec<Item> = (0..count).map(|_| self.make()).collect();
        let numbers: Vec<u64> = items.iter().map(|item| item.number).collect();
        let fit = self.room_for(count);
        let Some(producer) = &mut self.producer else {
            return Ok(());
        };
        let rest: Vec<u64> = if from_iterator {
            let mut iterator = items.into_iter();
            prop_assert_eq!(producer.push_from(&mut iterator), fit);
            iterator.map(|item| item.number).collect()
        } else {
            prop_assert_eq!(producer.push_batch(&mut items), fit);
            items.iter().map(|item| item.number).collect()
        };
        prop_assert_eq!(rest, &numbers[fit..]);
        self.model.extend(&numbers[..fit]);
        Ok(())
    }

    fn pop_many(&mut self, max: usize) -> Result<(), TestCaseError> {
        let Some(consumer) = &mut self.consumer else {
            return Ok(());
        };
        let count = max.min(self.model.len());
        let mut out = Vec::new();
        prop_assert_eq!(consumer.pop_batch(max, &mut out), count);
        let popped: Vec<u64> = out.iter().map(|item| item.number).collect();
        prop_assert_eq!(popped, self.model.drain(..count).collect::<Vec<_>>());
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Push => self.push()?,
            Step::PushBatch(count) => self.push_many(*count, false)?,
            Step::PushFrom(count) => self.push_many(*count, true)?,
            Step::Pop => {
                if let Some(consumer) = &mut self.consumer {
                    let popped = consumer.pop().map(|item| item.number);
                    prop_assert_eq!(popped, self.model.pop_front());
                }
            }
            Step::PopBatch(max) => self.pop_many(*max)?,
            Step::Peek => {
                if let Some(consumer) = &mut self.consumer {
                    let peeked = consumer.peek().map(|item| item.number);
                    prop_assert_eq!(peeked, self.model.front().copied());
                }
            }
            Step::DropProducer => self.producer = None,
            Step::DropConsumer => {
                self.consumer = None;
                self.model.clear();
            }
        }
        self.check()
    }

    /// Checks that the state of both ends agrees with the model, and that as many items are alive
    /// as the model holds.
    fn check(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(Rc::strong_count(&self.alive) - 1, self.model.len());
        let (open, served) = (self.producer.is_some(), self.consumer.is_some());
        let free = self.capacity - self.model.len();
        if let Some(producer) = &mut self.producer {
            prop_assert_eq!(producer.consumer_is_gone(), !served);
            prop_assert_eq!(producer.is_full(), free == 0);
            prop_assert_eq!(producer.free(), free);
        }
        if let Some(consumer) = &mut self.consumer {
            prop_assert_eq!(consumer.producer_is_gone(), !open);
            prop_assert_eq!(consumer.is_finished(), !open && free == self.capacity);
            prop_assert_eq!(consumer.is_empty(), free == self.capacity);
            prop_assert_eq!(consumer.len(), self.model.len());
        }
        Ok(())
    }
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 512 });
    if cfg!(miri) {
        // Miri's isolation has no file system to store failures in.
        config.failure_persistence = None;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_sequence_of_steps_does_what_the_model_does(
        capacity in 1..10_usize,
        steps in vec(step(), 0..120),
    ) {
        let mut pair = Pair::new(capacity);
        for step in &steps {
            pair.apply(step)?;
        }
        let Pair { producer, consumer, alive, .. } = pair;
        drop((producer, consumer));
        prop_assert_eq!(Rc::strong_count(&alive), 1);
    }
}
