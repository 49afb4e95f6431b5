//! Reads values that serde knows.

mod insides;

use serde::de::{Deserializer, Error, IntoDeserializer, Visitor};

use crate::fault::Fault;
use crate::shapes::Shapes;
use crate::{tag, texts};
use insides::{Called, List, Map, Named, Only, Variant};

/// Takes values from the front of a payload.
///
/// It deserializes for a lifetime of `'static`, so that a record may hold texts that live as long as the program; what it gives out
/// lives so long only if it [keeps](Reader::keep) all texts, and else no longer than the call.
pub(crate) struct Reader<'a> {
    input: &'a [u8],
    shapes: Shapes<'a>,
    /// Whether texts that may be borrowed are kept for ever.
    keep: bool,
    depth: u32,
    /// The tag of the next value, which has been left out.
    packed: Option<u8>,
}

impl<'a> Reader<'a> {
    /// Of a whole payload.
    pub(crate) fn of(mut payload: &'a [u8], keep: bool) -> Result<Self, Fault> {
        let shapes = Shapes::cut_off(&mut payload)?;
        Ok(Reader {
            input: payload,
            shapes,
            keep,
            depth: 0,
            packed: None,
        })
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.input
    }

    /// Goes back to where `rest` was all that had not been read; from now on texts that may be borrowed are kept.
    pub(crate) fn again_and_keep(&mut self, rest: &'a [u8]) {
        self.input = rest;
        self.keep = true;
        self.depth = 0;
        self.packed = None;
    }

    #[inline]
    fn tag(&mut self) -> Result<u8, Fault> {
        if let Some(tag) = self.packed.take() {
            return Ok(tag);
        }
        let (tag, rest) = self.input.split_first().ok_or(Fault::Short)?;
        self.input = rest;
        Ok(*tag)
    }

    /// The tag of the next value, which is still to be read.
    #[inline]
    fn next_tag(&self) -> Result<u8, Fault> {
        match self.packed {
            Some(tag) => Ok(tag),
            None => self.input.first().copied().ok_or(Fault::Short),
        }
    }

    #[inline]
    fn array<const WIDTH: usize>(&mut self) -> Result<[u8; WIDTH], Fault> {
        let (bytes, rest) = self.input.split_first_chunk().ok_or(Fault::Short)?;
        self.input = rest;
        Ok(*bytes)
    }

    fn length(&mut self) -> Result<usize, Fault> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    /// The count of a list or map: there may be no more than the bytes at hand can be, but for some that take none.
    fn count(&mut self) -> Result<usize, Fault> {
        let count = self.length()?;
        if count > self.input.len().max(tag::MOST_EMPTY) {
            return Err(Fault::Short);
        }
        Ok(count)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        self.input.split_off(..length).ok_or(Fault::Short)
    }

