//! Replay of recorded events at a chosen speed.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Epoch, Inbox, InstanceContext, JobSignals, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape,
    Timestamp,
};

use crate::instance_state::InstanceCounters;

/// Delays recorded events so that `speed` seconds of recorded time pass per second.
///
/// The first record is emitted at once. Each later record is emitted when the recorded time since
/// the first, divided by `speed`, has passed. A record without recorded time, or with an earlier
/// one, is emitted with the record before it. Records keep their order and event times.
///
/// After a restore, the replay continues at the same pace from its position; an instance without
/// restored state starts from the beginning. A draining job is not delayed. The recorded time is
/// read once per record.
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
    /// The recorded time and the clock at the first record.
    origin: Option<(Timestamp, Duration)>,
    /// The due time of the first waiting record, if already computed.
    next: Option<Duration>,
    clock: Clock,
    signals: Arc<JobSignals>,
    /// The checkpointed position in recorded time.
    kept: InstanceCounters<1>,
    records: PhantomData<fn(T)>,
}

impl<T, F> ReplayP<T, F>
where
    F: Fn(&T) -> Timestamp,
{
    /// Creates a replay by the recorded time `time(record)`, `speed` times as fast. A speed that is
    /// not positive and finite delays nothing.
    pub fn new(time: Arc<F>, speed: f64) -> Self {
        ReplayP {
            time,
            speed,
            origin: None,
            next: None,
            clock: Clock::system(),
            signals: Arc::default(),
            kept: InstanceCounters::default(),
            records: PhantomData,
        }
    }

    /// Returns the recorded time reached now; [`Timestamp::MIN`] before the first record.
    fn reached(&self) -> Timestamp {
        let Some((first, started)) = self.origin else {
            return Timestamp::MIN;
        };
        let since = self.clock.now().saturating_sub(started);
        let since = Duration::try_from_secs_f64(since.as_secs_f64() * self.speed);
        first + since.unwrap_or(Duration::ZERO)
    }

    /// Returns the due time of a record on the clock. The first record is due at `now`.
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

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, F> Checkpointed for ReplayP<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> Timestamp + Send + Sync + 'static,
{
    fn states(&mut self) -> Vec<StateShape> {
        InstanceCounters::<1>::states()
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.kept.take_snapshot([self.reached().as_micros()])
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.kept.write_snapshot(writer)
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
    use ardea_core::{Chunk, ManualClock, OutboxRuntime, Rows};
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

    /// A first record without recorded time must not delay all others forever.
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
