//! A sink that displays a sample of a stream.
//!
//! ```
//! use std::time::Duration;
//! use ardea_connectors::preview;
//! use ardea_core::Sink;
//!
//! // The first ten records, and then how many more there were.
//! let first: Sink<u64> = preview::first(10).build();
//! // Up to five records each second.
//! let some: Sink<String> = preview::preview(5, Duration::from_secs(1)).build();
//! ```

use std::io::{self, Write};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, Delivery, Inbox, Instance, InstanceContext, Isolation, Ordinal, Outbox, Processor,
    Progress, RecordGuard, Result, Sink,
};

use crate::format::{Debugged, Encode};
use crate::record_writer::{RecordWriter, Writing, writing_options};

/// Returns a sink that shows up to `limit` records in each interval of `every`, and the number of
/// records left out.
pub fn preview<T: Send + 'static>(limit: u64, every: Duration) -> PreviewSink<T, Debugged> {
    PreviewSink {
        sample: Sample {
            limit,
            every: Some(every),
            target: Target::Stderr,
        },
        writing: Writing::new(Debugged),
        record: PhantomData,
    }
}

/// Returns a sink that shows the first `limit` records, and at its end the number of further
/// records.
pub fn first<T: Send + 'static>(limit: u64) -> PreviewSink<T, Debugged> {
    let PreviewSink {
        sample,
        writing,
        record,
    } = preview(limit, Duration::ZERO);
    PreviewSink {
        sample: Sample {
            every: None,
            ..sample
        },
        writing,
        record,
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    limit: u64,
    every: Option<Duration>,
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Stderr,
    Stdout,
}

/// A sink that shows a sample of the records on standard error, one per line, formatted with
/// `Debug`.
///
/// All records are consumed and counted, whether shown or not. Write errors, for example of a
/// closed pipe, do not affect the job. Each of several instances shows its own sample.
#[derive(Debug)]
pub struct PreviewSink<T, E> {
    sample: Sample,
    writing: Writing<E>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Clone> PreviewSink<T, E> {
    /// Shows the records on standard output instead.
    pub fn to_stdout(mut self) -> Self {
        self.sample.target = Target::Stdout;
        self
    }

    /// Sets the format.
    pub fn encode<F: Encode<T>>(self, encoder: F) -> PreviewSink<T, F> {
        let writing = Writing {
            encoder,
            on_error: self.writing.on_error,
        };
        PreviewSink {
            sample: self.sample,
            writing,
            record: PhantomData,
        }
    }

    writing_options!();

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T>
    where
        E: Encode<T>,
    {
        let PreviewSink {
            sample, writing, ..
        } = self;
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let show: fn(&[u8]) = match sample.target {
                Target::Stderr => show_on_stderr,
                Target::Stdout => show_on_stdout,
            };
            Ok(Box::new(PreviewP::<T, E, _>::new(sample, &writing, show)))
        };
        Sink::new("preview", Arc::new(supply))
            .isolation(Isolation::Thread)
            .with_delivery(Delivery::Nothing)
    }
}

impl<T: Send + 'static, E: Encode<T>> From<PreviewSink<T, E>> for Sink<T> {
    fn from(sink: PreviewSink<T, E>) -> Self {
        sink.build()
    }
}

/// Writes `text` to standard error. Write errors are ignored: the preview must not affect the job.
fn show_on_stderr(text: &[u8]) {
    let _ = io::stderr().lock().write_all(text);
}

/// Writes `text` to standard output; otherwise like [`show_on_stderr`].
fn show_on_stdout(text: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text).and_then(|()| stdout.flush());
}

struct PreviewP<T, E, S> {
    sample: Sample,
    outgo: RecordWriter<T, E>,
    show: S,
    text: Vec<u8>,
    shown: u64,
    left_out: u64,
    span_ends: Option<Duration>,
    clock: Clock,
}

