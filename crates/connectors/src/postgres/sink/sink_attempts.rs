//! Checkpointed state of an exactly-once sink: the attempt of each instance, and the record up to
//! which the attempt's rows belong to the snapshot.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::time::SystemTime;

use ardea_core::instance_state::{key_of, put, value, written_by};
use ardea_core::{
    Epoch, Error, ErrorCode, Instance, Progress, RemovedKeys, RestoredEntry, RestoredState, Result,
    SmallSnapshot, SnapshotRequest, SnapshotWriter,
};
use serde::{Deserialize, Serialize};

use super::own_tables::OwnTables;
use super::staging::PreviousAttempt;
use super::writer::WriterCommand;

/// State name, with one entry per attempt.
const STATE: &str = "lives";

/// Stored state of an attempt.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct GenerationState {
    /// Record position; the rows of all earlier records belong to the snapshot.
    through: i64,
    /// Tables used by the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tables: Option<OwnTables>,
    /// Number of the run; `None` in snapshots of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<i64>,
}

/// The current attempt of an instance, and the earlier attempts that it takes over.
pub(crate) struct SinkAttempts {
    instance: Instance,
    pub attempt: i64,
    /// Number of the restored run, the same in all instances; `None` for a new run.
    pub run: Option<i64>,
    /// Record position; the rows of all earlier records have been staged.
    through: i64,
    tables: Option<OwnTables>,
    /// Values of `through` in snapshots whose epoch is neither committed nor aborted, oldest first.
    snapshots: VecDeque<(Epoch, i64)>,
    /// Record position up to which the publication of rows was requested.
    asked: i64,
    /// Record position; the rows of all earlier records are published.
    published: i64,
    heirs: Vec<WriterCommand>,
    gone: RemovedKeys,
    draft: SmallSnapshot,
}

impl SinkAttempts {
    /// Begins a new attempt.
    pub fn begin(instance: Instance) -> Self {
        let what = (SystemTime::now(), process::id(), instance.index);
        SinkAttempts {
            instance,
            attempt: RandomState::new().hash_one(what).cast_signed(),
            run: None,
            through: 0,
            tables: None,
            snapshots: VecDeque::new(),
            asked: 0,
            published: 0,
            heirs: Vec::new(),
            gone: RemovedKeys::default(),
            draft: SmallSnapshot::default(),
        }
    }

    /// Records that the rows of all records before `through` have been staged.
    pub fn note(&mut self, through: i64) {
        self.through = through;
    }

    /// Sets the tables used by the attempt.
    pub fn note_tables(&mut self, tables: Option<OwnTables>) {
        self.tables = tables.or(self.tables);
    }

    /// Returns true if there are unpublished rows.
    pub fn is_pending(&self) -> bool {
        self.published < self.through
    }

