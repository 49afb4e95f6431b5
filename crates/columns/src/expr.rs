//! ExprList over the columns of a batch.

mod bind;
mod bound;
mod coercion;
mod operators;

#[cfg(test)]
mod tests;

use std::fmt;

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

pub(crate) use bind::column_index;
pub use bound::BoundExpr;

/// An expression over the columns of a batch: one value for each record.
///
/// A plain tree that can be serialized. [`bind`](Expr::bind) checks it against a schema, once; the
/// result is evaluated on each batch.
///
/// # Rules
/// * **Null.** The logic is that of SQL, with three values: an operation on null is null, but
///   `false and null` is false and `true or null` is true. A filter drops records whose condition
///   is null.
/// * **Types.** Integers are computed in 64 bits, and with a float in `Float64`. An operation on
///   signed and unsigned integers is signed. An integer literal that is not negative takes the type
///   of the other side.
/// * **Overflow.** An integer result out of range, a division of integers by zero and a value that
///   cannot be cast are errors of their record. Floats follow IEEE 754: a division by zero is
///   infinite or NaN.
/// * **Order of floats.** -0.0 is less than 0.0. NaN equals itself and is greater than all other
///   numbers.
///
/// ```
/// use ardea_columns::{Expr, col, lit};
///
/// let euros = (col("price") * 0.908).alias("euros");
/// let wanted = col("kind").eq("bid").and(col("price").gt(10));
/// assert_eq!(euros.to_string(), "price * 0.908 as euros");
/// assert_eq!(wanted.to_string(), "(kind = \"bid\") and (price > 10)");
/// # let _: (Expr, Expr) = (euros, lit(1));
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// The column of this name.
    Column(String),
    /// A constant.
    Literal(Literal),
    /// An operation on two values.
    Binary {
        /// The operation.
        operation: BinaryOperation,
        /// The left side.
        left: Box<Expr>,
        /// The right side.
        right: Box<Expr>,
    },
    /// An operation on one value.
    Unary {
        /// The operation.
        operation: UnaryOperation,
        /// The operand.
        input: Box<Expr>,
    },
    /// A conversion to another type.
    Cast {
        /// The value.
        input: Box<Expr>,
        /// The type of the result.
        to: DataType,
    },
    /// A value with another name.
    Alias {
        /// The value.
        input: Box<Expr>,
        /// The name of its column.
        name: String,
    },
}

/// A constant of an expression.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Literal {
    /// No value, of any type.
    Null,
    /// True or false.
    Boolean(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// A text. Compared with a timestamp or date, it is read as one.
    Text(String),
}

/// An operation on two values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BinaryOperation {
    /// Addition.
    Add,
    /// Subtraction.
    Subtract,
    /// Multiplication.
    Multiply,
    /// Division; of integers, rounded towards zero.
    Divide,
    /// The remainder of a division, with the sign of the left side.
    Remainder,
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// True if both sides are.
    And,
    /// True if any side is.
    Or,
    /// The left side, or the right side where the left one is null.
    IfNull,
}

/// An operation on one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnaryOperation {
    /// The logical complement.
    Not,
    /// The number with the other sign.
    Negate,
    /// True for null; never null itself.
    IsNull,
    /// True for all but null; never null itself.
    IsNotNull,
    /// The value itself; null is an error of its record.
    Required,
}

impl BinaryOperation {
    fn symbol(self) -> &'static str {
        match self {
            BinaryOperation::Add => "+",
            BinaryOperation::Subtract => "-",
            BinaryOperation::Multiply => "*",
            BinaryOperation::Divide => "/",
            BinaryOperation::Remainder => "%",
            BinaryOperation::Equal => "=",
            BinaryOperation::NotEqual => "!=",
            BinaryOperation::Less => "<",
            BinaryOperation::LessOrEqual => "<=",
            BinaryOperation::Greater => ">",
            BinaryOperation::GreaterOrEqual => ">=",
            BinaryOperation::And => "and",
            BinaryOperation::Or => "or",
            BinaryOperation::IfNull => "if null",
        }
    }
}

/// Returns an expression of the column `name`.
pub fn col(name: impl Into<String>) -> Expr {
    Expr::Column(name.into())
}

/// Returns an expression of a constant.
pub fn lit(value: impl Into<Expr>) -> Expr {
    value.into()
}

impl Expr {
    fn binary(self, operation: BinaryOperation, right: impl Into<Expr>) -> Expr {
        Expr::Binary {
            operation,
            left: Box::new(self),
            right: Box::new(right.into()),
        }
    }

