//! The traits of values that can be emitted as fields, and as tuples.

use crate::tuple::Tuple;
use crate::value::{Field, FieldWriter, Value};

/// A type that can be a field: numbers, text, bytes, booleans, options of them, and custom types
/// that write themselves as one of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a field of a tuple",
    note = "fields are i64 and smaller integers, f64, bool, str, bytes (`Vec<u8>`, `&[u8]`), options of them, and `Items` of them"
)]
pub trait Encode {
    /// Writes exactly one field.
    fn encode(&self, to: &mut FieldWriter<'_>);
}

/// A type that can be emitted as one tuple: a Rust tuple of up to ten fields, an array or slice of
/// fields, or a received tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be emitted as a tuple",
    note = "emit a Rust tuple such as `(word, 1)`, an array such as `[word]`, a slice of values, or a tuple that came in"
)]
pub trait Values {
    /// Writes all fields, in order.
    fn encode(&self, to: &mut FieldWriter<'_>);
}

macro_rules! fields {
    ($($type:ty => |$value:ident, $to:ident| $write:expr;)*) => {$(
        impl Encode for $type {
            #[inline]
            fn encode(&self, $to: &mut FieldWriter<'_>) {
                let $value = self;
                $write;
            }
        }
    )*};
}

fields! {
    i8 => |value, to| to.int(i64::from(*value));
    i16 => |value, to| to.int(i64::from(*value));
    i32 => |value, to| to.int(i64::from(*value));
    i64 => |value, to| to.int(*value);
    u8 => |value, to| to.int(i64::from(*value));
    u16 => |value, to| to.int(i64::from(*value));
    u32 => |value, to| to.int(i64::from(*value));
    f32 => |value, to| to.float(f64::from(*value));
    f64 => |value, to| to.float(*value);
    bool => |value, to| to.bool(*value);
    str => |value, to| to.str(value);
    String => |value, to| to.str(value);
    [u8] => |value, to| to.bytes(value);
    Vec<u8> => |value, to| to.bytes(value);
    Field<'_> => |value, to| to.field(*value);
}

impl Encode for Value<'_> {
    fn encode(&self, to: &mut FieldWriter<'_>) {
        match self {
            Value::Null => to.null(),
            Value::Bool(value) => to.bool(*value),
            Value::Int(value) => to.int(*value),
            Value::Float(value) => to.float(*value),
            Value::Str(value) => to.str(value),
            Value::Bytes(value) => to.bytes(value),
            Value::List(list) => to.list(|to| list.iter().for_each(|item| item.encode(to))),
        }
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn encode(&self, to: &mut FieldWriter<'_>) {
        T::encode(self, to);
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, to: &mut FieldWriter<'_>) {
        match self {
            Some(value) => value.encode(to),
            None => to.null(),
        }
    }
}

/// A slice of values as one field, a list.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a, T>(pub &'a [T]);

impl<T: Encode> Encode for Items<'_, T> {
    fn encode(&self, to: &mut FieldWriter<'_>) {
        to.list(|to| self.0.iter().for_each(|item| item.encode(to)));
    }
}

impl<T: Encode, const N: usize> Values for [T; N] {
    #[inline]
    fn encode(&self, to: &mut FieldWriter<'_>) {
        for value in self {
            value.encode(to);
        }
    }
}

impl<T: Encode> Values for &[T] {
    #[inline]
    fn encode(&self, to: &mut FieldWriter<'_>) {
        for value in *self {
            value.encode(to);
        }
    }
}

/// Copies all fields without encoding them again.
impl Values for &Tuple<'_> {
    #[inline]
    fn encode(&self, to: &mut FieldWriter<'_>) {
        to.encoded(self.encoded(), self.fields().len());
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: Encode),+> Values for ($($name,)+) {
            #[inline]
            #[allow(non_snake_case)]
            fn encode(&self, to: &mut FieldWriter<'_>) {
                let ($($name,)+) = self;
                $($name.encode(to);)+
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
