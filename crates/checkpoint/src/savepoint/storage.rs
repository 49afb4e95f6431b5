//! Writing, opening and checking a savepoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::{
    BlockConfig, Folder, PartitionRange, Place, Snapshot, SnapshotStore, StoreConfig,
};
use ardea_core::{Error, ErrorCode, PARTITION_COUNT, PartitionId, Result, StateForm};

use crate::savepoint::copying::{Copied, StateCount, copy};
use crate::savepoint::described::JobStates;
use crate::savepoint::manifest::{SavepointManifest, SavepointState, SavepointVertex};

/// How many bytes of a cut are sorted at a time.
const BUFFER_BYTES: usize = 4 << 20;

/// A savepoint that is there.
#[derive(Clone, Debug)]
pub struct Savepoint {
    manifest: SavepointManifest,
    snapshot: Snapshot,
}

/// What a savepoint is made of.
#[derive(Clone, Copy, Debug)]
pub struct SavepointOf<'a> {
    /// The state itself.
    pub snapshot: &'a Snapshot,
    /// What the program says of it that wrote it.
    pub states: &'a JobStates,
    /// How many threads work at it at most.
    pub threads: usize,
}

/// What a [check](Savepoint::check) has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Entries of all states.
    pub entries: u64,
    /// Their keys and values.
    pub bytes: u64,
}

impl Savepoint {
    /// Writes one into an empty folder. Reads and writes all state; when this returns it is there, and needs nothing else.
    ///
    /// # Errors
    /// `WrongState` if something is in the folder already; what reading a snapshot and writing one returns. Then no savepoint is there,
    /// but files that it would have had may be.
    pub fn write(folder: Arc<dyn Folder>, of: SavepointOf<'_>) -> Result<Self> {
        let place = folder.place();
        if !folder.is_empty()? {
            let what = format!("there is something in {place} already");
            return Err(Error::new(ErrorCode::WrongState, what).hint(
                "give each savepoint a folder of its own; remove this one only if it is what is left of a savepoint that was not finished: that has files block-… and snapshot-…, no savepoint.manifest, and nothing else",
            ));
        }
        let SavepointOf {
            snapshot,
            states,
            threads,
        } = of;
        let config = StoreConfig {
            keep: usize::MAX,
            blocks: BlockConfig {
                buffer_bytes: BUFFER_BYTES,
                ..BlockConfig::default()
            },
            ..StoreConfig::default()
        };
        let store = SnapshotStore::open(Arc::clone(&folder), snapshot.job(), config)?;
        let all = |_: &str, _: Option<&str>| true;
        let copied = copy(
            snapshot,
            &store,
            snapshot.id(),
            &all,
            &BTreeMap::new(),
            threads,
        )?;
        let made = store.snapshot(snapshot.id())?;
        let manifest = describe(&made, &copied, states);
        folder.write(&SavepointManifest::file()?, &manifest.encode()?)?;
        Ok(Savepoint {
            manifest,
            snapshot: made,
        })
    }

    /// Opens the one in this folder. Reads its manifest and that of its snapshot, and changes nothing.
    ///
    /// # Errors
    /// `NoSuchSnapshot` if there is none; `SnapshotDamaged`, `VersionMismatch`, or what reading returns.
    pub fn open(folder: Arc<dyn Folder>) -> Result<Self> {
        let manifest = SavepointManifest::read(&*folder)?;
        let snapshot = Snapshot::open(folder, &manifest.job, manifest.snapshot)?;
        Ok(Savepoint { manifest, snapshot })
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &SavepointManifest {
        &self.manifest
    }

    /// The state itself.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Reads all of it: that each byte is as it was written, and that each state has the entries that the manifest counts.
    ///
    /// # Errors
    /// `SnapshotDamaged`, with what and where; what reading returns.
    pub fn check(&self) -> Result<Checked> {
        self.snapshot.verify()?;
        let mut checked = Checked::default();
        for (vertex, of) in &self.manifest.vertices {
            let instances = self.snapshot.instances(vertex);
            if instances != Some(of.instances) {
                return Err(other(vertex, "", "instances"));
            }
            for (state, of) in &of.states {
                let count = self.count(vertex, state)?;
                if count != of.count {
                    return Err(other(vertex, state, "entries"));
                }
                checked.entries += count.entries;
                checked.bytes += count.key_bytes + count.value_bytes;
            }
        }
        Ok(checked)
    }

    fn count(&self, vertex: &str, state: &str) -> Result<StateCount> {
        let mut count = StateCount::default();
        let mut seen = vec![false; PARTITION_COUNT as usize];
        let mut is_new = |partition: PartitionId| {
            let seen = seen.get_mut(partition.index() as usize);
            seen.is_some_and(|seen| !std::mem::replace(seen, true))
        };
        let partitioned = self.snapshot.entries(vertex, state, PartitionRange::ALL);
        let unpartitioned = self.snapshot.unpartitioned(vertex, state);
        for mut entries in [partitioned, unpartitioned] {
            while let Some(entry) = entries.next_entry()? {
                let is_first = match entry.place {
                    Place::Partition(partition) => is_new(partition),
                    Place::Instance(_) => false,
                };
                count.count(&entry, is_first);
            }
        }
        Ok(count)
    }
}

fn other(vertex: &str, state: &str, what: &str) -> Error {
    let what = format!("the savepoint says of {vertex:?} {state:?} other {what} than there are");
    Error::new(ErrorCode::SnapshotDamaged, what).hint("restore it from a copy; check the disk")
}

fn describe(made: &Snapshot, copied: &Copied, states: &JobStates) -> SavepointManifest {
    let vertices = made.vertices().map(|name| {
        let told = states.vertices.get(name);
        let counts = copied.states.get(name).into_iter().flatten();
        let mut vertex = SavepointVertex {
            instances: made.instances(name).unwrap_or(1),
            has_generated_name: told.is_some_and(|told| told.has_generated_name),
            states: counts
                .map(|(state, count)| {
                    let state_of = SavepointState {
                        // What nobody has told of is the business of whoever wrote it.
                        form: StateForm::Own,
                        count: *count,
                    };
                    (state.clone(), state_of)
                })
                .collect(),
        };
        for (state, form) in told.iter().flat_map(|told| &told.states) {
            let of = vertex.states.entry(state.clone());
            let of = of.or_insert_with(|| SavepointState {
                form: StateForm::Own,
                count: StateCount::default(),
            });
            of.form = form.clone();
        }
        (name.to_string(), vertex)
    });
    SavepointManifest {
        ardea: env!("CARGO_PKG_VERSION").to_string(),
        id: fresh_id(),
        job: made.job().to_string(),
        snapshot: made.id(),
        manifest: made.file().to_string(),
        at_micros: made.at().as_micros(),
        vertices: vertices.collect(),
    }
}

/// One that no other savepoint has.
fn fresh_id() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The keys of every state are random in a process, and no two of its states have the same.
    let half = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(), half())
}
