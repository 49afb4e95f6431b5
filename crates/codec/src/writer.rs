//! Writes values that serde knows.

mod insides;

use std::fmt::{self, Display, Write};

use serde::ser::{Serialize, Serializer};

use crate::fault::Fault;
use crate::shapes::Known;
use crate::tag;
use insides::{Fields, InVariant, Many};

/// Appends values to a payload.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) shapes: Known,
    depth: u32,
    /// Whether it is for another version of the program too.
    kept: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Writer {
            out,
            shapes: Known::take(),
            depth: 0,
            kept: false,
        }
    }

    /// Of values that may be read by another version of the program: structs and variants are found by names alone.
    pub(crate) fn of_kept(out: &'a mut Vec<u8>) -> Self {
        Writer {
            kept: true,
            ..Writer::new(out)
        }
    }

    /// Writes what stands behind all values. True if one of a kept value has a shape that no kept value of this thread had before.
    pub(crate) fn finish(self) -> Result<bool, Fault> {
        self.shapes.finish(self.out, self.kept)
    }

    #[inline]
    fn number<const WIDTH: usize>(&mut self, tag: u8, bytes: [u8; WIDTH]) {
        self.out.push(tag);
        self.out.extend_from_slice(&bytes);
    }

    /// A tag and a number that is known only when all is written.
    fn open(&mut self, tag: u8) -> Result<usize, Fault> {
        self.deeper()?;
        self.number(tag, [0; 4]);
        Ok(self.out.len())
    }

    /// The number, before `start`.
    fn close(&mut self, start: usize, number: usize) -> Result<(), Fault> {
        self.depth -= 1;
        let number = u32::try_from(number).map_err(|_| Fault::TooLarge)?;
        self.out[start - 4..start].copy_from_slice(&number.to_le_bytes());
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), Fault> {
        if self.depth == tag::MOST_DEPTH {
            return Err(Fault::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    fn variant(
        &mut self,
        of: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<(), Fault> {
        self.deeper()?;
        let shape = self.shapes.shape(of, &[variant]);
        let shape = self.shapes.number(shape)?;
        let tag = match self.kept {
            true => tag::KEPT_VARIANT,
            false => tag::VARIANT,
        };
        self.number(tag, shape.to_le_bytes());
        self.out.extend_from_slice(&index.to_le_bytes());
        Ok(())
    }

    fn tuple(&mut self, len: usize) -> Result<Many<'_, 'a>, Fault> {
        if let Ok(len) = u8::try_from(len) {
            self.deeper()?;
            self.number(tag::TUPLE, [len]);
            let start = None;
            let count = 0;
            return Ok(Many {
                writer: self,
                start,
                count,
            });
        }
        self.sequence()
    }

    fn sequence(&mut self) -> Result<Many<'_, 'a>, Fault> {
        let start = Some(self.open(tag::SEQ)?);
        Ok(Many {
            writer: self,
            start,
            count: 0,
        })
    }

    fn fields(&mut self, of: &'static str) -> Result<Fields<'_, 'a>, Fault> {
        self.deeper()?;
        let tag = match self.kept {
            true => tag::KEPT_STRUCT,
            false => tag::STRUCT,
        };
        self.number(tag, [0; 2]);
        Ok(Fields {
            at: self.out.len(),
            of,
            guess: self.shapes.find(of, |_| true),
            count: 0,
            fresh: None,
            writer: self,
        })
    }
}

macro_rules! numbers {
    ($($name:ident $type:ty = $tag:ident;)*) => {$(
        #[inline]
        fn $name(self, value: $type) -> Result<(), Fault> {
            self.number(tag::$tag, value.to_le_bytes());
            Ok(())
        }
    )*};
}

impl<'w, 'a> Serializer for &'w mut Writer<'a> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Many<'w, 'a>;
    type SerializeTuple = Many<'w, 'a>;
    type SerializeTupleStruct = Many<'w, 'a>;
    type SerializeTupleVariant = InVariant<Many<'w, 'a>>;
    type SerializeMap = Many<'w, 'a>;
    type SerializeStruct = Fields<'w, 'a>;
    type SerializeStructVariant = InVariant<Fields<'w, 'a>>;

    numbers! {
        serialize_u8 u8 = U8;
        serialize_u16 u16 = U16;
        serialize_u32 u32 = U32;
        serialize_u64 u64 = U64;
        serialize_u128 u128 = U128;
        serialize_i8 i8 = I8;
        serialize_i16 i16 = I16;
        serialize_i32 i32 = I32;
        serialize_i64 i64 = I64;
        serialize_i128 i128 = I128;
        serialize_f32 f32 = F32;
        serialize_f64 f64 = F64;
    }

    fn serialize_bool(self, value: bool) -> Result<(), Fault> {
        self.out.push(if value { tag::TRUE } else { tag::FALSE });
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Fault> {
        self.number(tag::CHAR, u32::from(value).to_le_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_str(self, text: &str) -> Result<(), Fault> {
        match u8::try_from(text.len()) {
            Ok(length) => self.number(tag::SHORT_STR, [length]),
            Err(_) => {
                let length = u32::try_from(text.len()).map_err(|_| Fault::TooLarge)?;
                self.number(tag::STR, length.to_le_bytes());
            }
        }
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, text: &T) -> Result<(), Fault> {
        let start = self.open(tag::STR)?;
        write!(Text(self.out), "{text}").map_err(|_| Fault::Garbled)?;
        self.close(start, self.out.len() - start)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Fault> {
        let length = u32::try_from(bytes.len()).map_err(|_| Fault::TooLarge)?;
        self.number(tag::BYTES, length.to_le_bytes());
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Fault> {
        self.out.push(tag::NONE);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Fault> {
        self.deeper()?;
        self.out.push(tag::SOME);
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Fault> {
        self.out.push(tag::UNIT);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Fault> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<(), Fault> {
        self.variant(of, index, variant)?;
        self.depth -= 1;
        self.serialize_unit()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        self.variant(of, index, variant)?;
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Many<'w, 'a>, Fault> {
        self.sequence()
    }

    fn serialize_tuple(self, len: usize) -> Result<Many<'w, 'a>, Fault> {
        self.tuple(len)
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Many<'w, 'a>, Fault> {
        self.tuple(len)
    }

    fn serialize_tuple_variant(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<InVariant<Many<'w, 'a>>, Fault> {
        self.variant(of, index, variant)?;
        self.tuple(len).map(InVariant)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Many<'w, 'a>, Fault> {
        let start = Some(self.open(tag::MAP)?);
        let writer = self;
        let count = 0;
        Ok(Many {
            writer,
            start,
            count,
        })
    }

    fn serialize_struct(self, of: &'static str, _: usize) -> Result<Fields<'w, 'a>, Fault> {
        self.fields(of)
    }

    fn serialize_struct_variant(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<InVariant<Fields<'w, 'a>>, Fault> {
        self.variant(of, index, variant)?;
        self.fields(variant).map(InVariant)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A text that is written in pieces.
struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0.extend_from_slice(piece.as_bytes());
        Ok(())
    }
}
