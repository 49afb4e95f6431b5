//! Assignment and use of event time.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Boundedness, OnError, Timestamp};
use ardea_operators::{
    ArrivalTimeP, EventTime, MapTimedP, NativeTimeP, ReplayP, StampP, WatermarkPolicy, raw_of,
};

use crate::stream::{HasEventTime, Stream, Timed};

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Assigns each record the event time `time(record)`. The stream can then be windowed.
    ///
    /// `time` returns a [`Timestamp`](ardea_core::Timestamp), or an `Option` or `Result` of one. A
    /// record becomes a dead letter if it has no time, if `time` panics, or if the time is [too far
    /// ahead](WatermarkPolicy::max_ahead). `policy` sets the maximum out-of-orderness, and the time
    /// after which a silent source no longer holds back the watermark.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy};
    ///
    /// let p = Pipeline::new("timed");
    /// let five_late = WatermarkPolicy::out_of_order(Duration::from_secs(5));
    /// let timed = p.read_from(items(vec![12i64, 10])).with_timestamps(|t| Timestamp::from_secs(*t), five_late);
    /// # timed.collect();
    /// ```
    pub fn with_timestamps<R, F>(self, time: F, policy: WatermarkPolicy) -> Stream<T, B, Timed>
    where
        R: EventTime + 'static,
        F: Fn(&T) -> R + Send + Sync + 'static,
    {
        let time = Arc::new(time);
        self.follow::<T, _>("timestamps", move || StampP::new(Arc::clone(&time), policy))
            .repeatable()
            .retyped()
    }

    /// Works like [`with_timestamps`](Self::with_timestamps), with `on_error` as the policy for
    /// records without a valid time.
    pub fn with_timestamps_or<R, F>(
        self,
        time: F,
        policy: WatermarkPolicy,
        on_error: OnError,
    ) -> Stream<T, B, Timed>
    where
        T: Debug,
        R: EventTime + 'static,
        F: Fn(&T) -> R + Send + Sync + 'static,
    {
        let time = Arc::new(time);
        self.follow::<T, _>("timestamps", move || {
            StampP::new(Arc::clone(&time), policy).on_error(on_error, raw_of::<T>)
        })
        .repeatable()
        .retyped()
    }

    /// Uses the event times set by the source. A record without an event time, or with a time [too
    /// far ahead](WatermarkPolicy::max_ahead), becomes a dead letter.
    pub fn with_native_timestamps(self, policy: WatermarkPolicy) -> Stream<T, B, Timed> {
        self.follow::<T, _>("timestamps", move || NativeTimeP::<T>::new(policy))
            .repeatable()
            .retyped()
    }

    /// Works like [`with_native_timestamps`](Self::with_native_timestamps), with `on_error` as the
    /// policy for records without a valid time.
    pub fn with_native_timestamps_or(
        self,
        policy: WatermarkPolicy,
        on_error: OnError,
    ) -> Stream<T, B, Timed>
    where
        T: Debug,
    {
        self.follow::<T, _>("timestamps", move || {
            NativeTimeP::<T>::new(policy).on_error(on_error, raw_of::<T>)
        })
        .repeatable()
        .retyped()
    }

    /// Uses the event times and the watermarks of the source, without checks.
    pub fn with_source_time(self) -> Stream<T, B, Timed> {
        self.retyped()
    }

    /// Assigns each record its time of arrival as event time. Results are then not repeatable, and
    /// are delayed by at most `tick`.
    pub fn with_arrival_timestamps(self, tick: Duration) -> Stream<T, B, Timed> {
        self.follow::<T, _>("timestamps", move || ArrivalTimeP::<T>::new(tick))
            .nondeterministic("it assigns times of arrival")
            .retyped()
    }

    /// Applies `f` to each record and its event time. The result keeps the event time.
    ///
    /// ```
    /// use ardea_connectors::collections::items_with_times;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy};
    ///
    /// let p = Pipeline::new("dated");
    /// let out = p
    ///     .read_from(items_with_times([("landed", Timestamp::from_secs(90))]))
    ///     .with_native_timestamps(WatermarkPolicy::in_order())
    ///     .map_timed(|what, time| format!("{what} at {time}"))
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), ["landed at 1970-01-01T00:01:30Z"]);
    /// ```
    pub fn map_timed<U, F>(self, f: F) -> Stream<U, B, E>
    where
        E: HasEventTime,
        U: Send + 'static,
        F: Fn(T, Timestamp) -> U + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        self.follow("map-timed", move || MapTimedP::new(Arc::clone(&f)))
            .repeatable()
    }

    /// Replays recorded events: `speed` seconds of recorded time pass per second. An infinite speed
    /// delays nothing.
    ///
    /// Records keep their order. `time` returns the recorded time, which may differ from the event
    /// time.
    pub fn replay<F>(self, time: F, speed: f64) -> Stream<T, B, E>
    where
        F: Fn(&T) -> Timestamp + Send + Sync + 'static,
    {
        let time = Arc::new(time);
        self.follow("replay", move || ReplayP::new(Arc::clone(&time), speed))
    }
}
