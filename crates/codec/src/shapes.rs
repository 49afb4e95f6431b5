//! The shapes of structs and variants, which are the names of their fields, once a payload.
//!
//! A struct is written as the number of its shape and the values of its fields. The shapes stand behind all values:
//!
//! | bytes | |
//! |---|---|
//! | one shape after the other | how many names, in two bytes; the length of each, in two bytes |
//! | UTF-8 | all names, one after the other |
//! | 2 | how many shapes |
//! | 4 | how many bytes they and their names take |
//!
//! Writers and readers keep their tables, a thread each: a payload costs a look at every name, and no memory.

use std::cell::Cell;
use std::ops::Range;

use crate::fault::Fault;

/// No number in the payload at hand.
const ABSENT: u16 = u16::MAX;

/// The shapes that a writer has met.
#[derive(Default)]
pub(crate) struct Known {
    shapes: Vec<KnownShape>,
    names: Vec<&'static str>,
    /// Those in the payload at hand, in the order of their numbers there.
    used: Vec<usize>,
}

struct KnownShape {
    of: &'static str,
    names: Range<usize>,
    number: u16,
    /// Whether a kept value of this shape has been read back.
    is_tried: bool,
}

thread_local! {
    static KNOWN: Cell<Known> = Cell::default();
    static TABLES: Cell<Tables> = Cell::default();
}

fn same(a: &'static str, b: &'static str) -> bool {
    std::ptr::eq(a, b) || a == b
}

impl Known {
    /// What this thread has met, with an empty payload.
    pub(crate) fn take() -> Known {
        KNOWN.take()
    }

    /// Writes the shapes of the payload behind it, and keeps them for the next one. Whether one of a kept value is new.
    pub(crate) fn finish(mut self, out: &mut Vec<u8>, kept: bool) -> Result<bool, Fault> {
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
        let bytes = u32::try_from(out.len() - start).map_err(|_| Fault::TooLarge)?;
        put_u16(self.used.len(), out)?;
        out.extend_from_slice(&bytes.to_le_bytes());
        self.used.clear();
        KNOWN.set(self);
        Ok(is_new)
    }

    /// A kept value could not be read back: no shape of this thread's counts as tried any more.
    pub(crate) fn try_again() {
        let mut known = Known::take();
        known
            .shapes
            .iter_mut()
            .for_each(|shape| shape.is_tried = false);
        KNOWN.set(known);
    }

    /// The number of a shape in this payload.
    pub(crate) fn number(&mut self, shape: usize) -> Result<u16, Fault> {
        let known = &mut self.shapes[shape];
        if known.number == ABSENT {
            if self.used.len() >= usize::from(ABSENT) {
                return Err(Fault::TooLarge);
            }
            known.number = self.used.len() as u16;
            self.used.push(shape);
        }
        Ok(known.number)
    }

    /// The names of a shape.
    pub(crate) fn names(&self, shape: usize) -> &[&'static str] {
        &self.names[self.shapes[shape].names.clone()]
    }

    /// A shape of this type for which `fits`, if possible one of the payload at hand.
    pub(crate) fn find(
        &self,
        of: &'static str,
        fits: impl Fn(&[&'static str]) -> bool,
    ) -> Option<usize> {
        let is_it = |shape: &usize| same(self.shapes[*shape].of, of) && fits(self.names(*shape));
        let here = self.used.iter().copied().find(is_it);
        here.or_else(|| (0..self.shapes.len()).find(is_it))
    }

    /// The shape of this type with these names.
    pub(crate) fn shape(&mut self, of: &'static str, names: &[&'static str]) -> usize {
        let equal = |known: &[&'static str]| {
            known.len() == names.len() && known.iter().zip(names).all(|(a, b)| same(a, b))
        };
        if let Some(shape) = self.find(of, equal) {
            return shape;
        }
        let first = self.names.len();
        self.names.extend_from_slice(names);
        self.shapes.push(KnownShape {
            of,
            names: first..self.names.len(),
            number: ABSENT,
            is_tried: false,
        });
        self.shapes.len() - 1
    }

    /// Whether the field of a shape at that place has this name.
    #[inline]
    pub(crate) fn has(&self, shape: usize, place: usize, name: &'static str) -> bool {
        self.names(shape)
            .get(place)
            .is_some_and(|known| same(known, name))
    }
}

fn put_u16(number: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
    let number = u16::try_from(number).map_err(|_| Fault::TooLarge)?;
    out.extend_from_slice(&number.to_le_bytes());
    Ok(())
}

/// The shapes of a payload that is being read.
pub(crate) struct Shapes<'a> {
    tables: Tables,
    text: &'a str,
}

