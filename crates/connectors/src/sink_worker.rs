//! The queue between a sink's processor and the thread of its blocking client.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{BadRecords, Result};

use crate::blocking_worker::{BlockingWorker, CANCEL_CHECK_INTERVAL, WorkerContext};

/// Records to be written, as the client sends them.
pub(crate) trait QueuedRecords: Default + Send + 'static {
    /// The size of the queue at which the sink waits.
    const LIMIT: usize;

    /// Returns the size, which is zero if there are no records.
    fn size(&self) -> usize;

    /// Moves the records of `other` to the end of these.
    fn append(&mut self, other: &mut Self);
}

/// A record refused by the server.
pub(crate) struct Refused {
    /// Position of the record.
    pub record: u64,
    pub reason: String,
    /// True if the record belongs to an earlier attempt.
    pub is_earlier: bool,
}

impl Refused {
    pub fn new(record: u64, reason: String) -> Self {
        Refused {
            record,
            reason,
            is_earlier: false,
        }
    }
}

/// Records `R` and commands `C`, which are executed before the records, and facts `F`.
pub(crate) struct SinkQueue<R, C, F = ()> {
    waiting: R,
    commands: VecDeque<C>,
    /// True while the thread writes records.
    is_writing: bool,
    /// True while the thread executes a command.
    is_executing: bool,
    refused: Vec<Refused>,
    /// Facts that the processor and the thread report to each other.
    pub facts: F,
}

impl<R: Default, C, F: Default> Default for SinkQueue<R, C, F> {
    fn default() -> Self {
        SinkQueue {
            waiting: R::default(),
            commands: VecDeque::new(),
            is_writing: false,
            is_executing: false,
            refused: Vec::new(),
            facts: F::default(),
        }
    }
}

impl<R, C, F> SinkQueue<R, C, F> {
    fn has_commands(&self) -> bool {
        !self.commands.is_empty() || self.is_executing
    }
}

/// The handle of the thread of a sink.
pub(crate) type SinkWorker<R, C, F = ()> = BlockingWorker<SinkQueue<R, C, F>>;

impl<R: QueuedRecords, C: Send + 'static, F: Send + 'static> SinkWorker<R, C, F> {
    /// Waits up to [`CANCEL_CHECK_INTERVAL`] for space in the queue; returns true if it has space.
    pub fn has_room(&self) -> Result<bool> {
        self.until(CANCEL_CHECK_INTERVAL, |queue| {
            queue.waiting.size() < R::LIMIT
        })
    }

    /// Appends records to the queue.
    pub fn enqueue(&self, records: &mut R) {
        self.update(|queue| queue.waiting.append(records));
    }

    /// Sends a command, which is executed after earlier commands and before the queued records.
    pub fn send(&self, command: C) {
        self.update(|queue| queue.commands.push_back(command));
    }

    /// Waits up to `timeout` until all records are written and all commands executed; returns false
    /// on timeout.
    pub fn is_done(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |queue| {
            queue.waiting.size() == 0 && !queue.is_writing && !queue.has_commands()
        })
    }

    /// Waits up to `timeout` until all commands are executed; returns false on timeout.
    pub fn has_run_commands(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |queue| !queue.has_commands())
    }

    /// Reports the records refused since the last call. `what` is what the server has refused.
    pub fn report_refused(&self, bad: &BadRecords, what: &str) -> Result<()> {
        for refused in self.with(|queue| std::mem::take(&mut queue.refused)) {
            let reason = format!("{what}: {}", refused.reason);
            let record = refused.record;
            let origin = || match refused.is_earlier {
                false => format!("record {record}"),
                true => format!("record {record} of the previous run"),
            };
            bad.report(origin, Vec::new, reason)?;
        }
        Ok(())
    }

    /// Waits up to `timeout` until all records are written, and reports those refused; returns
    /// false on timeout.
    pub fn settle(&self, timeout: Duration, bad: &BadRecords, what: &str) -> Result<bool> {
        let is_done = self.is_done(timeout)?;
        self.report_refused(bad, what)?;
        Ok(is_done)
    }
}

impl<R: QueuedRecords, C, F> WorkerContext<SinkQueue<R, C, F>> {
    /// Waits for work: the next command, or else all queued records, which replace the empty
    /// `records`. Returns false at shutdown.
    pub fn next_work(&self, command: &mut Option<C>, records: &mut R) -> bool {
        let taken = self.next(|queue| {
            *command = queue.commands.pop_front();
            queue.is_executing = command.is_some();
            queue.is_writing = !queue.is_executing && queue.waiting.size() > 0;
            if queue.is_writing {
                std::mem::swap(records, &mut queue.waiting);
            }
            (queue.is_executing || queue.is_writing).then_some(())
        });
        taken.is_some()
    }

    /// Reports a refused record.
    pub fn refuse(&self, refused: Refused) {
        self.with(|queue| queue.refused.push(refused));
    }

    /// Completes the current work. Wakes the instance after the last command.
    pub fn finish(&self, refused: &mut Vec<Refused>) {
        let wakes = self.update(|queue| {
            queue.refused.append(refused);
            queue.is_writing = false;
            std::mem::take(&mut queue.is_executing) && queue.commands.is_empty()
        });
        if wakes {
            self.wake();
        }
    }
}
