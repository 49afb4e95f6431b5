//! The deserializer of serde values.

mod compound;

use serde::de::{Deserializer, Error, IntoDeserializer, Visitor};

use crate::error::SerdeError;
use crate::struct_tables::Shapes;
use crate::{intern, tag};
use compound::{List, Map, NamedFields, Variant, VariantAsMap, VariantName};

/// Reads values from the front of a payload.
///
/// Values are deserialized with the lifetime `'static`, so that a record may contain static
/// strings. A borrowed string lives that long only if `interns_strings` is set, and otherwise no
/// longer than the call.
pub(crate) struct Reader<'a> {
    input: &'a [u8],
    shapes: Shapes<'a>,
    /// True if borrowed strings are interned.
    interns_strings: bool,
    depth: u32,
    /// The tag of the next value in a packed list, where it is omitted.
    packed: Option<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) fn of(mut payload: &'a [u8], keep: bool) -> Result<Self, SerdeError> {
        let shapes = Shapes::cut_off(&mut payload)?;
        Ok(Reader {
            input: payload,
            shapes,
            interns_strings: keep,
            depth: 0,
            packed: None,
        })
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.input
    }

    /// Rewinds to `rest`, an earlier result of [`rest`](Reader::rest). From then on borrowed
    /// strings are interned.
    pub(crate) fn rewind_and_intern(&mut self, rest: &'a [u8]) {
        self.input = rest;
        self.interns_strings = true;
        self.depth = 0;
        self.packed = None;
    }

    #[inline]
    fn tag(&mut self) -> Result<u8, SerdeError> {
        if let Some(tag) = self.packed.take() {
            return Ok(tag);
        }
        let (tag, rest) = self.input.split_first().ok_or(SerdeError::Short)?;
        self.input = rest;
        Ok(*tag)
    }

    /// Returns the tag of the next value without reading it.
    #[inline]
    fn next_tag(&self) -> Result<u8, SerdeError> {
        match self.packed {
            Some(tag) => Ok(tag),
            None => self.input.first().copied().ok_or(SerdeError::Short),
        }
    }

    #[inline]
    fn array<const WIDTH: usize>(&mut self) -> Result<[u8; WIDTH], SerdeError> {
        let (bytes, rest) = self.input.split_first_chunk().ok_or(SerdeError::Short)?;
        self.input = rest;
        Ok(*bytes)
    }

    fn length(&mut self) -> Result<usize, SerdeError> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    /// Reads the count of a list or map. The count must not exceed the number of bytes left, except
    /// for up to [`tag::MAX_EMPTY_VALUES`] values that take no bytes.
    fn count(&mut self) -> Result<usize, SerdeError> {
        let count = self.length()?;
        if count > self.input.len().max(tag::MAX_EMPTY_VALUES) {
            return Err(SerdeError::Short);
        }
        Ok(count)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], SerdeError> {
        self.input.split_off(..length).ok_or(SerdeError::Short)
    }

    /// Reads a string after its tag.
    fn text(&mut self, tag: u8) -> Result<&'a str, SerdeError> {
        let length = match tag {
            tag::SHORT_STR => usize::from(u8::from_le_bytes(self.array()?)),
            _ => self.length()?,
        };
        str::from_utf8(self.bytes(length)?).map_err(|_| SerdeError::Invalid)
    }

    fn visit_text<V: Visitor<'static>>(
        &mut self,
        tag: u8,
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        let text = self.text(tag)?;
        if !self.interns_strings {
            return visitor.visit_str(text);
        }
        let kept =
            str::from_utf8(intern::intern(text.as_bytes())?).map_err(|_| SerdeError::Invalid)?;
        visitor.visit_borrowed_str(kept)
    }

    fn visit_plain_bytes<V: Visitor<'static>>(
        &self,
        bytes: &[u8],
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        if self.interns_strings {
            visitor.visit_borrowed_bytes(intern::intern(bytes)?)
        } else {
            visitor.visit_bytes(bytes)
        }
    }

    /// Calls `visit` one nesting level deeper.
    #[inline]
    fn deeper<R>(
        &mut self,
        visit: impl FnOnce(&mut Self) -> Result<R, SerdeError>,
    ) -> Result<R, SerdeError> {
        if self.depth == tag::MAX_DEPTH {
            return Err(SerdeError::TooDeep);
        }
        self.depth += 1;
        let result = visit(self);
        self.depth -= 1;
        result
    }

    fn visit_list<V: Visitor<'static>>(
        &mut self,
        left: usize,
        packed: Option<u8>,
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        self.deeper(|reader| {
            let mut list = List {
                reader,
                left,
                packed,
            };
            let value = visitor.visit_seq(&mut list)?;
            list.all_read()?;
            Ok(value)
        })
    }

    fn visit_packed<V: Visitor<'static>>(&mut self, visitor: V) -> Result<V::Value, SerdeError> {
        let [kind] = self.array()?;
        let width = tag::width(kind).ok_or(SerdeError::Invalid)?;
        let count = self.length()?;
        if count.saturating_mul(width) > self.input.len() {
            return Err(SerdeError::Short);
        }
        self.visit_list(count, Some(kind), visitor)
    }

    /// Reads a struct by the names of its fields.
    fn visit_fields<V: Visitor<'static>>(
        &mut self,
        shape: u16,
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        let fields = self.shapes.fields(shape)?;
        self.deeper(|reader| {
            let mut named = NamedFields {
                reader,
                shape,
                next: 0,
                fields,
            };
            let value = visitor.visit_map(&mut named)?;
            if named.next < named.fields {
                return Err(SerdeError::Invalid);
            }
            Ok(value)
        })
    }

    /// Checks the field names of a struct with omitted fields, whose present fields are found by
    /// name. A field with a different name at the reader would otherwise count as omitted and be
    /// lost.
    fn check_names(
        &mut self,
        shape: u16,
        fields: &'static [&'static str],
    ) -> Result<(), SerdeError> {
        if self.shapes.is_checked(shape, fields) {
            return Ok(());
        }
        let count = self.shapes.fields(shape)?;
        let names = || (0..count).flat_map(|field| self.shapes.name(shape, field));
        let unknown = names().find(|name| !fields.contains(name));
        let missing = fields
            .iter()
            .find(|field| names().all(|name| name != **field));
        if let (Some(unknown), Some(missing)) = (unknown, missing) {
            return Err(SerdeError::custom(format_args!(
                "it has a field {unknown:?} and lacks a field {missing:?}: a field may be left out, or have different names where \
                 it is written and read, not both"
            )));
        }
        self.shapes.set_checked(shape, fields);
        Ok(())
    }

    /// Reads the shape and the number of a variant after its tag; the content of the variant comes
    /// next.
    fn variant(&mut self) -> Result<(&'a str, u32), SerdeError> {
        let shape = u16::from_le_bytes(self.array()?);
        let index = u32::from_le_bytes(self.array()?);
        Ok((self.shapes.name(shape, 0)?, index))
    }

    /// Reads a value of any type by its tag.
    fn any<V: Visitor<'static>>(&mut self, tag: u8, visitor: V) -> Result<V::Value, SerdeError> {
        match tag {
            tag::UNIT => visitor.visit_unit(),
            tag::NONE => visitor.visit_none(),
            tag::SOME => self.deeper(|reader| visitor.visit_some(reader)),
            tag::FALSE | tag::TRUE => visitor.visit_bool(tag == tag::TRUE),
            tag::U8 => visitor.visit_u8(u8::from_le_bytes(self.array()?)),
            tag::U16 => visitor.visit_u16(u16::from_le_bytes(self.array()?)),
            tag::U32 => visitor.visit_u32(u32::from_le_bytes(self.array()?)),
            tag::U64 => visitor.visit_u64(u64::from_le_bytes(self.array()?)),
            tag::U128 => visitor.visit_u128(u128::from_le_bytes(self.array()?)),
            tag::I8 => visitor.visit_i8(i8::from_le_bytes(self.array()?)),
            tag::I16 => visitor.visit_i16(i16::from_le_bytes(self.array()?)),
            tag::I32 => visitor.visit_i32(i32::from_le_bytes(self.array()?)),
            tag::I64 => visitor.visit_i64(i64::from_le_bytes(self.array()?)),
            tag::I128 => visitor.visit_i128(i128::from_le_bytes(self.array()?)),
            tag::F32 => visitor.visit_f32(f32::from_le_bytes(self.array()?)),
            tag::F64 => visitor.visit_f64(f64::from_le_bytes(self.array()?)),
            tag::CHAR => {
                let number = u32::from_le_bytes(self.array()?);
                visitor.visit_char(char::from_u32(number).ok_or(SerdeError::Invalid)?)
            }
            tag::SHORT_STR | tag::STR => self.visit_text(tag, visitor),
            tag::BYTES => {
                let length = self.length()?;
                let bytes = self.bytes(length)?;
                self.visit_plain_bytes(bytes, visitor)
            }
            tag::TUPLE => {
                let [count] = self.array()?;
                self.visit_list(usize::from(count), None, visitor)
            }
            tag::SEQ => {
                let count = self.count()?;
                self.visit_list(count, None, visitor)
            }
            tag::PACKED => self.visit_packed(visitor),
            tag::MAP => {
                let left = self.count()?;
                self.deeper(|reader| {
                    let mut map = Map { reader, left };
                    let value = visitor.visit_map(&mut map)?;
                    if map.left > 0 {
                        return Err(SerdeError::Invalid);
                    }
                    Ok(value)
                })
            }
            tag::STRUCT | tag::STATE_STRUCT => {
                let shape = u16::from_le_bytes(self.array()?);
                self.visit_fields(shape, visitor)
            }
            tag::VARIANT | tag::STATE_VARIANT => self.any_variant(visitor),
            _ => Err(SerdeError::Invalid),
        }
    }

    /// Reads a variant for a visitor that did not request an enum: as its name, or as its name and
    /// its content.
    fn any_variant<V: Visitor<'static>>(&mut self, visitor: V) -> Result<V::Value, SerdeError> {
        let (name, _) = self.variant()?;
        if self.next_tag()? == tag::UNIT {
            self.tag()?;
            return visitor.visit_str(name);
        }
        self.deeper(|reader| {
            let mut only = VariantAsMap {
                reader,
                name: Some(name),
            };
            visitor.visit_map(&mut only)
        })
    }
}

