//! Aggregates of columns.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};

use super::{Accumulator, ColumnExtreme};
use crate::expr::{BoundExpr, Expr, col};

/// The function of an aggregate. All but the count of records ignore null.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregateFunction {
    /// The number of records, or of those whose argument is not null. Never null.
    Count,
    /// The total: of integers exact, in 64 bits, and of floats the nearest float.
    Sum,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The mean, as a float.
    Avg,
}

impl AggregateFunction {
    fn name(self) -> &'static str {
        match self {
            AggregateFunction::Count => "count",
            AggregateFunction::Sum => "sum",
            AggregateFunction::Min => "min",
            AggregateFunction::Max => "max",
            AggregateFunction::Avg => "avg",
        }
    }
}

/// An aggregate of the records of a group. Null if no value was aggregated, unless it is a count.
///
/// ```
/// use ardea_columns::{col, count, max, sum};
///
/// let aggregates = [
///     count().alias("bids"),
///     max("price"),
///     sum(col("price") * 0.908).alias("euros"),
/// ];
/// assert_eq!(aggregates[1].name(), "max(price)");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AggregateExpr {
    function: AggregateFunction,
    argument: Option<Expr>,
    alias: Option<String>,
}

/// The name of a column, or an expression.
#[derive(Clone, Debug)]
pub struct ColumnArgument(Expr);

impl ColumnArgument {
    /// Returns the expression.
    pub fn into_expr(self) -> Expr {
        self.0
    }
}

impl From<&str> for ColumnArgument {
    fn from(column: &str) -> Self {
        ColumnArgument(col(column))
    }
}

impl From<Expr> for ColumnArgument {
    fn from(expr: Expr) -> Self {
        ColumnArgument(expr)
    }
}

/// Returns the number of records.
pub fn count() -> AggregateExpr {
    AggregateExpr {
        function: AggregateFunction::Count,
        argument: None,
        alias: None,
    }
}

/// Returns the number of records whose argument is not null.
pub fn count_of(argument: impl Into<ColumnArgument>) -> AggregateExpr {
    AggregateExpr::new(AggregateFunction::Count, argument)
}

/// Returns the total of the argument. A total of integers that exceeds 64 bits fails the job.
pub fn sum(argument: impl Into<ColumnArgument>) -> AggregateExpr {
    AggregateExpr::new(AggregateFunction::Sum, argument)
}

/// Returns the least value of the argument. NaN is greater than all other numbers.
pub fn min(argument: impl Into<ColumnArgument>) -> AggregateExpr {
    AggregateExpr::new(AggregateFunction::Min, argument)
}

/// Returns the greatest value of the argument. NaN is greater than all other numbers.
pub fn max(argument: impl Into<ColumnArgument>) -> AggregateExpr {
    AggregateExpr::new(AggregateFunction::Max, argument)
}

/// Returns the mean of the argument.
pub fn avg(argument: impl Into<ColumnArgument>) -> AggregateExpr {
    AggregateExpr::new(AggregateFunction::Avg, argument)
}

/// An aggregate bound to a schema.
#[derive(Clone, Debug)]
pub struct BoundAggregate {
    pub(super) function: AggregateFunction,
    /// The argument, cast to the type in which it is accumulated.
    pub(super) argument: Option<BoundExpr>,
    /// The column of the results.
    pub(super) field: Arc<Field>,
}

impl AggregateExpr {
    /// Creates an aggregate of an argument.
    pub fn new(function: AggregateFunction, argument: impl Into<ColumnArgument>) -> Self {
        AggregateExpr {
            function,
            argument: Some(argument.into().0),
            alias: None,
        }
    }

    /// Names the column of the results.
    pub fn alias(mut self, name: impl Into<String>) -> Self {
        self.alias = Some(name.into());
        self
    }

