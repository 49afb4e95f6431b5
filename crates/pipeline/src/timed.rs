//! Giving a stream its event time, and using it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Boundedness, OnError, Timestamp};
use ardea_operators::{
    ArrivalTimeP, EventTime, MapTimedP, NativeTimeP, ReplayP, StampP, WatermarkPolicy, raw_of,
};

use crate::stream::{HasEventTime, Stream, Timed};

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Takes the event time from each record: from here on the stream can be windowed.
    ///
    /// `time` returns a [`Timestamp`](ardea_core::Timestamp), or an `Option` or `Result` of one; a record without a time, or on which
    /// `time` panics, becomes a dead letter, and so does one with a time [too far ahead](WatermarkPolicy::max_ahead). `policy` says how far out of order
    /// records may be, and when a silent source stops holding back time.
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
            .retyped()
    }

    /// As [`with_timestamps`](Self::with_timestamps); `on_error` says what becomes of a record without a time.
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
        .retyped()
    }

    /// Uses the event times that the source gave its records. A record without one becomes a dead letter, and so does one with a
    /// time [too far ahead](WatermarkPolicy::max_ahead).
    pub fn with_native_timestamps(self, policy: WatermarkPolicy) -> Stream<T, B, Timed> {
        self.follow::<T, _>("timestamps", move || NativeTimeP::<T>::new(policy))
            .retyped()
    }

    /// As [`with_native_timestamps`](Self::with_native_timestamps); `on_error` sets the fate of a record without a valid time.
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
        .retyped()
    }

    /// Trusts the source to give both the event times and the watermarks; nothing is added.
    pub fn with_source_time(self) -> Stream<T, B, Timed> {
        self.retyped()
    }

    /// Gives each record the time at which it is read here. Results are then not repeatable; they come at most `tick` late.
    pub fn with_arrival_timestamps(self, tick: Duration) -> Stream<T, B, Timed> {
        self.follow::<T, _>("timestamps", move || ArrivalTimeP::<T>::new(tick))
            .retyped()
    }

    /// Applies `f` to each record and its event time, which the result keeps.
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
    }

    /// Lets recorded events happen again: `speed` seconds of recorded time pass in one second. An infinite speed holds nothing back.
    ///
    /// Records stay in their order; `time` gives the recorded time, which need not be the event time that windows use.
    pub fn replay<F>(self, time: F, speed: f64) -> Stream<T, B, E>
    where
        F: Fn(&T) -> Timestamp + Send + Sync + 'static,
    {
        let time = Arc::new(time);
        self.follow("replay", move || ReplayP::new(Arc::clone(&time), speed))
    }
}
