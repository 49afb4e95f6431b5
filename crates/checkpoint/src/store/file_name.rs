//! File names: those allowed in every store, and those of checkpoint files.

use std::fmt;

use ardea_core::Epoch;

use crate::store::CheckpointId;

/// The suffix of unfinished files.
pub(crate) const UNFINISHED: &str = ".writing";
/// The maximum length in bytes, which fits every file system even with suffixes.
const MOST_BYTES: usize = 200;

/// A file name allowed in every [`ObjectStore`](crate::store::ObjectStore): 1 to 200 lowercase
/// letters, digits, hyphens and dots, which begins with a letter or digit and does not end with
/// `.writing`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileName(String);

impl FileName {
    /// Returns `name` as a file name, or `None` if it is not valid.
    ///
    /// ```
    /// use ardea_checkpoint::store::FileName;
    ///
    /// assert!(FileName::new("checkpoint-1-7.manifest").is_some());
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

    /// Returns the name under which `writer` writes the file before it is complete.
    pub(crate) fn unfinished(&self, writer: u64) -> String {
        format!("{self}.{writer:016x}{UNFINISHED}")
    }

    /// Parses the name of an unfinished file into its final name and its writer; `None` if it is
    /// not such a name.
    pub(crate) fn of_unfinished(text: &str) -> Option<(FileName, u64)> {
        let (name, writer) = text.strip_suffix(UNFINISHED)?.rsplit_once('.')?;
        let (name, writer) = (FileName::new(name)?, u64::from_str_radix(writer, 16).ok()?);
        (name.unfinished(writer) == text).then_some((name, writer))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token that distinguishes the blocks of one writer from those of all others, in any process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WriterToken(pub u64);

impl WriterToken {
    /// Returns a token that is unique among all processes.
    pub fn fresh() -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        // Each `RandomState` has different random keys, in every process.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        WriterToken(hasher.finish())
    }
}

/// A file of a checkpoint, parsed from its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum StoredName {
    Manifest(CheckpointId),
    /// A block that was written for a checkpoint.
    Block(BlockName),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BlockName {
    /// The checkpoint that the block was written for.
    pub checkpoint: CheckpointId,
    pub writer: WriterToken,
    /// The sequence number that the writer gave to the block.
    pub number: u32,
}

impl BlockName {
    pub fn file(&self) -> FileName {
        let BlockName {
            checkpoint: CheckpointId { generation, epoch },
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
            StoredName::Manifest(CheckpointId { generation, epoch }) => {
                FileName(format!("checkpoint-{generation}-{}.manifest", epoch.0))
            }
            StoredName::Block(block) => block.file(),
        }
    }

    /// Returns the checkpoint that the file was written for.
    pub fn checkpoint(&self) -> CheckpointId {
        match self {
            StoredName::Manifest(id) => *id,
            StoredName::Block(block) => block.checkpoint,
        }
    }

    /// Parses the name of a checkpoint file; `None` if `name` is not such a name in canonical form.
    pub fn parse(name: &FileName) -> Option<Self> {
        let found = Self::read(name.as_str())?;
        (found.file() == *name).then_some(found)
    }

    fn read(name: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok();
        if let Some(id) = name.strip_prefix("checkpoint-") {
            let (generation, epoch) = id.strip_suffix(".manifest")?.split_once('-')?;
            let epoch = Epoch(number(epoch)?);
            return Some(StoredName::Manifest(CheckpointId::new(
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
            checkpoint: CheckpointId::new(generation, epoch),
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
    fn names_that_are_only_like_a_checkpoints_are_somebody_elses() {
        let good = "block-1-7-00000000000000ff-3.block";
        assert!(StoredName::parse(&FileName::new(good).unwrap()).is_some());
        let others = [
            "block-01-7-00000000000000ff-3.block",
            "block-1-7-ff-3.block",
            "block-1-7-00000000000000ff-3.block.bak",
            "block-1-7-00000000000000ff-3-4.block",
            "checkpoint-1.manifest",
            "checkpoint-1-07.manifest",
            "checkpoint-1-7-8.manifest",
            "checkpoint-1-7.manifest.old",
            "checkpoint-1-99999999999999999999999.manifest",
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
            let checkpoint = CheckpointId::new(generation, Epoch(epoch));
            let block = BlockName { checkpoint, writer: WriterToken(writer), number };
            for stored in [StoredName::Manifest(checkpoint), StoredName::Block(block)] {
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
