//! Values that end a run.

use std::fmt;

/// The reason why a value or an update is refused.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum VariableFault {
    /// A number is infinite or not a number.
    NotFinite {
        /// The position in the vector, for vectors.
        index: Option<usize>,
        /// The number.
        value: f64,
    },
    /// A vector has another size than the variable.
    WrongSize {
        /// The size of the variable.
        expected: usize,
        /// The size of the update.
        found: usize,
    },
    /// A measure of progress has passed its limit.
    Diverged {
        /// The measure.
        value: f64,
        /// Its limit.
        limit: f64,
    },
}

impl VariableFault {
    /// Returns the fault of the first number that is not finite.
    pub fn in_numbers(numbers: &[f64]) -> Option<Self> {
        let index = numbers.iter().position(|number| !number.is_finite())?;
        Some(VariableFault::NotFinite {
            index: Some(index),
            value: numbers[index],
        })
    }

    /// Returns the fault of a single number that is not finite.
    pub fn in_number(value: f64) -> Option<Self> {
        (!value.is_finite()).then_some(VariableFault::NotFinite { index: None, value })
    }
}

impl fmt::Display for VariableFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            VariableFault::NotFinite {
                index: Some(index),
                value,
            } => write!(f, "component {index} is {value}"),
            VariableFault::NotFinite { index: None, value } => write!(f, "the number is {value}"),
            VariableFault::WrongSize { expected, found } => {
                write!(f, "the update has {found} components instead of {expected}")
            }
            VariableFault::Diverged { value, limit } => {
                write!(f, "it diverges: {value:e} is above the limit of {limit:e}")
            }
        }
    }
}
