//! Writes the inputs while the job runs: each event when it is due, on a separate thread.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::inputs::{Event, Input, STEP_MILLIS};
use crate::job::PAYMENTS;
use crate::services::produce;

/// The interval between two batches.
const BATCH_EVERY: Duration = Duration::from_millis(250);

/// A writer of the inputs, until their end is requested.
pub struct Feeder {
    fed: Arc<Mutex<Fed>>,
    thread: Option<JoinHandle<()>>,
}

struct Fed {
    seed: u64,
    brokers: String,
    file: File,
    orders: u64,
    payments: u64,
    /// True if Kafka is up. Nothing is written to a broker that is about to be killed, so that the
    /// written messages are always known.
    has_kafka: bool,
    /// True if nothing more is written, also after a failure.
    is_over: bool,
    failure: Option<String>,
}

impl Feeder {
    /// Starts to write orders to the file `orders.csv` of that folder, and payments to their topic;
    /// the first ones are written before this returns.
    pub fn start(seed: u64, folder: &Path, brokers: String) -> Self {
        let file = File::create(folder.join("orders.csv")).expect("a file");
        let fed = Arc::new(Mutex::new(Fed {
            seed,
            brokers,
            file,
            orders: 0,
            payments: 0,
            has_kafka: true,
            is_over: false,
            failure: None,
        }));
        lock(&fed).feed(1);
        let shared = Arc::clone(&fed);
        let began = Instant::now();
        let thread = thread::spawn(move || {
            loop {
                {
                    let mut fed = lock(&shared);
                    if fed.is_over {
                        return;
                    }
                    let due = began.elapsed().as_millis() / STEP_MILLIS.unsigned_abs() as u128;
                    fed.feed(u64::try_from(due).unwrap_or(u64::MAX));
                }
                thread::park_timeout(BATCH_EVERY);
            }
        });
        Feeder {
            fed,
            thread: Some(thread),
        }
    }

    /// Stops or resumes writing to Kafka. Waits for writes in progress.
    pub fn has_kafka(&self, has_kafka: bool) {
        lock(&self.fed).has_kafka = has_kafka;
    }

    /// Returns the reason why the writer could not continue, if any.
    pub fn failure(&self) -> Option<String> {
        lock(&self.fed).failure.clone()
    }

    /// Ends both inputs after the same number of events. Returns that number.
    ///
    /// # Panics
    /// If something could not be written.
    pub fn end(&mut self) -> u64 {
        let mut fed = lock(&self.fed);
        let count = fed.orders.max(fed.payments);
        fed.feed(count);
        let end = format!("{}\n", Event::end(count));
        fed.write_orders(&end);
        fed.write_payments(&end);
        fed.is_over = true;
        if let Some(failure) = &fed.failure {
            panic!("the inputs could not be written: {failure}");
        }
        count
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        lock(&self.fed).is_over = true;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn lock(fed: &Mutex<Fed>) -> MutexGuard<'_, Fed> {
    fed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fed {
    /// Writes the due events, up to the number `due`.
    fn feed(&mut self, due: u64) {
        let orders = self.lines(Input::Orders, self.orders, due);
        self.write_orders(&orders);
        self.orders = self.orders.max(due);
        if self.has_kafka {
            let payments = self.lines(Input::Payments, self.payments, due);
            self.write_payments(&payments);
            self.payments = self.payments.max(due);
        }
    }

    fn lines(&self, input: Input, from: u64, until: u64) -> String {
        let events = (from..until).map(|number| Event::of(self.seed, input, number));
        events.map(|event| format!("{event}\n")).collect()
    }

    fn write_orders(&mut self, lines: &str) {
        if let Err(error) = self.file.write_all(lines.as_bytes()) {
            self.fails(format!("orders.csv: {error}"));
        }
    }

    fn write_payments(&mut self, lines: &str) {
        if lines.is_empty() {
            return;
        }
        if let Err(error) = produce(&self.brokers, PAYMENTS, lines) {
            self.fails(error);
        }
    }

    fn fails(&mut self, why: String) {
        self.failure.get_or_insert(why);
        self.is_over = true;
    }
}
