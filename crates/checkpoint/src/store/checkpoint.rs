//! Read access to a committed checkpoint.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Result, Timestamp};

use crate::store::block;
use crate::store::block_cache::BlockCache;
use crate::store::failure::no_such;
use crate::store::file_name::StoredName;
use crate::store::manifest::Manifest;
use crate::store::merge::{Entries, Entry, Merge, MergeFilter};
use crate::store::parallel::in_parallel;
use crate::store::partitions::Space;
use crate::store::{CheckpointId, CheckpointReport, FileName, ObjectStore, PartitionRange};

/// An estimate of the amount of data in a range of partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// The number of entries.
    pub entries: u64,
    /// The uncompressed bytes of these entries.
    pub bytes: u64,
    /// The uncompressed bytes of all blocks with entries of one partition: the amount of data read
    /// for a single partition.
    pub bytes_around: u64,
}

/// A committed checkpoint. Cloning is cheap; clones can be read concurrently.
///
/// While a value from a [`CheckpointStore`](crate::store::CheckpointStore) exists, that store does
/// not garbage-collect the checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    folder: Arc<dyn ObjectStore>,
    manifest: Arc<Manifest>,
    recent: Option<Arc<BlockCache>>,
}

impl Checkpoint {
    pub(crate) fn new(folder: Arc<dyn ObjectStore>, manifest: Arc<Manifest>) -> Self {
        Checkpoint {
            folder,
            manifest,
            recent: None,
        }
    }

    /// Enables a block cache of 64 MiB, for reading a few partitions at a time: adjacent partitions
    /// share blocks. Clones share the cache.
    #[must_use]
    pub fn read_in_pieces(mut self) -> Self {
        self.recent.get_or_insert_default();
        self
    }

    /// Opens a checkpoint by reading its manifest, in a process that only restores instances. The
    /// [`CheckpointStore`](crate::store::CheckpointStore) of the job's leader must hold the same
    /// checkpoint meanwhile, so that it is not garbage-collected.
    ///
    /// # Errors
    /// `NoSuchCheckpoint`; `CheckpointDamaged`, `VersionMismatch` or `WrongCluster` if its manifest
    /// cannot be used; those of [`ObjectStore::read`].
    pub fn open(folder: Arc<dyn ObjectStore>, job: &str, id: CheckpointId) -> Result<Self> {
        let file = folder.read(&StoredName::Manifest(id).file())?;
        let file = file.ok_or_else(|| no_such(id, &folder.place()))?;
        let manifest = Manifest::decode(id, job, &file, &folder.place())?;
        Ok(Checkpoint::new(folder, Arc::new(manifest)))
    }

    /// Returns the name of the job.
    pub fn job(&self) -> &str {
        &self.manifest.job
    }

    /// Returns the id of the checkpoint.
    pub fn id(&self) -> CheckpointId {
        self.manifest.checkpoint
    }

    /// Returns the file name of its manifest.
    pub fn file(&self) -> FileName {
        self.manifest.file()
    }

    /// Returns the commit time of the checkpoint.
    pub fn at(&self) -> Timestamp {
        self.manifest.at()
    }

    /// Returns the names of the vertices with snapshots, including empty snapshots.
    pub fn vertices(&self) -> impl Iterator<Item = &str> {
        self.manifest.vertices.keys().map(String::as_str)
    }

    /// Returns the parallelism of a vertex; `None` if the checkpoint does not have this vertex.
    pub fn instances(&self, vertex: &str) -> Option<u32> {
        let vertex = self.manifest.vertices.get(vertex)?;
        Some(vertex.instances)
    }

    /// Returns the state names of a vertex, sorted.
    pub fn states(&self, vertex: &str) -> Vec<&str> {
        let layers = self.layers(vertex).iter();
        let mut states: Vec<_> = layers
            .flat_map(|layer| layer.states.keys().map(String::as_str))
            .collect();
        states.sort_unstable();
        states.dedup();
        states
    }

