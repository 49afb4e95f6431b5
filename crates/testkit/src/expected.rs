//! What a test expects of one output, and how it is compared.

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;

use ardea_core::{Epoch, Timestamp, Watermark};

use crate::difference::{parting, unmatched};

/// One thing that came out of a processor's output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Emitted<U> {
    /// A record with its event time.
    Record(U, Timestamp),
    /// A watermark.
    Watermark(Watermark),
    /// The mark of silence.
    Idle,
    /// The end of an epoch.
    EpochEnd(Epoch),
}

impl<U> Emitted<U> {
    fn into_record(self) -> Option<(U, Timestamp)> {
        match self {
            Emitted::Record(value, time) => Some((value, time)),
            Emitted::Watermark(_) | Emitted::Idle | Emitted::EpochEnd(_) => None,
        }
    }
}

/// Compares the whole output of a variant, and says where it differs.
type Compare<U> = dyn Fn(Vec<Emitted<U>>) -> Result<(), String>;

/// What one output must carry, in every variant of a test.
///
/// A plain list of values converts into the expectation of these values in this order, whatever their times.
pub struct Expected<U> {
    pub(crate) compare: Rc<Compare<U>>,
    /// The same of the records in any order, if that can be said.
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

    /// Whatever the order, this is what is compared.
    fn or_unordered(
        mut self,
        compare: impl Fn(Vec<Emitted<U>>) -> Result<(), String> + 'static,
    ) -> Self {
        self.compare_unordered = Some(Rc::new(compare));
        self
    }

    /// Whatever `check` accepts; it gets the records with their times, and says in words what is wrong.
    pub fn check(check: impl Fn(&[(U, Timestamp)]) -> Result<(), String> + 'static) -> Self {
        Self::comparing(move |emitted| check(&records(emitted).collect::<Vec<_>>()))
    }

    /// Whatever `check` accepts of the records and marks together.
    pub fn check_events(check: impl Fn(&[Emitted<U>]) -> Result<(), String> + 'static) -> Self {
        Self::comparing(move |emitted| check(&emitted))
    }

    /// Anything: the output is looked at for its watermarks only.
    pub fn anything() -> Self {
        Self::comparing(|_| Ok(()))
    }

    /// Hands over all that came, for a test that goes on by itself.
    pub(crate) fn captured(into: Rc<RefCell<Vec<Emitted<U>>>>) -> Self {
        Self::comparing(move |emitted| {
            *into.borrow_mut() = emitted;
            Ok(())
        })
    }
}

impl<U: PartialEq + Debug + 'static> Expected<U> {
    /// These values in this order, whatever their times.
    pub fn ordered(expected: impl IntoIterator<Item = U>) -> Self {
        let expected: Rc<[U]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| parting("record", &expected, &values(emitted)))
            .or_unordered(move |emitted| unmatched(&any_order, &values(emitted)))
    }

    /// These values in any order, each as often as listed, whatever their times. Quadratic in the number of records
    /// that come in another order than listed.
    pub fn unordered(expected: impl IntoIterator<Item = U>) -> Self {
        let expected: Rc<[U]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| unmatched(&expected, &values(emitted)))
            .or_unordered(move |emitted| unmatched(&any_order, &values(emitted)))
    }

    /// These values with these times, in this order.
    pub fn timed(expected: impl IntoIterator<Item = (U, Timestamp)>) -> Self {
        let expected: Rc<[(U, Timestamp)]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| {
            parting("record", &expected, &records(emitted).collect::<Vec<_>>())
        })
        .or_unordered(move |emitted| unmatched(&any_order, &records(emitted).collect::<Vec<_>>()))
    }

    /// These values with these times, in any order, each as often as listed.
    pub fn timed_unordered(expected: impl IntoIterator<Item = (U, Timestamp)>) -> Self {
        let expected: Rc<[(U, Timestamp)]> = expected.into_iter().collect();
        let any_order = Rc::clone(&expected);
        Self::comparing(move |emitted| unmatched(&expected, &records(emitted).collect::<Vec<_>>()))
            .or_unordered(move |emitted| {
                unmatched(&any_order, &records(emitted).collect::<Vec<_>>())
            })
    }

    /// These records and marks, in this order: for tests of what comes before and what behind a watermark.
    pub fn events(expected: impl IntoIterator<Item = Emitted<U>>) -> Self {
        let expected: Vec<Emitted<U>> = expected.into_iter().collect();
        Self::comparing(move |emitted| parting("event", &expected, &emitted))
    }

    /// The same records with the same times and in the same order in all variants, whatever they are.
    pub fn same_in_all_variants() -> Self {
        let first: RefCell<Option<Vec<(U, Timestamp)>>> = RefCell::new(None);
        Self::comparing(move |emitted| {
            let came = records(emitted).collect::<Vec<_>>();
            match &mut *first.borrow_mut() {
                Some(first) => parting("record", first, &came),
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