    fn unary(self, operation: UnaryOperation) -> Expr {
        Expr::Unary {
            operation,
            input: Box::new(self),
        }
    }

    /// Returns the comparison `self = other`.
    pub fn eq(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::Equal, other)
    }

    /// Returns the comparison `self != other`.
    pub fn not_eq(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::NotEqual, other)
    }

    /// Returns the comparison `self < other`.
    pub fn lt(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::Less, other)
    }

    /// Returns the comparison `self <= other`.
    pub fn lt_eq(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::LessOrEqual, other)
    }

    /// Returns the comparison `self > other`.
    pub fn gt(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::Greater, other)
    }

    /// Returns the comparison `self >= other`.
    pub fn gt_eq(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::GreaterOrEqual, other)
    }

    /// Returns the condition that both are true.
    pub fn and(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::And, other)
    }

    /// Returns the condition that any is true.
    pub fn or(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::Or, other)
    }

    /// Returns the condition that the value is null.
    pub fn is_null(self) -> Expr {
        self.unary(UnaryOperation::IsNull)
    }

    /// Returns the condition that the value is not null.
    pub fn is_not_null(self) -> Expr {
        self.unary(UnaryOperation::IsNotNull)
    }

    /// Returns the value as a column that is not nullable. A null value is an error of its record.
    pub fn required(self) -> Expr {
        self.unary(UnaryOperation::Required)
    }

    /// Returns the value, or `other` where it is null.
    pub fn if_null(self, other: impl Into<Expr>) -> Expr {
        self.binary(BinaryOperation::IfNull, other)
    }

    /// Converts the value to another type.
    pub fn cast(self, to: DataType) -> Expr {
        Expr::Cast {
            input: Box::new(self),
            to,
        }
    }

    /// Names the column of the value.
    pub fn alias(self, name: impl Into<String>) -> Expr {
        Expr::Alias {
            input: Box::new(self),
            name: name.into(),
        }
    }

    /// Returns the name of the value's column: its alias, the (required) column itself, or the
    /// expression.
    pub fn name(&self) -> String {
        match self {
            Expr::Column(name) | Expr::Alias { name, .. } => name.clone(),
            Expr::Unary {
                operation: UnaryOperation::Required,
                input,
            } => input.name(),
            other => other.to_string(),
        }
    }

    /// Calls `visit` for each column that the expression uses.
    pub fn for_each_column(&self, visit: &mut impl FnMut(&str)) {
        match self {
            Expr::Column(name) => visit(name),
            Expr::Literal(_) => {}
            Expr::Binary { left, right, .. } => {
                left.for_each_column(visit);
                right.for_each_column(visit);
            }
            Expr::Unary { input, .. } | Expr::Cast { input, .. } | Expr::Alias { input, .. } => {
                input.for_each_column(visit);
            }
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An operand in parentheses, unless it is a name or a constant.
        let operand = |f: &mut fmt::Formatter<'_>, input: &Expr| match input {
            Expr::Column(_) | Expr::Literal(_) | Expr::Cast { .. } => write!(f, "{input}"),
            _ => write!(f, "({input})"),
        };
        match self {
            Expr::Column(name) => f.write_str(name),
            Expr::Literal(literal) => write!(f, "{literal}"),
            Expr::Binary {
                operation,
                left,
                right,
            } => {
                operand(f, left)?;
                write!(f, " {} ", operation.symbol())?;
                operand(f, right)
            }
            Expr::Unary { operation, input } => {
                f.write_str(match operation {
                    UnaryOperation::Not => "not ",
                    UnaryOperation::Negate => "-",
                    UnaryOperation::Required => "required ",
                    UnaryOperation::IsNull | UnaryOperation::IsNotNull => "",
                })?;
                operand(f, input)?;
                f.write_str(match operation {
                    UnaryOperation::IsNull => " is null",
                    UnaryOperation::IsNotNull => " is not null",
                    UnaryOperation::Not | UnaryOperation::Negate | UnaryOperation::Required => "",
                })
            }
            Expr::Cast { input, to } => write!(f, "cast({input} as {to})"),
            Expr::Alias { input, name } => write!(f, "{input} as {name}"),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Null => f.write_str("null"),
            Literal::Boolean(value) => write!(f, "{value}"),
            Literal::Int(value) => write!(f, "{value}"),
            Literal::UInt(value) => write!(f, "{value}"),
            Literal::Float(value) => write!(f, "{value:?}"),
            Literal::Text(value) => write!(f, "{value:?}"),
        }
    }
}
