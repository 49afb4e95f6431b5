//! The metrics manager, which passes batches to sinks, each on a separate thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};

use crate::{Batch, Labels, MetricsSink, MetricsSinks, Value, catalogue};

/// The queue length of a sink in batches. It suffices for some seconds.
const QUEUE_BATCHES: usize = 8;

/// The metrics manager of a process, which passes each batch to all sinks.
///
/// Passing a batch never blocks, and sinks are independent of each other. Dropping the manager ends
/// the sinks after their queued batches; [`close`](Self::close) also waits for the end.
#[derive(Debug)]
pub struct MetricsManager {
    sinks: Vec<SinkHandle>,
}

/// The manager's handle to a sink.
#[derive(Debug)]
struct SinkHandle {
    name: String,
    place: String,
    queue: SyncSender<Arc<Batch>>,
    ended: Receiver<()>,
    counts: Arc<Counts>,
    /// True if the error that the sink misses batches has been reported.
    is_reported: AtomicBool,
}

impl SinkHandle {
    fn report(&self) -> SinkReport {
        SinkReport {
            name: self.name.clone(),
            place: self.place.clone(),
            taken: self.counts.taken.load(Relaxed),
            dropped: self.counts.dropped.load(Relaxed),
            failed: self.counts.failed.load(Relaxed),
            last_error: lock(&self.counts.last_error).clone(),
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    last_error: Mutex<Option<Error>>,
}

/// The batch counts of one sink.
#[derive(Clone, Debug)]
pub struct SinkReport {
    /// The sink's name. Of several sinks with the same name, the second is `NAME#2`, and so on.
    pub name: String,
    /// The sink's destination, for messages.
    pub place: String,
    /// The number of batches written.
    pub taken: u64,
    /// The number of batches dropped because the sink's queue was full.
    pub dropped: u64,
    /// The number of batches that the sink failed to write.
    pub failed: u64,
    /// The sink's last error.
    pub last_error: Option<Error>,
}

impl MetricsManager {
    /// Creates and starts the sinks of a list such as `prometheus,json-lines:metrics.jsonl`, which
    /// may be empty.
    ///
    /// # Errors
    /// The error of a sink that can't be created; the sinks before it in the list are ended then.
    /// [`LimitReached`](ErrorCode::LimitReached) if the system refuses a thread.
    pub fn start(list: &str, process: &Labels, sinks: &MetricsSinks) -> Result<Self> {
        let mut manager = MetricsManager { sinks: Vec::new() };
        for sink in sinks.make(list, process)? {
            manager.add(sink)?;
        }
        Ok(manager)
    }

    /// Starts an additional sink.
    ///
    /// # Errors
    /// [`LimitReached`](ErrorCode::LimitReached) if the system refuses a thread.
    pub fn add(&mut self, sink: Box<dyn MetricsSink>) -> Result<()> {
        let (queue, batches) = sync_channel(QUEUE_BATCHES);
        let (ending, ended) = channel();
        let counts = Arc::new(Counts::default());
        let post = SinkHandle {
            name: self.name_for(sink.name()),
            place: sink.place(),
            queue,
            ended,
            counts: Arc::clone(&counts),
            is_reported: AtomicBool::new(false),
        };
        thread::Builder::new()
            .name(format!("metrics {}", post.name))
            .spawn(move || {
                run_sink(sink, &batches, &counts);
                // Dropped last, which signals the end of the sink.
                drop(ending);
            })
            .map_err(|error| {
                Error::new(
                    ErrorCode::LimitReached,
                    format!("the metrics sink {:?} gets no thread", post.name),
                )
                .because(error)
            })?;
        self.sinks.push(post);
        Ok(())
    }

    /// Returns a unique name for a sink, under which its missed batches are counted.
    fn name_for(&self, name: &str) -> String {
        let is_taken = |name: &str| self.sinks.iter().any(|post| post.name == name);
        let others = (2..).map(|number| format!("{name}#{number}"));
        let mut names = std::iter::once(name.to_string()).chain(others);
        names
            .find(|name| !is_taken(name))
            .unwrap_or_else(|| name.to_string())
    }

    /// Returns the errors of sinks that have begun to miss batches since the last call. Each sink
    /// is reported once only. Cheap if there are no errors.
    pub fn new_errors(&self) -> Vec<Error> {
        let counted = |count: &AtomicU64| count.load(Relaxed) > 0;
        let missing = self.sinks.iter().filter(|post| {
            let misses = counted(&post.counts.dropped) || counted(&post.counts.failed);
            misses && !post.is_reported.swap(true, Relaxed)
        });
        missing
            .map(|post| missed_batches_error(post.report()))
            .collect()
    }

    /// Queues a batch for all sinks without blocking.
    pub fn send(&self, batch: &Arc<Batch>) {
        for post in &self.sinks {
            if post.queue.try_send(Arc::clone(batch)).is_err() {
                post.counts.dropped.fetch_add(1, Relaxed);
            }
        }
    }

    /// Returns the batch counts of each sink so far.
    pub fn report(&self) -> Vec<SinkReport> {
        self.sinks.iter().map(SinkHandle::report).collect()
    }

    /// Adds the number of batches that each sink has missed so far to a batch.
    pub fn write(&self, batch: &mut Batch) {
        for report in self.report() {
            let labels = Labels::of([("sink", &report.name)]);
            let missed = (report.dropped + report.failed) as f64;
            batch.push(
                catalogue::SINK_DROPPED.name,
                &labels,
                Value::Counter(missed),
            );
        }
    }

    /// Ends the sinks after their queued batches. Returns the names of the sinks that have not
    /// ended within `patience`.
    pub fn close(self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        let posts: Vec<_> = self
            .sinks
            .into_iter()
            .map(|post| (post.name, post.ended))
            .collect();
        let stuck = posts.into_iter().filter(|(_, ended)| {
            let left = deadline.saturating_duration_since(Instant::now());
            ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
        });
        stuck.map(|(name, _)| name).collect()
    }
}

/// Creates the error of a sink that misses batches.
fn missed_batches_error(report: SinkReport) -> Error {
    let counted = catalogue::SINK_DROPPED.name;
    let what = format!(
        "the metrics sink {} misses batches, which {counted} counts",
        report.name
    );
    match report.last_error {
        Some(error) => Error::new(error.code(), what).because(error),
        None => Error::new(ErrorCode::LimitReached, what)
            .because("it is slower than metrics are reported")
            .hint("increase metrics.every to report them less often"),
    }
}

/// Runs the thread of a sink until the manager is dropped.
fn run_sink(mut sink: Box<dyn MetricsSink>, batches: &Receiver<Arc<Batch>>, counts: &Counts) {
    for batch in batches {
        let outcome = catch_unwind(AssertUnwindSafe(|| sink.take(&batch)));
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorCode::UserPanic,
                format!("the metrics sink {:?} panicked", sink.name()),
            ))
        });
        match outcome {
            Ok(()) => counts.taken.fetch_add(1, Relaxed),
            Err(error) => {
                *lock(&counts.last_error) = Some(error);
                counts.failed.fetch_add(1, Relaxed)
            }
        };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Timestamp;

    fn batch() -> Arc<Batch> {
        let now = Timestamp::from_secs(1);
        Arc::new(Batch::new(Labels::none(), now, now))
    }

    /// Polls until `condition` holds, for up to a minute.
    fn wait(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline, "it never happened");
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    struct Fake<F>(&'static str, F);

    impl<F: FnMut() -> Result<()> + Send> MetricsSink for Fake<F> {
        fn name(&self) -> &str {
            self.0
        }
        fn take(&mut self, _: &Batch) -> Result<()> {
            (self.1)()
        }
    }

    #[test]
    fn a_sink_that_blocks_fails_or_panics_stops_neither_the_others_nor_the_teller() {
        let (release, held) = channel::<()>();
        let mut manager =
            MetricsManager::start("", &Labels::none(), &MetricsSinks::builtin()).expect("none");
        let sinks: Vec<Box<dyn MetricsSink>> = vec![
            Box::new(Fake("blocks", move || {
                let _ = held.recv();
                Ok(())
            })),
            Box::new(Fake("fails", || {
                Err(Error::new(ErrorCode::Network, "away"))
            })),
            Box::new(Fake("panics", || panic!("as it was told to"))),
            Box::new(Fake("works", || Ok(()))),
        ];
        for sink in sinks {
            manager.add(sink).expect("a thread");
        }
        let told = 30;
        for n in 1..=told {
            manager.send(&batch());
            wait(|| manager.report()[3].taken == n);
            wait(|| manager.report()[1].failed == n && manager.report()[2].failed == n);
        }
        let report = manager.report();
        // At most one is being written, and a full queue waits.
        assert!(
            report[0].dropped >= told - QUEUE_BATCHES as u64 - 1,
            "{report:?}"
        );
        assert_eq!((report[0].taken, report[3].dropped), (0, 0));
        let why = report[1].last_error.as_ref().map(Error::code);
        assert_eq!(why, Some(ErrorCode::Network));
        let why = report[2].last_error.as_ref().map(Error::code);
        assert_eq!(why, Some(ErrorCode::UserPanic));

        let now = Timestamp::from_secs(1);
        let mut batch = Batch::new(Labels::none(), now, now);
        manager.write(&mut batch);
        assert_eq!(batch.samples.len(), 4);
        assert_eq!(batch.samples[1].value, Value::Counter(told as f64));

        assert_eq!(
            manager.close(Duration::ZERO).first().map(String::as_str),
            Some("blocks")
        );
        drop(release);
    }

    #[test]
    fn sinks_of_one_name_are_told_apart() {
        let mut manager = MetricsManager { sinks: Vec::new() };
        let fails = || Err(Error::new(ErrorCode::WriteFailed, "no such folder"));
        for _ in 0..2 {
            manager.add(Box::new(Fake("file", || Ok(())))).unwrap();
            manager.add(Box::new(Fake("file", fails))).unwrap();
        }
        manager.send(&batch());
        wait(|| manager.report().iter().all(|it| it.taken + it.failed == 1));
        let now = Timestamp::from_secs(1);
        let mut batch = Batch::new(Labels::none(), now, now);
        manager.write(&mut batch);
        let missed = batch.samples.iter().map(|sample| match sample.value {
            Value::Counter(missed) => (sample.labels.get("sink").unwrap(), missed),
            _ => panic!("{sample:?}"),
        });
        let expected = [
            ("file", 0.0),
            ("file#2", 1.0),
            ("file#3", 0.0),
            ("file#4", 1.0),
        ];
        assert_eq!(missed.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_sink_that_misses_batches_is_told_of_once_with_the_reason() {
        let mut manager = MetricsManager { sinks: Vec::new() };
        let fails = || Err(Error::new(ErrorCode::WriteFailed, "no such folder"));
        manager.add(Box::new(Fake("fine", || Ok(())))).unwrap();
        manager.add(Box::new(Fake("fails", fails))).unwrap();
        assert!(manager.new_errors().is_empty());
        for n in 1..=3 {
            manager.send(&batch());
            wait(|| manager.report()[1].failed == n);
            let troubles = manager.new_errors();
            assert_eq!(troubles.len(), usize::from(n == 1));
            for trouble in troubles {
                assert_eq!(trouble.code(), ErrorCode::WriteFailed);
                let text = trouble.to_string();
                assert!(text.contains("sink fails misses"), "{text}");
                assert!(text.contains("no such folder"), "{text}");
            }
        }
    }

    #[test]
    fn what_waits_for_a_sink_is_taken_before_it_ends() {
        let taken = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&taken);
        let mut manager = MetricsManager { sinks: Vec::new() };
        let sink = Fake("counts", move || {
            counter.fetch_add(1, Relaxed);
            Ok(())
        });
        manager.add(Box::new(sink)).expect("a thread");
        for _ in 0..QUEUE_BATCHES {
            manager.send(&batch());
        }
        assert_eq!(manager.close(Duration::from_secs(60)), Vec::<String>::new());
        assert_eq!(taken.load(Relaxed), QUEUE_BATCHES as u64);
    }

    #[test]
    fn a_sink_that_there_is_not_is_refused_with_those_that_there_are() {
        let error = MetricsManager::start("promethius", &Labels::none(), &MetricsSinks::builtin())
            .expect_err("misspelt");
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        for sink in ["json-lines", "prometheus"] {
            assert!(error.to_string().contains(sink), "{error}");
        }
    }
}
