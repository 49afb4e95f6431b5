//! The payload of BATCH.
//!
//! In formats of rows: the number of records, then each record: event time, partition, key, value.
//! In formats of columns: the number of records, then time and partition of each, then the columns.

use std::ops::Range;

use ardea_core::{PartitionId, Timestamp};

use super::read::{PayloadReader, Violation};

/// The partition of a record or entry without one.
pub(super) const NO_PARTITION: u16 = u16::MAX;

/// Returns the number of a partition on the wire.
pub(super) fn partition_number(partition: Option<PartitionId>) -> u16 {
    partition.map_or(NO_PARTITION, |partition| partition.index() as u16)
}

/// Returns the partition with this number on the wire.
pub(super) fn partition_of(number: u16) -> Result<Option<PartitionId>, Violation> {
    if number == NO_PARTITION {
        return Ok(None);
    }
    let partition = PartitionId::from_index(u32::from(number));
    let missing = || Violation::new(format!("there is no partition {number}"));
    partition.map(Some).ok_or_else(missing)
}

/// A record of a batch of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowRecord<'a> {
    /// The event time; [`Timestamp::MIN`] without one.
    pub time: Timestamp,
    /// The partition of the key, in a keyed step.
    pub partition: Option<PartitionId>,
    /// The canonical bytes of the key; empty without one.
    pub key: &'a [u8],
    /// The record in the format of the step.
    pub value: &'a [u8],
}

/// A writer of the payload of a batch of rows.
#[derive(Debug)]
pub struct RowBatchWriter {
    payload: Vec<u8>,
    records: u32,
}

impl Default for RowBatchWriter {
    fn default() -> Self {
        RowBatchWriter::reusing(Vec::new())
    }
}

impl RowBatchWriter {
    /// Creates a writer that uses the memory of an earlier payload.
    pub fn reusing(mut payload: Vec<u8>) -> Self {
        payload.clear();
        payload.resize(4, 0);
        RowBatchWriter {
            payload,
            records: 0,
        }
    }

    /// Appends a record; `key` and `value` append their bytes in place. `key` returns the
    /// partition.
    ///
    /// # Errors
    /// The error of `value`; then nothing is appended.
    pub fn push<E>(
        &mut self,
        time: Timestamp,
        key: impl FnOnce(&mut Vec<u8>) -> Option<PartitionId>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.payload.len();
        self.payload
            .extend_from_slice(&time.as_micros().to_le_bytes());
        self.payload.extend_from_slice(&[0; 6]);
        let partition = key(&mut self.payload);
        let key_end = self.payload.len();
        self.payload.extend_from_slice(&[0; 4]);
        if let Err(error) = value(&mut self.payload) {
            self.payload.truncate(start);
            return Err(error);
        }
        let (key_bytes, value_bytes) = (key_end - start - 14, self.payload.len() - key_end - 4);
        let numbers = [
            (start + 10, key_bytes as u32),
            (key_end, value_bytes as u32),
        ];
        let number = partition_number(partition);
        self.payload[start + 8..start + 10].copy_from_slice(&number.to_le_bytes());
        for (at, length) in numbers {
            self.payload[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        self.records += 1;
        Ok(())
    }

    /// Appends a record.
    pub fn push_record(&mut self, record: RowRecord<'_>) {
        let key = |out: &mut Vec<u8>| {
            out.extend_from_slice(record.key);
            record.partition
        };
        let pushed: Result<(), std::convert::Infallible> = self.push(record.time, key, |out| {
            out.extend_from_slice(record.value);
            Ok(())
        });
        pushed.unwrap_or_else(|never| match never {});
    }

    /// Returns the length of the payload so far.
    pub fn byte_len(&self) -> usize {
        self.payload.len()
    }

    /// Returns the number of records so far.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Returns the payload.
    pub fn finish(mut self) -> Vec<u8> {
        self.payload[..4].copy_from_slice(&self.records.to_le_bytes());
        self.payload
    }
}

/// The records of a batch of rows.
#[derive(Clone, Copy, Debug)]
pub struct RowRecords<'a> {
    reader: PayloadReader<'a>,
    left: u32,
}

impl<'a> RowRecords<'a> {
    /// Reads the payload of a BATCH.
    ///
    /// # Errors
    /// A payload without the number of records.
    pub fn read(payload: &'a [u8]) -> Result<Self, Violation> {
        let mut reader = PayloadReader::new(payload, "BATCH");
        let left = reader.u32()?;
        Ok(RowRecords { reader, left })
    }