impl<T: Send + 'static, E: Encode<T>, S: FnMut(&[u8]) + Send> PreviewP<T, E, S> {
    fn new(sample: Sample, writing: &Writing<E>, show: S) -> Self {
        PreviewP {
            sample,
            outgo: RecordWriter::new(writing),
            show,
            text: Vec::new(),
            shown: 0,
            left_out: 0,
            span_ends: None,
            clock: Clock::system(),
        }
    }

    fn end_span(&mut self) {
        if self.left_out > 0 {
            self.text
                .extend_from_slice(format!("… and {} more\n", self.left_out).as_bytes());
        }
        (self.shown, self.left_out) = (0, 0);
        self.span_ends = None;
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            (self.show)(&self.text);
            self.text.clear();
        }
    }
}

impl<T: Send + 'static, E: Encode<T>, S: FnMut(&[u8]) + Send> Processor for PreviewP<T, E, S> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.outgo.attach(context);
        self.clock = context.clock.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.on_wake(outbox)?;
        if let Some(every) = self.sample.every.filter(|_| self.span_ends.is_none()) {
            let ends = self.clock.now().saturating_add(every);
            self.span_ends = Some(ends);
            outbox.wake_at(ends);
        }
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        let wanted = usize::try_from(self.sample.limit - self.shown).unwrap_or(usize::MAX);
        let mut guard = RecordGuard::new();
        for (position, record) in (first..).zip(rows.values()).take(wanted) {
            self.outgo.encode(record, position, &mut self.text)?;
            guard.advance();
        }
        let shown = rows.len().min(wanted);
        self.shown += shown as u64;
        self.left_out += (rows.len() - shown) as u64;
        rows.clear();
        self.flush();
        Ok(())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        match self.span_ends {
            Some(ends) if self.clock.now() >= ends => {
                self.end_span();
                self.flush();
            }
            Some(ends) => outbox.wake_at(ends),
            None => {}
        }
        Ok(())
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.end_span();
        self.flush();
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ardea_core::ManualClock;
    use ardea_testkit::ProcessorTest;

    use super::*;
    use crate::testing::{Fed, context};

    fn shown(
        sink: PreviewSink<u64, Debugged>,
        hand: &ManualClock,
    ) -> (Fed<u64>, Arc<Mutex<String>>) {
        let screen: Arc<Mutex<String>> = Arc::default();
        let (
            shared,
            PreviewSink {
                sample, writing, ..
            },
        ) = (Arc::clone(&screen), sink);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let screen = Arc::clone(&shared);
            let show = move |text: &[u8]| {
                screen
                    .lock()
                    .unwrap()
                    .push_str(std::str::from_utf8(text).unwrap());
            };
            Ok(Box::new(PreviewP::<u64, _, _>::new(sample, &writing, show)))
        };
        let mut context = context("sink");
        context.clock = hand.clock();
        (
            Fed::new(Sink::new("preview", Arc::new(supply)), context).unwrap(),
            screen,
        )
    }

    #[test]
    fn the_first_records_are_shown_and_the_rest_is_counted() {
        let (mut fed, screen) = shown(first(3), &ManualClock::new());
        fed.feed(0..2)
            .unwrap()
            .feed(2..100)
            .unwrap()
            .finish()
            .unwrap();
        assert_eq!(*screen.lock().unwrap(), "0\n1\n2\n… and 97 more\n");
    }

    #[test]
    fn each_span_shows_a_sample_of_its_own() {
        let hand = ManualClock::new();
        let (mut fed, screen) = shown(preview(1, Duration::from_secs(1)), &hand);
        fed.feed(0..10).unwrap();
        hand.advance(Duration::from_secs(1));
        fed.wake().unwrap();
        fed.feed(20..22).unwrap().finish().unwrap();
        assert_eq!(
            *screen.lock().unwrap(),
            "0\n… and 9 more\n20\n… and 1 more\n"
        );
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let sample = Sample {
            limit: 2,
            every: Some(Duration::from_secs(1)),
            target: Target::Stderr,
        };
        let make =
            move || PreviewP::<u32, _, _>::new(sample, &Writing::new(Debugged), |_: &[u8]| {});
        ProcessorTest::new(make)
            .input::<u32>((0..20).collect::<Vec<_>>())
            .run();
    }
}
