//! Columns from the values of records.

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::{ArrayRef, make_array};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBufferBuilder};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::layout::{ValueLayout, other_layout};
use crate::error::arrow_error;

/// Reads the values of a column from records.
pub(super) struct RecordColumnReader {
    layout: ValueLayout,
    is_nullable: bool,
    nulls: NullBufferBuilder,
    flags: BooleanBufferBuilder,
    bytes: Vec<u8>,
    /// The ends of values with a length, after a zero.
    ends: Vec<i32>,
}

impl RecordColumnReader {
    pub(super) fn new(layout: ValueLayout, is_nullable: bool) -> Self {
        RecordColumnReader {
            layout,
            is_nullable,
            nulls: NullBufferBuilder::new(0),
            flags: BooleanBufferBuilder::new(0),
            bytes: Vec::new(),
            ends: vec![0],
        }
    }

    /// Appends null.
    pub(super) fn put_null(&mut self) {
        self.nulls.append_null();
        match self.layout {
            ValueLayout::Flag => self.flags.append(false),
            ValueLayout::Fixed(width) => self.bytes.resize(self.bytes.len() + width, 0),
            ValueLayout::Variable => self.ends.extend(self.ends.last().copied()),
        }
    }

    /// Appends the first value of `record`, and returns the rest.
    ///
    /// # Errors
    /// There is no value with this layout, or the column is too large.
    #[inline]
    pub(super) fn take<'a>(&mut self, record: &'a [u8]) -> Result<&'a [u8]> {
        let mut rest = record;
        if self.is_nullable {
            let (is_valid, after) = rest.split_first().ok_or_else(other_layout)?;
            rest = after;
            if *is_valid == 0 {
                self.put_null();
                return Ok(rest);
            }
        }
        self.nulls.append_non_null();
        match self.layout {
            ValueLayout::Flag => {
                let (flag, after) = rest.split_first().ok_or_else(other_layout)?;
                self.flags.append(*flag != 0);
                Ok(after)
            }
            ValueLayout::Fixed(width) => {
                let (value, after) = rest.split_at_checked(width).ok_or_else(other_layout)?;
                self.bytes.extend_from_slice(value);
                Ok(after)
            }
            ValueLayout::Variable => {
                let (length, after) = rest.split_first_chunk::<4>().ok_or_else(other_layout)?;
                let length = u32::from_le_bytes(*length) as usize;
                let (value, after) = after.split_at_checked(length).ok_or_else(other_layout)?;
                self.bytes.extend_from_slice(value);
                let end = i32::try_from(self.bytes.len());
                self.ends.push(end.map_err(|_| too_large())?);
                Ok(after)
            }
        }
    }

    /// Returns the column of this type.
    ///
    /// # Errors
    /// The values are not of this type, such as texts that are no UTF-8.
    pub(super) fn finish(mut self, kind: &DataType) -> Result<ArrayRef> {
        let (length, buffers) = match self.layout {
            ValueLayout::Flag => {
                let flags = self.flags.finish();
                (flags.len(), vec![flags.into_inner()])
            }
            ValueLayout::Fixed(width) => {
                let length = self.bytes.len().checked_div(width);
                let length = length.unwrap_or_else(|| self.nulls.len());
                (length, vec![Buffer::from(self.bytes)])
            }
            ValueLayout::Variable => {
                let length = self.ends.len() - 1;
                (
                    length,
                    vec![Buffer::from(self.ends), Buffer::from(self.bytes)],
                )
            }
        };
        let data = ArrayData::builder(kind.clone())
            .len(length)
            .nulls(self.nulls.finish())
            .buffers(buffers)
            .align_buffers(true);
        let data = data.build().map_err(|error| {
            arrow_error("the values of stored records do not form a column", error)
        })?;
        Ok(make_array(data))
    }
}

#[cold]
fn too_large() -> Error {
    let what = "the texts of a column of joined records exceed 2 GiB";
    Error::new(ErrorCode::LimitReached, what).hint("select fewer or shorter columns")
}
