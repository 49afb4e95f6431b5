//! The shapes of structs and variants: their field names, written once per payload.
//!
//! A struct is written as the number of its shape and the values of its fields. The shapes follow
//! all values:
//!
//! | bytes | |
//! |---|---|
//! | one shape after the other | the number of names in two bytes; the length of each in two bytes |
//! | UTF-8 | all names, one after the other |
//! | 2 | the number of shapes |
//! | 4 | the size of the shapes and their names in bytes |
//!
//! Each thread reuses the tables of its writers and readers: a payload costs a lookup of every
//! name, but no allocation.

use std::cell::Cell;
use std::ops::Range;

use crate::error::SerdeError;

/// The number of a shape that is not yet used in the current payload.
const ABSENT: u16 = u16::MAX;

/// The shapes used by a thread's writers.
#[derive(Default)]
pub(crate) struct WriterShapes {
    shapes: Vec<WriterShape>,
    names: Vec<&'static str>,
    /// The shapes in the current payload, in the order of their numbers.
    used: Vec<usize>,
}

struct WriterShape {
    of: &'static str,
    names: Range<usize>,
    number: u16,
    /// True if a state value of this shape has been read back.
    is_tried: bool,
}

thread_local! {
    static KNOWN: Cell<WriterShapes> = Cell::default();
    static TABLES: Cell<ShapeTables> = Cell::default();
}

fn same(a: &'static str, b: &'static str) -> bool {
    std::ptr::eq(a, b) || a == b
}

impl WriterShapes {
    /// Takes the known shapes of this thread, with an empty payload.
    pub(crate) fn take() -> WriterShapes {
        KNOWN.take()
    }

    /// Writes the shapes of the payload behind its values, and returns the table to the thread.
    /// Returns true if a state value has a new shape.
    pub(crate) fn finish(mut self, out: &mut Vec<u8>, kept: bool) -> Result<bool, SerdeError> {
        let start = out.len();
        let mut is_new = false;
        for &shape in &self.used {
            let shape = &mut self.shapes[shape];
            shape.number = ABSENT;
            is_new |= kept && !shape.is_tried;
            shape.is_tried |= kept;
            put_u16(shape.names.len(), out)?;
            for name in &self.names[shape.names.clone()] {
                put_u16(name.len(), out)?;
            }
        }
        for &shape in &self.used {
            for name in self.names(shape) {
                out.extend_from_slice(name.as_bytes());
            }
        }
        let bytes = u32::try_from(out.len() - start).map_err(|_| SerdeError::TooLarge)?;
        put_u16(self.used.len(), out)?;
        out.extend_from_slice(&bytes.to_le_bytes());
        self.used.clear();
        KNOWN.set(self);
        Ok(is_new)
    }

    /// Marks all shapes of this thread as not yet read back, after a state value could not be read
    /// back.
    pub(crate) fn reset_verified() {
        let mut known = WriterShapes::take();
        known
            .shapes
            .iter_mut()
            .for_each(|shape| shape.is_tried = false);
        KNOWN.set(known);
    }

    /// Returns the number of a shape in this payload, and adds the shape if necessary.
    pub(crate) fn number(&mut self, shape: usize) -> Result<u16, SerdeError> {
        let known = &mut self.shapes[shape];
        if known.number == ABSENT {
            if self.used.len() >= usize::from(ABSENT) {
                return Err(SerdeError::TooLarge);
            }
            known.number = self.used.len() as u16;
            self.used.push(shape);
        }
        Ok(known.number)
    }

    pub(crate) fn names(&self, shape: usize) -> &[&'static str] {
        &self.names[self.shapes[shape].names.clone()]
    }

    /// Returns a shape of the type `of` whose names satisfy `fits`, preferably a shape of the
    /// current payload.
    pub(crate) fn find(
        &self,
        of: &'static str,
        fits: impl Fn(&[&'static str]) -> bool,
    ) -> Option<usize> {
        let is_it = |shape: &usize| same(self.shapes[*shape].of, of) && fits(self.names(*shape));
        let here = self.used.iter().copied().find(is_it);
        here.or_else(|| (0..self.shapes.len()).find(is_it))
    }

    /// Returns the shape of the type `of` with the field names `names`, and adds it if necessary.
    pub(crate) fn shape(&mut self, of: &'static str, names: &[&'static str]) -> usize {
        let equal = |known: &[&'static str]| {
            known.len() == names.len() && known.iter().zip(names).all(|(a, b)| same(a, b))
        };
        if let Some(shape) = self.find(of, equal) {
            return shape;
        }
        let first = self.names.len();
        self.names.extend_from_slice(names);
        self.shapes.push(WriterShape {
            of,
            names: first..self.names.len(),
            number: ABSENT,
            is_tried: false,
        });
        self.shapes.len() - 1
    }

    /// Returns true if the field at position `place` of a shape is called `name`.
    #[inline]
    pub(crate) fn has(&self, shape: usize, place: usize, name: &'static str) -> bool {
        self.names(shape)
            .get(place)
            .is_some_and(|known| same(known, name))
    }
}

fn put_u16(number: usize, out: &mut Vec<u8>) -> Result<(), SerdeError> {
    let number = u16::try_from(number).map_err(|_| SerdeError::TooLarge)?;
    out.extend_from_slice(&number.to_le_bytes());
    Ok(())
}

/// The shapes of a payload being read.
pub(crate) struct Shapes<'a> {
    tables: ShapeTables,
    text: &'a str,
}

