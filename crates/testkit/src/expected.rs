//! The expected content of one output, and its comparison.

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;

use ardea_core::{Epoch, Timestamp, Watermark};

use crate::difference::{compare_ordered, compare_unordered};

/// A record or marker emitted by a processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Emitted<U> {
    /// A record with its event time.
    Record(U, Timestamp),
    /// A watermark.
    Watermark(Watermark),
    /// The idle marker.
    Idle,
    /// The end of an epoch.
    Barrier(Epoch),
}

impl<U> Emitted<U> {
    fn into_record(self) -> Option<(U, Timestamp)> {
        match self {
            Emitted::Record(value, time) => Some((value, time)),
            Emitted::Watermark(_) | Emitted::Idle | Emitted::Barrier(_) => None,
        }
    }
}

/// Compares the whole output of a variant; the error describes the difference.
type Compare<U> = dyn Fn(Vec<Emitted<U>>) -> Result<(), String>;

/// The expected content of one output, in every variant of a test.
///
/// A plain list of values converts into the expectation of these values in this order, with any
/// event times.
pub struct Expected<U> {
    pub(crate) compare: Rc<Compare<U>>,
    /// The comparison for records in any order, if the expectation allows one.
    pub(crate) compare_unordered: Option<Rc<Compare<U>>>,
}

impl<U> Clone for Expected<U> {
    fn clone(&self) -> Self {
        Expected {
            compare: Rc::clone(&self.compare),
            compare_unordered: self.compare_unordered.clone(),
        }
    }
}

impl<U> std::fmt::Debug for Expected<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Expected<{}>", std::any::type_name::<U>())
    }
}

fn records<U>(emitted: Vec<Emitted<U>>) -> impl Iterator<Item = (U, Timestamp)> {
    emitted.into_iter().filter_map(Emitted::into_record)
}

fn values<U>(emitted: Vec<Emitted<U>>) -> Vec<U> {
    records(emitted).map(|(value, _)| value).collect()
}

impl<U: 'static> Expected<U> {
    fn comparing(compare: impl Fn(Vec<Emitted<U>>) -> Result<(), String> + 'static) -> Self {
        Expected {
            compare: Rc::new(compare),
            compare_unordered: None,
        }
    }

    /// Sets the comparison for records in any order.
    fn or_unordered(
        mut self,
        compare: impl Fn(Vec<Emitted<U>>) -> Result<(), String> + 'static,
    ) -> Self {
        self.compare_unordered = Some(Rc::new(compare));
        self
    }

    /// Expects any output that `check` accepts. `check` gets the records with their times and
    /// describes the error.
    pub fn check(check: impl Fn(&[(U, Timestamp)]) -> Result<(), String> + 'static) -> Self {
        Self::comparing(move |emitted| check(&records(emitted).collect::<Vec<_>>()))
    }

    /// Expects any output that `check` accepts. `check` gets the records and markers in order.
    pub fn check_events(check: impl Fn(&[Emitted<U>]) -> Result<(), String> + 'static) -> Self {
        Self::comparing(move |emitted| check(&emitted))
    }

    /// Expects any records: only the watermarks of the output are checked.
    pub fn anything() -> Self {
        Self::comparing(|_| Ok(()))
    }

    /// Accepts any output and stores it in `into`.
    pub(crate) fn captured(into: Rc<RefCell<Vec<Emitted<U>>>>) -> Self {
        Self::comparing(move |emitted| {
            *into.borrow_mut() = emitted;
            Ok(())
        })
    }
}

impl<U: PartialEq + Debug + 'static> Expected<U> {
    /// Expects these values in this order, with any event times.
    pub fn ordered(expected: impl IntoIterator<Item = U>) -> Self {
        let expected: Rc<[U]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| compare_ordered("record", &expected, &values(emitted)))
            .or_unordered(move |emitted| compare_unordered(&any_order, &values(emitted)))
    }

    /// Expects these values in any order, each as often as listed, with any event times. Quadratic
    /// in the number of records that arrive in another order than listed.
    pub fn unordered(expected: impl IntoIterator<Item = U>) -> Self {
        let expected: Rc<[U]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| compare_unordered(&expected, &values(emitted)))
            .or_unordered(move |emitted| compare_unordered(&any_order, &values(emitted)))
    }

    /// Expects these values with these times, in this order.
    pub fn timed(expected: impl IntoIterator<Item = (U, Timestamp)>) -> Self {
        let expected: Rc<[(U, Timestamp)]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| {
            compare_ordered("record", &expected, &records(emitted).collect::<Vec<_>>())
        })
        .or_unordered(move |emitted| {
            compare_unordered(&any_order, &records(emitted).collect::<Vec<_>>())
        })
    }

    /// Expects these values with these times, in any order, each as often as listed.
    pub fn timed_unordered(expected: impl IntoIterator<Item = (U, Timestamp)>) -> Self {
        let expected: Rc<[(U, Timestamp)]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| {
            compare_unordered(&expected, &records(emitted).collect::<Vec<_>>())
        })
        .or_unordered(move |emitted| {
            compare_unordered(&any_order, &records(emitted).collect::<Vec<_>>())
        })
    }

    /// Expects these records and markers in this order: for tests of the output before and after a
    /// watermark.
    pub fn events(expected: impl IntoIterator<Item = Emitted<U>>) -> Self {
        let expected: Vec<Emitted<U>> = expected.into_iter().collect();
        Self::comparing(move |emitted| compare_ordered("event", &expected, &emitted))
    }

    /// Expects the same records with the same times in the same order in all variants; the first
    /// variant sets them.
    pub fn same_in_all_variants() -> Self {
        let first: RefCell<Option<Vec<(U, Timestamp)>>> = RefCell::new(None);
        Self::comparing(move |emitted| {
            let came = records(emitted).collect::<Vec<_>>();
            match &mut *first.borrow_mut() {
                Some(first) => compare_ordered("record", first, &came),
                empty => {
                    *empty = Some(came);
                    Ok(())
                }
            }
        })
    }
}

impl<U: PartialEq + Debug + 'static> From<Vec<U>> for Expected<U> {
    fn from(values: Vec<U>) -> Self {
        Expected::ordered(values)
    }
}

impl<U: PartialEq + Debug + 'static, const N: usize> From<[U; N]> for Expected<U> {
    fn from(values: [U; N]) -> Self {
        Expected::ordered(values)
    }
}