    /// The text behind its tag.
    fn text(&mut self, tag: u8) -> Result<&'a str, Fault> {
        let length = match tag {
            tag::SHORT_STR => usize::from(u8::from_le_bytes(self.array()?)),
            _ => self.length()?,
        };
        str::from_utf8(self.bytes(length)?).map_err(|_| Fault::Garbled)
    }

    fn visit_text<V: Visitor<'static>>(&mut self, tag: u8, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text(tag)?;
        if !self.keep {
            return visitor.visit_str(text);
        }
        let kept = str::from_utf8(texts::keep(text.as_bytes())?).map_err(|_| Fault::Garbled)?;
        visitor.visit_borrowed_str(kept)
    }

    fn visit_plain_bytes<V: Visitor<'static>>(
        &self,
        bytes: &[u8],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if self.keep {
            visitor.visit_borrowed_bytes(texts::keep(bytes)?)
        } else {
            visitor.visit_bytes(bytes)
        }
    }

    /// Calls `visit` one level deeper.
    #[inline]
    fn deeper<R>(&mut self, visit: impl FnOnce(&mut Self) -> Result<R, Fault>) -> Result<R, Fault> {
        if self.depth == tag::MOST_DEPTH {
            return Err(Fault::TooDeep);
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
    ) -> Result<V::Value, Fault> {
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

    fn visit_packed<V: Visitor<'static>>(&mut self, visitor: V) -> Result<V::Value, Fault> {
        let [kind] = self.array()?;
        let width = tag::width(kind).ok_or(Fault::Garbled)?;
        let count = self.length()?;
        if count.saturating_mul(width) > self.input.len() {
            return Err(Fault::Short);
        }
        self.visit_list(count, Some(kind), visitor)
    }

    /// A struct, by the names of its fields.
    fn visit_fields<V: Visitor<'static>>(
        &mut self,
        shape: u16,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let fields = self.shapes.fields(shape)?;
        self.deeper(|reader| {
            let mut named = Named {
                reader,
                shape,
                next: 0,
                fields,
            };
            let value = visitor.visit_map(&mut named)?;
            if named.next < named.fields {
                return Err(Fault::Garbled);
            }
            Ok(value)
        })
    }

    /// Some fields were left out, so that the others are found by name. Where one has another name for its reader it would be taken
    /// for one that was left out, and lost.
    fn check_names(&mut self, shape: u16, fields: &'static [&'static str]) -> Result<(), Fault> {
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
            return Err(Fault::custom(format_args!(
                "it has a field {unknown:?} and lacks a field {missing:?}: a field may be left out, or have different names where \
                 it is written and read, not both"
            )));
        }
        self.shapes.set_checked(shape, fields);
        Ok(())
    }

    /// The shape and the number of a variant, behind their tag; what the variant holds is next.
    fn variant(&mut self) -> Result<(&'a str, u32), Fault> {
        let shape = u16::from_le_bytes(self.array()?);
        let index = u32::from_le_bytes(self.array()?);
        Ok((self.shapes.name(shape, 0)?, index))
    }

    /// Any value, as what it is.
    fn any<V: Visitor<'static>>(&mut self, tag: u8, visitor: V) -> Result<V::Value, Fault> {
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
                visitor.visit_char(char::from_u32(number).ok_or(Fault::Garbled)?)
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
                        return Err(Fault::Garbled);
                    }
                    Ok(value)
                })
            }
            tag::STRUCT | tag::KEPT_STRUCT => {
                let shape = u16::from_le_bytes(self.array()?);
                self.visit_fields(shape, visitor)
            }
            tag::VARIANT | tag::KEPT_VARIANT => self.any_variant(visitor),
            _ => Err(Fault::Garbled),
        }
    }

    /// A variant for who does not ask for one: its name, or its name and what it holds.
    fn any_variant<V: Visitor<'static>>(&mut self, visitor: V) -> Result<V::Value, Fault> {
        let (name, _) = self.variant()?;
        if self.next_tag()? == tag::UNIT {
            self.tag()?;
            return visitor.visit_str(name);
        }
        self.deeper(|reader| {
            let mut only = Only {
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
        fn $name<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Fault> {
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
        fn $name<V: Visitor<'static>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Fault> {
            $(let _ = $argument;)*
            let tag = self.tag()?;
            self.any(tag, visitor)
        }
    )*};
}

impl Deserializer<'static> for &mut Reader<'_> {
    type Error = Fault;

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
    fn deserialize_str<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.tag()? {
            tag @ (tag::SHORT_STR | tag::STR) => self.visit_text(tag, visitor),
            other => self.any(other, visitor),
        }
    }

    #[inline]
    fn deserialize_string<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.tag()? {
            // Who asks for a string has one of his own: there is nothing to be kept.
            tag @ (tag::SHORT_STR | tag::STR) => visitor.visit_str(self.text(tag)?),
            other => self.any(other, visitor),
        }
    }

    fn deserialize_bytes<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Fault> {
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
                        _ => return Err(Fault::custom("it has a list where bytes should be")),
                    }
                }
                self.visit_plain_bytes(&bytes, visitor)
            }
            other => self.any(other, visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.next_tag()? {
            tag::NONE => {
                self.tag()?;
                visitor.visit_none()
            }
            tag::SOME => {
                self.tag()?;
                self.deeper(|reader| visitor.visit_some(reader))
            }
            // Written by who knows that there is one, as in a file of which only the reader allows for gaps.
            _ => self.deeper(|reader| visitor.visit_some(reader)),
        }
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let tag = self.tag()?;
        if tag == tag::KEPT_STRUCT {
            let shape = u16::from_le_bytes(self.array()?);
            // As they were when it was written: nothing has to be looked for.
            if self.shapes.are(shape, fields)? {
                return self.visit_list(fields.len(), None, visitor);
            }
            return self.visit_fields(shape, visitor);
        }
        if tag != tag::STRUCT {
            return self.any(tag, visitor);
        }
        let shape = u16::from_le_bytes(self.array()?);
        // As many fields as the reader has are its fields, whatever each side calls them.
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
    ) -> Result<V::Value, Fault> {
        match self.tag()? {
            tag::VARIANT => {
                let (name, index) = self.variant()?;
                let called = if variants.contains(&name) {
                    Called::Name(name)
                } else {
                    Called::Number(index)
                };
                self.deeper(|reader| visitor.visit_enum(Variant { reader, called }))
            }
            tag::KEPT_VARIANT => {
                let (name, _) = self.variant()?;
                let called = Called::Name(name);
                self.deeper(|reader| visitor.visit_enum(Variant { reader, called }))
            }
            tag @ (tag::SHORT_STR | tag::STR) => {
                let name = self.text(tag)?;
                visitor.visit_enum(IntoDeserializer::<Fault>::into_deserializer(name))
            }
            other => self.any(other, visitor),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
