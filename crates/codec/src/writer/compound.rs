//! Serializers of compound values: lists, maps, structs and variants.

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};

use super::Writer;
use crate::error::SerdeError;
use crate::tag;

/// A list, tuple or map being written.
pub(crate) struct SequenceWriter<'w, 'a> {
    pub(super) writer: &'w mut Writer<'a>,
    /// The position after the count, if the count is not known beforehand.
    pub(super) start: Option<usize>,
    pub(super) count: usize,
}

impl SequenceWriter<'_, '_> {
    #[inline]
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerdeError> {
        self.count += 1;
        value.serialize(&mut *self.writer)
    }

    fn close(self) -> Result<(), SerdeError> {
        match self.start {
            None => self.writer.depth -= 1,
            Some(start) => self.writer.close(start, self.count)?,
        }
        Ok(())
    }

    /// Packs eight or more numbers of one type under a single tag; fewer are not worth the check.
    fn pack(&mut self) {
        let Some(start) = self.start.filter(|_| self.count >= 8) else {
            return;
        };
        let out = &mut self.writer.out;
        let first = out[start];
        let Some(width) = tag::width(first) else {
            return;
        };
        let is_packable = out.len() - start == self.count * (1 + width)
            && out[start..]
                .chunks_exact(1 + width)
                .all(|number| number[0] == first);
        if !is_packable {
            return;
        }
        // The common tag replaces the first byte of the count, which moves one byte further.
        for number in 0..self.count {
            let from = start + number * (1 + width) + 1;
            out.copy_within(from..from + width, start + 1 + number * width);
        }
        out.truncate(start + 1 + self.count * width);
        out.copy_within(start - 4..start, start - 3);
        out[start - 5] = tag::PACKED;
        out[start - 4] = first;
    }

    fn end_list(mut self) -> Result<(), SerdeError> {
        let start = self.start;
        let count = self.count;
        if let Some(start) = start {
            let number = u32::try_from(count).map_err(|_| SerdeError::TooLarge)?;
            self.writer.out[start - 4..start].copy_from_slice(&number.to_le_bytes());
        }
        self.pack();
        self.writer.depth -= 1;
        Ok(())
    }
}

impl SerializeSeq for SequenceWriter<'_, '_> {
    type Ok = ();
    type Error = SerdeError;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerdeError> {
        self.value(value)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.end_list()
    }
}

impl SerializeTuple for SequenceWriter<'_, '_> {
    type Ok = ();
    type Error = SerdeError;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerdeError> {
        self.value(value)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.end_list()
    }
}

impl SerializeTupleStruct for SequenceWriter<'_, '_> {
    type Ok = ();
    type Error = SerdeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerdeError> {
        self.value(value)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.end_list()
    }
}

impl SerializeMap for SequenceWriter<'_, '_> {
    type Ok = ();
    type Error = SerdeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), SerdeError> {
        self.value(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerdeError> {
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.close()
    }
}

pub(crate) struct StructWriter<'w, 'a> {
    pub(super) writer: &'w mut Writer<'a>,
    /// The position in the output after the shape number.
    pub(super) at: usize,
    pub(super) of: &'static str,
    /// The expected shape: all names so far are equal to its names.
    pub(super) guess: Option<usize>,
    pub(super) count: usize,
    /// The field names so far, if no known shape has them.
    pub(super) new_names: Option<Vec<&'static str>>,
}

impl StructWriter<'_, '_> {
    #[inline]
    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), SerdeError> {
        match self.guess {
            Some(shape) if self.writer.shapes.has(shape, self.count, name) => {}
            _ => self.other_shape(name),
        }
        self.count += 1;
        value.serialize(&mut *self.writer)
    }

    /// Handles a name that differs from the expected shape.
    #[cold]
    fn other_shape(&mut self, name: &'static str) {
        if let Some(names) = &mut self.new_names {
            names.push(name);
            return;
        }
        let shapes = &self.writer.shapes;
        let mut names = match self.guess {
            Some(shape) => shapes.names(shape)[..self.count].to_vec(),
            None => Vec::new(),
        };
        names.push(name);
        self.guess = shapes.find(self.of, |known| known.starts_with(&names));
        if self.guess.is_none() {
            self.new_names = Some(names);
        }
    }

    fn close(self) -> Result<(), SerdeError> {
        let shapes = &mut self.writer.shapes;
        let shape = match (&self.new_names, self.guess) {
            (Some(names), _) => shapes.shape(self.of, names),
            (None, Some(shape)) if shapes.names(shape).len() == self.count => shape,
            (None, Some(longer)) => {
                let names = shapes.names(longer)[..self.count].to_vec();
                shapes.shape(self.of, &names)
            }
            (None, None) => shapes.shape(self.of, &[]),
        };
        let number = shapes.number(shape)?;
        self.writer.out[self.at - 2..self.at].copy_from_slice(&number.to_le_bytes());
        self.writer.depth -= 1;
        Ok(())
    }
}

impl SerializeStruct for StructWriter<'_, '_> {
    type Ok = ();
    type Error = SerdeError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), SerdeError> {
        self.field(name, value)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.close()
    }
}

/// The content of a variant.
pub(crate) struct VariantWriter<W>(pub(super) W);

impl SerializeTupleVariant for VariantWriter<SequenceWriter<'_, '_>> {
    type Ok = ();
    type Error = SerdeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerdeError> {
        self.0.value(value)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.0.writer.depth -= 1;
        self.0.end_list()
    }
}

impl SerializeStructVariant for VariantWriter<StructWriter<'_, '_>> {
    type Ok = ();
    type Error = SerdeError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), SerdeError> {
        self.0.field(name, value)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.0.writer.depth -= 1;
        self.0.close()
    }
}