    /// Returns the name of the results' column: the alias, or the text of the aggregate.
    pub fn name(&self) -> String {
        let function = self.function.name();
        match (&self.alias, &self.argument) {
            (Some(alias), _) => alias.clone(),
            (None, Some(argument)) => format!("{function}({})", argument.name()),
            (None, None) => function.to_string(),
        }
    }

    /// Checks the aggregate against a schema.
    ///
    /// # Errors
    /// Those of [`Expr::bind`], and [`ErrorCode::InvalidJob`] if the function does not apply to the
    /// type of the argument.
    pub fn bind(&self, schema: &Schema) -> Result<BoundAggregate> {
        let Some(argument) = &self.argument else {
            return Ok(BoundAggregate {
                function: self.function,
                argument: None,
                field: Arc::new(Field::new(self.name(), DataType::Int64, false)),
            });
        };
        let kind = argument.bind(schema)?.field().data_type().clone();
        let input = self.accumulated_type(&kind).ok_or_else(|| {
            let what = format!("{} does not apply to the type {kind}", self.name());
            Error::new(ErrorCode::InvalidJob, what).hint("cast the argument to another type")
        })?;
        let output = match self.function {
            AggregateFunction::Count => DataType::Int64,
            AggregateFunction::Sum => input.clone(),
            AggregateFunction::Avg => DataType::Float64,
            AggregateFunction::Min | AggregateFunction::Max => kind,
        };
        let is_nullable = self.function != AggregateFunction::Count;
        Ok(BoundAggregate {
            function: self.function,
            argument: Some(argument.clone().cast(input).bind(schema)?),
            field: Arc::new(Field::new(self.name(), output, is_nullable)),
        })
    }

    /// Returns the bound argument, cast to the type in which it is accumulated.
    pub(crate) fn bind_argument(&self, schema: &Schema) -> Result<BoundExpr> {
        match self.bind(schema)?.argument {
            Some(argument) => Ok(argument),
            None => Err(Error::new(
                ErrorCode::Internal,
                "an aggregate has no argument",
            )),
        }
    }

    /// Returns the type in which an argument of type `kind` is accumulated.
    fn accumulated_type(&self, kind: &DataType) -> Option<DataType> {
        let is_extreme = matches!(
            self.function,
            AggregateFunction::Min | AggregateFunction::Max
        );
        Some(match kind {
            _ if self.function == AggregateFunction::Count => kind.clone(),
            _ if kind.is_unsigned_integer() => DataType::UInt64,
            _ if kind.is_signed_integer() => DataType::Int64,
            DataType::Float32 | DataType::Float64 => DataType::Float64,
            DataType::Boolean | DataType::Timestamp(..) | DataType::Date32 if is_extreme => {
                DataType::Int64
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if is_extreme => {
                DataType::Utf8
            }
            _ => return None,
        })
    }
}

impl BoundAggregate {
    /// Returns the name and type of the results' column.
    pub fn field(&self) -> &Arc<Field> {
        &self.field
    }

    /// Returns true if a part of the records can be removed from the result.
    pub fn deducts(&self) -> bool {
        !matches!(
            self.function,
            AggregateFunction::Min | AggregateFunction::Max
        )
    }

    /// Returns the argument, cast to the type in which it is accumulated.
    pub(crate) fn argument(&self) -> Option<&BoundExpr> {
        self.argument.as_ref()
    }

    /// Returns an empty accumulator.
    pub(crate) fn create(&self) -> Accumulator {
        let argument = self.argument.as_ref().map(|it| it.field().data_type());
        let is_float = argument == Some(&DataType::Float64);
        match self.function {
            AggregateFunction::Count => Accumulator::Count(0),
            AggregateFunction::Sum | AggregateFunction::Avg if is_float => Accumulator::floats(),
            AggregateFunction::Sum | AggregateFunction::Avg => Accumulator::integers(),
            AggregateFunction::Min => Accumulator::Least(None::<ColumnExtreme>),
            AggregateFunction::Max => Accumulator::Greatest(None::<ColumnExtreme>),
        }
    }
}
