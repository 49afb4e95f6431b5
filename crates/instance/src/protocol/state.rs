//! The payload of STATE and RESTORE: entries of the state.
//!
//! The number of entries, then each entry: partition, key, value.

use ardea_core::PartitionId;

use super::batch::{partition_number, partition_of};
use super::read::{PayloadReader, Violation, put_sized};

/// An entry of the state of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatePartEntry<'a> {
    /// The partition, as that of the records whose processing changed the entry.
    pub partition: Option<PartitionId>,
    /// The key, unique in its partition.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// A writer of a part of the state.
#[derive(Debug)]
pub struct StatePartWriter {
    payload: Vec<u8>,
    entries: u32,
}

impl Default for StatePartWriter {
    fn default() -> Self {
        StatePartWriter {
            payload: vec![0; 4],
            entries: 0,
        }
    }
}

impl StatePartWriter {
    /// Appends an entry.
    pub fn push(&mut self, entry: StatePartEntry<'_>) {
        self.payload
            .extend_from_slice(&partition_number(entry.partition).to_le_bytes());
        put_sized(&mut self.payload, entry.key);
        put_sized(&mut self.payload, entry.value);
        self.entries += 1;
    }

    /// Returns the length of the payload so far.
    pub fn byte_len(&self) -> usize {
        self.payload.len()
    }

    /// Returns the payload, and empties the writer.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut part = std::mem::take(self);
        part.payload[..4].copy_from_slice(&part.entries.to_le_bytes());
        part.payload
    }
}

/// The entries of a part of the state.
#[derive(Clone, Copy, Debug)]
pub struct StatePartReader<'a> {
    reader: PayloadReader<'a>,
    left: u32,
}

impl<'a> StatePartReader<'a> {
    /// Reads the payload of a STATE or RESTORE.
    ///
    /// # Errors
    /// A payload without the number of entries.
    pub fn read(payload: &'a [u8]) -> Result<Self, Violation> {
        let mut reader = PayloadReader::new(payload, "STATE");
        let left = reader.u32()?;
        Ok(StatePartReader { reader, left })
    }

    /// Returns the next entry.
    ///
    /// # Errors
    /// A payload that ends too early or too late.
    pub fn next_entry(&mut self) -> Result<Option<StatePartEntry<'a>>, Violation> {
        if self.left == 0 {
            self.reader.end()?;
            return Ok(None);
        }
        self.left -= 1;
        let partition = partition_of(self.reader.u16()?)?;
        let (key, value) = (self.reader.sized()?, self.reader.sized()?);
        Ok(Some(StatePartEntry {
            partition,
            key,
            value,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written() {
        let entry = StatePartEntry {
            partition: PartitionId::from_index(1_023),
            key: b"k",
            value: b"value",
        };
        let mut writer = StatePartWriter::default();
        writer.push(entry);
        let payload = writer.finish();
        let mut entries = StatePartReader::read(&payload).unwrap();
        assert_eq!(entries.next_entry().unwrap(), Some(entry));
        assert_eq!(entries.next_entry().unwrap(), None);
        let mut cut = StatePartReader::read(&payload[..payload.len() - 1]).unwrap();
        assert!(cut.next_entry().is_err());
    }
}
