//! What values hold: the values of lists, the entries of maps, the fields of structs, the insides of variants.

use serde::de::value::{StrDeserializer, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::Reader;
use crate::fault::Fault;
use crate::tag;

/// The values of a list, or of a struct in the order of its fields.
pub(super) struct List<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) left: usize,
    pub(super) packed: Option<u8>,
}

impl List<'_, '_> {
    /// Who stops in the middle does not know what it is: a tuple of another length.
    pub(super) fn all_read(&self) -> Result<(), Fault> {
        if self.left == 0 {
            return Ok(());
        }
        Err(Fault::custom("a list in it is longer than it should be"))
    }
}

impl SeqAccess<'static> for List<'_, '_> {
    type Error = Fault;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
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

/// The entries of a map.
pub(super) struct Map<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) left: usize,
}

impl MapAccess<'static> for Map<'_, '_> {
    type Error = Fault;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The fields of a struct, by name.
pub(super) struct Named<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) shape: u16,
    pub(super) next: usize,
    pub(super) fields: usize,
}

impl MapAccess<'static> for Named<'_, '_> {
    type Error = Fault;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        if self.next == self.fields {
            return Ok(None);
        }
        let name = self.reader.shapes.name(self.shape, self.next)?;
        self.next += 1;
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields - self.next)
    }
}

/// A variant as a map of one entry.
pub(super) struct Only<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) name: Option<&'a str>,
}

impl MapAccess<'static> for Only<'_, '_> {
    type Error = Fault;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some(name) = self.name.take() else {
            return Ok(None);
        };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(&mut *self.reader)
    }
}

/// A variant.
pub(super) struct Variant<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) called: Called<'a>,
}

/// What the reader of an enum calls its variant.
pub(super) enum Called<'a> {
    Name(&'a str),
    /// It has another name for it.
    Number(u32),
}

impl<'r, 'a> EnumAccess<'static> for Variant<'r, 'a> {
    type Error = Fault;
    type Variant = &'r mut Reader<'a>;

    #[inline]
    fn variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<(T::Value, &'r mut Reader<'a>), Fault> {
        let value = match self.called {
            Called::Name(name) => seed.deserialize(StrDeserializer::new(name))?,
            Called::Number(number) => seed.deserialize(U32Deserializer::new(number))?,
        };
        Ok((value, self.reader))
    }
}

impl VariantAccess<'static> for &mut Reader<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.tag()? {
            tag::UNIT => Ok(()),
            _ => Err(Fault::custom("a variant in it holds what it should not")),
        }
    }

    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'static>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'static>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'static>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_struct("", fields, visitor)
    }
}