    pub fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.snapshots.push_back((snapshot.epoch, self.through));
        let chunk = self.draft.begin();
        let kept = GenerationState {
            through: self.through,
            tables: self.tables,
            run: self.run.or(Some(self.attempt)),
        };
        let index = self.instance.index;
        put(chunk, STATE, (index, &self.attempt.to_be_bytes()), &kept)?;
        if !snapshot.is_full() {
            for key in self.gone.iter() {
                chunk.write_removed(STATE, None, |out| {
                    out.extend_from_slice(key);
                    Ok(())
                })?;
            }
        }
        self.gone.freeze(snapshot.epoch);
        Ok(())
    }

    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    /// Handles a committed epoch; returns the command to publish its rows, if any.
    pub fn commit(&mut self, epoch: Epoch) -> Option<WriterCommand> {
        self.gone.commit(epoch);
        let mut through = self.asked;
        while let Some((_, snapshot)) = self.snapshots.pop_front_if(|(of, _)| *of <= epoch) {
            through = through.max(snapshot);
        }
        if through == self.asked {
            return None;
        }
        self.asked = through;
        Some(WriterCommand::Publish { through })
    }

    /// Records that all requested rows are published.
    pub fn note_published(&mut self) {
        self.published = self.asked;
    }

    /// Restores the entry of an attempt if the attempt is assigned to this instance, which depends
    /// on its instance index.
    pub fn restore(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        if entry.state != STATE {
            return Err(RestoredState::unknown(entry));
        }
        let (index, life) = written_by(entry)?;
        let life = life.try_into().map(i64::from_be_bytes).map_err(|_| {
            Error::new(
                ErrorCode::BadRecord,
                "the restored state of a sink is damaged",
            )
            .hint("start from another checkpoint")
        })?;
        let GenerationState {
            through,
            tables,
            run,
        } = value(entry)?;
        // All instances read all entries, so they agree on the run: the smallest number wins.
        let run = run.unwrap_or(life);
        self.run = Some(self.run.map_or(run, |other| other.min(run)));
        if self.instance.owns(index.into()) {
            self.gone.add(key_of(index, &life.to_be_bytes()));
            self.heirs.push(WriterCommand::Settle(PreviousAttempt {
                attempt: life,
                through,
                tables,
            }));
        }
        Ok(())
    }

    /// Finishes the restore; returns the commands that take over earlier attempts.
    pub fn take_heirs(&mut self) -> Vec<WriterCommand> {
        std::mem::take(&mut self.heirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::StateChunk;

    fn written(lives: &mut SinkAttempts, snapshot: SnapshotRequest) -> StateChunk {
        lives.take_snapshot(snapshot).unwrap();
        let mut chunk = StateChunk::default();
        let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
        assert!(lives.write_snapshot(&mut writer).unwrap().done);
        chunk
    }

    fn restored(chunk: &StateChunk, instance: Instance) -> SinkAttempts {
        let mut lives = SinkAttempts::begin(instance);
        let mut position = 0;
        for entry in RestoredState::new(chunk, &mut position, instance, usize::MAX) {
            lives.restore(&entry).unwrap();
        }
        lives
    }

    #[test]
    fn rows_are_shown_when_their_epoch_or_a_later_one_is_committed() {
        let mut lives = SinkAttempts::begin(Instance::ONLY);
        lives.note(10);
        written(&mut lives, SnapshotRequest::full(Epoch(1)));
        lives.note(20);
        written(&mut lives, SnapshotRequest::full(Epoch(2)));
        lives.note(30);
        assert_eq!(
            lives.commit(Epoch(2)),
            Some(WriterCommand::Publish { through: 20 })
        );
        assert_eq!(lives.commit(Epoch(2)), None, "it may be told twice");
        lives.note_published();
        assert!(lives.is_pending(), "those of the next epoch");
        written(&mut lives, SnapshotRequest::changes(Epoch(3), Epoch(2)));
        assert_eq!(
            lives.commit(Epoch(3)),
            Some(WriterCommand::Publish { through: 30 })
        );
        lives.note_published();
        assert!(!lives.is_pending());
    }

    #[test]
    fn who_takes_over_settles_what_falls_to_it_and_says_so_once() {
        let mut chunk = StateChunk::default();
        for index in 0..3 {
            let parallelism = 3;
            let mut lives = SinkAttempts::begin(Instance { index, parallelism });
            lives.note(i64::from(index));
            let own = written(&mut lives, SnapshotRequest::full(Epoch(4)));
            own.entries().for_each(|entry| chunk.push(entry).unwrap());
        }
        let throughs = |lives: &mut SinkAttempts| -> Vec<i64> {
            let heirs = lives.take_heirs().into_iter();
            let heirs = heirs.map(|errand| match errand {
                WriterCommand::Settle(estate) => estate.through,
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
        let increment = written(&mut first, SnapshotRequest::changes(Epoch(5), Epoch(4)));
        let gone = increment.entries().filter(|entry| entry.value.is_none());
        assert_eq!(gone.count(), 2);
        assert_eq!(first.commit(Epoch(5)), None);
        let next = written(&mut first, SnapshotRequest::changes(Epoch(6), Epoch(5)));
        assert_eq!(next.len(), 1, "its own life");
    }
}
