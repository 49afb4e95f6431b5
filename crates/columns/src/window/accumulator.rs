//! The accumulators of aggregates.

use std::cmp::Ordering;

use ardea_aggregate::ExactSum;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

/// The accumulator of one aggregate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Accumulator {
    /// The number of values.
    Count(u64),
    /// The sum and number of integers.
    Integers {
        /// The sum.
        sum: i128,
        /// The number.
        count: u64,
    },
    /// The sum and number of floats.
    Floats {
        /// The sum.
        sum: ExactSum,
        /// The number.
        count: u64,
    },
    /// The least value.
    Least(Option<ColumnExtreme>),
    /// The greatest value.
    Greatest(Option<ColumnExtreme>),
}

/// Sums are equal if they round to the same float.
#[cfg(test)]
impl PartialEq for AccumulatorRow {
    fn eq(&self, other: &Self) -> bool {
        use Accumulator::*;
        self.0.iter().zip(&other.0).all(|pair| match pair {
            (Count(a), Count(b)) => a == b,
            (Integers { sum: a, count: m }, Integers { sum: b, count: n }) => a == b && m == n,
            (Floats { sum: a, count: m }, Floats { sum: b, count: n }) => {
                a.value() == b.value() && m == n
            }
            (Least(a), Least(b)) | (Greatest(a), Greatest(b)) => a == b,
            _ => false,
        })
    }
}

/// The least or greatest value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ColumnExtreme {
    /// An integer, a boolean or a time.
    Integer(i128),
    /// A float.
    Float(f64),
    /// A text.
    Text(Box<str>),
}

/// The accumulators of all aggregates of a step, for one group of records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccumulatorRow(pub Box<[Accumulator]>);

impl ColumnExtreme {
    /// Compares the value with another one of the same type. NaN is the greatest float, and equals
    /// itself; zeros are equal.
    pub(crate) fn compare(&self, other: &ColumnExtreme) -> Ordering {
        match (self, other) {
            (ColumnExtreme::Integer(a), ColumnExtreme::Integer(b)) => a.cmp(b),
            (ColumnExtreme::Float(a), ColumnExtreme::Float(b)) => {
                let with_nan = || a.is_nan().cmp(&b.is_nan());
                a.partial_cmp(b).unwrap_or_else(with_nan)
            }
            (ColumnExtreme::Text(a), ColumnExtreme::Text(b)) => a.cmp(b),
            // The values of one aggregate have one type.
            _ => Ordering::Equal,
        }
    }

    fn is_less(&self, other: &ColumnExtreme) -> bool {
        self.compare(other).is_lt()
    }
}

impl Accumulator {
    /// Returns an empty sum of integers.
    pub(super) fn integers() -> Self {
        Accumulator::Integers { sum: 0, count: 0 }
    }

    /// Returns an empty sum of floats.
    pub(super) fn floats() -> Self {
        Accumulator::Floats {
            sum: ExactSum::default(),
            count: 0,
        }
    }

    #[inline]
    pub(super) fn add_integer(&mut self, value: i128) {
        match self {
            Accumulator::Count(count) => *count += 1,
            Accumulator::Integers { sum, count } => {
                *sum += value;
                *count += 1;
            }
            other => other.add_extreme(ColumnExtreme::Integer(value)),
        }
    }

    #[inline]
    pub(super) fn add_float(&mut self, value: f64) {
        match self {
            Accumulator::Floats { sum, count } => {
                sum.add(value);
                *count += 1;
            }
            other => other.add_extreme(ColumnExtreme::Float(value)),
        }
    }

    pub(super) fn add_text(&mut self, value: &str) {
        // Most values replace no other: they are compared before they are copied.
        let replaces = match self {
            Accumulator::Least(Some(ColumnExtreme::Text(least))) => *value < **least,
            Accumulator::Greatest(Some(ColumnExtreme::Text(greatest))) => *value > **greatest,
            _ => true,
        };
        if replaces {
            self.add_extreme(ColumnExtreme::Text(value.into()));
        }
    }

    #[inline]
    fn add_extreme(&mut self, value: ColumnExtreme) {
        match self {
            Accumulator::Least(least) => {
                if least.as_ref().is_none_or(|least| value.is_less(least)) {
                    *least = Some(value);
                }
            }
            Accumulator::Greatest(greatest) => {
                if greatest
                    .as_ref()
                    .is_none_or(|greatest| greatest.is_less(&value))
                {
                    *greatest = Some(value);
                }
            }
            // The kind of an accumulator follows from the type of the values.
            Accumulator::Count(_) | Accumulator::Integers { .. } | Accumulator::Floats { .. } => {}
        }
    }

