//! A serializer that refuses values which a format cannot represent unambiguously.
//!
//! [`check`] serializes a value with another serializer and applies [`Rules`]. A violation is
//! returned as an error of that serializer, and the whole record is refused.

use std::fmt::Display;

use serde::ser::{
    Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};

use super::NonFinite;

/// The values that a format cannot represent, and that are refused when a record is written.
pub(super) trait Rules {
    /// Returns the treatment of non-finite floats; `None` if the format supports them.
    fn non_finite(&self) -> Option<NonFinite>;

    /// Returns true if `Some` of an empty text or byte string is refused, since it would read back
    /// as `None`.
    fn refuses_empty_some(&self) -> bool {
        false
    }

    /// Returns true if `Some` of a value that the format writes as nothing is refused, such as
    /// `Some(None)`. Texts and byte strings have a rule of their own, above.
    fn refuses_nothing_in_some(&self) -> bool;

    /// Returns true if the format drops the names of enum variants with one value.
    fn drops_variants(&self) -> bool {
        false
    }

    /// Checks a text.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    fn text(&self, _text: &str) -> Result<(), &'static str> {
        Ok(())
    }

    /// Checks a field of a struct; called for the fields in order.
    ///
    /// # Errors
    /// The reason why a field of this name is not allowed here.
    fn field(&self, _name: &'static str) -> Result<(), String> {
        Ok(())
    }
}

/// Serializes a value with `serializer`, applying the rules.
pub(super) fn check<T, S, R>(value: &T, serializer: S, rules: &R) -> Result<S::Ok, S::Error>
where
    T: Serialize + ?Sized,
    S: Serializer,
    R: Rules,
{
    value.serialize(Checked {
        inner: serializer,
        rules,
        in_some: false,
    })
}

/// A serializer or compound serializer with rules.
struct Checked<'a, S, R> {
    inner: S,
    rules: &'a R,
    /// True if the value is directly inside `Some`.
    in_some: bool,
}

/// A value that is serialized with rules.
pub(super) struct Value<'a, T: ?Sized, R> {
    value: &'a T,
    rules: &'a R,
    in_some: bool,
}

impl<'a, T: ?Sized, R> Value<'a, T, R> {
    /// Wraps a value for serializers that take a [`Serialize`].
    pub(super) fn new(value: &'a T, rules: &'a R) -> Self {
        Value {
            value,
            rules,
            in_some: false,
        }
    }
}

impl<T: Serialize + ?Sized, R: Rules> Serialize for Value<'_, T, R> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Checked {
            inner: serializer,
            rules: self.rules,
            in_some: self.in_some,
        })
    }
}

impl<'a, S: Serializer, R: Rules> Checked<'a, S, R> {
    fn non_finite(self, value: f64, choice: NonFinite) -> Result<S::Ok, S::Error> {
        match choice {
            NonFinite::DeadLetter => Err(S::Error::custom(format_args!(
                "this format has no number {}",
                NonFinite::text(value)
            ))),
            NonFinite::Null => self.inner.serialize_unit(),
            NonFinite::Text => self.inner.serialize_str(NonFinite::text(value)),
        }
    }

    /// Refuses a value without content where it would read back as `None`.
    fn nothing(&self) -> Result<(), S::Error> {
        match self.in_some && self.rules.refuses_nothing_in_some() {
            true => Err(S::Error::custom(
                "`Some` of an empty value would read back as `None`",
            )),
            false => Ok(()),
        }
    }

    fn empty(&self, is_empty: bool) -> Result<(), S::Error> {
        match is_empty && self.in_some && self.rules.refuses_empty_some() {
            true => Err(S::Error::custom(
                "an empty text in `Some` would read back as `None`",
            )),
            false => Ok(()),
        }
    }
}

/// Wraps the compound serializer returned by a serializer.
fn compound<C, E, R>(rules: &R, inner: Result<C, E>) -> Result<Checked<'_, C, R>, E> {
    Ok(Checked {
        inner: inner?,
        rules,
        in_some: false,
    })
}

macro_rules! forward {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(
            #[inline]
            fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
                self.inner.$method(value)
            }
        )*
    };
}

