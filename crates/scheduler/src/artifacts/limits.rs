//! The size limits of packages.

/// The size limits of a package, so that a broken or hostile package can't fill the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The maximum size of the compressed package, in bytes.
    pub packed_bytes: u64,
    /// The maximum size of all unpacked files of the package, in bytes.
    pub unpacked_bytes: u64,
    /// The maximum number of files, folders and links in the package.
    pub entries: u64,
}

impl Default for Limits {
    /// Returns limits of 2 GiB packed, 8 GiB unpacked, and 100,000 entries.
    fn default() -> Self {
        Limits {
            packed_bytes: 2 << 30,
            unpacked_bytes: 8 << 30,
            entries: 100_000,
        }
    }
}