/// Which names each shape has, and where each name is in the text.
#[derive(Default)]
struct Tables {
    shapes: Vec<Range<usize>>,
    names: Vec<Range<usize>>,
    /// Shapes, and the fields of a reader that they have been found to fit.
    checked: Vec<(u16, &'static [&'static str])>,
}

impl<'a> Shapes<'a> {
    /// Cuts the shapes off the end of a payload; what is left of it are values.
    pub(crate) fn cut_off(payload: &mut &'a [u8]) -> Result<Self, Fault> {
        let (rest, bytes) = payload.split_last_chunk::<4>().ok_or(Fault::Short)?;
        let (rest, shapes) = rest.split_last_chunk::<2>().ok_or(Fault::Short)?;
        let bytes = u32::from_le_bytes(*bytes) as usize;
        let start = rest.len().checked_sub(bytes).ok_or(Fault::Short)?;
        let (values, table) = rest.split_at(start);
        let mut tables = TABLES.take();
        let text = tables.fill(table, u16::from_le_bytes(*shapes))?;
        *payload = values;
        Ok(Shapes { tables, text })
    }

    /// How many fields a shape has.
    #[inline]
    pub(crate) fn fields(&self, shape: u16) -> Result<usize, Fault> {
        let names = self.tables.shapes.get(usize::from(shape));
        Ok(names.ok_or(Fault::Garbled)?.len())
    }

    /// The name of a field.
    #[inline]
    pub(crate) fn name(&self, shape: u16, field: usize) -> Result<&'a str, Fault> {
        let names = self.tables.shapes.get(usize::from(shape));
        let names = &self.tables.names[names.ok_or(Fault::Garbled)?.clone()];
        let place = names.get(field).ok_or(Fault::Garbled)?;
        self.text.get(place.clone()).ok_or(Fault::Garbled)
    }

    /// Whether the fields of a shape are exactly these, in this order.
    pub(crate) fn are(&self, shape: u16, fields: &[&str]) -> Result<bool, Fault> {
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

    /// Whether it has been found that a shape fits a reader with these fields.
    pub(crate) fn is_checked(&self, shape: u16, fields: &'static [&'static str]) -> bool {
        let mut checked = self.tables.checked.iter();
        checked.any(|(known, fit)| *known == shape && std::ptr::eq(*fit, fields))
    }

    /// It has been found.
    pub(crate) fn set_checked(&mut self, shape: u16, fields: &'static [&'static str]) {
        self.tables.checked.push((shape, fields));
    }
}

impl Drop for Shapes<'_> {
    /// The memory serves the next payload.
    fn drop(&mut self) {
        TABLES.set(std::mem::take(&mut self.tables));
    }
}

impl Tables {
    /// Takes the shapes in; returns the text of their names.
    fn fill<'a>(&mut self, mut table: &'a [u8], shapes: u16) -> Result<&'a str, Fault> {
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
            return Err(Fault::Garbled);
        }
        str::from_utf8(table).map_err(|_| Fault::Garbled)
    }
}

fn get_u16(input: &mut &[u8]) -> Result<u16, Fault> {
    let (number, rest) = input.split_first_chunk::<2>().ok_or(Fault::Short)?;
    *input = rest;
    Ok(u16::from_le_bytes(*number))
}
