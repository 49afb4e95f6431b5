//! Windowed bolts, which process the latest tuples by count or by time.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode};

use crate::batch::TupleBatch;
use crate::bolt::Bolt;
use crate::collector::{Collector, PendingTuple};
use crate::context::ComponentContext;
use crate::failure::{Failure, Outcome};
use crate::outputs::Outputs;
use crate::tuple::{Origin, Tuple};

/// The contents and triggers of windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// After every `slide` tuples, a window of the latest `length` tuples. The first windows hold
    /// fewer.
    Count {
        /// The number of tuples in a window.
        length: usize,
        /// The number of tuples between windows.
        slide: usize,
    },
    /// Every `slide`, a window of the tuples that arrived in the latest `length`, if there are any.
    Time {
        /// The length of a window.
        length: Duration,
        /// The time between windows.
        slide: Duration,
    },
}

impl Window {
    /// Creates non-overlapping windows of this number of tuples.
    pub fn tumbling_count(length: usize) -> Self {
        Window::sliding_count(length, length)
    }

    /// Creates a window of the latest `length` tuples after every `slide` tuples.
    pub fn sliding_count(length: usize, slide: usize) -> Self {
        Window::Count { length, slide }
    }

    /// Creates non-overlapping windows by arrival time.
    pub fn tumbling_time(length: Duration) -> Self {
        Window::sliding_time(length, length)
    }

    /// Creates a window every `slide`, of the tuples that arrived in the latest `length`.
    pub fn sliding_time(length: Duration, slide: Duration) -> Self {
        Window::Time { length, slide }
    }

    fn check(self) -> Outcome {
        let fits = match self {
            Window::Count { length, slide } => slide > 0 && slide <= length,
            Window::Time { length, slide } => !slide.is_zero() && slide <= length,
        };
        if fits {
            return Ok(());
        }
        let error = Error::new(
            ErrorCode::InvalidJob,
            format!("a window can't be kept: {self:?}"),
        );
        Err(error
            .hint("let the slide be at most the length, and more than nothing")
            .into())
    }
}

/// The code of one instance that processes windows of tuples, added to a topology as [`Windowed`].
///
/// A tuple is acked when it has left its last window, so the message timeout has to exceed the
/// length of a window. Emitted tuples are anchored to all tuples of the window. A failure fails and
/// removes all tuples of the window.
pub trait WindowedBolt: Send {
    /// Returns the emitted streams; see [`Bolt::outputs`].
    fn outputs(&self) -> Outputs {
        Outputs::none()
    }

    /// Called once before all other calls.
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        let _ = context;
        Ok(())
    }

    /// Processes one window.
    fn execute(&mut self, window: &WindowTuples<'_>, out: &mut Collector<'_>) -> Outcome;

    /// Called once after all other calls.
    fn close(&mut self) {}
}

/// The tuples of one window, in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub struct WindowTuples<'a> {
    buffer: &'a WindowBuffer,
    /// The end of the window in the buffer. The window begins at the start of the buffer.
    end: usize,
    /// The first tuple that was in no earlier window.
    fresh: usize,
}

impl<'a> WindowTuples<'a> {
    /// Returns the number of tuples.
    pub fn len(&self) -> usize {
        self.end
    }

    /// Returns true if there is no tuple.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all tuples.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Tuple<'a>> + use<'a> {
        let kept = self.buffer;
        (0..self.end).map(move |at| kept.tuple(at))
    }

    /// Returns the tuples that were in no earlier window.
    pub fn fresh(&self) -> impl ExactSizeIterator<Item = Tuple<'a>> + use<'a> {
        let kept = self.buffer;
        (self.fresh..self.end).map(move |at| kept.tuple(at))
    }
}

/// A buffered tuple that a window may still need, without its fields.
#[derive(Debug)]
struct Entry {
    held: PendingTuple,
    arrived: Duration,
    origin: usize,
}

/// The tuples that windows may still need; their fields are in one batch.
#[derive(Debug, Default)]
struct WindowBuffer {
    fields: TupleBatch,
    entries: VecDeque<Entry>,
    origins: Vec<Origin>,
}

impl WindowBuffer {
    fn tuple(&self, at: usize) -> Tuple<'_> {
        Tuple {
            bytes: self.fields.tuple(at),
            anchors: &[],
            origin: &self.origins[self.entries[at].origin],
            index: at,
        }
    }

    fn keep(&mut self, tuple: &Tuple<'_>, held: PendingTuple, arrived: Duration) -> Outcome {
        let known = self.origins.iter().position(|origin| {
            origin.stream == tuple.origin.stream && origin.component == tuple.origin.component
        });
        let origin = known.unwrap_or_else(|| {
            self.origins.push(tuple.origin.clone());
            self.origins.len() - 1
        });
        let fields = tuple.fields().len();
        let written = self
            .fields
            .push(|to| to.encoded(tuple.encoded(), fields), fields);
        written.map_err(|_| Failure::new("the windows of this instance hold more than 4 GiB"))?;
        self.entries.push_back(Entry {
            held,
            arrived,
            origin,
        });
        Ok(())
    }

    /// Removes the first `count` tuples.
    fn release(&mut self, count: usize) -> impl Iterator<Item = PendingTuple> {
        self.fields.discard_front(count);
        self.fields.compact();
        self.entries.drain(..count).map(|entry| entry.held)
    }

    /// Returns the number of tuples that arrived before this time.
    fn before(&self, time: Duration) -> usize {
        self.entries.partition_point(|entry| entry.arrived < time)
    }
}