    /// Adds the contents of another accumulator of the same kind.
    fn combine(&mut self, other: &Accumulator) {
        match (self, other) {
            (Accumulator::Count(count), Accumulator::Count(more)) => *count += more,
            (
                Accumulator::Integers { sum, count },
                Accumulator::Integers {
                    sum: more,
                    count: values,
                },
            ) => {
                *sum += more;
                *count += values;
            }
            (
                Accumulator::Floats { sum, count },
                Accumulator::Floats {
                    sum: more,
                    count: values,
                },
            ) => {
                sum.combine(more);
                *count += values;
            }
            (this, Accumulator::Least(Some(value)) | Accumulator::Greatest(Some(value))) => {
                this.add_extreme(value.clone());
            }
            _ => {}
        }
    }

    /// Removes the contents of another accumulator of the same kind, which were added before.
    fn deduct(&mut self, other: &Accumulator) {
        match (self, other) {
            (Accumulator::Count(count), Accumulator::Count(less)) => *count -= less,
            (
                Accumulator::Integers { sum, count },
                Accumulator::Integers {
                    sum: less,
                    count: values,
                },
            ) => {
                *sum -= less;
                *count -= values;
            }
            (
                Accumulator::Floats { sum, count },
                Accumulator::Floats {
                    sum: less,
                    count: values,
                },
            ) => {
                sum.deduct(less);
                *count -= values;
            }
            _ => {}
        }
    }
}

impl AccumulatorRow {
    /// Adds the contents of the same accumulators of other records.
    pub(super) fn combine(&mut self, other: &AccumulatorRow) {
        for (accumulator, other) in self.0.iter_mut().zip(&other.0) {
            accumulator.combine(other);
        }
    }

    /// Removes the contents of the same accumulators of other records.
    pub(super) fn deduct(&mut self, other: &AccumulatorRow) {
        for (accumulator, other) in self.0.iter_mut().zip(&other.0) {
            accumulator.deduct(other);
        }
    }
}

/// Adds the value of each record to the accumulator of its group. Null is ignored. Without values,
/// counts the records.
pub(super) fn add_values(
    accumulators: &mut [Accumulator],
    groups: &[u32],
    values: Option<&ArrayRef>,
) {
    let Some(values) = values else {
        for group in groups {
            accumulators[*group as usize].add_integer(1);
        }
        return;
    };
    match values.data_type() {
        DataType::Int64 => {
            add_primitives::<Int64Type>(accumulators, groups, values, |accumulator, value| {
                accumulator.add_integer(value.into());
            });
        }
        DataType::UInt64 => {
            add_primitives::<UInt64Type>(accumulators, groups, values, |accumulator, value| {
                accumulator.add_integer(value.into());
            });
        }
        // A count has an accumulator of another kind, and any type.
        DataType::Float64 if !matches!(accumulators.first(), Some(Accumulator::Count(_))) => {
            add_primitives::<Float64Type>(accumulators, groups, values, Accumulator::add_float);
        }
        DataType::Utf8 if !matches!(accumulators.first(), Some(Accumulator::Count(_))) => {
            for (group, value) in groups.iter().zip(values.as_string::<i32>()) {
                if let Some(value) = value {
                    accumulators[*group as usize].add_text(value);
                }
            }
        }
        _ => {
            for (row, group) in groups.iter().enumerate() {
                if values.is_valid(row) {
                    accumulators[*group as usize].add_integer(1);
                }
            }
        }
    }
}

fn add_primitives<P: ArrowPrimitiveType>(
    accumulators: &mut [Accumulator],
    groups: &[u32],
    values: &ArrayRef,
    add: impl Fn(&mut Accumulator, P::Native),
) {
    let values = values.as_primitive::<P>();
    if values.null_count() == 0 {
        for (group, value) in groups.iter().zip(values.values()) {
            add(&mut accumulators[*group as usize], *value);
        }
        return;
    }
    for (group, value) in groups.iter().zip(values) {
        if let Some(value) = value {
            add(&mut accumulators[*group as usize], value);
        }
    }
}
