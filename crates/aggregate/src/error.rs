//! What can be wrong with an aggregate's parameters.

/// A parameter that an aggregate cannot work with, found when the aggregate is made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidParameter {
    /// A quantile's rank that is not between 0 and 1.
    #[error(
        "[{}] a quantile's rank must be between 0 and 1, but is {rank}; \
         for the 99th percentile give 0.99",
        self.code()
    )]
    Rank {
        /// The rank given.
        rank: f64,
    },

    /// A relative error that is not between 0 and 1, both excluded.
    #[error(
        "[{}] the relative error of quantiles must be above 0 and below 1, \
         but is {relative_error}; 0.01 means 1%",
        self.code()
    )]
    RelativeError {
        /// The error given.
        relative_error: f64,
    },

    /// A distinct count's precision out of its range.
    #[error(
        "[{}] the precision of an approximate distinct count must be from 4 to 21, \
         but is {precision}; 12 takes 4 kB and errs by about 2%",
        self.code()
    )]
    Precision {
        /// The precision given: log₂ of the number of registers.
        precision: u8,
    },
}

impl InvalidParameter {
    /// A name of the error that stays the same in all versions.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Rank { .. } => "aggregate-rank",
            Self::RelativeError { .. } => "aggregate-relative-error",
            Self::Precision { .. } => "aggregate-precision",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_code_the_value_and_the_way_out() {
        let message = InvalidParameter::Rank { rank: 99.0 }.to_string();
        assert_eq!(
            message,
            "[aggregate-rank] a quantile's rank must be between 0 and 1, but is 99; \
             for the 99th percentile give 0.99"
        );
    }
}
