//! The values of a column as parts of records.

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

use super::layout::ValueLayout;

/// Writes the values of a column.
pub(super) struct RecordColumnWriter {
    is_nullable: bool,
    nulls: Option<NullBuffer>,
    values: Values,
}

/// The values of a column.
enum Values {
    Flags(BooleanBuffer),
    Fixed { bytes: Buffer, width: usize },
    Variable { ends: Buffer, bytes: Buffer },
}

impl RecordColumnWriter {
    /// Creates a writer of values, of which there is at least one. `None` if they have another
    /// layout.
    pub(super) fn new(layout: ValueLayout, values: &ArrayRef, is_nullable: bool) -> Option<Self> {
        let data = values.to_data();
        let offset = data.offset();
        let first = data.buffers().first()?;
        let values = match layout {
            ValueLayout::Flag => {
                Values::Flags(BooleanBuffer::new(first.clone(), offset, data.len()))
            }
            ValueLayout::Fixed(width) => Values::Fixed {
                bytes: first.slice_with_length(offset * width, data.len() * width),
                width,
            },
            ValueLayout::Variable => Values::Variable {
                ends: first.slice_with_length(offset * 4, (data.len() + 1) * 4),
                bytes: data.buffers().get(1)?.clone(),
            },
        };
        Some(RecordColumnWriter {
            is_nullable,
            nulls: data.nulls().cloned(),
            values,
        })
    }

    /// Appends the value of a row.
    #[inline]
    pub(super) fn put(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_nullable {
            let is_valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            out.push(is_valid.into());
            if !is_valid {
                return;
            }
        }
        match &self.values {
            Values::Flags(values) => out.push(values.value(row).into()),
            Values::Fixed { bytes, width } => {
                out.extend_from_slice(&bytes[row * width..(row + 1) * width]);
            }
            Values::Variable { ends, bytes } => {
                let ends = ends.typed_data::<i32>();
                let (from, to) = (ends[row], ends[row + 1]);
                out.extend_from_slice(&(to - from).to_le_bytes());
                out.extend_from_slice(&bytes[from as usize..to as usize]);
            }
        }
    }
}
