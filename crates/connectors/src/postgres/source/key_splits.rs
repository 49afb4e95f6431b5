//! Assignment of keys to instances and their read positions, with support for rescaling.
//!
//! A single instance reads all keys. Several instances share integer keys: consecutive keys form a
//! block, and blocks are assigned round-robin. So the instance that reads a key follows from the
//! key alone, without coordination or a table scan.

use ardea_core::instance_state::{PeerInstances, put};
use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, Progress, RestoredState, Result,
    SmallSnapshot, SnapshotRequest, SnapshotWriter,
};
use serde::{Deserialize, Serialize};

use super::position::digest;
use crate::postgres::relation::Identity;

/// State name.
const STATE: &str = "keys";

/// A range of keys assigned to one instance: every n-th block between two keys, where `of` is n.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KeyRange {
    /// Remainder of the range's block numbers when divided by `of`.
    pub index: u32,
    /// Number of ranges that share the blocks.
    pub of: u32,
    /// Key of the last row emitted, as text.
    pub after: Option<String>,
    /// First integer beyond the range.
    pub until: Option<i64>,
    /// True if all rows have been emitted.
    pub is_done: bool,
    /// Digest of the last row emitted. `None` if the position is not at a row, or was stored by an
    /// earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
}

impl KeyRange {
    /// Returns the smallest integer key that may come next; `None` after the largest integer.
    pub fn next(&self) -> Result<Option<i64>> {
        match &self.after {
            None => Ok(Some(i64::MIN)),
            Some(after) => Ok(number(after)?.checked_add(1)),
        }
    }

    /// Returns true if the range contains all keys, of any type.
    pub fn is_everything(&self) -> bool {
        self.of == 1 && self.until.is_none()
    }
}

/// Parses an integer key.
pub(crate) fn number(key: &str) -> Result<i64> {
    key.parse().map_err(|_| {
        let what = format!("the key {key:?} is not an integer");
        Error::new(ErrorCode::InvalidJob, what)
            .hint("use one instance, or choose a key of type integer or bigint")
    })
}

/// Returns the block number of a key.
pub(crate) fn block_of(key: i64, block: u32) -> i64 {
    key.div_euclid(i64::from(block))
}

/// Returns the first key after the block of `key`; `None` after the last block.
fn end_of_block(key: i64, block: u32) -> Option<i64> {
    let next = i128::from(block_of(key, block)) + 1;
    i64::try_from(next * i128::from(block)).ok()
}

/// Snapshot of an instance's key ranges.
#[derive(Debug, Serialize, Deserialize)]
struct SplitState {
    instances: u32,
    block: u32,
    own: KeyRange,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<KeyRange>,
    /// Identity of the table that was read; `None` for a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    table: Option<Identity>,
}

/// Key ranges of an instance, in reading order: ranges left by other instances, then its own range.
#[derive(Debug)]
pub(crate) struct KeySplits {
    instance: Instance,
    block: u32,
    strands: Vec<KeyRange>,
    /// The index of the range of the last row emitted, and the row's JSON.
    last: Option<(usize, Vec<u8>)>,
    table: Option<Identity>,
    draft: SmallSnapshot,
    restored: PeerInstances<SplitState>,
}

impl KeySplits {
    pub fn new(instance: Instance, block: u32) -> Self {
        KeySplits {
            strands: vec![share(instance, None)],
            instance,
            block,
            last: None,
            table: None,
            draft: SmallSnapshot::default(),
            restored: PeerInstances::default(),
        }
    }

    pub fn all(&self) -> &[KeyRange] {
        &self.strands
    }

    /// Returns the identity of the table that was read; `None` for a query.
    pub fn table(&self) -> Option<Identity> {
        self.table
    }

    /// Sets the table that rows come from.
    pub fn note_table(&mut self, table: Option<Identity>) {
        self.table = table.or(self.table);
    }

    /// Records that a row has been emitted. `json` is empty if the server could not produce it.
    pub fn deliver(&mut self, strand: usize, key: String, json: Vec<u8>) {
        if self.last.as_ref().is_some_and(|(of, _)| *of != strand) {
            self.digest_last();
        }
        self.strands[strand].after = Some(key);
        self.last = Some((strand, json));
    }

