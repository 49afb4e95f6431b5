//! Bolts that look at many tuples at a time: the latest so many, or those of the latest so long.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode};

use crate::batch::TupleBatch;
use crate::bolt::Bolt;
use crate::collector::{Collector, Held};
use crate::context::ComponentContext;
use crate::failure::{Failure, Outcome};
use crate::outputs::Outputs;
use crate::tuple::{Origin, Tuple};

/// Which tuples a window holds, and when there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// After every `slide` tuples a window of the latest `length`; the first ones hold fewer.
    Count {
        /// How many tuples a window holds.
        length: usize,
        /// After how many there is another.
        slide: usize,
    },
    /// Every `slide` a window of the tuples that arrived in the latest `length`, if there are any.
    Time {
        /// How long a window is.
        length: Duration,
        /// How long after it there is another.
        slide: Duration,
    },
}

impl Window {
    /// Every tuple in one window of so many.
    pub fn tumbling_count(length: usize) -> Self {
        Window::sliding_count(length, length)
    }

    /// After every `slide` tuples a window of the latest `length`.
    pub fn sliding_count(length: usize, slide: usize) -> Self {
        Window::Count { length, slide }
    }

    /// Every tuple in one window, by when it arrives.
    pub fn tumbling_time(length: Duration) -> Self {
        Window::sliding_time(length, length)
    }

    /// Every `slide` a window of what arrived in the latest `length`.
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

/// Takes windows of tuples: the code of one instance, given to a topology as [`Windowed`].
///
/// A tuple is acked when it has left the last window that holds it, so the message timeout has to be longer than a window. What is emitted
/// is tied to all tuples of the window; a failure fails them all, and they leave.
pub trait WindowedBolt: Send {
    /// The streams that it emits; see [`Bolt::outputs`].
    fn outputs(&self) -> Outputs {
        Outputs::none()
    }

    /// Called once before all others.
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        let _ = context;
        Ok(())
    }

    /// Deals with one window.
    fn execute(&mut self, window: &WindowTuples<'_>, out: &mut Collector<'_>) -> Outcome;

    /// Called once after all others.
    fn close(&mut self) {}
}

/// The tuples of one window, in the order in which they arrived.
#[derive(Clone, Copy, Debug)]
pub struct WindowTuples<'a> {
    kept: &'a Kept,
    /// The end among the kept, the first of which is the first of the window.
    end: usize,
    /// The first that no window held before.
    fresh: usize,
}

impl<'a> WindowTuples<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.end
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Tuple<'a>> + use<'a> {
        let kept = self.kept;
        (0..self.end).map(move |at| kept.tuple(at))
    }

    /// Those that no earlier window held.
    pub fn fresh(&self) -> impl ExactSizeIterator<Item = Tuple<'a>> + use<'a> {
        let kept = self.kept;
        (self.fresh..self.end).map(move |at| kept.tuple(at))
    }
}

/// A tuple that a window may still need, without its fields.
#[derive(Debug)]
struct Entry {
    held: Held,
    arrived: Duration,
    origin: usize,
}

/// The tuples that windows may still need; their fields lie in one batch.
#[derive(Debug, Default)]
struct Kept {
    fields: TupleBatch,
    entries: VecDeque<Entry>,
    origins: Vec<Origin>,
}

impl Kept {
    fn tuple(&self, at: usize) -> Tuple<'_> {
        Tuple {
            bytes: self.fields.tuple(at),
            anchors: &[],
            origin: &self.origins[self.entries[at].origin],
            index: at,
        }
    }

    fn keep(&mut self, tuple: &Tuple<'_>, held: Held, arrived: Duration) -> Outcome {
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

    /// Lets go of the first `count`.
    fn release(&mut self, count: usize) -> impl Iterator<Item = Held> {
        self.fields.discard_front(count);
        self.fields.compact();
        self.entries.drain(..count).map(|entry| entry.held)
    }

    /// How many arrived before this time.
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
    kept: Kept,
    /// How many of the kept, from the front, some window has held.
    seen: usize,
    /// When the next window ends.
    ends: Duration,
    clock: Clock,
}

impl<W: WindowedBolt> Windowed<W> {
    /// Gives `bolt` the windows that `window` says.
    pub fn new(window: Window, bolt: W) -> Self {
        Windowed {
            window,
            bolt,
            kept: Kept::default(),
            seen: 0,
            ends: Duration::ZERO,
            clock: Clock::system(),
        }
    }

    /// Gives the bolt the window of the kept tuples before `end`.
    fn fire(&mut self, end: usize, out: &mut Collector<'_>) -> Outcome {
        let window = WindowTuples {
            kept: &self.kept,
            end,
            fresh: self.seen.min(end),
        };
        let held = self.kept.entries.range(..end).map(|entry| &entry.held);
        let bolt = &mut self.bolt;
        let outcome = out.tied_to(held, |out| bolt.execute(&window, out));
        self.seen = self.seen.max(end);
        match outcome {
            Ok(()) => Ok(()),
            Err(failure) => {
                self.seen -= end;
                let mut lost = self.kept.release(end);
                lost.try_for_each(|held| out.fail(held, &failure))
            }
        }
    }

    /// Acks the first `count` of the kept tuples, which no window needs any more.
    fn let_go(&mut self, count: usize, out: &mut Collector<'_>) {
        let count = count.min(self.kept.entries.len());
        self.seen = self.seen.saturating_sub(count);
        self.kept.release(count).for_each(|held| out.ack(held));
    }

    /// Acks those that arrived before this time.
    fn let_go_before(&mut self, time: Duration, out: &mut Collector<'_>) {
        self.let_go(self.kept.before(time), out);
    }

    fn fire_by_count(&mut self, length: usize, slide: usize, out: &mut Collector<'_>) -> Outcome {
        let end = self.kept.entries.len();
        if end - self.seen < slide {
            return Ok(());
        }
        self.fire(end, out)?;
        let needed = length - slide;
        self.let_go(self.kept.entries.len().saturating_sub(needed), out);
        Ok(())
    }

    /// Gives the bolt all windows that have ended by `now`.
    fn fire_by_time(
        &mut self,
        length: Duration,
        slide: Duration,
        now: Duration,
        out: &mut Collector<'_>,
    ) -> Outcome {
        while self.ends <= now {
            self.let_go_before(self.ends.saturating_sub(length), out);
            let end = self.kept.before(self.ends);
            if end > 0 {
                self.fire(end, out)?;
            } else if self.kept.entries.is_empty() {
                // Nothing in sight: on to the first end that is still to come.
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
        self.kept.keep(tuple, held, now)?;
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

    /// If there are tuples that no window has held: a last window, the next one as far as it has come.
    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        if let Window::Time { length, .. } = self.window {
            // Only those that the next window would still hold.
            self.let_go_before(self.ends.saturating_sub(length), out);
        }
        if self.kept.entries.len() > self.seen {
            self.fire(self.kept.entries.len(), out)?;
        }
        self.let_go(self.kept.entries.len(), out);
        Ok(())
    }

    fn close(&mut self) {
        self.bolt.close();
    }
}
