//! Items of JSON arrays, objects and enum variants.

use std::borrow::Cow;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::json::{JsonError, Parser, Result};

/// The items of an array or an object.
pub(super) struct Items<'p, 'de> {
    parser: &'p mut Parser<'de>,
    is_first: bool,
}

impl<'p, 'de> Items<'p, 'de> {
    pub(super) fn new(parser: &'p mut Parser<'de>) -> Self {
        Items {
            parser,
            is_first: true,
        }
    }

    /// Moves to the next item; returns false at the end.
    fn advance(&mut self, end: u8) -> Result<bool> {
        if self.parser.peek() == Some(end) {
            return Ok(false);
        }
        if !std::mem::take(&mut self.is_first) {
            self.parser.take(b',', "a comma")?;
        }
        Ok(true)
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = JsonError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        match self.advance(b']')? {
            true => seed.deserialize(&mut *self.parser).map(Some),
            false => Ok(None),
        }
    }
}

impl<'de> MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = JsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.advance(b'}')? {
            return Ok(None);
        }
        let key = take_key(self.parser)?;
        seed.deserialize(Name(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.parser.take(b':', "a colon")?;
        seed.deserialize(&mut *self.parser)
    }
}

fn take_key<'de>(parser: &mut Parser<'de>) -> Result<Cow<'de, str>> {
    match parser.peek() {
        Some(b'"') => parser.take_string(),
        _ => Err(parser.unexpected("a name")),
    }
}

/// Name of a field or variant, or key of a map.
pub(super) struct Name<'de>(pub(super) Cow<'de, str>);

macro_rules! whole_keys {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.0.parse::<i64>() {
                Ok(number) => visitor.visit_i64(number),
                Err(_) => match self.0.parse::<u64>() {
                    Ok(number) => visitor.visit_u64(number),
                    Err(_) => self.deserialize_any(visitor),
                },
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    whole_keys! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let name: StrDeserializer<'_, JsonError> = (&*self.0).into_deserializer();
        visitor.visit_enum(name)
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// An enum variant with a value: an object with one field.
pub(super) struct Variant<'p, 'de>(pub(super) &'p mut Parser<'de>);

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = JsonError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let name = take_key(self.0)?;
        let name = seed.deserialize(Name(name))?;
        self.0.take(b':', "a colon")?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = JsonError;

    fn unit_variant(self) -> Result<()> {
        de::Deserialize::deserialize(self.0)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.0.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.0.deserialize_any(visitor)
    }
}
