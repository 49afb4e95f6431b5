//! What a sink that writes exactly once hands over: its life, and up to which record its rows belong to the cut.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::time::SystemTime;

use ardea_core::instance_state::{key_of, put, value, written_by};
use ardea_core::{
    Cut, CutDraft, CutWriter, Epoch, Error, ErrorCode, GoneKeys, Instance, Progress, RestoredEntry,
    RestoredState, Result,
};
use serde::{Deserialize, Serialize};

use super::desk::Errand;
use super::own_tables::OwnTables;
use super::staging::Estate;

/// The name of the state: an entry of each life.
const STATE: &str = "lives";

/// What is kept of a life.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Kept {
    /// The rows of records before this one belong to the cut.
    through: i64,
    /// The tables that the life has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tables: Option<OwnTables>,
    /// The number of the run. `None` if it was of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<i64>,
}

/// The life of an instance, and those from which it takes over.
pub(crate) struct Lives {
    instance: Instance,
    pub life: i64,
    /// The number of the run from whose state this one goes on: the same in all instances.
    pub run: Option<i64>,
    /// The rows of records before this one have been taken.
    through: i64,
    tables: Option<OwnTables>,
    /// Of cuts whose epochs may yet be committed, the oldest first.
    cuts: VecDeque<(Epoch, i64)>,
    /// What has been asked to be shown.
    asked: i64,
    /// What is known to be shown.
    published: i64,
    heirs: Vec<Errand>,
    gone: GoneKeys,
    draft: CutDraft,
}

impl Lives {
    /// A new one.
    pub fn begin(instance: Instance) -> Self {
        let what = (SystemTime::now(), process::id(), instance.index);
        Lives {
            instance,
            life: RandomState::new().hash_one(what).cast_signed(),
            run: None,
            through: 0,
            tables: None,
            cuts: VecDeque::new(),
            asked: 0,
            published: 0,
            heirs: Vec::new(),
            gone: GoneKeys::default(),
            draft: CutDraft::default(),
        }
    }

    /// The rows of records before this one have been taken.
    pub fn note(&mut self, through: i64) {
        self.through = through;
    }

    /// Notes the tables that the life uses.
    pub fn note_tables(&mut self, tables: Option<OwnTables>) {
        self.tables = tables.or(self.tables);
    }

    /// Whether there are rows that are not seen yet.
    pub fn is_pending(&self) -> bool {
        self.published < self.through
    }

