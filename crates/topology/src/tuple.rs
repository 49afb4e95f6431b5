//! Tuples as bolts read them: views of the received batch.

use std::fmt;
use std::sync::Arc;

use ardea_config::nearest;
use ardea_core::{Error, ErrorCode, Result};

use crate::anchor::{Anchor, Salt};
use crate::batch::TupleBatch;
use crate::value::{Field, Value};

/// The origin of the tuples of one input.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) component: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) fields: Arc<[Arc<str>]>,
    /// The salt of the copy of a tuple that this input receives.
    pub(crate) salt: Salt,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {:?} of {:?}", self.stream, self.component)
    }
}

/// One tuple, borrowed from the received batch.
#[derive(Clone, Copy, Debug)]
pub struct Tuple<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) anchors: &'a [Anchor],
    pub(crate) origin: &'a Origin,
    /// The tuple's position in the batch.
    pub(crate) index: usize,
}

macro_rules! getters {
    ($($(#[$about:meta])* $named:ident, $at:ident -> $type:ty, $kind:literal, $pattern:pat => $value:expr;)*) => {$(
        $(#[$about])*
        ///
        /// # Errors
        /// [`ErrorCode::InvalidJob`] if there is no such field; [`ErrorCode::TypeMismatch`] if its
        /// type differs.
        #[inline]
        pub fn $named(&self, field: &str) -> Result<$type> {
            self.$at(self.place(field)?)
        }

        /// Works like the function by name, for the field at position `place`, from zero.
        ///
        /// # Errors
        /// Those of the function by name.
        #[inline]
        pub fn $at(&self, place: usize) -> Result<$type> {
            match self.value_at(place)? {
                $pattern => Ok($value),
                other => Err(self.mismatch(place, $kind, other)),
            }
        }
    )*};
}

impl<'a> Tuple<'a> {
    getters! {
        /// Returns the text in a field.
        str, str_at -> &'a str, "str", Value::Str(value) => value;
        /// Returns the integer in a field.
        int, int_at -> i64, "int", Value::Int(value) => value;
        /// Returns the floating-point number in a field; integers are converted.
        float, float_at -> f64, "float", value @ (Value::Float(_) | Value::Int(_)) => as_float(value);
        /// Returns the boolean in a field.
        bool, bool_at -> bool, "bool", Value::Bool(value) => value;
        /// Returns the bytes in a field.
        bytes, bytes_at -> &'a [u8], "bytes", Value::Bytes(value) => value;
    }

    /// Returns the value of a field, of any kind.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such field.
    pub fn value(&self, field: &str) -> Result<Value<'a>> {
        self.value_at(self.place(field)?)
    }

    /// Returns the value of the field at this position, from zero. Costs a pass over the fields
    /// before it.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such field.
    #[inline]
    pub fn value_at(&self, place: usize) -> Result<Value<'a>> {
        let field = self.field_at(place)?;
        field.value().ok_or_else(|| self.broken(place))
    }

    /// Returns the encoded field at this position, to be emitted again or used as a key.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such field.
    #[inline]
    pub fn field_at(&self, place: usize) -> Result<Field<'a>> {
        let mut rest = self.bytes;
        for _ in 0..place {
            rest = Field::first(rest).ok_or_else(|| self.broken(place))?.1;
        }
        match Field::first(rest) {
            Some((field, _)) => Ok(field),
            None => Err(self.broken(place)),
        }
    }

    /// Returns all values, in order.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (field, after) = Field::first(rest)?;
            rest = after;
            field.value()
        })
    }

    /// Returns the names of the fields.
    pub fn fields(&self) -> &'a [Arc<str>] {
        &self.origin.fields
    }

    /// Returns the name of the component that emitted the tuple.
    pub fn component(&self) -> &'a str {
        &self.origin.component
    }

    /// Returns the name of the stream of the tuple.
    pub fn stream(&self) -> &'a str {
        &self.origin.stream
    }

    /// Returns all fields, encoded.
    #[inline]
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the position of a field.
    #[inline]
    fn place(&self, field: &str) -> Result<usize> {
        let found = self.origin.fields.iter().position(|name| **name == *field);
        found.ok_or_else(|| self.unknown(field))
    }

    #[cold]
    fn unknown(&self, field: &str) -> Error {
        let Origin {
            component,
            stream,
            fields,
            ..
        } = self.origin;
        let names: Vec<&str> = fields.iter().map(|name| &**name).collect();
        let error = Error::new(
            ErrorCode::InvalidJob,
            format!("a tuple of stream {stream:?} of {component:?} has no field {field:?}"),
        );
        match nearest(field, names.iter().copied()) {
            Some(meant) => error.hint(format!("did you mean {meant:?}?")),
            None => error.hint(format!("its fields are {}", names.join(", "))),
        }
    }

    #[cold]
    fn broken(&self, place: usize) -> Error {
        let Origin {
            component,
            stream,
            fields,
            ..
        } = self.origin;
        Error::new(
            ErrorCode::InvalidJob,
            format!(
                "a tuple of stream {stream:?} of {component:?} has {} fields and none at place {place}",
                fields.len()
            ),
        )
        .hint("places are counted from zero")
    }

    #[cold]
    fn mismatch(&self, place: usize, wanted: &str, found: Value<'_>) -> Error {
        let name = self.origin.fields.get(place).map_or("?", |name| &**name);
        Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "the field {name:?} of a tuple of {:?} is {found}, a {}, where a {wanted} is read",
                self.origin.component,
                found.kind()
            ),
        )
    }
}

fn as_float(value: Value<'_>) -> f64 {
    match value {
        Value::Float(number) => number,
        Value::Int(number) => number as f64,
        _ => f64::NAN,
    }
}

/// The waiting tuples of one input of a bolt.
#[derive(Clone, Copy, Debug)]
pub struct Tuples<'a> {
    pub(crate) batch: &'a TupleBatch,
    pub(crate) origin: &'a Origin,
}

impl<'a> Tuples<'a> {
    /// Returns the number of tuples; at least one.
    #[inline]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns true if there is no tuple.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Returns the tuple at this position, from zero.
    #[inline]
    pub fn get(&self, index: usize) -> Tuple<'a> {
        Tuple {
            bytes: self.batch.tuple(index),
            anchors: self.batch.anchors_of(index),
            origin: self.origin,
            index,
        }
    }

    /// Returns all tuples, in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Tuple<'a>> + use<'a> {
        let tuples = *self;
        (0..self.len()).map(move |index| tuples.get(index))
    }

    /// Returns the contents of one field of all tuples, by its position: the UTF-8 of a text, bytes
    /// themselves, other values as encoded after their tag; empty if the field does not exist.
    #[inline]
    pub fn payloads(
        &self,
        place: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let batch = self.batch;
        (0..self.len()).map(move |index| -> &'a [u8] {
            let mut rest = batch.tuple(index);
            for _ in 0..place {
                rest = Field::first(rest).map_or_else(Default::default, |(_, after)| after);
            }
            Field::first(rest).map_or_else(Default::default, |(field, _)| field.payload())
        })
    }

    /// Returns the name of the component that emitted the tuples.
    pub fn component(&self) -> &'a str {
        &self.origin.component
    }

    /// Returns the name of the stream of the tuples.
    pub fn stream(&self) -> &'a str {
        &self.origin.stream
    }

    /// Returns the names of the fields of the tuples.
    pub fn fields(&self) -> &'a [Arc<str>] {
        &self.origin.fields
    }
}
