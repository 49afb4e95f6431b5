//! A thread of a blocking client, and the state that it shares with an instance.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result, Waker};

/// Maximum duration of a blocking call, after which a processor checks for cancellation of the job.
pub(crate) const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The handle of a thread with the shared state `S`. Dropping the handle requests the thread to
/// end, and does not wait for it.
pub(crate) struct BlockingWorker<S>(Arc<SharedState<S>>);

/// The shared state as seen by the thread.
pub(crate) struct WorkerContext<S>(Arc<SharedState<S>>);

pub(crate) struct SharedState<S> {
    guarded: Mutex<WorkerState<S>>,
    changed: Condvar,
    waker: Waker,
}

struct WorkerState<S> {
    state: S,
    failed: Option<Error>,
    is_over: bool,
}

impl<S> SharedState<S> {
    fn lock(&self) -> MutexGuard<'_, WorkerState<S>> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accesses the state. A waiting thread is not notified.
    pub fn with<R>(&self, access: impl FnOnce(&mut S) -> R) -> R {
        access(&mut self.lock().state)
    }

    /// Changes the state, and notifies the other side if it waits.
    pub fn update<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let result = self.with(change);
        self.changed.notify_all();
        result
    }

    /// Waits up to `timeout` until `test` returns a value.
    fn wait<R>(
        &self,
        timeout: Duration,
        mut test: impl FnMut(&mut WorkerState<S>) -> Option<R>,
    ) -> Option<R> {
        let deadline = Instant::now().checked_add(timeout);
        let mut guarded = self.lock();
        loop {
            if let Some(found) = test(&mut guarded) {
                return Some(found);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            guarded = match left {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.changed.wait_timeout(guarded, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(guarded);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

impl<S: Send + 'static> BlockingWorker<S> {
    /// Starts a thread that executes `run`. The instance is woken by `waker`.
    ///
    /// # Errors
    /// `LimitReached` if no thread can be started.
    pub fn start(
        name: &str,
        waker: Waker,
        state: S,
        run: impl FnOnce(WorkerContext<S>) + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(SharedState {
            guarded: Mutex::new(WorkerState {
                state,
                failed: None,
                is_over: false,
            }),
            changed: Condvar::new(),
            waker,
        });
        let context = WorkerContext(Arc::clone(&shared));
        std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || run(context))
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(BlockingWorker(shared))
    }

    /// Waits up to `timeout` for a condition; returns false on timeout.
    ///
    /// # Errors
    /// The failure of the thread, if it has failed.
    pub fn until(&self, timeout: Duration, is_so: impl Fn(&S) -> bool) -> Result<bool> {
        let waited = self.wait(timeout, |guarded| match &guarded.failed {
            Some(error) => Some(Err(error.clone())),
            None => is_so(&guarded.state).then_some(Ok(true)),
        });
        waited.unwrap_or(Ok(false))
    }

    /// Waits up to `timeout` until `take` returns a value; returns `None` on timeout.
    ///
    /// # Errors
    /// The failure of the thread, if it has failed and `take` returns nothing.
    pub fn take<R>(
        &self,
        timeout: Duration,
        mut take: impl FnMut(&mut S) -> Option<R>,
    ) -> Result<Option<R>> {
        let waited = self.wait(timeout, |guarded| {
            let taken = take(&mut guarded.state).map(Ok);
            taken.or_else(|| guarded.failed.clone().map(Err))
        });
        if waited.is_some() {
            self.changed.notify_all();
        }
        waited.transpose()
    }
}

impl<S> WorkerContext<S> {
    /// Waits until `take` returns a value; returns `None` at shutdown.
    pub fn next<R>(&self, mut take: impl FnMut(&mut S) -> Option<R>) -> Option<R> {
        let taken = self.wait(Duration::MAX, |guarded| match guarded.is_over {
            true => Some(None),
            false => take(&mut guarded.state).map(Some),
        });
        self.changed.notify_all();
        taken.flatten()
    }

    /// Waits for `time`, until a condition holds, or until shutdown.
    pub fn rest(&self, time: Duration, is_so: impl Fn(&S) -> bool) {
        self.wait(time, |guarded| {
            (guarded.is_over || is_so(&guarded.state)).then_some(())
        });
    }

    /// Returns true at shutdown.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Fails the instance.
    pub fn fail(&self, error: Error) {
        self.lock().failed = Some(error);
        self.changed.notify_all();
        self.wake();
    }

    /// Wakes the instance.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

impl<S> Deref for BlockingWorker<S> {
    type Target = SharedState<S>;

    fn deref(&self) -> &SharedState<S> {
        &self.0
    }
}

impl<S> Deref for WorkerContext<S> {
    type Target = SharedState<S>;

    fn deref(&self) -> &SharedState<S> {
        &self.0
    }
}

impl<S> Drop for BlockingWorker<S> {
    fn drop(&mut self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}

impl<S> Drop for WorkerContext<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            let what = format!("the thread {name} has ended unexpectedly");
            self.fail(Error::new(ErrorCode::Internal, what));
        }
    }
}

/// Creates the runtime of an asynchronous client on its own thread.
///
/// # Errors
/// `LimitReached` if no file descriptors are left.
#[cfg(any(
    feature = "avro",
    feature = "nats",
    feature = "postgres",
    feature = "protobuf"
))]
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(|error| {
        Error::new(ErrorCode::LimitReached, "cannot open a connection").because(error)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_worker_takes_requests_and_ends_when_its_handle_is_dropped() {
        let (tell, ended) = channel();
        let worker = BlockingWorker::start("worker", Waker::none(), (None, 0), move |context| {
            while let Some(number) =
                context.next(|(asked, _): &mut (Option<u32>, u32)| asked.take())
            {
                context.update(|(_, sum)| *sum += number);
            }
            tell.send(()).unwrap();
        });
        let worker = worker.unwrap();
        for (number, sum) in [(2, 2), (3, 5)] {
            worker.update(|(asked, _)| *asked = Some(number));
            assert!(worker.until(LONG, |(_, so_far)| *so_far == sum).unwrap());
        }
        drop(worker);
        ended.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn a_failure_follows_what_was_handed_over_before() {
        let worker = BlockingWorker::start("worker", Waker::none(), Some(7), |context| {
            context.fail(Error::new(ErrorCode::Network, "it is gone"));
        });
        let worker = worker.unwrap();
        assert!(worker.until(LONG, |_| false).is_err());
        assert_eq!(worker.take(LONG, Option::take).unwrap(), Some(7));
        assert!(worker.take(LONG, Option::take).is_err());
    }

    #[test]
    fn a_panic_of_the_thread_fails_the_instance() {
        let worker = BlockingWorker::start("worker", Waker::none(), (), |_| panic!("for the test"));
        let error = worker.unwrap().until(LONG, |()| false).unwrap_err();
        assert!(error.to_string().contains("the thread worker"), "{error}");
    }
}
