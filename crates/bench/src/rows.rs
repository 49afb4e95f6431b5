//! The events of a benchmark as sequences that fill columns.

use std::ops::Range;

use ardea_core::{Instance, Timestamp};

/// A sequence of events in the order of their times.
pub(crate) trait Events: Clone + Send + Sync + 'static {
    type Event: Send + 'static;

    /// Returns the event with this index, at `date_time` milliseconds.
    fn event(&self, index: u64, date_time: i64) -> Self::Event;

    /// Returns the events of one of several generators; each generator has different ones.
    fn of_instance(&self, instance: Instance) -> Self;

    /// Applies `f` to each event in the generator's own loop; only its result is stored.
    fn mapped<U, F>(self, f: F) -> Mapped<Self, F>
    where
        F: Fn(Self::Event) -> U,
    {
        Mapped { events: self, f }
    }

    /// Filters the events by `keep`; the others are never stored.
    fn kept<F>(self, keep: F) -> FilteredEvents<Self, F>
    where
        F: Fn(&Self::Event) -> bool,
    {
        FilteredEvents { events: self, keep }
    }
}

/// The records that a generator emits: events, or the output of the query's first step.
pub(crate) trait EventRows: Clone + Send + Sync + 'static {
    type Row: Send + 'static;

    /// Returns the records of one of several generators; each generator has different ones.
    fn of_instance(&self, instance: Instance) -> Self;

    /// Appends the records of a run of events that share a millisecond; `time` returns the event
    /// time of each.
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<Self::Row>,
        times: &mut Vec<Timestamp>,
    );
}

impl<E: Events> EventRows for E {
    type Row = E::Event;

    fn of_instance(&self, instance: Instance) -> Self {
        Events::of_instance(self, instance)
    }

    #[inline]
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<E::Event>,
        times: &mut Vec<Timestamp>,
    ) {
        rows.extend(run.clone().map(|index| self.event(index, date_time)));
        times.extend(run.map(time));
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Mapped<E, F> {
    events: E,
    f: F,
}

impl<E, U, F> EventRows for Mapped<E, F>
where
    E: Events,
    U: Send + 'static,
    F: Fn(E::Event) -> U + Clone + Send + Sync + 'static,
{
    type Row = U;

    fn of_instance(&self, instance: Instance) -> Self {
        Mapped {
            events: Events::of_instance(&self.events, instance),
            f: self.f.clone(),
        }
    }

    #[inline]
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<U>,
        times: &mut Vec<Timestamp>,
    ) {
        rows.extend(
            run.clone()
                .map(|index| (self.f)(self.events.event(index, date_time))),
        );
        times.extend(run.map(time));
    }
}

/// The result of [`Events::kept`].
#[derive(Clone, Copy)]
pub(crate) struct FilteredEvents<E, F> {
    events: E,
    keep: F,
}

impl<E, F> EventRows for FilteredEvents<E, F>
where
    E: Events,
    F: Fn(&E::Event) -> bool + Clone + Send + Sync + 'static,
{
    type Row = E::Event;

    fn of_instance(&self, instance: Instance) -> Self {
        FilteredEvents {
            events: Events::of_instance(&self.events, instance),
            keep: self.keep.clone(),
        }
    }

    #[inline]
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<E::Event>,
        times: &mut Vec<Timestamp>,
    ) {
        for index in run {
            let event = self.events.event(index, date_time);
            if (self.keep)(&event) {
                rows.push(event);
                times.push(time(index));
            }
        }
    }
}
