//! A committed snapshot, as it is read.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Result, Timestamp};

use crate::store::block;
use crate::store::failure::no_such;
use crate::store::file_name::StoredName;
use crate::store::manifest::Manifest;
use crate::store::merge::{Entries, Entry, Merge, Wanted};
use crate::store::parallel::in_parallel;
use crate::store::partitions::Space;
use crate::store::recent::RecentBlocks;
use crate::store::{FileName, Folder, PartitionRange, SnapshotId, SnapshotReport};

/// How much there is of something, about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Entries.
    pub entries: u64,
    /// Bytes that they take, unpacked.
    pub bytes: u64,
    /// Bytes of the blocks in which the entries of one partition are, unpacked: so much is read of those for a single one.
    pub bytes_around: u64,
}

/// A committed snapshot. Cloning is cheap; all clones may be read at the same time.
///
/// One that a [`SnapshotStore`](crate::store::SnapshotStore) gave out is not collected by that store as long as it is held.
#[derive(Clone, Debug)]
pub struct Snapshot {
    folder: Arc<dyn Folder>,
    manifest: Arc<Manifest>,
    recent: Option<Arc<RecentBlocks>>,
}

impl Snapshot {
    pub(crate) fn new(folder: Arc<dyn Folder>, manifest: Arc<Manifest>) -> Self {
        Snapshot {
            folder,
            manifest,
            recent: None,
        }
    }

    /// The same, for whoever reads a few partitions at a time: the blocks that were read last are kept, 64 MiB of them, as partitions that lie beside each other share
    /// them. Clones share them too.
    #[must_use]
    pub fn read_in_pieces(mut self) -> Self {
        self.recent.get_or_insert_default();
        self
    }

    /// Reads the manifest of a snapshot: for a process that restores instances, and neither commits nor collects. The job's
    /// [`SnapshotStore`](crate::store::SnapshotStore) must hold the same snapshot meanwhile.
    ///
    /// # Errors
    /// `NoSuchSnapshot`; `SnapshotDamaged`, `VersionMismatch` or `WrongCluster` if its manifest can't be used; what [`Folder::read`]
    /// returns.
    pub fn open(folder: Arc<dyn Folder>, job: &str, id: SnapshotId) -> Result<Self> {
        let file = folder.read(&StoredName::Manifest(id).file())?;
        let file = file.ok_or_else(|| no_such(id, &folder.place()))?;
        let manifest = Manifest::decode(id, job, &file, &folder.place())?;
        Ok(Snapshot::new(folder, Arc::new(manifest)))
    }

    /// Whose it is.
    pub fn job(&self) -> &str {
        &self.manifest.job
    }

    /// What it is called.
    pub fn id(&self) -> SnapshotId {
        self.manifest.snapshot
    }

    /// The file of its manifest.
    pub fn file(&self) -> FileName {
        self.manifest.file()
    }

    /// When it was committed.
    pub fn at(&self) -> Timestamp {
        self.manifest.at()
    }

    /// The names of the vertices that handed something over, if only that they have no state.
    pub fn vertices(&self) -> impl Iterator<Item = &str> {
        self.manifest.vertices.keys().map(String::as_str)
    }

    /// How many instances a vertex had.
    pub fn instances(&self, vertex: &str) -> Option<u32> {
        let vertex = self.manifest.vertices.get(vertex)?;
        Some(vertex.instances)
    }

    /// The names of a vertex' states, sorted.
    pub fn states(&self, vertex: &str) -> Vec<&str> {
        let layers = self.layers(vertex).iter();
        let mut states: Vec<_> = layers
            .flat_map(|layer| layer.states.keys().map(String::as_str))
            .collect();
        states.sort_unstable();
        states.dedup();
        states
    }

    /// The entries of a state that belong to these partitions, by ascending partition and key. None if there is no such vertex or state.
    /// Reads nothing yet.
    pub fn entries(&self, vertex: &str, state: &str, partitions: PartitionRange) -> Entries {
        let slots = partitions.first()..partitions.end();
        self.merge(vertex, state, Space::Partitions, slots)
    }

    /// The entries of a state that belong to no partition, by ascending instance and key.
    pub fn unpartitioned(&self, vertex: &str, state: &str) -> Entries {
        self.merge(vertex, state, Space::Instances, 0..u32::MAX)
    }

    /// About how many entries a vertex has in these partitions, and how many bytes they take: what its blocks hold, by the share of their
    /// places. Those of keys that were changed since count as often as they are there. Reads nothing.
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

    /// Calls `visit` with the entries of a state that belong to these partitions, from up to `threads` threads at once. Each takes ranges
    /// of partitions; within a partition entries come by ascending key, and from one thread.
    ///
    /// # Errors
    /// The first of [`Entries::next_entry`] and of `visit`; then some entries have been visited and others not.
    pub fn visit_in_parallel(
        &self,
        vertex: &str,
        state: &str,
        partitions: PartitionRange,
        threads: usize,
        visit: &(dyn Fn(Entry<'_>) -> Result<()> + Sync),
    ) -> Result<()> {
        let threads = u32::try_from(threads).unwrap_or(u32::MAX).max(1);
        // More ranges than threads, since some have more entries; not many more, since blocks on a border are read twice.
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

    /// Reads all its blocks and checks them, byte by byte. Costs reading them.
    ///
    /// # Errors
    /// `SnapshotDamaged`, which names the first block that is damaged or missing, or what [`Folder::read`] returns.
    pub fn verify(&self) -> Result<()> {
        self.verify_but(&mut HashSet::new())
    }

    /// The same, but for blocks that are known to be whole; learns those that are.
    pub(crate) fn verify_but(&self, whole: &mut HashSet<String>) -> Result<()> {
        for block in self.manifest.blocks() {
            if !whole.contains(&block.file) {
                block::read_file(&*self.folder, block)?;
                whole.insert(block.file.clone());
            }
        }
        Ok(())
    }

    /// Sizes and durations, for display.
    pub fn report(&self) -> SnapshotReport {
        SnapshotReport::of(&self.manifest)
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn layers(&self, vertex: &str) -> &[crate::store::layer::Layer] {
        let vertex = self.manifest.vertices.get(vertex);
        vertex.map_or(&[], |vertex| &vertex.layers)
    }

    fn merge(&self, vertex: &str, state: &str, space: Space, slots: Range<u32>) -> Entries {
        let wanted = Wanted {
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
