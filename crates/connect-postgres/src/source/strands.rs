//! Who reads which keys, and how far: the share of an instance, which goes on whatever becomes of the instances.
//!
//! One instance reads all keys. Several share whole numbers: neighbouring keys are a block, and blocks are dealt out in turn. So nobody has
//! to be asked, and no table has to be looked through, to know whose a key is.

use ardea_core::instance_state::{Siblings, put};
use ardea_core::{
    CutDraft, CutWriter, Error, ErrorCode, Instance, Progress, RestoredState, Result,
};
use serde::{Deserialize, Serialize};

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
}

impl Strand {
    /// The least whole number that may come next.
    pub fn next(&self) -> Result<i64> {
        match &self.after {
            None => Ok(i64::MIN),
            Some(after) => Ok(number(after)?.saturating_add(1)),
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

/// The first key of a block.
pub(crate) fn start_of(number: i64, block: u32) -> i64 {
    number.saturating_mul(i64::from(block))
}

/// What an instance hands over.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    instances: u32,
    block: u32,
    own: Strand,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<Strand>,
}

/// What an instance reads, in this order: what others have left, then its own share.
#[derive(Debug)]
pub(crate) struct Strands {
    instance: Instance,
    block: u32,
    strands: Vec<Strand>,
    draft: CutDraft,
    restored: Siblings<Kept>,
}

impl Strands {
    pub fn new(instance: Instance, block: u32) -> Self {
        Strands {
            strands: vec![share(instance, None)],
            instance,
            block,
            draft: CutDraft::default(),
            restored: Siblings::default(),
        }
    }

    pub fn all(&self) -> &[Strand] {
        &self.strands
    }

    /// A row has been delivered.
    pub fn deliver(&mut self, strand: usize, key: String) {
        self.strands[strand].after = Some(key);
    }

    /// All of a strand has been delivered.
    pub fn finish(&mut self, strand: usize) {
        self.strands[strand].is_done = true;
    }

    pub fn are_done(&self) -> bool {
        self.strands.iter().all(|strand| strand.is_done)
    }

    pub fn take_cut(&mut self) -> Result<()> {
        let left = self.strands.iter().rev().skip(1).rev();
        let kept = Kept {
            instances: self.instance.parallelism,
            block: self.block,
            own: match self.strands.last() {
                Some(own) => own.clone(),
                None => share(self.instance, None),
            },
            left: left.filter(|strand| !strand.is_done).cloned().collect(),
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

    /// Divides anew what so many instances have left that it is not this one alone.
    fn divide(&self, all: Vec<Kept>) -> Result<Vec<Strand>> {
        let is_done = all.iter().all(|kept| kept.own.is_done);
        // Up to here somebody has read; nobody has beyond.
        let mut reached = None;
        for kept in &all {
            if kept.own.after.is_some() {
                let block = block_of(kept.own.next()?, self.block);
                reached = reached.max(Some(start_of(block.saturating_add(1), self.block)));
            }
        }
        let mut left = Vec::new();
        for kept in all {
            left.extend(kept.left);
            if let (Some(reached), false) = (reached, kept.own.is_done) {
                left.push(Strand {
                    until: Some(reached),
                    ..kept.own
                });
            }
        }
        let mine = (0u64..).zip(left);
        let mine = mine.filter(|(number, _)| self.instance.owns(*number));
        let mut own = share(self.instance, reached);
        own.is_done = is_done;
        Ok(mine.map(|(_, strand)| strand).chain([own]).collect())
    }
}

/// The share of an instance of all keys, or of those from a whole number on.
fn share(instance: Instance, from: Option<i64>) -> Strand {
    Strand {
        index: instance.index,
        of: instance.parallelism,
        after: from.map(|from| from.saturating_sub(1).to_string()),
        until: None,
        is_done: false,
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
            false => (strand.next().unwrap().max(-100)..100)
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
                    strands.deliver(strand, key.to_string());
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
        all[0].deliver(0, "heron".into());
        let again = restored(&mut all, 1);
        assert_eq!(again[0].all()[0].after.as_deref(), Some("heron"));
    }
}
