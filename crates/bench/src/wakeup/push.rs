//! A source that sleeps until a record is pushed to it from another thread.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ardea_core::{InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Timestamp, Waker};

/// The queue of pushed records; each is the time of its push.
#[derive(Debug, Default)]
pub(crate) struct PushQueue {
    waiting: Mutex<Waiting>,
    source: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<Duration>,
    is_closed: bool,
}

impl PushQueue {
    /// Adds a record to the queue, and wakes the source.
    pub(crate) fn push(&self, at: Duration) {
        self.waiting().records.push_back(at);
        self.wake();
    }

    /// Closes the queue: the source ends when it has emitted all records.
    pub(crate) fn close(&self) {
        self.waiting().is_closed = true;
        self.wake();
    }

    fn wake(&self) {
        // A source that has not started needs no waking: it reads the queue first.
        if let Some(source) = self.source.get() {
            source.wake();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source that emits the records pushed to its queue.
pub(crate) struct PushP {
    door: Arc<PushQueue>,
}

impl PushP {
    pub(crate) fn new(door: Arc<PushQueue>) -> Self {
        PushP { door }
    }
}

impl Processor for PushP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        // The only instance of the source is started once.
        let _ = self.door.source.set(context.waker.clone());
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<Duration>(Ordinal::FIRST)?;
        let mut waiting = self.door.waiting();
        let count = waiting.records.len().min(lane.room());
        for record in waiting.records.drain(..count) {
            lane.push(record, Timestamp::MIN);
        }
        let is_over = waiting.is_closed && waiting.records.is_empty();
        Ok(match (is_over, count) {
            (true, _) => Progress::DONE,
            (false, 0) => Progress::NONE,
            (false, _) => Progress::MADE,
        })
    }
}

#[cfg(test)]
mod tests {
    use ardea_testkit::SourceTest;

    use super::*;

    #[test]
    fn what_was_pushed_before_the_door_closed_comes_out_in_order() {
        let records: Vec<Duration> = (0..50).map(Duration::from_millis).collect();
        let pushed = records.clone();
        let make = move || {
            let door = Arc::new(PushQueue::default());
            pushed.iter().for_each(|record| door.push(*record));
            door.close();
            PushP::new(door)
        };
        SourceTest::new(make).output::<Duration>(records).run();
    }
}
