//! The places at which decompression of a shared file can start.

use std::io::{self, ErrorKind};
use std::ops::Range;

use crate::decompressed::{MemberIndex, MemberSearch, Packing};
use crate::files::location::SourceFile;

/// The places at which the members of a shared compressed file begin.
#[derive(Debug)]
pub(super) enum MemberFinder {
    /// The members of a local file that say where they end.
    Known(MemberIndex),
    /// The members of an object, or members that do not say where they end. Each is searched for.
    Searched {
        packing: Packing,
        /// The length of the file.
        end: u64,
    },
}

impl MemberFinder {
    /// Determines the members of a file of `end` bytes, in blocks of `block_bytes`. Returns `None`
    /// if the file is not compressed, or not as it was when it was shared.
    pub fn of(file: &SourceFile, end: u64, block_bytes: u64) -> io::Result<Option<Self>> {
        if file.local().is_some() {
            let read_at = |buffer: &mut [u8], offset| file.read_at(buffer, offset);
            if let Some(found) = MemberIndex::find(read_at, end, block_bytes)? {
                return Ok(Some(MemberFinder::Known(found)));
            }
        }
        let mut head = [0; 4];
        file.read_exact_at(&mut head, 0)?;
        Ok(match Packing::of(&head) {
            // A local zstd frame says where it ends.
            Some(Packing::Zstd) if file.local().is_some() => None,
            packing => packing.map(|packing| MemberFinder::Searched { packing, end }),
        })
    }

    pub fn packing(&self) -> Packing {
        match self {
            MemberFinder::Known(index) => index.packing,
            MemberFinder::Searched { packing, .. } => *packing,
        }
    }

    /// Returns the length of the file.
    pub fn end(&self) -> u64 {
        match self {
            MemberFinder::Known(index) => index.end,
            MemberFinder::Searched { end, .. } => *end,
        }
    }

    /// Returns the offset of the first member that begins at or after the start of a block; the end
    /// of the file if there is none. Reads the whole rest of the file if it must.
    pub fn first_from(&self, file: &SourceFile, start: u64) -> io::Result<u64> {
        let mut search = None;
        loop {
            match self.first_in(start..self.end(), file, &mut search) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                found => return Ok(found?.unwrap_or(self.end())),
            }
        }
    }

    /// Returns the offset of the first member that begins in a range from the start of a block on.
    ///
    /// # Errors
    /// An I/O error. After [`WouldBlock`](ErrorKind::WouldBlock) the next call continues
    /// `search`.
    pub fn first_in(
        &self,
        range: Range<u64>,
        file: &SourceFile,
        search: &mut Option<MemberSearch>,
    ) -> io::Result<Option<u64>> {
        match self {
            // The first byte of a file is the beginning of its first member.
            _ if range.start == 0 && !range.is_empty() => Ok(Some(0)),
            MemberFinder::Known(index) => {
                let first = index.first_from(range.start);
                Ok((first < range.end.min(index.end)).then_some(first))
            }
            MemberFinder::Searched { packing, end } => {
                let search = search.get_or_insert_with(|| MemberSearch::new(*packing, range, *end));
                search.find(|buffer, offset| file.read_at(buffer, offset))
            }
        }
    }
}