    /// Returns the number of records that were not returned yet.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// A payload that ends too early or too late.
    pub fn next_record(&mut self) -> Result<Option<RowRecord<'a>>, Violation> {
        if self.left == 0 {
            self.reader.end()?;
            return Ok(None);
        }
        self.left -= 1;
        let time = Timestamp::from_micros(self.reader.i64()?);
        let partition = partition_of(self.reader.u16()?)?;
        let (key, value) = (self.reader.sized()?, self.reader.sized()?);
        Ok(Some(RowRecord {
            time,
            partition,
            key,
            value,
        }))
    }
}

/// Returns the payload of the records in `range` of a batch of rows.
///
/// # Errors
/// A payload that can't be read.
pub fn slice_rows(payload: &[u8], range: Range<u32>) -> Result<Vec<u8>, Violation> {
    let mut records = RowRecords::read(payload)?;
    let (mut sliced, mut row) = (RowBatchWriter::default(), 0);
    while let Some(record) = records.next_record()? {
        if range.contains(&row) {
            sliced.push_record(record);
        }
        row += 1;
    }
    Ok(sliced.finish())
}

/// The event time and the partition of a record in a batch of columns.
pub type TimeAndPartition = (Timestamp, Option<PartitionId>);

/// A writer of the payload of a batch of columns.
#[derive(Debug, Default)]
pub struct ColumnBatchWriter {
    rows: Vec<u8>,
    records: u32,
}

impl ColumnBatchWriter {
    /// Appends the time and the partition of the next record.
    pub fn push(&mut self, time: Timestamp, partition: Option<PartitionId>) {
        self.rows.extend_from_slice(&time.as_micros().to_le_bytes());
        self.rows
            .extend_from_slice(&partition_number(partition).to_le_bytes());
        self.records += 1;
    }

    /// Returns the payload with the columns of all records.
    pub fn finish(self, columns: &[u8]) -> Vec<u8> {
        let mut payload = Vec::with_capacity(4 + self.rows.len() + columns.len());
        payload.extend_from_slice(&self.records.to_le_bytes());
        payload.extend_from_slice(&self.rows);
        payload.extend_from_slice(columns);
        payload
    }

    /// Returns times and partitions of the records of a payload, and its columns.
    ///
    /// # Errors
    /// A payload that ends too early.
    pub fn read(payload: &[u8]) -> Result<(Vec<TimeAndPartition>, &[u8]), Violation> {
        let mut reader = PayloadReader::new(payload, "BATCH");
        let count = reader.u32()?;
        let mut rows = Vec::with_capacity(payload.len().min(count as usize * 10) / 10);
        for _ in 0..count {
            let time = Timestamp::from_micros(reader.i64()?);
            rows.push((time, partition_of(reader.u16()?)?));
        }
        Ok((rows, reader.rest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(values: &[&str]) -> Vec<u8> {
        let mut writer = RowBatchWriter::default();
        for (value, second) in values.iter().zip(1..) {
            writer.push_record(RowRecord {
                time: Timestamp::from_secs(second),
                partition: PartitionId::from_index(second as u32),
                key: &value.as_bytes()[..1],
                value: value.as_bytes(),
            });
        }
        writer.finish()
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let payload = batch(&["one", "two"]);
        let mut records = RowRecords::read(&payload).unwrap();
        let first = records.next_record().unwrap().unwrap();
        assert_eq!((first.key, first.value), (&b"o"[..], &b"one"[..]));
        assert_eq!(first.time, Timestamp::from_secs(1));
        assert_eq!(first.partition, PartitionId::from_index(1));
        assert!(records.next_record().unwrap().is_some());
        assert_eq!(records.next_record().unwrap(), None);
    }

    #[test]
    fn a_slice_holds_the_records_of_its_range() {
        let payload = batch(&["one", "two", "three"]);
        let sliced = slice_rows(&payload, 1..2).unwrap();
        let mut records = RowRecords::read(&sliced).unwrap();
        assert_eq!(records.next_record().unwrap().unwrap().value, b"two");
        assert_eq!(records.next_record().unwrap(), None);
    }

    #[test]
    fn columns_follow_the_times_of_their_rows() {
        let mut writer = ColumnBatchWriter::default();
        writer.push(Timestamp::MIN, None);
        writer.push(Timestamp::from_secs(1), PartitionId::from_index(3));
        let payload = writer.finish(b"columns");
        let (rows, columns) = ColumnBatchWriter::read(&payload).unwrap();
        assert_eq!(
            rows[1],
            (Timestamp::from_secs(1), PartitionId::from_index(3))
        );
        assert_eq!(columns, b"columns");
    }

    proptest! {
        #[test]
        fn no_payload_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(mut records) = RowRecords::read(&bytes) {
                while let Ok(Some(_)) = records.next_record() {}
            }
            let _ = ColumnBatchWriter::read(&bytes);
        }
    }
}
