//! Letting recorded events happen again, as slowly or fast as one likes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, Cut, CutWriter, Epoch, Inbox, InstanceContext, JobSignals, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, StateShape, Timestamp,
};

use crate::of_instance::OfInstance;

/// Holds back recorded events until their turn comes: `speed` seconds of recorded time pass in one second.
///
/// The first record comes at once; each later one when the recorded time since then, divided by the speed, has passed. Recorded
/// time that runs backwards, or is none at all, delays nothing: such a record comes with the one before it. The records, their order and their event
/// times stay as they are. In another life it goes on at the same pace from where it was, as if no time had passed in between; an instance
/// that there was not before begins anew. A job that is drained is not held back any more. The recorded time is asked once for each record.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ardea_core::{Chunk, Inbox, InstanceContext, ManualClock, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::ReplayP;
///
/// let hand = ManualClock::new();
/// let mut replay = ReplayP::new(Arc::new(|second: &i64| Timestamp::from_secs(*second)), 60.0);
/// replay.init(&InstanceContext { clock: hand.clock(), ..InstanceContext::detached("replay") })?;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([0i64, 60, 120].map(|second| (second, Timestamp::MIN)))));
/// let mut outbox = Outbox::new(1, 16);
/// replay.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(inbox.len(), 2);
///
/// hand.advance(Duration::from_secs(1));
/// replay.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(inbox.len(), 1, "a minute passes in a second");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ReplayP<T, F> {
    time: Arc<F>,
    speed: f64,
    /// Recorded time and the clock when the first record came.
    origin: Option<(Timestamp, Duration)>,
    /// When the turn of the first waiting record comes, if it has been asked already.
    next: Option<Duration>,
    clock: Clock,
    signals: Arc<JobSignals>,
    /// How far recorded time has come, where that has to survive it.
    kept: OfInstance<1>,
    records: PhantomData<fn(T)>,
}

impl<T, F> ReplayP<T, F>
where
    F: Fn(&T) -> Timestamp,
{
    /// By the recorded time `time(record)`, `speed` times as fast; a speed that isn't positive and finite holds nothing back.
    pub fn new(time: Arc<F>, speed: f64) -> Self {
        ReplayP {
            time,
            speed,
            origin: None,
            next: None,
            clock: Clock::system(),
            signals: Arc::default(),
            kept: OfInstance::default(),
            records: PhantomData,
        }
    }

    /// The recorded time whose turn it is now; [`Timestamp::MIN`] if no record has come.
    fn reached(&self) -> Timestamp {
        let Some((first, started)) = self.origin else {
            return Timestamp::MIN;
        };
        let since = self.clock.now().saturating_sub(started);
        let since = Duration::try_from_secs_f64(since.as_secs_f64() * self.speed);
        first + since.unwrap_or(Duration::ZERO)
    }

    /// When a record's turn comes, on the clock; that of the first is `now`.
    fn due(&mut self, recorded: Timestamp, now: Duration) -> Duration {
        if !recorded.is_event_time() {
            return now;
        }
        let (first, started) = *self.origin.get_or_insert((recorded, now));
        let seconds = recorded.since(first).as_secs_f64() / self.speed;
        started.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
    }
}

impl<T, F> Processor for ReplayP<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> Timestamp + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        self.signals = Arc::clone(&context.signals);
        self.kept.attach(context);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let mut out = outbox.lane::<T>(Ordinal::FIRST)?;
        let now = self.clock.now();
        let mut guard = RecordGuard::new();
        let mut ready = 0;
        for record in rows.values().iter().take(out.room()) {
            let due = match self.next.take() {
                Some(due) => due,
                None => self.due((self.time)(record), now),
            };
            if due > now && !self.signals.is_draining() {
                self.next = Some(due);
                break;
            }
            ready += 1;
            guard.advance();
        }
        out.rows().append_front(rows, ready);
        if let Some(due) = self.next {
            outbox.wake_at(due);
        }
        Ok(())
    }

    fn states(&self) -> Vec<StateShape> {
        OfInstance::<1>::states()
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.kept.take_cut([self.reached().as_micros()])
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.kept.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some([reached]) = self.kept.own()?
            && reached != Timestamp::MIN.as_micros()
        {
            self.origin = Some((Timestamp::from_micros(reached), self.clock.now()));
        }
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Chunk, ManualClock, Rows};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn recorded_time_that_runs_backwards_delays_nothing() {
        let hand = ManualClock::new();
        let mut replay = ReplayP::new(Arc::new(|second: &i64| Timestamp::from_secs(*second)), 1.0);
        replay
            .init(&InstanceContext {
                clock: hand.clock(),
                ..InstanceContext::detached("replay")
            })
            .unwrap();
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(Rows::from_iter(
            [10i64, 3, 11].map(|second| (second, Timestamp::MIN)),
        )));
        let mut outbox = Outbox::new(1, 16);
        replay
            .process(Ordinal::FIRST, &mut inbox, &mut outbox)
            .unwrap();
        assert_eq!(inbox.len(), 1);
        assert_eq!(outbox.take_wake_at(), Some(Duration::from_secs(1)));
    }

    /// A first record without a time would put all others off for ever.
    #[test]
    fn a_record_without_a_recorded_time_holds_nothing_back() {
        let hand = ManualClock::new();
        let time = |time: &i64| Timestamp::from_micros(*time);
        let mut replay = ReplayP::new(Arc::new(time), 1.0);
        replay.clock = hand.clock();
        let mut inbox = Inbox::default();
        let times = [i64::MIN, 5_000_000, i64::MAX, 5_500_000, 6_000_000];
        inbox.fill(Chunk::new(Rows::from_iter(
            times.map(|time| (time, Timestamp::MIN)),
        )));
        let mut outbox = Outbox::new(1, 16);
        for waiting in [2, 1, 0] {
            replay
                .process(Ordinal::FIRST, &mut inbox, &mut outbox)
                .unwrap();
            assert_eq!(inbox.len(), waiting);
            hand.advance(Duration::from_millis(500));
        }
    }

    #[test]
    fn the_time_of_a_record_that_waits_is_asked_once() {
        let (hand, asked) = (ManualClock::new(), AtomicU32::new(0));
        let time = move |second: &i64| {
            asked.fetch_add(1, Ordering::Relaxed);
            Timestamp::from_secs(*second)
                + Duration::from_secs(asked.load(Ordering::Relaxed).into())
        };
        let mut replay = ReplayP::new(Arc::new(time), 1.0);
        replay.clock = hand.clock();
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(Rows::from_iter(
            [0i64, 1].map(|second| (second, Timestamp::MIN)),
        )));
        let mut outbox = Outbox::new(1, 16);
        for waiting in [1, 1, 0] {
            replay
                .process(Ordinal::FIRST, &mut inbox, &mut outbox)
                .unwrap();
            assert_eq!(inbox.len(), waiting);
            hand.advance(Duration::from_secs(1));
        }
    }

    #[test]
    fn without_a_speed_nothing_is_held_back() {
        for speed in [f64::INFINITY, 0.0, -1.0, f64::NAN] {
            let mut replay = ReplayP::new(
                Arc::new(|second: &i64| Timestamp::from_secs(*second)),
                speed,
            );
            let mut inbox = Inbox::default();
            inbox.fill(Chunk::new(Rows::from_iter(
                [0i64, 1_000_000].map(|second| (second, Timestamp::MIN)),
            )));
            let mut outbox = Outbox::new(1, 16);
            replay
                .process(Ordinal::FIRST, &mut inbox, &mut outbox)
                .unwrap();
            assert!(inbox.is_empty(), "{speed}");
        }
    }
}
