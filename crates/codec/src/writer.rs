//! The serializer of serde values.

mod compound;

use std::fmt::{self, Display, Write};

use serde::ser::{Serialize, Serializer};

use crate::error::SerdeError;
use crate::struct_tables::WriterShapes;
use crate::tag;
use compound::{SequenceWriter, StructWriter, VariantWriter};

/// Appends values to a payload.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) shapes: WriterShapes,
    depth: u32,
    /// True for state values, which another version of the program may read.
    is_state: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Writer {
            out,
            shapes: WriterShapes::take(),
            depth: 0,
            is_state: false,
        }
    }

    /// Creates a writer of state values: structs and variants are found by name only.
    pub(crate) fn for_state(out: &'a mut Vec<u8>) -> Self {
        Writer {
            is_state: true,
            ..Writer::new(out)
        }
    }

    /// Writes the shapes behind all values. Returns true if a state value has a shape that is new
    /// to this thread.
    pub(crate) fn finish(self) -> Result<bool, SerdeError> {
        self.shapes.finish(self.out, self.is_state)
    }

    #[inline]
    fn number<const WIDTH: usize>(&mut self, tag: u8, bytes: [u8; WIDTH]) {
        self.out.push(tag);
        self.out.extend_from_slice(&bytes);
    }

    /// Writes a tag and reserves space for a number that is known only later. Returns the position
    /// after that space.
    fn open(&mut self, tag: u8) -> Result<usize, SerdeError> {
        self.deeper()?;
        self.number(tag, [0; 4]);
        Ok(self.out.len())
    }

    /// Writes `number` into the space reserved before `start`.
    fn close(&mut self, start: usize, number: usize) -> Result<(), SerdeError> {
        self.depth -= 1;
        let number = u32::try_from(number).map_err(|_| SerdeError::TooLarge)?;
        self.out[start - 4..start].copy_from_slice(&number.to_le_bytes());
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), SerdeError> {
        if self.depth == tag::MAX_DEPTH {
            return Err(SerdeError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    fn variant(
        &mut self,
        of: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<(), SerdeError> {
        self.deeper()?;
        let shape = self.shapes.shape(of, &[variant]);
        let shape = self.shapes.number(shape)?;
        let tag = match self.is_state {
            true => tag::STATE_VARIANT,
            false => tag::VARIANT,
        };
        self.number(tag, shape.to_le_bytes());
        self.out.extend_from_slice(&index.to_le_bytes());
        Ok(())
    }

    fn tuple(&mut self, len: usize) -> Result<SequenceWriter<'_, 'a>, SerdeError> {
        if let Ok(len) = u8::try_from(len) {
            self.deeper()?;
            self.number(tag::TUPLE, [len]);
            let start = None;
            let count = 0;
            return Ok(SequenceWriter {
                writer: self,
                start,
                count,
            });
        }
        self.sequence()
    }

    fn sequence(&mut self) -> Result<SequenceWriter<'_, 'a>, SerdeError> {
        let start = Some(self.open(tag::SEQ)?);
        Ok(SequenceWriter {
            writer: self,
            start,
            count: 0,
        })
    }

    fn fields(&mut self, of: &'static str) -> Result<StructWriter<'_, 'a>, SerdeError> {
        self.deeper()?;
        let tag = match self.is_state {
            true => tag::STATE_STRUCT,
            false => tag::STRUCT,
        };
        self.number(tag, [0; 2]);
        Ok(StructWriter {
            at: self.out.len(),
            of,
            guess: self.shapes.find(of, |_| true),
            count: 0,
            new_names: None,
            writer: self,
        })
    }
}

macro_rules! numbers {
    ($($name:ident $type:ty = $tag:ident;)*) => {$(
        #[inline]
        fn $name(self, value: $type) -> Result<(), SerdeError> {
            self.number(tag::$tag, value.to_le_bytes());
            Ok(())
        }
    )*};
}

impl<'w, 'a> Serializer for &'w mut Writer<'a> {
    type Ok = ();
    type Error = SerdeError;
    type SerializeSeq = SequenceWriter<'w, 'a>;
    type SerializeTuple = SequenceWriter<'w, 'a>;
    type SerializeTupleStruct = SequenceWriter<'w, 'a>;
    type SerializeTupleVariant = VariantWriter<SequenceWriter<'w, 'a>>;
    type SerializeMap = SequenceWriter<'w, 'a>;
    type SerializeStruct = StructWriter<'w, 'a>;
    type SerializeStructVariant = VariantWriter<StructWriter<'w, 'a>>;

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

    fn serialize_bool(self, value: bool) -> Result<(), SerdeError> {
        self.out.push(if value { tag::TRUE } else { tag::FALSE });
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), SerdeError> {
        self.number(tag::CHAR, u32::from(value).to_le_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_str(self, text: &str) -> Result<(), SerdeError> {
        match u8::try_from(text.len()) {
            Ok(length) => self.number(tag::SHORT_STR, [length]),
            Err(_) => {
                let length = u32::try_from(text.len()).map_err(|_| SerdeError::TooLarge)?;
                self.number(tag::STR, length.to_le_bytes());
            }
        }
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, text: &T) -> Result<(), SerdeError> {
        let start = self.open(tag::STR)?;
        write!(Text(self.out), "{text}").map_err(|_| SerdeError::Invalid)?;
        self.close(start, self.out.len() - start)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), SerdeError> {
        let length = u32::try_from(bytes.len()).map_err(|_| SerdeError::TooLarge)?;
        self.number(tag::BYTES, length.to_le_bytes());
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), SerdeError> {
        self.out.push(tag::NONE);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), SerdeError> {
        self.deeper()?;
        self.out.push(tag::SOME);
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), SerdeError> {
        self.out.push(tag::UNIT);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), SerdeError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<(), SerdeError> {
        self.variant(of, index, variant)?;
        self.depth -= 1;
        self.serialize_unit()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), SerdeError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), SerdeError> {
        self.variant(of, index, variant)?;
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<SequenceWriter<'w, 'a>, SerdeError> {
        self.sequence()
    }

    fn serialize_tuple(self, len: usize) -> Result<SequenceWriter<'w, 'a>, SerdeError> {
        self.tuple(len)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<SequenceWriter<'w, 'a>, SerdeError> {
        self.tuple(len)
    }

    fn serialize_tuple_variant(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<VariantWriter<SequenceWriter<'w, 'a>>, SerdeError> {
        self.variant(of, index, variant)?;
        self.tuple(len).map(VariantWriter)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<SequenceWriter<'w, 'a>, SerdeError> {
        let start = Some(self.open(tag::MAP)?);
        let writer = self;
        let count = 0;
        Ok(SequenceWriter {
            writer,
            start,
            count,
        })
    }

    fn serialize_struct(
        self,
        of: &'static str,
        _: usize,
    ) -> Result<StructWriter<'w, 'a>, SerdeError> {
        self.fields(of)
    }

    fn serialize_struct_variant(
        self,
        of: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<VariantWriter<StructWriter<'w, 'a>>, SerdeError> {
        self.variant(of, index, variant)?;
        self.fields(variant).map(VariantWriter)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A string that is written in pieces.
struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.0.extend_from_slice(piece.as_bytes());
        Ok(())
    }
}
