//! The records of a group with the greatest values of some columns.
//!
//! Two stages, as for aggregates: [`TopFunction`] selects records by slices of time and keys,
//! and [`TopCombine`] selects from the selections. [`TopColumnsP`] returns them to columns.

mod combine;
mod function;
mod results;
mod selection;
mod top_key;

#[cfg(test)]
mod tests;

use ardea_core::Result;
use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

pub(crate) use combine::TopCombine;
pub(crate) use function::TopFunction;
pub(crate) use results::TopColumnsP;
pub(crate) use selection::TopSelection;

use crate::expr::{BoundExpr, Expr};
use crate::window::{AggregateExpr, AggregateFunction, ColumnArgument};

/// A selection of the records of a group that have the greatest values of some expressions. Null is
/// less than all values, and NaN is greater than all other numbers.
///
/// ```
/// use ardea_columns::{all_with_max, col, top_n};
///
/// let last_ten = top_n(10, ["expires", "auction"]);
/// let cheapest = all_with_max([-col("price")]);
/// # let _ = (last_ten, cheapest);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TopRecords {
    by: Vec<Expr>,
    limit: TopLimit,
}

/// The number of selected records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TopLimit {
    /// At most this number.
    Most(usize),
    /// All records with the greatest values.
    Ties,
}

/// Returns a selection of the `n` records with the greatest values of `by`: of the first
/// expression, then of the next one where the first is equal. Which of several equal records is
/// selected does not depend on their order.
pub fn top_n<A: Into<ColumnArgument>>(n: usize, by: impl IntoIterator<Item = A>) -> TopRecords {
    TopRecords {
        by: by.into_iter().map(|it| it.into().into_expr()).collect(),
        limit: TopLimit::Most(n),
    }
}

/// Returns a selection of all records with the greatest values of `by`.
pub fn all_with_max<A: Into<ColumnArgument>>(by: impl IntoIterator<Item = A>) -> TopRecords {
    TopRecords {
        limit: TopLimit::Ties,
        ..top_n(0, by)
    }
}

impl TopRecords {
    /// Returns the number of selected records.
    pub(crate) fn limit(&self) -> TopLimit {
        self.limit
    }

    /// Returns the expressions, in the types in which they are compared.
    ///
    /// # Errors
    /// Those of [`Expr::bind`], and
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the values of an expression
    /// have no order.
    fn bind(&self, schema: &Schema) -> Result<Vec<BoundExpr>> {
        // The order is that of the greatest value.
        let by = self
            .by
            .iter()
            .map(|by| AggregateExpr::new(AggregateFunction::Max, by.clone()));
        by.map(|by| by.bind_argument(schema)).collect()
    }
}
