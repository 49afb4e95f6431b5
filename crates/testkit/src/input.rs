//! The events fed to one input of a processor.

use std::time::Duration;

use std::rc::Rc;

use ardea_core::{Chunk, Instance, Key, PartitionId, Rows, Timestamp, Watermark};

/// The events of one input, in order: records, watermarks, ends of epochs.
///
/// The input ends after its last event. A plain list of values converts into an input of records
/// without time.
///
/// ```
/// use ardea_testkit::{TestInput, Timestamp};
///
/// let at = Timestamp::from_secs;
/// let input = TestInput::new().record("a", at(1)).records([("b", at(2)), ("c", at(2))]).watermark(at(2)).barrier();
/// assert_eq!(input.len(), 5);
/// ```
#[derive(Clone, Debug)]
pub struct TestInput<T> {
    events: Vec<Event<T>>,
}

#[derive(Clone, Debug)]
enum Event<T> {
    Record(T, Timestamp),
    Other(EventKind),
}

/// An event without its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    Record,
    Watermark(Watermark),
    Idle,
    Barrier,
    Advance(Duration),
}

impl<T> Default for TestInput<T> {
    fn default() -> Self {
        TestInput { events: Vec::new() }
    }
}

impl<T> TestInput<T> {
    /// Creates an input without events.
    pub fn new() -> Self {
        TestInput::default()
    }

    /// Appends a record with its event time.
    pub fn record(mut self, value: T, time: Timestamp) -> Self {
        self.events.push(Event::Record(value, time));
        self
    }

    /// Appends records with their event times.
    pub fn records(mut self, records: impl IntoIterator<Item = (T, Timestamp)>) -> Self {
        self.events.extend(
            records
                .into_iter()
                .map(|(value, time)| Event::Record(value, time)),
        );
        self
    }

    /// Appends records without event time.
    pub fn values(self, values: impl IntoIterator<Item = T>) -> Self {
        self.records(values.into_iter().map(|value| (value, Timestamp::MIN)))
    }

    /// Appends a watermark: no earlier time follows on this input. The processor receives the
    /// minimum over its inputs.
    pub fn watermark(mut self, time: Timestamp) -> Self {
        self.events
            .push(Event::Other(EventKind::Watermark(Watermark(time))));
        self
    }

    /// Appends an idle marker: this input does not hold back the watermark until its next record.
    pub fn idle(mut self) -> Self {
        self.events.push(Event::Other(EventKind::Idle));
        self
    }

    /// Appends the end of an epoch. The input is blocked until all other inputs have reached the
    /// epoch's end or have ended. The first epoch is 1.
    pub fn barrier(mut self) -> Self {
        self.events.push(Event::Other(EventKind::Barrier));
        self
    }

    /// Appends an advance of the test's clock; the processor is woken if its deadline passes.
    pub fn advance_clock(mut self, by: Duration) -> Self {
        self.events.push(Event::Other(EventKind::Advance(by)));
        self
    }

    /// Returns copies of the records among the events `from..to` for which `is_wanted` is true.
    fn copies(&self, from: usize, to: usize, is_wanted: impl Fn(&T) -> bool) -> Chunk
    where
        T: Clone + Send + 'static,
    {
        let record = |event: &Event<T>| match event {
            Event::Record(value, time) if is_wanted(value) => Some((value.clone(), *time)),
            _ => None,
        };
        let events = self.events[from..to].iter();
        Chunk::new(events.filter_map(record).collect::<Rows<T>>())
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl<T> From<Vec<T>> for TestInput<T> {
    fn from(values: Vec<T>) -> Self {
        TestInput::new().values(values)
    }
}

impl<T, const N: usize> From<[T; N]> for TestInput<T> {
    fn from(values: [T; N]) -> Self {
        TestInput::new().values(values)
    }
}

/// An input with the record type erased.
pub(crate) trait InputPlan {
    /// Returns the events without their records.
    fn kinds(&self) -> Vec<EventKind>;

    /// Returns copies of those records among the events `from..to` that are routed to `instance`.
    fn chunk(&self, from: usize, to: usize, instance: Instance) -> Chunk;

    /// Returns the routing of records to instances.
    fn routing(&self) -> InputRouting;
}

/// The routing of an input's records to instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InputRouting {
    /// Not known.
    Unknown,
    /// To the instance that owns the record's key.
    ByKey,
    /// To all instances.
    Broadcast,
}

/// An input whose records are sent to all instances.
pub(crate) struct BroadcastInput<T>(pub(crate) TestInput<T>);

impl<T: Clone + Send + 'static> InputPlan for BroadcastInput<T> {
    fn kinds(&self) -> Vec<EventKind> {
        self.0.kinds()
    }

    fn chunk(&self, from: usize, to: usize, instance: Instance) -> Chunk {
        self.0.chunk(from, to, instance)
    }

    fn routing(&self) -> InputRouting {
        InputRouting::Broadcast
    }
}

/// An input whose records are partitioned by key.
pub(crate) struct KeyedInput<T> {
    pub(crate) events: TestInput<T>,
    partition: Rc<dyn Fn(&T) -> PartitionId>,
}

impl<T> KeyedInput<T> {
    pub(crate) fn new<K: Key>(events: TestInput<T>, key: impl Fn(&T) -> K + 'static) -> Self {
        KeyedInput {
            events,
            partition: Rc::new(move |record| PartitionId::of(&key(record))),
        }
    }
}

impl<T: Clone + Send + 'static> InputPlan for KeyedInput<T> {
    fn kinds(&self) -> Vec<EventKind> {
        self.events.kinds()
    }

    fn chunk(&self, from: usize, to: usize, instance: Instance) -> Chunk {
        let owner = |record: &T| (self.partition)(record).owner(instance.parallelism);
        self.events
            .copies(from, to, |record| owner(record) == instance.index)
    }

    fn routing(&self) -> InputRouting {
        InputRouting::ByKey
    }
}

impl<T: Clone + Send + 'static> InputPlan for TestInput<T> {
    fn kinds(&self) -> Vec<EventKind> {
        let kind = |event: &Event<T>| match event {
            Event::Record(..) => EventKind::Record,
            Event::Other(kind) => *kind,
        };
        self.events.iter().map(kind).collect()
    }

    fn chunk(&self, from: usize, to: usize, _: Instance) -> Chunk {
        self.copies(from, to, |_| true)
    }

    fn routing(&self) -> InputRouting {
        InputRouting::Unknown
    }
}
