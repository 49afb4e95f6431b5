//! The names of files: which are possible in every place, and which are a snapshot's.

use std::fmt;

use ardea_core::Epoch;

use crate::store::SnapshotId;

/// How the name of a file ends that is being written.
pub(crate) const UNFINISHED: &str = ".writing";
/// No name is longer, so that it fits every file system, with its endings.
const MOST_BYTES: usize = 200;

/// A name that a file may have in every [`Folder`](crate::store::Folder): 1 to 200 lowercase letters, digits, hyphens and dots, which
/// begins with a letter or digit and does not end with `.writing`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileName(String);

impl FileName {
    /// This name, if a file may be called so.
    ///
    /// ```
    /// use ardea_checkpoint::store::FileName;
    ///
    /// assert!(FileName::new("snapshot-1-7.manifest").is_some());
    /// assert!(FileName::new("../passwd").is_none());
    /// ```
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = (1..=MOST_BYTES).contains(&name.len())
            && name.bytes().next().is_some_and(is_plain)
            && name
                .bytes()
                .all(|byte| is_plain(byte) || b"-.".contains(&byte))
            && !name.ends_with(UNFINISHED);
        fits.then_some(FileName(name))
    }

    /// What the file is called while one of those who write it does so.
    pub(crate) fn unfinished(&self, writer: u64) -> String {
        format!("{self}.{writer:016x}{UNFINISHED}")
    }

    /// The file that is exactly so called while somebody writes it, and who.
    pub(crate) fn of_unfinished(text: &str) -> Option<(FileName, u64)> {
        let (name, writer) = text.strip_suffix(UNFINISHED)?.rsplit_once('.')?;
        let (name, writer) = (FileName::new(name)?, u64::from_str_radix(writer, 16).ok()?);
        (name.unfinished(writer) == text).then_some((name, writer))
    }

    /// As a text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What tells the blocks of one writer from all others, of this and every other process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WriterToken(pub u64);

impl WriterToken {
    /// One that nobody else has.
    pub fn fresh() -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        // The keys of every state are random in a process, and no two of its states have the same.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        WriterToken(hasher.finish())
    }
}

/// A file of a snapshot, as its name tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum StoredName {
    /// The manifest of a snapshot.
    Manifest(SnapshotId),
    /// A block that was written for a snapshot.
    Block(BlockName),
}

/// The name of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BlockName {
    /// The snapshot for which it was written first.
    pub snapshot: SnapshotId,
    /// Who wrote it.
    pub writer: WriterToken,
    /// Which of the writer's.
    pub number: u32,
}

impl BlockName {
    pub fn file(&self) -> FileName {
        let BlockName {
            snapshot: SnapshotId { generation, epoch },
            writer,
            number,
        } = self;
        let (epoch, writer) = (epoch.0, writer.0);
        FileName(format!(
            "block-{generation}-{epoch}-{writer:016x}-{number}.block"
        ))
    }
}

impl StoredName {
    pub fn file(&self) -> FileName {
        match self {
            StoredName::Manifest(SnapshotId { generation, epoch }) => {
                FileName(format!("snapshot-{generation}-{}.manifest", epoch.0))
            }
            StoredName::Block(block) => block.file(),
        }
    }

    /// The snapshot for which it was written.
    pub fn snapshot(&self) -> SnapshotId {
        match self {
            StoredName::Manifest(id) => *id,
            StoredName::Block(block) => block.snapshot,
        }
    }

    /// What file of a snapshot has exactly this name; none has any other, however like it looks.
    pub fn parse(name: &FileName) -> Option<Self> {
        let found = Self::read(name.as_str())?;
        (found.file() == *name).then_some(found)
    }

    fn read(name: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok();
        if let Some(id) = name.strip_prefix("snapshot-") {
            let (generation, epoch) = id.strip_suffix(".manifest")?.split_once('-')?;
            let epoch = Epoch(number(epoch)?);
            return Some(StoredName::Manifest(SnapshotId::new(
                number(generation)?,
                epoch,
            )));
        }
        let parts = name.strip_prefix("block-")?.strip_suffix(".block")?;
        let mut parts = parts.split('-');
        let mut part = || parts.next();
        let (generation, epoch) = (number(part()?)?, Epoch(number(part()?)?));
        let writer = WriterToken(u64::from_str_radix(part()?, 16).ok()?);
        let block = BlockName {
            snapshot: SnapshotId::new(generation, epoch),
            writer,
            number: part()?.parse().ok()?,
        };
        Some(StoredName::Block(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_name_leads_out_of_its_folder_or_is_taken_for_an_unfinished_one() {
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "A",
            "a b",
            "a.writing",
            "ä",
            "-a",
            "a\0",
        ] {
            assert_eq!(FileName::new(name), None, "{name:?}");
        }
        assert_eq!(FileName::new("a".repeat(201)), None);
        assert!(FileName::new("a".repeat(200)).is_some());
    }

    #[test]
    fn names_that_are_only_like_a_snapshots_are_somebody_elses() {
        let good = "block-1-7-00000000000000ff-3.block";
        assert!(StoredName::parse(&FileName::new(good).unwrap()).is_some());
        let others = [
            "block-01-7-00000000000000ff-3.block",
            "block-1-7-ff-3.block",
            "block-1-7-00000000000000ff-3.block.bak",
            "block-1-7-00000000000000ff-3-4.block",
            "snapshot-1.manifest",
            "snapshot-1-07.manifest",
            "snapshot-1-7-8.manifest",
            "snapshot-1-7.manifest.old",
            "snapshot-1-99999999999999999999999.manifest",
            "notes.txt",
        ];
        for name in others {
            assert_eq!(
                StoredName::parse(&FileName::new(name).unwrap()),
                None,
                "{name}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_file_is_known_by_its_name(
            generation: u64, epoch: u64, writer: u64, number: u32,
        ) {
            let snapshot = SnapshotId::new(generation, Epoch(epoch));
            let block = BlockName { snapshot, writer: WriterToken(writer), number };
            for stored in [StoredName::Manifest(snapshot), StoredName::Block(block)] {
                let name = stored.file();
                prop_assert_eq!(FileName::new(name.as_str()), Some(name.clone()));
                prop_assert_eq!(StoredName::parse(&name), Some(stored));
            }
        }
    }

    #[test]
    fn no_two_writers_are_the_same() {
        let tokens: std::collections::HashSet<_> =
            (0..1_000).map(|_| WriterToken::fresh()).collect();
        assert_eq!(tokens.len(), 1_000);
    }
}