    /// Returns the entries of a state in these partitions, by ascending partition and key. Empty
    /// for an unknown vertex or state. Blocks are read later, on demand.
    pub fn entries(&self, vertex: &str, state: &str, partitions: PartitionRange) -> Entries {
        let slots = partitions.first()..partitions.end();
        self.merge(vertex, state, Space::Partitions, slots)
    }

    /// Returns the entries of a state without a partition, by ascending instance and key.
    pub fn unpartitioned(&self, vertex: &str, state: &str) -> Entries {
        self.merge(vertex, state, Space::Instances, 0..u32::MAX)
    }

    /// Estimates the data of a vertex in these partitions, from the sizes and slot ranges of its
    /// blocks. Replaced entries are counted too. Reads no blocks.
    pub fn extent(&self, vertex: &str, partitions: PartitionRange) -> Extent {
        let layers = self.layers(vertex).iter();
        let blocks = layers.flat_map(|layer| layer.states.values().flatten());
        let own = blocks.filter(|block| block.places.of == Space::Partitions);
        let mut extent = Extent::default();
        for block in own {
            let places = &block.places;
            let end = places.last.saturating_add(1);
            let common = end.min(partitions.end());
            let common = u64::from(common.saturating_sub(places.first.max(partitions.first())));
            let all = u64::from(end.saturating_sub(places.first)).max(1);
            extent.entries += u64::from(block.entries) * common / all;
            extent.bytes += u64::from(block.unpacked) * common / all;
            extent.bytes_around += u64::from(block.unpacked) * common;
        }
        extent.bytes_around /= u64::from(partitions.len()).max(1);
        extent
    }

    /// Calls `visit` with the entries of a state in these partitions, from up to `threads` threads.
    /// Each thread processes ranges of partitions: the entries of a partition are visited by
    /// ascending key, on one thread.
    ///
    /// # Errors
    /// The first error of [`Entries::next_entry`] or `visit`. Some entries have been visited then.
    pub fn visit_in_parallel(
        &self,
        vertex: &str,
        state: &str,
        partitions: PartitionRange,
        threads: usize,
        visit: &(dyn Fn(Entry<'_>) -> Result<()> + Sync),
    ) -> Result<()> {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX).max(1);
        // More ranges than threads balance the load. There are not many more, since blocks on a
        // border between two ranges are read twice.
        let mut ranges = partitions.split(threads.saturating_mul(4));
        ranges.reverse();
        let left = Mutex::new(ranges);
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let work = || -> Result<()> {
            while let Some(range) = next() {
                let mut entries = self.entries(vertex, state, range);
                while let Some(entry) = entries.next_entry()? {
                    visit(entry)?;
                }
            }
            Ok(())
        };
        in_parallel(threads.min(partitions.len().max(1)) as usize, &work)
    }

    /// Reads and verifies all blocks of the checkpoint.
    ///
    /// # Errors
    /// `CheckpointDamaged` with the first damaged or missing block; those of [`ObjectStore::read`].
    pub fn verify(&self) -> Result<()> {
        self.verify_but(&mut HashSet::new())
    }

    /// Verifies the blocks whose names are not in `whole`, and adds these names to `whole`.
    pub(crate) fn verify_but(&self, whole: &mut HashSet<String>) -> Result<()> {
        for block in self.manifest.blocks() {
            if !whole.contains(&block.file) {
                block::read_file(&*self.folder, block)?;
                whole.insert(block.file.clone());
            }
        }
        Ok(())
    }

    /// Returns the sizes and durations of the checkpoint, for display.
    pub fn report(&self) -> CheckpointReport {
        CheckpointReport::of(&self.manifest)
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn layers(&self, vertex: &str) -> &[crate::store::layer::Layer] {
        let vertex = self.manifest.vertices.get(vertex);
        vertex.map_or(&[], |vertex| &vertex.layers)
    }

    fn merge(&self, vertex: &str, state: &str, space: Space, slots: Range<u32>) -> Entries {
        let wanted = MergeFilter {
            job: &self.manifest.job,
            vertex,
            state,
            space,
            slots,
            keep_removed: false,
        };
        let folder = Arc::clone(&self.folder);
        let merge = Merge::new(folder, self.layers(vertex), wanted);
        Entries::new(merge.beside(self.recent.clone()))
    }
}
