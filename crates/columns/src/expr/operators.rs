//! Operators and literals of Rust that make expressions.

use std::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

use super::{BinaryOperation, Expr, Literal, UnaryOperation};

macro_rules! literals {
    ($($from:ty => $value:ident, $literal:expr;)*) => {$(
        impl From<$from> for Expr {
            fn from($value: $from) -> Expr {
                Expr::Literal($literal)
            }
        }
    )*};
}

literals! {
    bool => value, Literal::Boolean(value);
    i32 => value, Literal::Int(value.into());
    i64 => value, Literal::Int(value);
    u32 => value, Literal::Int(value.into());
    u64 => value, Literal::UInt(value);
    f64 => value, Literal::Float(value);
    &str => value, Literal::Text(value.to_string());
    String => value, Literal::Text(value);
}

macro_rules! arithmetic {
    ($($of:ident, $method:ident => $operation:ident;)*) => {$(
        impl<R: Into<Expr>> $of<R> for Expr {
            type Output = Expr;

            fn $method(self, right: R) -> Expr {
                self.binary(BinaryOperation::$operation, right)
            }
        }
    )*};
}

arithmetic! {
    Add, add => Add;
    Sub, sub => Subtract;
    Mul, mul => Multiply;
    Div, div => Divide;
    Rem, rem => Remainder;
}

impl Not for Expr {
    type Output = Expr;

    fn not(self) -> Expr {
        self.unary(UnaryOperation::Not)
    }
}

impl Neg for Expr {
    type Output = Expr;

    fn neg(self) -> Expr {
        self.unary(UnaryOperation::Negate)
    }
}
