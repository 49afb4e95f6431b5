//! Consumer queues of librdkafka, from which messages are taken. Each partition has its own queue,
//! so that errors and log ends can be attributed to the partition.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;

use crate::blocking_worker::CANCEL_CHECK_INTERVAL;
use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::discovery::DiscoveredPartition;
use crate::kafka::topics::PartitionId;

/// Maximum number of consumer events processed per call while partitions are assigned.
const EVENTS: usize = 16;

/// Queues of the partitions being read, indexed like the instance's partitions.
pub(super) struct Intake {
    pub consumer: Arc<BaseConsumer<KafkaClientContext>>,
    queues: Vec<Option<Queue>>,
    /// Indices of the queues that may contain messages; the next one to read is first.
    ready: VecDeque<usize>,
    /// For each queue, true if `ready` contains it.
    is_ready: Vec<bool>,
    filled: Arc<Filled>,
}

struct Queue {
    id: PartitionId,
    messages: PartitionQueue<KafkaClientContext>,
}

/// Queues that have been filled since they were found empty.
#[derive(Default)]
struct Filled {
    indexes: Mutex<Vec<usize>>,
    waiting: Mutex<Option<Thread>>,
}

impl Filled {
    fn note(&self, index: usize) {
        lock(&self.indexes).push(index);
        if let Some(thread) = lock(&self.waiting).as_ref() {
            thread.unpark();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Result of taking messages.
#[derive(Default)]
pub(super) struct Taken<'a> {
    /// Messages with their partition indices.
    pub messages: Vec<(usize, BorrowedMessage<'a>)>,
    /// Indices of partitions whose end was reached after `messages`.
    pub ended: Vec<usize>,
    /// Partition errors with the client's text.
    pub failed: Vec<(usize, RDKafkaErrorCode, String)>,
}

impl Intake {
    pub fn new(consumer: Arc<BaseConsumer<KafkaClientContext>>) -> Self {
        Intake {
            consumer,
            queues: Vec::new(),
            ready: VecDeque::new(),
            is_ready: Vec::new(),
            filled: Arc::default(),
        }
    }

    /// Assigns partitions at the given indices.
    pub fn assign(&mut self, all: &[(usize, DiscoveredPartition)]) -> KafkaResult<()> {
        let mut wanted = TopicPartitionList::new();
        for (index, found) in all {
            let (topic, number) = (&*found.id.topic, found.id.number);
            // Split before the assignment, so that no message arrives on the consumer's own queue.
            let Some(mut messages) = self.consumer.split_partition_queue(topic, number) else {
                return Err(KafkaError::MessageConsumption(
                    RDKafkaErrorCode::UnknownPartition,
                ));
            };
            let (filled, at) = (Arc::clone(&self.filled), *index);
            messages.set_nonempty_callback(move || filled.note(at));
            if self.queues.len() <= *index {
                self.queues.resize_with(*index + 1, || None);
                self.is_ready.resize(*index + 1, false);
            }
            let id = found.id.clone();
            self.queues[*index] = Some(Queue { id, messages });
            if !std::mem::replace(&mut self.is_ready[*index], true) {
                self.ready.push_back(*index);
            }
            wanted.add_partition_offset(topic, number, found.start)?;
        }
        if wanted.count() > 0 {
            self.consumer.incremental_assign(&wanted)?;
        }
        Ok(())
    }

    /// Stops reading a partition.
    pub fn unassign(&mut self, index: usize) -> KafkaResult<()> {
        let Some(queue) = self.queues.get_mut(index).and_then(Option::take) else {
            return Ok(());
        };
        let mut gone = TopicPartitionList::new();
        gone.add_partition(&queue.id.topic, queue.id.number);
        self.consumer.incremental_unassign(&gone)
    }

    /// Takes up to `room` messages; waits briefly for the first message.
    ///
    /// # Errors
    /// Fatal errors of the consumer.
    pub fn take(&mut self, room: usize) -> KafkaResult<Taken<'_>> {
        *lock(&self.filled.waiting) = Some(std::thread::current());
        self.collect();
        self.serve()?;
        if self.ready.is_empty() {
            self.wait();
        }
        let Intake {
            consumer,
            queues,
            ready,
            is_ready,
            ..
        } = self;
        let mut taken = Taken {
            messages: Vec::with_capacity(room),
            ..Taken::default()
        };
        for _ in 0..ready.len() {
            if taken.messages.len() >= room {
                break;
            }
            let Some(index) = ready.pop_front() else {
                break;
            };
            is_ready[index] = false;
            let Some(Some(queue)) = queues.get(index) else {
                continue;
            };
            if drain(&queue.messages, consumer.context(), index, room, &mut taken) {
                is_ready[index] = true;
                ready.push_back(index);
            }
        }
        Ok(taken)
    }

    /// Collects the queues that have been filled.
    fn collect(&mut self) {
        let filled = std::mem::take(&mut *lock(&self.filled.indexes));
        for index in filled {
            self.is_filled(index);
        }
    }

    fn is_filled(&mut self, index: usize) {
        if let Some(is_ready) = self.is_ready.get_mut(index)
            && !std::mem::replace(is_ready, true)
        {
            self.ready.push_back(index);
        }
    }

    /// Processes consumer events: errors and log lines.
    fn serve(&self) -> KafkaResult<()> {
        // Without partitions there is nothing else to wait for.
        let (events, wait) = match self.queues.is_empty() {
            true => (1, CANCEL_CHECK_INTERVAL),
            false => (EVENTS, Duration::ZERO),
        };
        for _ in 0..events {
            match self.consumer.poll(wait) {
                // A message of an unassigned partition.
                None | Some(Ok(_)) => {}
                Some(Err(error)) if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                    return Err(error);
                }
                // Brokers are unavailable: this has been reported, and librdkafka reconnects by
                // itself.
                Some(Err(_)) => {}
            }
        }
        Ok(())
    }

    fn wait(&mut self) {
        if !self.queues.is_empty() {
            std::thread::park_timeout(CANCEL_CHECK_INTERVAL);
        }
        self.collect();
        if self.ready.is_empty() {
            // A notification may have been missed.
            (0..self.queues.len()).for_each(|index| self.is_filled(index));
        }
    }
}

/// Takes up to `room` messages of one partition; returns true if its queue may contain more.
fn drain<'a>(
    queue: &'a PartitionQueue<KafkaClientContext>,
    teller: &KafkaClientContext,
    index: usize,
    room: usize,
    taken: &mut Taken<'a>,
) -> bool {
    while taken.messages.len() < room {
        match queue.poll(Duration::ZERO) {
            None => return false,
            Some(Ok(message)) => taken.messages.push((index, message)),
            Some(Err(KafkaError::PartitionEOF(_))) => {
                // Later messages are taken after the end has been recorded.
                taken.ended.push(index);
                return true;
            }
            Some(Err(error)) => {
                if let Some(code) = error.rdkafka_error_code() {
                    taken.failed.push((index, code, teller.reason()));
                    return true;
                }
            }
        }
    }
    true
}