    fn digest_last(&mut self) {
        if let Some((strand, json)) = self.last.take() {
            self.strands[strand].row = Some(digest(&json));
        }
    }

    /// Marks a range as fully emitted.
    pub fn finish(&mut self, strand: usize) {
        self.strands[strand].is_done = true;
    }

    pub fn are_done(&self) -> bool {
        self.strands.iter().all(|strand| strand.is_done)
    }

    /// Finishes the restore: continues at the restored position.
    fn resume(&mut self) -> Result<()> {
        let Some(all) = self.restored.all(|kept| kept.instances)? else {
            return Ok(());
        };
        let Instance { index, parallelism } = self.instance;
        let is_same = all.len() == parallelism as usize;
        self.table = all.iter().find_map(|kept| kept.table);
        if let Some(kept) = all.iter().find(|kept| kept.block != self.block)
            && (!is_same || parallelism > 1)
        {
            let what = format!(
                "a source restored with blocks of {} keys cannot continue with blocks of {}",
                kept.block, self.block
            );
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("leave `blocks_of` as it was"));
        }
        if is_same {
            let own = all.into_iter().nth(index as usize);
            self.strands = own.map_or_else(Vec::new, |kept| {
                kept.left.into_iter().chain([kept.own]).collect()
            });
            return Ok(());
        }
        self.strands = self.divide(all)?;
        Ok(())
    }

    /// Divides the remaining keys after a rescale.
    fn divide(&self, all: Vec<SplitState>) -> Result<Vec<KeyRange>> {
        let is_done = all.iter().all(|kept| kept.own.is_done);
        // Keys from `beyond` on have not been read.
        let mut beyond = UnclaimedKeys::Everything;
        for kept in &all {
            if let Some(after) = &kept.own.after {
                let end = end_of_block(number(after)?, self.block);
                beyond = beyond.max(end.map_or(UnclaimedKeys::Nothing, UnclaimedKeys::From));
            }
        }
        let mut left = Vec::new();
        for kept in all {
            left.extend(kept.left);
            let until = match beyond {
                UnclaimedKeys::Everything => continue,
                UnclaimedKeys::From(key) => Some(key),
                UnclaimedKeys::Nothing => None,
            };
            if !kept.own.is_done {
                left.push(KeyRange { until, ..kept.own });
            }
        }
        let mine = (0u64..).zip(left);
        let mine = mine.filter(|(number, _)| self.instance.owns(*number));
        let mut own = match beyond {
            UnclaimedKeys::From(key) => share(self.instance, Some(key)),
            UnclaimedKeys::Everything | UnclaimedKeys::Nothing => share(self.instance, None),
        };
        own.is_done = is_done || beyond == UnclaimedKeys::Nothing;
        Ok(mine.map(|(_, strand)| strand).chain([own]).collect())
    }
}

impl Checkpointed for KeySplits {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.digest_last();
        let left = self.strands.iter().rev().skip(1).rev();
        let kept = SplitState {
            instances: self.instance.parallelism,
            block: self.block,
            own: match self.strands.last() {
                Some(own) => own.clone(),
                None => share(self.instance, None),
            },
            left: left.filter(|strand| !strand.is_done).cloned().collect(),
            table: self.table,
        };
        let chunk = self.draft.begin();
        put(chunk, STATE, (self.instance.index, &[]), &kept)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.restored.restore(STATE, state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.resume()?;
        Ok(Progress::DONE)
    }
}

/// Keys that no instance has started to read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum UnclaimedKeys {
    Everything,
    From(i64),
    Nothing,
}

