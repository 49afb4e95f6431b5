//! What values hold, while it is being written.

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};

use super::Writer;
use crate::fault::Fault;
use crate::tag;

/// A list, a tuple or a map that is being written.
pub(crate) struct Many<'w, 'a> {
    pub(super) writer: &'w mut Writer<'a>,
    /// Behind the count, if that is not known beforehand.
    pub(super) start: Option<usize>,
    pub(super) count: usize,
}

impl Many<'_, '_> {
    #[inline]
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.count += 1;
        value.serialize(&mut *self.writer)
    }

    fn close(self) -> Result<(), Fault> {
        match self.start {
            None => self.writer.depth -= 1,
            Some(start) => self.writer.close(start, self.count)?,
        }
        Ok(())
    }

    /// Leaves the tags of numbers of one kind out. Fewer than eight are not worth the look.
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
        // The tag of all goes where the count's first byte was, and the count one further.
        for number in 0..self.count {
            let from = start + number * (1 + width) + 1;
            out.copy_within(from..from + width, start + 1 + number * width);
        }
        out.truncate(start + 1 + self.count * width);
        out.copy_within(start - 4..start, start - 3);
        out[start - 5] = tag::PACKED;
        out[start - 4] = first;
    }

    fn end_list(mut self) -> Result<(), Fault> {
        let start = self.start;
        let count = self.count;
        if let Some(start) = start {
            let number = u32::try_from(count).map_err(|_| Fault::TooLarge)?;
            self.writer.out[start - 4..start].copy_from_slice(&number.to_le_bytes());
        }
        self.pack();
        self.writer.depth -= 1;
        Ok(())
    }
}

impl SerializeSeq for Many<'_, '_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.value(value)
    }

    fn end(self) -> Result<(), Fault> {
        self.end_list()
    }
}

impl SerializeTuple for Many<'_, '_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.value(value)
    }

    fn end(self) -> Result<(), Fault> {
        self.end_list()
    }
}

impl SerializeTupleStruct for Many<'_, '_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.value(value)
    }

    fn end(self) -> Result<(), Fault> {
        self.end_list()
    }
}

impl SerializeMap for Many<'_, '_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Fault> {
        self.value(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), Fault> {
        self.close()
    }
}

/// A struct that is being written.
pub(crate) struct Fields<'w, 'a> {
    pub(super) writer: &'w mut Writer<'a>,
    /// Behind the number of its shape.
    pub(super) at: usize,
    pub(super) of: &'static str,
    /// The shape that it may have: so far all names are as there.
    pub(super) guess: Option<usize>,
    pub(super) count: usize,
    /// Its names, if no shape has them.
    pub(super) fresh: Option<Vec<&'static str>>,
}

impl Fields<'_, '_> {
    #[inline]
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Fault> {
        match self.guess {
            Some(shape) if self.writer.shapes.has(shape, self.count, name) => {}
            _ => self.other_shape(name),
        }
        self.count += 1;
        value.serialize(&mut *self.writer)
    }

    /// The next name is not that of the shape that was guessed.
    #[cold]
    fn other_shape(&mut self, name: &'static str) {
        if let Some(names) = &mut self.fresh {
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
            self.fresh = Some(names);
        }
    }

    fn close(self) -> Result<(), Fault> {
        let shapes = &mut self.writer.shapes;
        let shape = match (&self.fresh, self.guess) {
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

impl SerializeStruct for Fields<'_, '_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        self.field(name, value)
    }

    fn end(self) -> Result<(), Fault> {
        self.close()
    }
}

/// What a variant holds.
pub(crate) struct InVariant<W>(pub(super) W);

impl SerializeTupleVariant for InVariant<Many<'_, '_>> {
    type Ok = ();
    type Error = Fault;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.0.value(value)
    }

    fn end(self) -> Result<(), Fault> {
        self.0.writer.depth -= 1;
        self.0.end_list()
    }
}

impl SerializeStructVariant for InVariant<Fields<'_, '_>> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        self.0.field(name, value)
    }

    fn end(self) -> Result<(), Fault> {
        self.0.writer.depth -= 1;
        self.0.close()
    }
}
