//! Who reads which keys, and how far: the share of an instance, which goes on whatever becomes of the instances.
//!
//! One instance reads all keys. Several share whole numbers: neighbouring keys are a block, and blocks are dealt out in turn. So nobody has
//! to be asked, and no table has to be looked through, to know whose a key is.

use ardea_core::instance_state::{Siblings, put};
use ardea_core::{
    CutDraft, CutWriter, Error, ErrorCode, Instance, Progress, RestoredState, Result,
};
use serde::{Deserialize, Serialize};

use super::position::digest;
use crate::postgres::relation::Identity;

/// The name of the state.
const STATE: &str = "keys";

/// Keys that belong together: every n-th block, from behind one key to before another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Strand {
    /// Blocks whose numbers leave this remainder,
    pub index: u32,
    /// divided by this.
    pub of: u32,
    /// The key of the last row that has been delivered, as text.
    pub after: Option<String>,
    /// The first whole number that is none of it.
    pub until: Option<i64>,
    /// All of it has been delivered.
    pub is_done: bool,
    /// The digest of the row that has been delivered last. `None` if the position is no row's, or
    /// was kept by an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
}

impl Strand {
    /// Returns the least whole number that may come next; `None` behind the greatest.
    pub fn next(&self) -> Result<Option<i64>> {
        match &self.after {
            None => Ok(Some(i64::MIN)),
            Some(after) => Ok(number(after)?.checked_add(1)),
        }
    }

    /// Whether it is all keys, whatever they are.
    pub fn is_everything(&self) -> bool {
        self.of == 1 && self.until.is_none()
    }
}

/// A key that is a whole number.
pub(crate) fn number(key: &str) -> Result<i64> {
    key.parse().map_err(|_| {
        let what = format!("the key {key:?} is no whole number");
        Error::new(ErrorCode::InvalidJob, what)
            .hint("let one instance read, or choose a key of type integer or bigint")
    })
}

/// The number of the block in which a key is.
pub(crate) fn block_of(key: i64, block: u32) -> i64 {
    key.div_euclid(i64::from(block))
}

/// Returns the first key behind the block of this one; `None` if it is the last block.
fn end_of_block(key: i64, block: u32) -> Option<i64> {
    let next = i128::from(block_of(key, block)) + 1;
    i64::try_from(next * i128::from(block)).ok()
}

/// What an instance hands over.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    instances: u32,
    block: u32,
    own: Strand,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<Strand>,
    /// The table that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    table: Option<Identity>,
}

/// What an instance reads, in this order: what others have left, then its own share.
#[derive(Debug)]
pub(crate) struct Strands {
    instance: Instance,
    block: u32,
    strands: Vec<Strand>,
    /// The row that has been delivered last, and its strand.
    last: Option<(usize, Vec<u8>)>,
    table: Option<Identity>,
    draft: CutDraft,
    restored: Siblings<Kept>,
}

impl Strands {
    pub fn new(instance: Instance, block: u32) -> Self {
        Strands {
            strands: vec![share(instance, None)],
            instance,
            block,
            last: None,
            table: None,
            draft: CutDraft::default(),
            restored: Siblings::default(),
        }
    }

    pub fn all(&self) -> &[Strand] {
        &self.strands
    }

    /// The table that was read.
    pub fn table(&self) -> Option<Identity> {
        self.table
    }

    /// Notes the table that rows come from.
    pub fn note_table(&mut self, table: Option<Identity>) {
        self.table = table.or(self.table);
    }

    /// Notes that a row has been delivered. `json` is empty if the server could not make it.
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

    /// All of a strand has been delivered.
    pub fn finish(&mut self, strand: usize) {
        self.strands[strand].is_done = true;
    }

    pub fn are_done(&self) -> bool {
        self.strands.iter().all(|strand| strand.is_done)
    }

    pub fn take_cut(&mut self) -> Result<()> {
        self.digest_last();
        let left = self.strands.iter().rev().skip(1).rev();
        let kept = Kept {
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

    pub fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.restored.take(&entry)?;
        }
        Ok(())
    }

    /// All has come back: goes on where it was.
    pub fn resume(&mut self) -> Result<()> {
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
                "a source that has read in blocks of {} keys can't go on in blocks of {}",
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

    /// Divides what another number of instances has left.
    fn divide(&self, all: Vec<Kept>) -> Result<Vec<Strand>> {
        let is_done = all.iter().all(|kept| kept.own.is_done);
        // No key from here on has been read.
        let mut beyond = Beyond::Everything;
        for kept in &all {
            if let Some(after) = &kept.own.after {
                let end = end_of_block(number(after)?, self.block);
                beyond = beyond.max(end.map_or(Beyond::Nothing, Beyond::From));
            }
        }
        let mut left = Vec::new();
        for kept in all {
            left.extend(kept.left);
            let until = match beyond {
                Beyond::Everything => continue,
                Beyond::From(key) => Some(key),
                Beyond::Nothing => None,
            };
            if !kept.own.is_done {
                left.push(Strand { until, ..kept.own });
            }
        }
        let mine = (0u64..).zip(left);
        let mine = mine.filter(|(number, _)| self.instance.owns(*number));
        let mut own = match beyond {
            Beyond::From(key) => share(self.instance, Some(key)),
            Beyond::Everything | Beyond::Nothing => share(self.instance, None),
        };
        own.is_done = is_done || beyond == Beyond::Nothing;
        Ok(mine.map(|(_, strand)| strand).chain([own]).collect())
    }
}

/// The keys that no instance has begun to read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Beyond {
    Everything,
    From(i64),
    Nothing,
}

/// The share of an instance of all keys, or of those from a whole number on.
fn share(instance: Instance, from: Option<i64>) -> Strand {
    Strand {
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

    fn instances(count: u32) -> Vec<Strands> {
        let instance = |index| Instance {
            index,
            parallelism: count,
        };
        (0..count)
            .map(|index| Strands::new(instance(index), BLOCK))
            .collect()
    }

    /// The keys below a hundred that a strand has still to read.
    fn keys(strand: &Strand) -> Vec<i64> {
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

    /// Each reads so many of its keys.
    fn read(all: &mut [Strands], counts: &[usize]) -> Vec<i64> {
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

    fn restored(all: &mut [Strands], count: u32) -> Vec<Strands> {
        let mut chunk = StateChunk::default();
        for strands in all {
            strands.take_cut().unwrap();
            let mut writer = CutWriter::new(&mut chunk, usize::MAX);
            assert!(strands.write_cut(&mut writer).unwrap().done);
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
        assert!(all.iter().all(Strands::are_done));
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
            for strand in all.iter().flat_map(Strands::all) {
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