/// Returns the range of an instance: its share of all keys, or of the integers from `from` on.
fn share(instance: Instance, from: Option<i64>) -> KeyRange {
    KeyRange {
        index: instance.index,
        of: instance.parallelism,
        after: from.map(|from| from.saturating_sub(1).to_string()),
        until: None,
        is_done: false,
        row: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::StateChunk;

    const BLOCK: u32 = 10;

    fn instances(count: u32) -> Vec<KeySplits> {
        let instance = |index| Instance {
            index,
            parallelism: count,
        };
        (0..count)
            .map(|index| KeySplits::new(instance(index), BLOCK))
            .collect()
    }

    /// Returns the keys below a hundred that a range has still to read.
    fn keys(strand: &KeyRange) -> Vec<i64> {
        let is_its = |key: &i64| {
            block_of(*key, BLOCK).rem_euclid(i64::from(strand.of)) == i64::from(strand.index)
                && strand.until.is_none_or(|until| *key < until)
        };
        match strand.is_done {
            true => Vec::new(),
            false => (strand.next().unwrap().unwrap().max(-100)..100)
                .filter(is_its)
                .collect(),
        }
    }

    /// Lets each instance read its count of keys.
    fn read(all: &mut [KeySplits], counts: &[usize]) -> Vec<i64> {
        let mut read = Vec::new();
        for (strands, count) in all.iter_mut().zip(counts) {
            for _ in 0..*count {
                let next = (0..strands.all().len())
                    .find_map(|n| keys(&strands.all()[n]).first().map(|key| (n, *key)));
                if let Some((strand, key)) = next {
                    strands.deliver(strand, key.to_string(), Vec::new());
                    read.push(key);
                }
            }
        }
        read
    }

    fn restored(all: &mut [KeySplits], count: u32) -> Vec<KeySplits> {
        let mut chunk = StateChunk::default();
        for strands in all {
            strands
                .take_snapshot(SnapshotRequest::full(Epoch(1)))
                .unwrap();
            let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
            assert!(strands.write_snapshot(&mut writer).unwrap().done);
        }
        let mut next = instances(count);
        for strands in &mut next {
            let mut position = 0;
            let instance = strands.instance;
            let mut state = RestoredState::new(&chunk, &mut position, instance, usize::MAX);
            strands.restore(&mut state).unwrap();
            strands.resume().unwrap();
        }
        next
    }

    #[test]
    fn each_key_is_read_once_whatever_becomes_of_the_instances() {
        let mut all = instances(3);
        let mut came = read(&mut all, &[7, 25, 0]);
        for (count, counts) in [
            (2, &[30, 4][..]),
            (2, &[1, 9]),
            (5, &[3, 2, 0, 9, 1]),
            (1, &[20]),
        ] {
            all = restored(&mut all, count);
            came.extend(read(&mut all, counts));
        }
        all = restored(&mut all, 4);
        came.extend(read(&mut all, &[200; 4]));
        came.sort_unstable();
        assert!(came.into_iter().eq(-100..100));
    }

    #[test]
    fn what_is_done_stays_done() {
        let mut all = instances(2);
        for strands in &mut all {
            strands.finish(0);
            assert!(strands.are_done());
        }
        let all = restored(&mut all, 3);
        assert!(all.iter().all(KeySplits::are_done));
    }

    #[test]
    fn one_instance_reads_keys_of_any_type() {
        let mut all = instances(1);
        assert!(all[0].all()[0].is_everything());
        all[0].deliver(0, "heron".into(), Vec::new());
        let again = restored(&mut all, 1);
        assert_eq!(again[0].all()[0].after.as_deref(), Some("heron"));
    }

    #[test]
    fn the_greatest_key_is_read_once_whatever_becomes_of_the_instances() {
        let mut all = instances(2);
        let owner = block_of(i64::MAX, BLOCK).rem_euclid(2) as usize;
        all[owner].deliver(0, i64::MAX.to_string(), Vec::new());
        for count in [3, 1] {
            all = restored(&mut all, count);
            for strand in all.iter().flat_map(KeySplits::all) {
                let reads = strand.is_done || strand.next().unwrap().is_none();
                let is_other = strand.of == 2 && strand.index != owner as u32;
                assert!(reads || is_other, "{strand:?}");
                assert_eq!(strand.until, None, "nothing lies beyond");
            }
        }
    }

    #[test]
    fn the_table_and_the_last_row_are_remembered() {
        let mut all = instances(1);
        let table = Some(Identity {
            oid: 7,
            file: Some(8),
        });
        all[0].note_table(table);
        all[0].deliver(0, "5".into(), b"row".to_vec());
        for count in [1, 2] {
            let all = restored(&mut all, count);
            assert_eq!(all[0].table(), table);
            let rows: Vec<_> = all[0].all().iter().map(|strand| strand.row).collect();
            assert!(rows.contains(&Some(digest(b"row"))), "{rows:?}");
        }
    }
}