    pub fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.cuts.push_back((cut.epoch, self.through));
        let chunk = self.draft.begin();
        let kept = Kept {
            through: self.through,
            tables: self.tables,
            run: self.run.or(Some(self.life)),
        };
        let index = self.instance.index;
        put(chunk, STATE, (index, &self.life.to_be_bytes()), &kept)?;
        if !cut.is_full() {
            for key in self.gone.iter() {
                chunk.write_removed(STATE, None, |out| {
                    out.extend_from_slice(key);
                    Ok(())
                })?;
            }
        }
        self.gone.freeze(cut.epoch);
        Ok(())
    }

    pub fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    /// An epoch is committed: what is to be shown now, if anything.
    pub fn commit(&mut self, epoch: Epoch) -> Option<Errand> {
        self.gone.commit(epoch);
        let mut through = self.asked;
        while let Some((_, cut)) = self.cuts.pop_front_if(|(of, _)| *of <= epoch) {
            through = through.max(cut);
        }
        if through == self.asked {
            return None;
        }
        self.asked = through;
        Some(Errand::Publish { through })
    }

    /// All that was asked for has been done.
    pub fn note_published(&mut self) {
        self.published = self.asked;
    }

    /// Takes an entry back, if it falls to this instance: the lives of instances are dealt out by their numbers.
    pub fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        if entry.state != STATE {
            return Err(RestoredState::unknown(entry));
        }
        let (index, life) = written_by(entry)?;
        let life = life.try_into().map(i64::from_be_bytes).map_err(|_| {
            Error::new(
                ErrorCode::BadRecord,
                "the life of a sink comes back damaged",
            )
            .hint("start from another snapshot")
        })?;
        let Kept {
            through,
            tables,
            run,
        } = value(entry)?;
        // All instances see all lives, and so agree: of runs that began apart the least counts.
        let run = run.unwrap_or(life);
        self.run = Some(self.run.map_or(run, |other| other.min(run)));
        if self.instance.owns(index.into()) {
            self.gone.note(key_of(index, &life.to_be_bytes()));
            self.heirs.push(Errand::Settle(Estate {
                life,
                through,
                tables,
            }));
        }
        Ok(())
    }

    /// All has come back: what is to be done for those before.
    pub fn take_heirs(&mut self) -> Vec<Errand> {
        std::mem::take(&mut self.heirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::StateChunk;

    fn written(lives: &mut Lives, cut: Cut) -> StateChunk {
        lives.take_cut(cut).unwrap();
        let mut chunk = StateChunk::default();
        let mut writer = CutWriter::new(&mut chunk, usize::MAX);
        assert!(lives.write_cut(&mut writer).unwrap().done);
        chunk
    }

    fn restored(chunk: &StateChunk, instance: Instance) -> Lives {
        let mut lives = Lives::begin(instance);
        let mut position = 0;
        for entry in RestoredState::new(chunk, &mut position, instance, usize::MAX) {
            lives.restore(&entry).unwrap();
        }
        lives
    }

    #[test]
    fn rows_are_shown_when_their_epoch_or_a_later_one_is_committed() {
        let mut lives = Lives::begin(Instance::ONLY);
        lives.note(10);
        written(&mut lives, Cut::full(Epoch(1)));
        lives.note(20);
        written(&mut lives, Cut::full(Epoch(2)));
        lives.note(30);
        assert_eq!(
            lives.commit(Epoch(2)),
            Some(Errand::Publish { through: 20 })
        );
        assert_eq!(lives.commit(Epoch(2)), None, "it may be told twice");
        lives.note_published();
        assert!(lives.is_pending(), "those of the next epoch");
        written(&mut lives, Cut::changes(Epoch(3), Epoch(2)));
        assert_eq!(
            lives.commit(Epoch(3)),
            Some(Errand::Publish { through: 30 })
        );
        lives.note_published();
        assert!(!lives.is_pending());
    }

    #[test]
    fn who_takes_over_settles_what_falls_to_it_and_says_so_once() {
        let mut chunk = StateChunk::default();
        for index in 0..3 {
            let parallelism = 3;
            let mut lives = Lives::begin(Instance { index, parallelism });
            lives.note(i64::from(index));
            let own = written(&mut lives, Cut::full(Epoch(4)));
            own.entries().for_each(|entry| chunk.push(entry).unwrap());
        }
        let throughs = |lives: &mut Lives| -> Vec<i64> {
            let heirs = lives.take_heirs().into_iter();
            let heirs = heirs.map(|errand| match errand {
                Errand::Settle(estate) => estate.through,
                other => panic!("{other:?}"),
            });
            heirs.collect()
        };
        let instance = |index| Instance {
            index,
            parallelism: 2,
        };
        let mut first = restored(&chunk, instance(0));
        assert_eq!(first.run, restored(&chunk, instance(1)).run);
        assert_eq!(throughs(&mut first), [0, 2]);
        assert_eq!(throughs(&mut restored(&chunk, instance(1))), [1]);
        let increment = written(&mut first, Cut::changes(Epoch(5), Epoch(4)));
        let gone = increment.entries().filter(|entry| entry.value.is_none());
        assert_eq!(gone.count(), 2);
        assert_eq!(first.commit(Epoch(5)), None);
        let next = written(&mut first, Cut::changes(Epoch(6), Epoch(5)));
        assert_eq!(next.len(), 1, "its own life");
    }
}
