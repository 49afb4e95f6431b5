//! Binding of expressions to a schema.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, Scalar, StringArray,
    UInt64Array,
};
use arrow_cast::{can_cast_types, cast_with_options};
use arrow_schema::{DataType, Field, Schema};

use super::bound::{Node, STRICT};
use super::coercion::{arithmetic_type, common_type, comparison_type};
use super::{BinaryOperation, BoundExpr, Expr, Literal, UnaryOperation};

/// A bound node with its type.
struct Typed {
    node: Node,
    kind: DataType,
    is_nullable: bool,
}

impl Expr {
    /// Checks the expression against a schema.
    ///
    /// ```
    /// use ardea_columns::col;
    /// use arrow_schema::{DataType, Field, Schema};
    ///
    /// let schema = Schema::new(vec![Field::new("price", DataType::UInt64, false)]);
    /// assert_eq!((col("price") * 0.908).bind(&schema)?.field().data_type(), &DataType::Float64);
    /// let error = col("prise").bind(&schema).unwrap_err();
    /// assert!(error.to_string().contains("price: UInt64"));
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such column, or an operation does not apply to its
    /// types.
    pub fn bind(&self, schema: &Schema) -> Result<BoundExpr> {
        let bound = bind(self, schema)?;
        let field = Field::new(self.name(), bound.kind, bound.is_nullable);
        Ok(BoundExpr {
            node: bound.node,
            field: Arc::new(field),
        })
    }

    /// Works like [`bind`](Self::bind) for a condition.
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind), and [`ErrorCode::InvalidJob`] if the type is not Boolean.
    pub fn bind_condition(&self, schema: &Schema) -> Result<BoundExpr> {
        let bound = bind(self, schema)?;
        let kind = bound.kind.clone();
        let node = require_boolean(bound, self)
            .map_err(|()| invalid(format!("the condition {self} has the type {kind}")))?
            .node;
        Ok(BoundExpr {
            node,
            field: Arc::new(Field::new(self.name(), DataType::Boolean, true)),
        })
    }
}

/// Returns the index of a column.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] with the known columns if there is none of this name, or several.
pub(crate) fn column_index(schema: &Schema, name: &str) -> Result<usize> {
    let fields = schema.fields().iter();
    let mut found = fields
        .clone()
        .enumerate()
        .filter(|(_, it)| it.name() == name);
    let what = match (found.next(), found.next()) {
        (Some((index, _)), None) => return Ok(index),
        (None, _) => format!("there is no column {name:?}"),
        (Some(_), Some(_)) => format!("there are several columns {name:?}"),
    };
    let known: Vec<_> = fields
        .map(|it| format!("{}: {}", it.name(), it.data_type()))
        .collect();
    Err(Error::new(ErrorCode::InvalidJob, what)
        .hint(format!("the columns are {}", known.join(", "))))
}

#[cold]
fn invalid(what: String) -> Error {
    Error::new(ErrorCode::InvalidJob, what).hint("cast one side to the type of the other")
}

fn bind(expr: &Expr, schema: &Schema) -> Result<Typed> {
    Ok(match expr {
        Expr::Column(name) => {
            let index = column_index(schema, name)?;
            let field = schema.field(index);
            Typed {
                node: Node::Column(index),
                kind: field.data_type().clone(),
                is_nullable: field.is_nullable(),
            }
        }
        Expr::Literal(literal) => constant(literal),
        Expr::Alias { input, .. } => bind(input, schema)?,
        Expr::Cast { input, to } => {
            let input = bind(input, schema)?;
            if !can_cast_types(&input.kind, to) {
                let what = format!("{expr}: the type {} cannot be cast", input.kind);
                return Err(Error::new(ErrorCode::InvalidJob, what).hint("cast it to another type"));
            }
            converted(input, to, expr)?
        }
        Expr::Unary { operation, input } => {
            let bound = bind(input, schema)?;
            unary(expr, *operation, bound)?
        }
        Expr::Binary {
            operation,
            left,
            right,
        } => {
            let (left, right) = (bind(left, schema)?, bind(right, schema)?);
            binary(expr, *operation, left, right)?
        }
    })
}

fn unary(expr: &Expr, operation: UnaryOperation, input: Typed) -> Result<Typed> {
    let kind = input.kind.clone();
    let is_check = matches!(
        operation,
        UnaryOperation::IsNull | UnaryOperation::IsNotNull
    );
    let input = match operation {
        UnaryOperation::IsNull | UnaryOperation::IsNotNull | UnaryOperation::Required => input,
        UnaryOperation::Not => require_boolean(input, expr)
            .map_err(|()| invalid(format!("{expr}: `not` does not apply to {kind}")))?,
        UnaryOperation::Negate => match arithmetic_type(&kind, &DataType::Int64) {
            Some(to) => converted(input, &to, expr)?,
            None => return Err(invalid(format!("{expr}: `-` does not apply to {kind}"))),
        },
    };
    let kind = match is_check {
        true => DataType::Boolean,
        false => input.kind,
    };
    Ok(Typed {
        node: Node::Unary(operation, Box::new(input.node)),
        kind,
        is_nullable: input.is_nullable && !is_check && operation != UnaryOperation::Required,
    })
}

