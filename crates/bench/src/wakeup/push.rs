//! A source that sleeps until a record is pushed to it from another thread.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ardea_core::{InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Timestamp, Waker};

/// Where records are pushed, each the time at which it was.
#[derive(Debug, Default)]
pub(crate) struct Door {
    waiting: Mutex<Waiting>,
    source: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<Duration>,
    is_closed: bool,
}

impl Door {
    /// Hands a record to the source and wakes it.
    pub(crate) fn push(&self, at: Duration) {
        self.waiting().records.push_back(at);
        self.wake();
    }

    /// Nothing more will be pushed: the source ends when it has emitted what was.
    pub(crate) fn close(&self) {
        self.waiting().is_closed = true;
        self.wake();
    }

    fn wake(&self) {
        // Before the source has started it needs no waking: it looks by itself first.
        if let Some(source) = self.source.get() {
            source.wake();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Emits what is pushed through its door.
pub(crate) struct PushP {
    door: Arc<Door>,
}

impl PushP {
    pub(crate) fn new(door: Arc<Door>) -> Self {
        PushP { door }
    }
}

impl Processor for PushP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        // A job's only source is started once.
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
            let door = Arc::new(Door::default());
            pushed.iter().for_each(|record| door.push(*record));
            door.close();
            PushP::new(door)
        };
        SourceTest::new(make).output::<Duration>(records).run();
    }
}