/// A [`WindowedBolt`] as a bolt.
///
/// ```
/// use ardea_topology::{Collector, Outcome, Outputs, Window, WindowTuples, Windowed, WindowedBolt};
///
/// struct Average;
///
/// impl WindowedBolt for Average {
///     fn outputs(&self) -> Outputs {
///         Outputs::fields(["average"])
///     }
///
///     fn execute(&mut self, window: &WindowTuples<'_>, out: &mut Collector<'_>) -> Outcome {
///         let mut sum = 0.0;
///         for tuple in window.iter() {
///             sum += tuple.float("value")?;
///         }
///         Ok(out.emit([sum / window.len() as f64])?)
///     }
/// }
///
/// let bolt = || Windowed::new(Window::sliding_count(100, 10), Average);
/// # let _ = bolt();
/// ```
#[derive(Debug)]
pub struct Windowed<W> {
    window: Window,
    bolt: W,
    buffer: WindowBuffer,
    /// The number of buffered tuples, from the front, that were in some window.
    seen: usize,
    /// The end of the next window.
    ends: Duration,
    clock: Clock,
}

impl<W: WindowedBolt> Windowed<W> {
    /// Creates a bolt that passes the windows of `window` to `bolt`.
    pub fn new(window: Window, bolt: W) -> Self {
        Windowed {
            window,
            bolt,
            buffer: WindowBuffer::default(),
            seen: 0,
            ends: Duration::ZERO,
            clock: Clock::system(),
        }
    }

    /// Passes the window of the buffered tuples before `end` to the bolt.
    fn fire(&mut self, end: usize, out: &mut Collector<'_>) -> Outcome {
        let window = WindowTuples {
            buffer: &self.buffer,
            end,
            fresh: self.seen.min(end),
        };
        let held = self.buffer.entries.range(..end).map(|entry| &entry.held);
        let bolt = &mut self.bolt;
        let outcome = out.tied_to(held, |out| bolt.execute(&window, out));
        self.seen = self.seen.max(end);
        match outcome {
            Ok(()) => Ok(()),
            Err(failure) => {
                self.seen -= end;
                let mut lost = self.buffer.release(end);
                lost.try_for_each(|held| out.fail(held, &failure))
            }
        }
    }

    /// Acks the first `count` buffered tuples, which no window needs any more.
    fn ack_front(&mut self, count: usize, out: &mut Collector<'_>) {
        let count = count.min(self.buffer.entries.len());
        self.seen = self.seen.saturating_sub(count);
        self.buffer.release(count).for_each(|held| out.ack(held));
    }

    /// Acks the tuples that arrived before this time.
    fn ack_before(&mut self, time: Duration, out: &mut Collector<'_>) {
        self.ack_front(self.buffer.before(time), out);
    }

    fn fire_by_count(&mut self, length: usize, slide: usize, out: &mut Collector<'_>) -> Outcome {
        let end = self.buffer.entries.len();
        if end - self.seen < slide {
            return Ok(());
        }
        self.fire(end, out)?;
        let needed = length - slide;
        self.ack_front(self.buffer.entries.len().saturating_sub(needed), out);
        Ok(())
    }

    /// Passes all windows that have ended by `now` to the bolt.
    fn fire_by_time(
        &mut self,
        length: Duration,
        slide: Duration,
        now: Duration,
        out: &mut Collector<'_>,
    ) -> Outcome {
        while self.ends <= now {
            self.ack_before(self.ends.saturating_sub(length), out);
            let end = self.buffer.before(self.ends);
            if end > 0 {
                self.fire(end, out)?;
            } else if self.buffer.entries.is_empty() {
                // Without tuples, skips to the first end in the future.
                let steps = (now - self.ends).as_nanos() / slide.as_nanos();
                self.ends += slide * u32::try_from(steps).unwrap_or(u32::MAX);
            }
            self.ends += slide;
        }
        Ok(())
    }
}

impl<W: WindowedBolt> Bolt for Windowed<W> {
    fn outputs(&self) -> Outputs {
        self.bolt.outputs()
    }

    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        self.window.check()?;
        self.clock = context.clock().clone();
        if let Window::Time { slide, .. } = self.window {
            self.ends = self.clock.now() + slide;
        }
        self.bolt.prepare(context)
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let now = self.clock.now();
        if let Window::Time { length, slide } = self.window {
            self.fire_by_time(length, slide, now, out)?;
        }
        let held = out.hold(tuple);
        self.buffer.keep(tuple, held, now)?;
        match self.window {
            Window::Count { length, slide } => self.fire_by_count(length, slide, out),
            Window::Time { .. } => Ok(()),
        }
    }

    fn tick_interval(&self) -> Option<Duration> {
        match self.window {
            Window::Time { slide, .. } => Some(slide),
            Window::Count { .. } => None,
        }
    }

    fn tick(&mut self, out: &mut Collector<'_>) -> Outcome {
        match self.window {
            Window::Time { length, slide } => {
                self.fire_by_time(length, slide, self.clock.now(), out)
            }
            Window::Count { .. } => Ok(()),
        }
    }

    /// Passes a last, incomplete window to the bolt, if there are tuples that were in no window.
    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        if let Window::Time { length, .. } = self.window {
            // Only tuples that the next window would contain remain.
            self.ack_before(self.ends.saturating_sub(length), out);
        }
        if self.buffer.entries.len() > self.seen {
            self.fire(self.buffer.entries.len(), out)?;
        }
        self.ack_front(self.buffer.entries.len(), out);
        Ok(())
    }

    fn close(&mut self) {
        self.bolt.close();
    }
}
