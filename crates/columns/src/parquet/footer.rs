//! Row groups of files that consist of several parts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use parquet::errors::Result;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};

/// The bytes at the beginning and at the end of a file.
pub(super) const MAGIC: &[u8; 4] = b"PAR1";

/// The length of the end of a footer: the length of its metadata, and [`MAGIC`].
pub(super) const FOOTER_END_BYTES: u64 = 8;

/// Returns row groups whose offsets count from the beginning of the file instead of that of their
/// part, which begins at `base`. `first` is the number of the first of them in the file.
pub(super) fn moved(
    groups: &[RowGroupMetaData],
    base: u64,
    first: usize,
) -> Result<Vec<RowGroupMetaData>> {
    let base = i64::try_from(base).unwrap_or(i64::MAX);
    let moved = |offset: i64| offset.saturating_add(base);
    let groups = (first..).zip(groups).map(|(number, group)| {
        let columns = group.columns().iter().map(|column| {
            let (data, dictionary) = (column.data_page_offset(), column.dictionary_page_offset());
            let builder = column.clone().into_builder();
            let builder = builder.set_data_page_offset(moved(data));
            builder
                .set_dictionary_page_offset(dictionary.map(moved))
                .build()
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let offset = group.file_offset().unwrap_or_default();
        let builder = group.clone().into_builder().set_column_metadata(columns);
        // No reader needs the number of a row group unless the file is encrypted.
        let number = i16::try_from(number).unwrap_or(i16::MAX);
        builder
            .set_file_offset(moved(offset))
            .set_ordinal(number)
            .build()
    });
    groups.collect()
}

/// A part of a file that is a Parquet file by itself.
pub(super) struct FilePart {
    pub start: u64,
    pub metadata: ParquetMetaData,
}

/// Returns the parts of the first `end` bytes of a file, in their order.
///
/// # Errors
/// The reason if these bytes are not a sequence of parts.
pub(super) fn parts_of(file: &File, mut end: u64) -> io::Result<Vec<FilePart>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    let mut parts = Vec::new();
    while end > 0 {
        let mut tail = [0; FOOTER_END_BYTES as usize];
        let tail_start = end.checked_sub(FOOTER_END_BYTES);
        let tail_start = tail_start.ok_or_else(|| damaged("a footer is cut off"))?;
        file.read_exact_at(&mut tail, tail_start)?;
        let [a, b, c, d, magic @ ..] = tail;
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let footer_start = tail_start.checked_sub(length).filter(|_| magic == *MAGIC);
        let footer_start = footer_start.ok_or_else(|| damaged("a footer is damaged"))?;
        let mut footer = vec![0; length as usize];
        file.read_exact_at(&mut footer, footer_start)?;
        let metadata = ParquetMetaDataReader::decode_metadata(&footer);
        let metadata = metadata.map_err(|error| damaged(&error.to_string()))?;
        let columns = metadata
            .row_groups()
            .iter()
            .flat_map(|group| group.columns());
        let data_end = columns.map(|column| {
            let first = column.dictionary_page_offset();
            let first = first.unwrap_or_else(|| column.data_page_offset());
            first.saturating_add(column.compressed_size())
        });
        let data_end = data_end.max().map_or(MAGIC.len() as u64, i64::unsigned_abs);
        let start = footer_start.checked_sub(data_end);
        let start = start.ok_or_else(|| damaged("a footer does not fit its data"))?;
        let mut head = [0; MAGIC.len()];
        file.read_exact_at(&mut head, start)?;
        if head != *MAGIC {
            return Err(damaged("a footer does not fit its data"));
        }
        parts.push(FilePart { start, metadata });
        end = start;
    }
    parts.reverse();
    Ok(parts)
}
