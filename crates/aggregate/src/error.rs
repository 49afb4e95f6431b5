//! Errors in the parameters of aggregates.

use std::error::Error as StdError;
use std::fmt;

use ardea_core::{Error, ErrorCode};

/// An invalid parameter of an aggregate, reported when the aggregate is created.
///
/// Converts to an [`Error`] by `?`:
///
/// ```
/// use ardea_aggregate::quantiles;
///
/// fn percentile(rank: f64) -> ardea_core::Result<()> {
///     let _aggregate = quantiles(|delay: &f64| *delay, [rank])?;
///     Ok(())
/// }
/// assert!(percentile(0.99).is_ok());
/// assert_eq!(
///     percentile(99.0).unwrap_err().to_string(),
///     "ARD-101: a quantile's rank must be between 0 and 1, but is 99; for the 99th percentile give 0.99"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidParameter {
    /// A quantile's rank that is not between 0 and 1.
    Rank {
        /// The rank given.
        rank: f64,
    },

    /// A relative error that is not between 0 and 1, both excluded.
    RelativeError {
        /// The error given.
        relative_error: f64,
    },

    /// A distinct count's precision out of its range.
    Precision {
        /// The precision given: log₂ of the number of registers.
        precision: u8,
    },
}

impl From<InvalidParameter> for Error {
    fn from(invalid: InvalidParameter) -> Self {
        let (what, hint) = match invalid {
            InvalidParameter::Rank { rank } => (
                format!("a quantile's rank must be between 0 and 1, but is {rank}"),
                "for the 99th percentile give 0.99",
            ),
            InvalidParameter::RelativeError { relative_error } => (
                format!(
                    "the relative error of quantiles must be above 0 and below 1, but is {relative_error}"
                ),
                "0.01 means 1%",
            ),
            InvalidParameter::Precision { precision } => (
                format!(
                    "the precision of an approximate distinct count must be from 4 to 21, but is {precision}"
                ),
                "12 takes 4 kB and errs by about 2%",
            ),
        };
        Error::new(ErrorCode::InvalidJob, what).hint(hint)
    }
}

/// Displays the [`Error`] that it converts to.
impl fmt::Display for InvalidParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Error::from(*self), f)
    }
}

impl StdError for InvalidParameter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_code_the_value_and_the_way_out() {
        for (invalid, words) in [
            (InvalidParameter::Rank { rank: 99.0 }, ["99", "0.99"]),
            (
                InvalidParameter::RelativeError {
                    relative_error: 2.5,
                },
                ["2.5", "0.01"],
            ),
            (InvalidParameter::Precision { precision: 3 }, ["is 3", "12"]),
        ] {
            let message = invalid.to_string();
            assert!(message.starts_with("ARD-101: "), "{message}");
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }
}