macro_rules! numbers {
    ($($name:ident $visit:ident $type:ty = $tag:ident;)*) => {$(
        #[inline]
        fn $name<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, SerdeError> {
            match self.tag()? {
                tag::$tag => visitor.$visit(<$type>::from_le_bytes(self.array()?)),
                other => self.any(other, visitor),
            }
        }
    )*};
}

macro_rules! as_it_is {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[inline]
        fn $name<V: Visitor<'static>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, SerdeError> {
            $(let _ = $argument;)*
            let tag = self.tag()?;
            self.any(tag, visitor)
        }
    )*};
}

impl Deserializer<'static> for &mut Reader<'_> {
    type Error = SerdeError;

    numbers! {
        deserialize_u8 visit_u8 u8 = U8;
        deserialize_u16 visit_u16 u16 = U16;
        deserialize_u32 visit_u32 u32 = U32;
        deserialize_u64 visit_u64 u64 = U64;
        deserialize_u128 visit_u128 u128 = U128;
        deserialize_i8 visit_i8 i8 = I8;
        deserialize_i16 visit_i16 i16 = I16;
        deserialize_i32 visit_i32 i32 = I32;
        deserialize_i64 visit_i64 i64 = I64;
        deserialize_i128 visit_i128 i128 = I128;
        deserialize_f32 visit_f32 f32 = F32;
        deserialize_f64 visit_f64 f64 = F64;
    }

