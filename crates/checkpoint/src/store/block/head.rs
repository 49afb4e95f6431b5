//! The head of a block: the fields and names before its content.

use ardea_core::{Epoch, Result};

use super::{CHECKSUM_BYTES, Subject};
use crate::store::CheckpointId;
use crate::store::failure::{damaged, other_version};
use crate::store::file_name::FileName;
use crate::store::partitions::{Space, Span};

const MAGIC: &[u8; 8] = b"ARDBLOCK";
const VERSION: u16 = 1;
/// The size in bytes of the fields before the names.
const FIXED_BYTES: usize = 54;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    None,
    Zstd,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub subject: Subject,
    pub packing: Packing,
    pub places: Span,
    pub entries: u32,
    pub unpacked: u32,
    pub packed: u32,
}

impl Head {
    /// Returns the size of the encoded head in bytes.
    pub fn bytes(&self) -> usize {
        let Subject {
            job, vertex, state, ..
        } = &self.subject;
        FIXED_BYTES + job.len() + vertex.len() + state.len()
    }

    /// Appends the encoded head. Names must be shorter than 64 KiB.
    pub fn write(&self, to: &mut Vec<u8>) {
        let Subject {
            job,
            checkpoint,
            vertex,
            state,
        } = &self.subject;
        to.extend_from_slice(MAGIC);
        to.extend_from_slice(&VERSION.to_le_bytes());
        to.push(match self.packing {
            Packing::None => 0,
            Packing::Zstd => 1,
        });
        to.push(match self.places.of {
            Space::Partitions => 0,
            Space::Instances => 1,
        });
        for number in [self.places.first, self.places.last] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        for number in [checkpoint.generation, checkpoint.epoch.0] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.entries, self.unpacked, self.packed] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        let names = [job, vertex, state];
        for name in names {
            to.extend_from_slice(&(name.len() as u16).to_le_bytes());
        }
        for name in names {
            to.extend_from_slice(name.as_bytes());
        }
    }

    /// Decodes the head from the start of a file.
    pub fn read(file: &[u8], name: &FileName, place: &str) -> Result<Head> {
        let wrong = || damaged(name, place, "its head is not that of a block");
        let mut reader = Reader(file);
        if reader.take::<8>() != Some(*MAGIC) {
            return Err(wrong());
        }
        let version = reader.u16().ok_or_else(wrong)?;
        if version != VERSION {
            return Err(other_version(name, place, &version.to_string()));
        }
        let head = Self::read_fields(&mut reader).ok_or_else(wrong)?;
        if reader.0.len() < CHECKSUM_BYTES {
            return Err(wrong());
        }
        Ok(head)
    }

    fn read_fields(reader: &mut Reader) -> Option<Head> {
        let packing = match reader.take()? {
            [0] => Packing::None,
            [1] => Packing::Zstd,
            _ => return None,
        };
        let of = match reader.take()? {
            [0] => Space::Partitions,
            [1] => Space::Instances,
            _ => return None,
        };
        let places = Span {
            of,
            first: reader.u32()?,
            last: reader.u32()?,
        };
        let (generation, epoch) = (reader.u64()?, Epoch(reader.u64()?));
        let (entries, unpacked, packed) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let lengths = [reader.u16()?, reader.u16()?, reader.u16()?];
        let [job, vertex, state] = lengths.map(|length| reader.text(length as usize));
        Some(Head {
            subject: Subject {
                job: job?,
                checkpoint: CheckpointId::new(generation, epoch),
                vertex: vertex?,
                state: state?,
            },
            packing,
            places,
            entries,
            unpacked,
            packed,
        })
    }
}

/// The bytes still to be decoded.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, bytes: usize) -> Option<String> {
        let (text, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::ErrorCode;
    use proptest::prelude::*;

    fn name() -> FileName {
        FileName::new("block-1-7-0000000000000001-0.block").expect("a name")
    }

    fn head() -> Head {
        Head {
            subject: Subject {
                job: "words".to_string(),
                checkpoint: CheckpointId::new(1, Epoch(7)),
                vertex: "zählen".to_string(),
                state: String::new(),
            },
            packing: Packing::Zstd,
            places: Span {
                of: Space::Instances,
                first: 3,
                last: 5,
            },
            entries: 6,
            unpacked: 7,
            packed: 8,
        }
    }

    fn file() -> Vec<u8> {
        let mut file = Vec::new();
        head().write(&mut file);
        file.extend_from_slice(&[0; CHECKSUM_BYTES]);
        file
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let file = file();
        assert_eq!(file.len(), head().bytes() + CHECKSUM_BYTES);
        assert_eq!(Head::read(&file, &name(), "here").expect("read"), head());
    }

    #[test]
    fn a_later_version_is_told_as_such() {
        let mut file = file();
        file[8] = 2;
        let error = Head::read(&file, &name(), "here").expect_err("unknown");
        assert_eq!(error.code(), ErrorCode::VersionMismatch);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_head_or_an_error(
            start in 0usize..70, bytes in proptest::collection::vec(any::<u8>(), 0..90),
        ) {
            let mut file = file();
            file.truncate(start);
            file.extend(bytes);
            let _ = Head::read(&file, &name(), "here");
        }
    }
}
