//! Writing, opening and checking a savepoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::{
    BlockConfig, Checkpoint, CheckpointStore, KeySlot, ObjectStore, PartitionRange, StoreConfig,
};
use ardea_core::{Error, ErrorCode, PARTITION_COUNT, PartitionId, Result, StateForm};

use crate::savepoint::copy::{Copied, StateCount, copy};
use crate::savepoint::job_schema::JobStateSchema;
use crate::savepoint::manifest::{SavepointManifest, SavepointState, SavepointVertex};

/// The size of a sort buffer in bytes.
const BUFFER_BYTES: usize = 4 << 20;

/// An existing savepoint, opened for reading.
#[derive(Clone, Debug)]
pub struct Savepoint {
    manifest: SavepointManifest,
    checkpoint: Checkpoint,
}

/// The input of [`Savepoint::write`].
#[derive(Clone, Copy, Debug)]
pub struct SavepointOf<'a> {
    /// The checkpoint with the state to copy.
    pub checkpoint: &'a Checkpoint,
    /// The state schema of the program that wrote the checkpoint.
    pub states: &'a JobStateSchema,
    /// The maximum number of threads that copy state.
    pub threads: usize,
}

/// The result of a [check](Savepoint::check).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// The number of entries of all states.
    pub entries: u64,
    /// The bytes of the keys and values of these entries.
    pub bytes: u64,
}

impl Savepoint {
    /// Writes a savepoint to an empty folder. Reads and writes all state. The savepoint is durable
    /// and self-contained when this returns.
    ///
    /// # Errors
    /// `WrongState` if the folder is not empty; those of reading and writing a checkpoint. After an
    /// error there is no savepoint, but some of its files may remain.
    pub fn write(folder: Arc<dyn ObjectStore>, of: SavepointOf<'_>) -> Result<Self> {
        let place = folder.place();
        if !folder.is_empty()? {
            let what = format!("there is something in {place} already");
            return Err(Error::new(ErrorCode::WrongState, what).hint(
                "use a new folder for each savepoint; remove this one only if it contains an unfinished savepoint: files block-… and checkpoint-…, no savepoint.manifest, and nothing else",
            ));
        }
        let SavepointOf {
            checkpoint,
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
        let store = CheckpointStore::open(Arc::clone(&folder), checkpoint.job(), config)?;
        let all = |_: &str, _: Option<&str>| true;
        let copied = copy(
            checkpoint,
            &store,
            checkpoint.id(),
            &all,
            &BTreeMap::new(),
            threads,
        )?;
        let made = store.checkpoint(checkpoint.id())?;
        let manifest = describe(&made, &copied, states);
        folder.write(&SavepointManifest::file()?, &manifest.encode()?)?;
        Ok(Savepoint {
            manifest,
            checkpoint: made,
        })
    }

    /// Opens the savepoint in this folder. Reads the manifests of the savepoint and its checkpoint.
    /// Changes nothing.
    ///
    /// # Errors
    /// `NoSuchCheckpoint` if the folder has no savepoint; `CheckpointDamaged`, `VersionMismatch`;
    /// those of reading.
    pub fn open(folder: Arc<dyn ObjectStore>) -> Result<Self> {
        let manifest = SavepointManifest::read(&*folder)?;
        let checkpoint = Checkpoint::open(folder, &manifest.job, manifest.checkpoint)?;
        Ok(Savepoint {
            manifest,
            checkpoint,
        })
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &SavepointManifest {
        &self.manifest
    }

    /// Returns the checkpoint with the state.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Reads and verifies all files, and compares the entries of each state with the counts in the
    /// manifest.
    ///
    /// # Errors
    /// `CheckpointDamaged` with the state and the differing counts; those of reading.
    pub fn check(&self) -> Result<Checked> {
        self.checkpoint.verify()?;
        let mut checked = Checked::default();
        for (vertex, of) in &self.manifest.vertices {
            let instances = self.checkpoint.instances(vertex);
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
        let partitioned = self.checkpoint.entries(vertex, state, PartitionRange::ALL);
        let unpartitioned = self.checkpoint.unpartitioned(vertex, state);
        for mut entries in [partitioned, unpartitioned] {
            while let Some(entry) = entries.next_entry()? {
                let is_first = match entry.place {
                    KeySlot::Partition(partition) => is_new(partition),
                    KeySlot::Instance(_) => false,
                };
                count.count(&entry, is_first);
            }
        }
        Ok(count)
    }
}

fn other(vertex: &str, state: &str, what: &str) -> Error {
    let what = format!(
        "the number or contents of {what} of {vertex:?} {state:?} differ from the savepoint's manifest"
    );
    Error::new(ErrorCode::CheckpointDamaged, what).hint("restore it from a copy; check the disk")
}

fn describe(made: &Checkpoint, copied: &Copied, states: &JobStateSchema) -> SavepointManifest {
    let vertices = made.vertices().map(|name| {
        let told = states.vertices.get(name);
        let counts = copied.states.get(name).into_iter().flatten();
        let mut vertex = SavepointVertex {
            instances: made.instances(name).unwrap_or(1),
            has_generated_name: told.is_some_and(|told| told.has_generated_name),
            states: counts
                .map(|(state, count)| {
                    let state_of = SavepointState {
                        // Undeclared states have a form that only their owner knows.
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
        checkpoint: made.id(),
        manifest: made.file().to_string(),
        at_micros: made.at().as_micros(),
        vertices: vertices.collect(),
    }
}

fn fresh_id() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Each `RandomState` has different random keys, in every process.
    let half = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(), half())
}