    as_it_is! {
        deserialize_any();
        deserialize_bool();
        deserialize_char();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_identifier();
        deserialize_ignored_any();
    }

    #[inline]
    fn deserialize_str<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match self.tag()? {
            tag @ (tag::SHORT_STR | tag::STR) => self.visit_text(tag, visitor),
            other => self.any(other, visitor),
        }
    }

    #[inline]
    fn deserialize_string<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match self.tag()? {
            // The visitor of a string owns its copy: nothing has to be interned.
            tag @ (tag::SHORT_STR | tag::STR) => visitor.visit_str(self.text(tag)?),
            other => self.any(other, visitor),
        }
    }

    fn deserialize_bytes<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match self.tag()? {
            tag::PACKED if self.input.first() == Some(&tag::U8) => {
                self.tag()?;
                let length = self.length()?;
                let bytes = self.bytes(length)?;
                self.visit_plain_bytes(bytes, visitor)
            }
            tag::SEQ => {
                let mut bytes = Vec::new();
                for _ in 0..self.count()? {
                    match self.array()? {
                        [tag::U8, byte] => bytes.push(byte),
                        _ => return Err(SerdeError::custom("it has a list where bytes should be")),
                    }
                }
                self.visit_plain_bytes(&bytes, visitor)
            }
            other => self.any(other, visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match self.next_tag()? {
            tag::NONE => {
                self.tag()?;
                visitor.visit_none()
            }
            tag::SOME => {
                self.tag()?;
                self.deeper(|reader| visitor.visit_some(reader))
            }
            // Written as a plain value: an `Option` at the reader only, as for a file format with
            // optional fields.
            _ => self.deeper(|reader| visitor.visit_some(reader)),
        }
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        let tag = self.tag()?;
        if tag == tag::STATE_STRUCT {
            let shape = u16::from_le_bytes(self.array()?);
            // The same fields in the same order: no lookup by name.
            if self.shapes.are(shape, fields)? {
                return self.visit_list(fields.len(), None, visitor);
            }
            return self.visit_fields(shape, visitor);
        }
        if tag != tag::STRUCT {
            return self.any(tag, visitor);
        }
        let shape = u16::from_le_bytes(self.array()?);
        // The same number of fields are the same fields, even under other names.
        if self.shapes.fields(shape)? == fields.len() {
            return self.visit_list(fields.len(), None, visitor);
        }
        self.check_names(shape, fields)?;
        self.visit_fields(shape, visitor)
    }

    fn deserialize_enum<V: Visitor<'static>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        match self.tag()? {
            tag::VARIANT => {
                let (name, index) = self.variant()?;
                let called = if variants.contains(&name) {
                    VariantName::Name(name)
                } else {
                    VariantName::Number(index)
                };
                self.deeper(|reader| visitor.visit_enum(Variant { reader, called }))
            }
            tag::STATE_VARIANT => {
                let (name, _) = self.variant()?;
                let called = VariantName::Name(name);
                self.deeper(|reader| visitor.visit_enum(Variant { reader, called }))
            }
            tag @ (tag::SHORT_STR | tag::STR) => {
                let name = self.text(tag)?;
                visitor.visit_enum(IntoDeserializer::<SerdeError>::into_deserializer(name))
            }
            other => self.any(other, visitor),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
