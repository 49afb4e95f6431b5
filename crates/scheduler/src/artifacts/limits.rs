//! How large a package may be.

/// How large a package may be, so that a broken or hostile one fills no disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes of the package itself.
    pub packed_bytes: u64,
    /// The most bytes of all its files, unpacked.
    pub unpacked_bytes: u64,
    /// The most files, folders and links.
    pub entries: u64,
}

impl Default for Limits {
    /// 2 GiB, 8 GiB, 100,000.
    fn default() -> Self {
        Limits {
            packed_bytes: 2 << 30,
            unpacked_bytes: 8 << 30,
            entries: 100_000,
        }
    }
}