/// The names of each shape, and the position of each name in the text.
#[derive(Default)]
struct ShapeTables {
    shapes: Vec<Range<usize>>,
    names: Vec<Range<usize>>,
    /// Pairs of a shape and the fields of a reader that it fits.
    checked: Vec<(u16, &'static [&'static str])>,
}

impl<'a> Shapes<'a> {
    /// Splits the shapes off the end of a payload, which then holds only values.
    pub(crate) fn cut_off(payload: &mut &'a [u8]) -> Result<Self, SerdeError> {
        let (rest, bytes) = payload.split_last_chunk::<4>().ok_or(SerdeError::Short)?;
        let (rest, shapes) = rest.split_last_chunk::<2>().ok_or(SerdeError::Short)?;
        let bytes = u32::from_le_bytes(*bytes) as usize;
        let start = rest.len().checked_sub(bytes).ok_or(SerdeError::Short)?;
        let (values, table) = rest.split_at(start);
        let mut tables = TABLES.take();
        let text = tables.fill(table, u16::from_le_bytes(*shapes))?;
        *payload = values;
        Ok(Shapes { tables, text })
    }

    /// Returns the number of fields of a shape.
    #[inline]
    pub(crate) fn fields(&self, shape: u16) -> Result<usize, SerdeError> {
        let names = self.tables.shapes.get(usize::from(shape));
        Ok(names.ok_or(SerdeError::Invalid)?.len())
    }

    /// Returns the name of a field.
    #[inline]
    pub(crate) fn name(&self, shape: u16, field: usize) -> Result<&'a str, SerdeError> {
        let names = self.tables.shapes.get(usize::from(shape));
        let names = &self.tables.names[names.ok_or(SerdeError::Invalid)?.clone()];
        let place = names.get(field).ok_or(SerdeError::Invalid)?;
        self.text.get(place.clone()).ok_or(SerdeError::Invalid)
    }

    /// Returns true if the fields of a shape are exactly `fields`, in this order.
    pub(crate) fn are(&self, shape: u16, fields: &[&str]) -> Result<bool, SerdeError> {
        if self.fields(shape)? != fields.len() {
            return Ok(false);
        }
        for (place, field) in fields.iter().enumerate() {
            if self.name(shape, place)? != *field {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if a shape is known to fit a reader with these fields.
    pub(crate) fn is_checked(&self, shape: u16, fields: &'static [&'static str]) -> bool {
        let mut checked = self.tables.checked.iter();
        checked.any(|(known, fit)| *known == shape && std::ptr::eq(*fit, fields))
    }

    /// Records that a shape fits a reader with these fields.
    pub(crate) fn set_checked(&mut self, shape: u16, fields: &'static [&'static str]) {
        self.tables.checked.push((shape, fields));
    }
}

impl Drop for Shapes<'_> {
    /// Returns the memory to the thread, for the next payload.
    fn drop(&mut self) {
        TABLES.set(std::mem::take(&mut self.tables));
    }
}

impl ShapeTables {
    /// Reads the shapes and returns the text of their names.
    fn fill<'a>(&mut self, mut table: &'a [u8], shapes: u16) -> Result<&'a str, SerdeError> {
        self.shapes.clear();
        self.names.clear();
        self.checked.clear();
        let mut end = 0;
        for _ in 0..shapes {
            let first = self.names.len();
            for _ in 0..get_u16(&mut table)? {
                let start = end;
                end += usize::from(get_u16(&mut table)?);
                self.names.push(start..end);
            }
            self.shapes.push(first..self.names.len());
        }
        if table.len() != end {
            return Err(SerdeError::Invalid);
        }
        str::from_utf8(table).map_err(|_| SerdeError::Invalid)
    }
}

fn get_u16(input: &mut &[u8]) -> Result<u16, SerdeError> {
    let (number, rest) = input.split_first_chunk::<2>().ok_or(SerdeError::Short)?;
    *input = rest;
    Ok(u16::from_le_bytes(*number))
}
