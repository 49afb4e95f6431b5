//! The content of compound values: lists, maps, structs and variants.

use serde::de::value::{StrDeserializer, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::Reader;
use crate::error::SerdeError;
use crate::tag;

/// The values of a list, or of a struct in the order of its fields.
pub(super) struct List<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) left: usize,
    pub(super) packed: Option<u8>,
}

impl List<'_, '_> {
    /// Fails if values are left: a visitor of a shorter tuple stops in the middle.
    pub(super) fn all_read(&self) -> Result<(), SerdeError> {
        if self.left == 0 {
            return Ok(());
        }
        Err(SerdeError::custom(
            "a list in it is longer than it should be",
        ))
    }
}

impl SeqAccess<'static> for List<'_, '_> {
    type Error = SerdeError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SerdeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.reader.packed = self.packed;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

pub(super) struct Map<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) left: usize,
}

impl MapAccess<'static> for Map<'_, '_> {
    type Error = SerdeError;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SerdeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, SerdeError> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The fields of a struct, by name.
pub(super) struct NamedFields<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) shape: u16,
    pub(super) next: usize,
    pub(super) fields: usize,
}

impl MapAccess<'static> for NamedFields<'_, '_> {
    type Error = SerdeError;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SerdeError> {
        if self.next == self.fields {
            return Ok(None);
        }
        let name = self.reader.shapes.name(self.shape, self.next)?;
        self.next += 1;
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, SerdeError> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields - self.next)
    }
}

/// A variant as a map with one entry.
pub(super) struct VariantAsMap<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) name: Option<&'a str>,
}

impl MapAccess<'static> for VariantAsMap<'_, '_> {
    type Error = SerdeError;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SerdeError> {
        let Some(name) = self.name.take() else {
            return Ok(None);
        };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, SerdeError> {
        seed.deserialize(&mut *self.reader)
    }
}

pub(super) struct Variant<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) called: VariantName<'a>,
}

/// The name of a variant in the reader's enum.
pub(super) enum VariantName<'a> {
    Name(&'a str),
    /// The name differs in the reader's enum: the variant is found by number.
    Number(u32),
}

impl<'r, 'a> EnumAccess<'static> for Variant<'r, 'a> {
    type Error = SerdeError;
    type Variant = &'r mut Reader<'a>;

    #[inline]
    fn variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<(T::Value, &'r mut Reader<'a>), SerdeError> {
        let value = match self.called {
            VariantName::Name(name) => seed.deserialize(StrDeserializer::new(name))?,
            VariantName::Number(number) => seed.deserialize(U32Deserializer::new(number))?,
        };
        Ok((value, self.reader))
    }
}

impl VariantAccess<'static> for &mut Reader<'_> {
    type Error = SerdeError;

    fn unit_variant(self) -> Result<(), SerdeError> {
        match self.tag()? {
            tag::UNIT => Ok(()),
            _ => Err(SerdeError::custom(
                "a variant in it holds what it should not",
            )),
        }
    }

    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<T::Value, SerdeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'static>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'static>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        self.deserialize_struct("", fields, visitor)
    }
}