impl<'a, S: Serializer, R: Rules> Serializer for Checked<'a, S, R> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Checked<'a, S::SerializeSeq, R>;
    type SerializeTuple = Checked<'a, S::SerializeTuple, R>;
    type SerializeTupleStruct = Checked<'a, S::SerializeTupleStruct, R>;
    type SerializeTupleVariant = Checked<'a, S::SerializeTupleVariant, R>;
    type SerializeMap = Checked<'a, S::SerializeMap, R>;
    type SerializeStruct = Checked<'a, S::SerializeStruct, R>;
    type SerializeStructVariant = Checked<'a, S::SerializeStructVariant, R>;

    forward! {
        serialize_bool: bool,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128,
        serialize_char: char,
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        match self.rules.non_finite() {
            Some(choice) if !value.is_finite() => self.non_finite(value.into(), choice),
            _ => self.inner.serialize_f32(value),
        }
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        match self.rules.non_finite() {
            Some(choice) if !value.is_finite() => self.non_finite(value, choice),
            _ => self.inner.serialize_f64(value),
        }
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<S::Ok, S::Error> {
        self.empty(value.is_empty())?;
        self.rules.text(value).map_err(S::Error::custom)?;
        self.inner.serialize_str(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<S::Ok, S::Error> {
        self.empty(value.is_empty())?;
        self.inner.serialize_bytes(value)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.nothing()?;
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let Checked { inner, rules, .. } = self;
        let in_some = true;
        inner.serialize_some(&Value {
            value,
            rules,
            in_some,
        })
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.nothing()?;
        self.inner.serialize_unit()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.nothing()?;
        self.inner.serialize_unit_struct(name)
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let Checked {
            inner,
            rules,
            in_some,
        } = self;
        inner.serialize_newtype_struct(
            name,
            &Value {
                value,
                rules,
                in_some,
            },
        )
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        if self.rules.drops_variants() {
            return Err(S::Error::custom(format_args!(
                "the variant {variant} would be lost, only its content has a field"
            )));
        }
        let Checked { inner, rules, .. } = self;
        inner.serialize_newtype_variant(name, index, variant, &Value::new(value, rules))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        compound(self.rules, self.inner.serialize_seq(len))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        compound(self.rules, self.inner.serialize_tuple(len))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        compound(self.rules, self.inner.serialize_tuple_struct(name, len))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        let begun = self
            .inner
            .serialize_tuple_variant(name, index, variant, len);
        compound(self.rules, begun)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        compound(self.rules, self.inner.serialize_map(len))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        compound(self.rules, self.inner.serialize_struct(name, len))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        let begun = self
            .inner
            .serialize_struct_variant(name, index, variant, len);
        compound(self.rules, begun)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        // Only an empty text in `Some` matters.
        match self.in_some && self.rules.refuses_empty_some() {
            true => self.serialize_str(&value.to_string()),
            false => self.inner.collect_str(value),
        }
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! elements {
    ($($trait:ident :: $method:ident),* $(,)?) => {
        $(
            impl<C: $trait, R: Rules> $trait for Checked<'_, C, R> {
                type Ok = C::Ok;
                type Error = C::Error;

                #[inline]
                fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                    self.inner.$method(&Value::new(value, self.rules))
                }

                fn end(self) -> Result<C::Ok, C::Error> {
                    self.inner.end()
                }
            }
        )*
    };
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! fields {
    ($($trait:ident),* $(,)?) => {
        $(
            impl<C: $trait, R: Rules> $trait for Checked<'_, C, R> {
                type Ok = C::Ok;
                type Error = C::Error;

                #[inline]
                fn serialize_field<T: Serialize + ?Sized>(
                    &mut self,
                    key: &'static str,
                    value: &T,
                ) -> Result<(), C::Error> {
                    self.rules.field(key).map_err(C::Error::custom)?;
                    self.inner.serialize_field(key, &Value::new(value, self.rules))
                }

                fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                    self.inner.skip_field(key)
                }

                fn end(self) -> Result<C::Ok, C::Error> {
                    self.inner.end()
                }
            }
        )*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl<C: SerializeMap, R: Rules> SerializeMap for Checked<'_, C, R> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.inner.serialize_key(&Value::new(key, self.rules))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.inner.serialize_value(&Value::new(value, self.rules))
    }

    fn serialize_entry<K, V>(&mut self, key: &K, value: &V) -> Result<(), C::Error>
    where
        K: Serialize + ?Sized,
        V: Serialize + ?Sized,
    {
        let (key, value) = (Value::new(key, self.rules), Value::new(value, self.rules));
        self.inner.serialize_entry(&key, &value)
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}
