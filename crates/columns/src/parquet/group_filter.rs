//! Row groups without a record that a filter accepts, by their statistics.

use std::sync::Arc;

use ardea_core::Result;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::RowGroupMetaData;

use crate::expr::{BinaryOperation, BoundExpr, Expr, UnaryOperation, col};

/// The conditions of the filters directly after a source, over the statistics of row groups.
///
/// A row group is skipped only if no record in it would be accepted, become a dead letter or be a
/// bad record.
#[derive(Debug)]
pub(super) struct GroupFilter {
    columns: SchemaRef,
    conditions: Vec<BoundExpr>,
    /// The columns whose least and greatest values the conditions use.
    used: Vec<Arc<Field>>,
}

impl GroupFilter {
    /// Creates the filter for the conditions of records with these columns. Conditions that say
    /// nothing about statistics are left out.
    pub fn bind(filters: &[Expr], columns: &SchemaRef) -> Self {
        let mut used = Vec::new();
        let bounds: Vec<_> = filters
            .iter()
            .filter_map(|filter| bounds_of(filter, columns, &mut used))
            .collect();
        let schema = schema_of(&used);
        let conditions = bounds
            .iter()
            .filter_map(|it| it.bind_condition(&schema).ok());
        GroupFilter {
            columns: Arc::clone(columns),
            conditions: conditions.collect(),
            used,
        }
    }

    /// Returns true if no record of the row group is accepted.
    pub fn excludes(&self, file: &ArrowReaderMetadata, group: usize) -> bool {
        let Some(metadata) = file.metadata().row_groups().get(group) else {
            return false;
        };
        if self.conditions.is_empty() || !self.has_all_values(file, metadata) {
            return false;
        }
        let values = self.used.iter().map(|field| limits(field, file, metadata));
        let Some(values) = values.collect::<Option<Vec<_>>>() else {
            return false;
        };
        let values = values.into_iter().flatten().collect();
        let Ok(statistics) = RecordBatch::try_new(schema_of(&self.used), values) else {
            return false;
        };
        // An unknown limit makes a condition null, which excludes nothing.
        let conditions = self.conditions.iter();
        let results: Result<Vec<_>, _> = conditions.map(|it| it.evaluate(&statistics)).collect();
        results.is_ok_and(|results| results.iter().any(is_false))
    }

    /// Returns true if no column has nulls that make bad records.
    fn has_all_values(&self, file: &ArrowReaderMetadata, group: &RowGroupMetaData) -> bool {
        let strict = self.columns.fields().iter().filter(|it| !it.is_nullable());
        let mut strict = strict.map(|field| -> Option<bool> {
            let found = file.schema().field_with_name(field.name()).ok()?;
            if !found.is_nullable() {
                return Some(true);
            }
            let counts = converter(field.name(), file)?.row_group_null_counts([group]);
            let counts = counts.ok()?;
            Some(counts.is_valid(0) && counts.value(0) == 0)
        });
        strict.all(|it| it == Some(true))
    }
}

fn is_false(condition: &ArrayRef) -> bool {
    let condition = condition.as_boolean();
    condition.len() == 1 && condition.is_valid(0) && !condition.value(0)
}

fn least(name: &str) -> String {
    format!("least {name}")
}

fn greatest(name: &str) -> String {
    format!("greatest {name}")
}

/// Returns the columns of the statistics of some columns.
fn schema_of(used: &[Arc<Field>]) -> SchemaRef {
    let fields = used.iter().flat_map(|field| {
        let limit = |name| Field::new(name, field.data_type().clone(), true);
        [limit(least(field.name())), limit(greatest(field.name()))]
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn converter<'a>(name: &'a str, file: &'a ArrowReaderMetadata) -> Option<StatisticsConverter<'a>> {
    let converter =
        StatisticsConverter::try_new(name, file.schema(), file.parquet_schema()).ok()?;
    Some(converter.with_missing_null_counts_as_zero(false))
}

/// Returns the least and the greatest value of a column in a row group.
fn limits(
    field: &Field,
    file: &ArrowReaderMetadata,
    group: &RowGroupMetaData,
) -> Option<[ArrayRef; 2]> {
    let converter = converter(field.name(), file)?;
    let column = group.columns().get(converter.parquet_column_index()?)?;
    // The former statistics of texts and unsigned integers have the order of signed bytes.
    if column.statistics()?.is_min_max_deprecated() {
        return None;
    }
    let least = converter.row_group_mins([group]).ok()?;
    let greatest = converter.row_group_maxes([group]).ok()?;
    let of_column = |values: &ArrayRef| cast(values, field.data_type()).ok();
    Some([of_column(&least)?, of_column(&greatest)?])
}

/// Returns a condition over least and greatest values that is false if the condition is false or
/// null for all values between them, and has no error for any of them. Adds the columns to `used`.
fn bounds_of(condition: &Expr, columns: &Schema, used: &mut Vec<Arc<Field>>) -> Option<Expr> {
    use BinaryOperation::{And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Or};
    let Expr::Binary {
        operation,
        left,
        right,
    } = condition
    else {
        return None;
    };
    if let And | Or = operation {
        let sides = [&**left, &**right].map(|side| (bounds_of(side, columns, used), side));
        return match sides {
            [(Some(left), _), (Some(right), _)] if *operation == Or => Some(left.or(right)),
            [(Some(left), _), (Some(right), _)] => Some(left.and(right)),
            [(Some(one), _), (None, other)] | [(None, other), (Some(one), _)]
                if *operation == And && has_no_errors(other) =>
            {
                Some(one)
            }
            _ => None,
        };
    }
    let (operation, name, literal) = match (&**left, &**right) {
        (Expr::Column(name), Expr::Literal(literal)) => (*operation, name, literal),
        (Expr::Literal(literal), Expr::Column(name)) => {
            let mirrored = match operation {
                Less => Greater,
                LessOrEqual => GreaterOrEqual,
                Greater => Less,
                GreaterOrEqual => LessOrEqual,
                other => *other,
            };
            (mirrored, name, literal)
        }
        _ => return None,
    };
    let field = columns.fields().iter().find(|it| it.name() == name)?;
    if !has_exact_order(field.data_type()) {
        return None;
    }
    let (low, high) = (col(least(name)), col(greatest(name)));
    let to = || Expr::Literal(literal.clone());
    // Both limits are compared, so that an error of any value is one of theirs.
    let bounds = match operation {
        Equal => low.lt_eq(to()).and(high.gt_eq(to())),
        Less => low.lt(to()).or(high.lt(to())),
        LessOrEqual => low.lt_eq(to()).or(high.lt_eq(to())),
        Greater => high.gt(to()).or(low.gt(to())),
        GreaterOrEqual => high.gt_eq(to()).or(low.gt_eq(to())),
        _ => return None,
    };
    if !used.contains(field) {
        used.push(Arc::clone(field));
    }
    Some(bounds)
}

/// Returns true if the limits of values of a type are exact: floats may be NaN, which statistics
/// omit.
fn has_exact_order(kind: &DataType) -> bool {
    kind.is_integer()
        || matches!(
            kind,
            DataType::Utf8 | DataType::Date32 | DataType::Timestamp(..)
        )
}

/// Returns true if a condition has a value or null for each record.
fn has_no_errors(condition: &Expr) -> bool {
    match condition {
        Expr::Column(_) | Expr::Literal(_) => true,
        Expr::Unary { operation, input } => {
            let is_total = !matches!(operation, UnaryOperation::Required | UnaryOperation::Negate);
            is_total && has_no_errors(input)
        }
        _ => false,
    }
}
