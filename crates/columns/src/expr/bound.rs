//! Evaluation of expressions by Arrow's kernels.

use std::sync::Arc;

use arrow_arith::boolean::{and_kleene, is_not_null, is_null, not, or_kleene};
use arrow_arith::numeric::{add, div, mul, neg, rem, sub};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Datum, RecordBatch, Scalar, UInt32Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType, Field};
use arrow_select::take::take;
use arrow_select::zip::zip;

use super::{BinaryOperation, UnaryOperation};

/// The options of all casts: a value that does not fit is an error.
pub(super) const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: arrow_cast::display::FormatOptions::new(),
};

/// An expression bound to the columns of a schema; made by [`Expr::bind`](super::Expr::bind).
#[derive(Clone, Debug)]
pub struct BoundExpr {
    pub(super) node: Node,
    pub(super) field: Arc<Field>,
}

/// A node of a bound expression. The types of operands agree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The column with this index.
    Column(usize),
    /// An array of one value.
    Constant(Scalar<ArrayRef>),
    Binary(BinaryOperation, Box<Node>, Box<Node>),
    Unary(UnaryOperation, Box<Node>),
    Cast(Box<Node>, DataType),
}

/// The value of a node on a batch.
enum Value {
    Array(ArrayRef),
    Constant(Scalar<ArrayRef>),
}

impl Value {
    fn datum(&self) -> &dyn Datum {
        match self {
            Value::Array(array) => array,
            Value::Constant(constant) => constant,
        }
    }

    /// Returns the value of each of `rows` records.
    fn into_array(self, rows: usize) -> Result<ArrayRef, ArrowError> {
        match self {
            Value::Array(array) => Ok(array),
            Value::Constant(constant) => {
                let first = UInt32Array::from_value(0, rows);
                take(&constant.into_inner(), &first, None)
            }
        }
    }

    /// Applies `kernel`, which has no variant for constants.
    fn map(
        self,
        kernel: impl FnOnce(&ArrayRef) -> Result<ArrayRef, ArrowError>,
    ) -> Result<Value, ArrowError> {
        Ok(match self {
            Value::Array(array) => Value::Array(kernel(&array)?),
            Value::Constant(constant) => {
                Value::Constant(Scalar::new(kernel(&constant.into_inner())?))
            }
        })
    }
}

impl BoundExpr {
    /// Returns the name, type and nullability of the value's column.
    pub fn field(&self) -> &Arc<Field> {
        &self.field
    }

    /// Returns the index of the column if the expression is one, unchanged.
    pub fn as_column(&self) -> Option<usize> {
        match self.node {
            Node::Column(index) => Some(index),
            _ => None,
        }
    }

    /// Returns the value for each record of a batch with the schema of the binding.
    ///
    /// # Errors
    /// If any record has no value: see [`Expr`](super::Expr).
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, ArrowError> {
        self.node.evaluate(batch)?.into_array(batch.num_rows())
    }
}

impl Node {
    fn evaluate(&self, batch: &RecordBatch) -> Result<Value, ArrowError> {
        Ok(match self {
            Node::Column(index) => Value::Array(Arc::clone(batch.column(*index))),
            Node::Constant(constant) => Value::Constant(constant.clone()),
            Node::Cast(input, to) => {
                let input = input.evaluate(batch)?;
                input.map(|array| cast_with_options(array, to, &STRICT))?
            }
            Node::Unary(operation, input) => {
                let input = input.evaluate(batch)?;
                input.map(|array| unary(*operation, array))?
            }
            Node::Binary(operation, left, right) => {
                let (left, right) = (left.evaluate(batch)?, right.evaluate(batch)?);
                let constant = matches!((&left, &right), (Value::Constant(_), Value::Constant(_)));
                let array = match operation {
                    BinaryOperation::And | BinaryOperation::Or => {
                        let rows = if constant { 1 } else { batch.num_rows() };
                        logical(*operation, left.into_array(rows)?, right.into_array(rows)?)?
                    }
                    BinaryOperation::IfNull => {
                        let rows = if constant { 1 } else { batch.num_rows() };
                        if_null(left.into_array(rows)?, &right)?
                    }
                    _ => binary(*operation, left.datum(), right.datum())?,
                };
                match constant {
                    true => Value::Constant(Scalar::new(array)),
                    false => Value::Array(array),
                }
            }
        })
    }
}

fn unary(operation: UnaryOperation, input: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match operation {
        UnaryOperation::Negate => neg(input)?,
        UnaryOperation::Not => Arc::new(not(input.as_boolean())?),
        UnaryOperation::IsNull => Arc::new(is_null(input)?),
        UnaryOperation::IsNotNull => Arc::new(is_not_null(input)?),
        UnaryOperation::Required => required(input)?,
    })
}

/// Returns the values, none of which may be null.
fn required(input: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match input.logical_null_count() {
        0 => Ok(Arc::clone(input)),
        _ => Err(ArrowError::ComputeError("a required value is null".into())),
    }
}

fn logical(
    operation: BinaryOperation,
    left: ArrayRef,
    right: ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    let (left, right) = (left.as_boolean(), right.as_boolean());
    Ok(Arc::new(match operation {
        BinaryOperation::And => and_kleene(left, right)?,
        _ => or_kleene(left, right)?,
    }))
}

/// Returns the values of `left`, or those of `right` where they are null.
fn if_null(left: ArrayRef, right: &Value) -> Result<ArrayRef, ArrowError> {
    match left.logical_null_count() {
        0 => Ok(left),
        _ => zip(&is_not_null(&left)?, &left, right.datum()),
    }
}

fn binary(
    operation: BinaryOperation,
    left: &dyn Datum,
    right: &dyn Datum,
) -> Result<ArrayRef, ArrowError> {
    let compared = match operation {
        BinaryOperation::Add => return add(left, right),
        BinaryOperation::Subtract => return sub(left, right),
        BinaryOperation::Multiply => return mul(left, right),
        BinaryOperation::Divide => return div(left, right),
        BinaryOperation::Remainder => return rem(left, right),
        BinaryOperation::Equal => cmp::eq(left, right)?,
        BinaryOperation::NotEqual => cmp::neq(left, right)?,
        BinaryOperation::Less => cmp::lt(left, right)?,
        BinaryOperation::LessOrEqual => cmp::lt_eq(left, right)?,
        BinaryOperation::Greater => cmp::gt(left, right)?,
        BinaryOperation::GreaterOrEqual => cmp::gt_eq(left, right)?,
        BinaryOperation::And | BinaryOperation::Or | BinaryOperation::IfNull => {
            let what = "a condition is no comparison".to_string();
            return Err(ArrowError::ComputeError(what));
        }
    };
    Ok(Arc::new(compared))
}