fn binary(expr: &Expr, operation: BinaryOperation, left: Typed, right: Typed) -> Result<Typed> {
    use BinaryOperation::*;
    let (left, right) = adapted(left, right);
    let kinds = format!("{} and {}", left.kind, right.kind);
    let symbol = operation.symbol();
    let refused = || invalid(format!("{expr}: `{symbol}` does not apply to {kinds}"));
    let is_nullable = match operation {
        IfNull => left.is_nullable && right.is_nullable,
        _ => left.is_nullable || right.is_nullable,
    };
    let (left, right, kind) = match operation {
        And | Or => {
            let left = require_boolean(left, expr).map_err(|()| refused())?;
            let right = require_boolean(right, expr).map_err(|()| refused())?;
            (left, right, DataType::Boolean)
        }
        Add | Subtract | Multiply | Divide | Remainder => {
            let to = arithmetic_type(&left.kind, &right.kind).ok_or_else(refused)?;
            let sides = (converted(left, &to, expr)?, converted(right, &to, expr)?);
            (sides.0, sides.1, to)
        }
        IfNull => {
            let to = common_type(&left.kind, &right.kind).ok_or_else(refused)?;
            let sides = (converted(left, &to, expr)?, converted(right, &to, expr)?);
            (sides.0, sides.1, to)
        }
        Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual => {
            let to = comparison_type(&left.kind, &right.kind).ok_or_else(refused)?;
            let sides = (converted(left, &to, expr)?, converted(right, &to, expr)?);
            (sides.0, sides.1, DataType::Boolean)
        }
    };
    Ok(Typed {
        node: Node::Binary(operation, Box::new(left.node), Box::new(right.node)),
        kind,
        is_nullable,
    })
}

/// Gives a literal the type of the other side where its value allows that: integers become
/// unsigned, and texts timestamps or dates.
fn adapted(left: Typed, right: Typed) -> (Typed, Typed) {
    let adapt = |literal: Typed, other: &DataType| -> Typed {
        let Node::Constant(value) = &literal.node else {
            return literal;
        };
        let wanted = match (&literal.kind, other) {
            (DataType::Int64, kind) if kind.is_unsigned_integer() => &DataType::UInt64,
            (DataType::UInt64, kind) if kind.is_signed_integer() => &DataType::Int64,
            (DataType::Utf8, DataType::Timestamp(..) | DataType::Date32) => other,
            _ => return literal,
        };
        match cast_with_options(&value.clone().into_inner(), wanted, &STRICT) {
            Ok(cast) => Typed {
                node: Node::Constant(Scalar::new(cast)),
                kind: wanted.clone(),
                is_nullable: literal.is_nullable,
            },
            Err(_) => literal,
        }
    };
    let right = adapt(right, &left.kind);
    let left = adapt(left, &right.kind);
    (left, right)
}

fn require_boolean(input: Typed, expr: &Expr) -> Result<Typed, ()> {
    match input.kind {
        DataType::Boolean => Ok(input),
        DataType::Null => converted(input, &DataType::Boolean, expr).map_err(|_| ()),
        _ => Err(()),
    }
}

/// Casts a value unless it has the type; a constant is cast at once.
fn converted(input: Typed, to: &DataType, expr: &Expr) -> Result<Typed> {
    if input.kind == *to {
        return Ok(input);
    }
    let node = match input.node {
        Node::Constant(value) => {
            let cast = cast_with_options(&value.into_inner(), to, &STRICT);
            let cast = cast.map_err(|error| {
                let what = format!("{expr}: a constant cannot be cast to {to}");
                Error::new(ErrorCode::InvalidJob, what).because(error)
            })?;
            Node::Constant(Scalar::new(cast))
        }
        node => Node::Cast(Box::new(node), to.clone()),
    };
    Ok(Typed {
        node,
        kind: to.clone(),
        is_nullable: input.is_nullable,
    })
}

fn constant(literal: &Literal) -> Typed {
    let array: ArrayRef = match literal {
        Literal::Null => Arc::new(NullArray::new(1)),
        Literal::Boolean(value) => Arc::new(BooleanArray::from(vec![*value])),
        Literal::Int(value) => Arc::new(Int64Array::from(vec![*value])),
        Literal::UInt(value) => Arc::new(UInt64Array::from(vec![*value])),
        Literal::Float(value) => Arc::new(Float64Array::from(vec![*value])),
        Literal::Text(value) => Arc::new(StringArray::from(vec![value.as_str()])),
    };
    Typed {
        kind: array.data_type().clone(),
        is_nullable: *literal == Literal::Null,
        node: Node::Constant(Scalar::new(array)),
    }
}
