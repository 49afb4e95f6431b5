//! One value per key in a plain table, for values that nearly all change between two snapshots.

use std::borrow::Cow;
use std::fmt;

use ardea_core::{
    Checkpointed, Epoch, InstanceContext, Key, Progress, RestoredState, Result, SnapshotRequest,
    SnapshotWriter, StateChunk, StateShape,
};

use crate::codec::{StateCodecs, duplicate_entry, unsaved_without, write_removed};
use crate::{ChangeStamps, KeyTable, STATE, SnapshotLog, TrackChanges, TrackInserts};

/// The maximum number of keys scanned per call while a snapshot is written.
const KEYS_PER_CALL: usize = 8 * 1024;

/// The state of an operator with one value per key, for large batches of updates.
///
/// A record costs no more than in a [`KeyTable`], once all values have changed since the last
/// snapshot. Keys are not removed one by one, but [all at once](Self::clear). Compare
/// [`KeyedState`](crate::KeyedState), which removes keys and lists the changed ones.
pub struct TableState<K, V> {
    table: KeyTable<K, V>,
    /// The serializers. `None` if the state is not checkpointed.
    codecs: Option<StateCodecs<K, V>>,
    /// `None` if no snapshots are taken.
    tracking: Option<Box<TableChanges>>,
}

/// The changes of the table, for snapshots.
#[derive(Default)]
struct TableChanges {
    log: SnapshotLog,
    stamps: ChangeStamps,
    /// The generation (interval between snapshots) in which all keys were removed. They stay in the
    /// table, as a snapshot may still need them.
    cleared_in: Option<u32>,
}

impl<K, V> Default for TableState<K, V> {
    fn default() -> Self {
        TableState {
            table: KeyTable::default(),
            codecs: None,
            tracking: None,
        }
    }
}

impl<K: Key, V> TableState<K, V> {
    /// Sets the serializers of keys and values, so that the state is checkpointed.
    pub fn set_codecs(&mut self, codecs: StateCodecs<K, V>) {
        self.codecs = Some(codecs);
    }

    /// Attaches the state to its instance.
    pub fn open(&mut self, context: &InstanceContext) {
        let is_tracked = self.codecs.is_some() && context.guarantee.keeps_state();
        self.tracking = is_tracked.then(Box::default);
    }

    /// Returns a description of the state if it has no serializers, for
    /// [`unsaved_state`](ardea_core::Processor::unsaved_state).
    pub fn unsaved_state(&self) -> Option<&'static str> {
        unsaved_without(self.codecs.as_ref())
    }

    /// Returns the keys and values; without meaning after a [`clear`](Self::clear).
    pub fn table(&self) -> &KeyTable<K, V> {
        &self.table
    }

    /// Updates the value of each record's key, which is initially `create()`; see
    /// [`KeyTable::update_each`].
    #[inline]
    pub fn update_each<'r, T>(
        &mut self,
        records: &'r [T],
        key: impl Fn(&'r T) -> Cow<'r, K>,
        create: impl Fn() -> V,
        update: impl Fn(&mut V, &'r T),
    ) {
        let (table, codecs) = (&mut self.table, &self.codecs);
        match self.tracking.as_deref_mut() {
            None => table.update_each(records, 0, key, create, update),
            Some(TableChanges { log, stamps, .. }) if stamps.are_fresh(log) => {
                let mut watch = TrackInserts::new(stamps, log);
                table.update_watched(records, 0, key, create, update, &mut watch);
            }
            Some(TableChanges { log, stamps, .. }) => {
                let write = |chunk: &mut StateChunk, key: &K, value: &V| match codecs {
                    Some(codecs) => codecs.write(STATE, chunk, key, value, |_| {}),
                    None => Ok(()),
                };
                let mut watch = TrackChanges { stamps, log, write };
                table.update_watched(records, 0, key, create, update, &mut watch);
            }
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        match &mut self.tracking {
            Some(tracking) => tracking.cleared_in = Some(tracking.log.generation()),
            None => self.table.clear(),
        }
    }

    /// Returns true if the keys were removed.
    pub fn is_cleared(&self) -> bool {
        let tracking = self.tracking.as_ref();
        tracking.is_some_and(|tracking| tracking.cleared_in.is_some())
    }
}

impl TableChanges {
    fn write_snapshot<K: Key, V>(
        &mut self,
        table: &KeyTable<K, V>,
        codecs: &StateCodecs<K, V>,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Progress> {
        let Some(snapshot) = self.log.write_aside(writer)? else {
            return Ok(Progress::DONE);
        };
        let stamps = &mut self.stamps;
        let mut left = KEYS_PER_CALL;
        let was_there = self
            .cleared_in
            .is_none_or(|cleared| snapshot.is_before(cleared));
        let is_written = match was_there {
            true => stamps.write(snapshot, &mut left, writer, |chunk, at| {
                codecs.write(STATE, chunk, &table.keys()[at], &table.values()[at], |_| {})
            })?,
            false if !snapshot.names_removed() => true,
            false => stamps.write_all(snapshot, &mut left, writer, |chunk, at| {
                write_removed((STATE, &[]), chunk, &table.keys()[at])
            })?,
        };
        match is_written {
            true => Ok(self.log.finish()),
            false => Ok(Progress::MADE),
        }
    }
}

impl<K: Key, V> Checkpointed for TableState<K, V> {
    fn states(&mut self) -> Vec<StateShape> {
        self.codecs.iter().map(|it| it.shape(STATE)).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        if let Some(tracking) = &mut self.tracking {
            tracking.log.take_snapshot(snapshot);
        }
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let (Some(tracking), Some(codecs)) = (&mut self.tracking, &self.codecs) else {
            return Ok(Progress::DONE);
        };
        let written = tracking.write_snapshot(&self.table, codecs, writer);
        if written.is_err() {
            tracking.log.end();
        }
        written
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(tracking) = &mut self.tracking {
            tracking.log.commit(epoch);
        }
        Ok(Progress::DONE)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(tracking) = &mut self.tracking {
            tracking.log.abort(epoch);
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let Some(codecs) = self.codecs.as_ref().filter(|_| self.tracking.is_some()) else {
                return Err(RestoredState::unknown(&entry));
            };
            let (key, value, _) = codecs.read(STATE, &entry)?;
            let place = self.table.len() as u32;
            if self.table.get_or_insert(Cow::Owned(key), || value).0 != place {
                return Err(duplicate_entry());
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some(tracking) = &mut self.tracking {
            tracking.stamps = ChangeStamps::restored(self.table.len());
        }
        Ok(Progress::DONE)
    }
}

impl<K: Key, V> fmt::Debug for TableState<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableState({} keys)", self.table.len())
    }
}
