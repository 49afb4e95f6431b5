//! Assembly of a manifest from the snapshots of a commit and the layers of the base checkpoint.

use std::collections::BTreeMap;

use ardea_core::{Result, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::store::block::Checksum;
use crate::store::failure::refused;
use crate::store::file_name::{FileName, StoredName};
use crate::store::layer::{self, CompactedLayer, Layer};
use crate::store::manifest::{Manifest, SnapshotSummary, VertexPart};
use crate::store::{CheckpointId, SnapshotKind, StateHandle};

/// The input of a commit.
#[derive(Clone, PartialEq, Debug)]
pub struct Commit {
    /// The id of the new checkpoint.
    pub id: CheckpointId,
    /// The checkpoint that the increments are based on: the last one committed or restored. `None`
    /// for the first checkpoint of a job.
    pub base: Option<CheckpointId>,
    /// The wall-clock time of the commit, for display.
    pub at: Timestamp,
    /// The handles of the snapshots of all instances of all stateful vertices.
    pub snapshots: Vec<StateHandle>,
}

/// Returns the manifest of a commit. `folded` are compacted layers with their vertices; a compacted
/// layer replaces its input layers.
///
/// # Errors
/// `CheckpointRefused` if the snapshots do not fit each other or the base.
pub(crate) fn assemble(
    job: &str,
    commit: &Commit,
    base: Option<&Manifest>,
    folded: &[(&str, &CompactedLayer)],
) -> Result<Manifest> {
    let mut vertices: BTreeMap<&str, Vec<&StateHandle>> = BTreeMap::new();
    for snapshot in &commit.snapshots {
        vertices
            .entry(&snapshot.of.vertex)
            .or_default()
            .push(snapshot);
    }
    let is_missing = |name: &&String| !vertices.contains_key(name.as_str());
    if let Some(missing) = base.and_then(|base| base.vertices.keys().find(is_missing)) {
        let why = format!("there is none of vertex {missing:?}");
        return Err(refused(commit.id, why));
    }
    let mut parts = BTreeMap::new();
    for (name, mut snapshots) in vertices {
        snapshots.sort_by_key(|snapshot| snapshot.of.instance);
        let before = base.and_then(|base| base.vertices.get(name));
        check(commit, &snapshots, before)
            .map_err(|why| refused(commit.id, format!("of vertex {name:?} {why}")))?;
        let mut layers = before.map_or(Vec::new(), |before| before.layers.clone());
        for (_, folded) in folded.iter().filter(|(vertex, _)| *vertex == name) {
            layer::put_folded(&mut layers, folded);
        }
        let layer = Layer::of(commit.id, &snapshots);
        // Without a new layer, a checkpoint has the same newest layer as its base, so a compacted
        // layer can be put into either chain. Both chains must stay equal, so no state is dropped
        // here.
        if layer.blocks().next().is_some() {
            for (state, before) in layer::outdated_for_all(&snapshots) {
                layer::drop_outdated(&mut layers, &state, before);
            }
        }
        layers.push(layer);
        layer::prune(&mut layers);
        let part = VertexPart {
            instances: snapshots[0].of.instances,
            snapshot: summary(&snapshots),
            layers,
        };
        parts.insert(name.to_string(), part);
    }
    Ok(Manifest {
        job: job.to_string(),
        checkpoint: commit.id,
        base: commit.base,
        at_micros: commit.at.as_micros(),
        vertices: parts,
    })
}

/// Checks that the snapshots of a vertex, sorted by instance, contain one of each instance and fit
/// the base.
fn check(
    commit: &Commit,
    snapshots: &[&StateHandle],
    before: Option<&VertexPart>,
) -> Result<(), String> {
    let instances = snapshots[0].of.instances;
    for (instance, snapshot) in (0..).zip(snapshots) {
        if snapshot.of.instance != instance {
            let found = snapshot.of.instance;
            return Err(format!(
                "there is a snapshot of instance {found} where one of {instance} was expected"
            ));
        }
        if snapshot.of.instances != instances {
            return Err("the snapshots disagree about the number of instances".to_string());
        }
        check_snapshot(commit, snapshot)?;
    }
    if snapshots.len() != instances as usize {
        return Err(format!(
            "there are {} snapshots of {instances} instances",
            snapshots.len()
        ));
    }
    check_partitions(snapshots)?;
    let is_full = |snapshot: &&StateHandle| matches!(snapshot.kind, SnapshotKind::Full { .. });
    if let Some(before) = before.filter(|before| before.instances != instances)
        && !snapshots.iter().all(is_full)
        && before.layers.iter().any(Layer::has_unpartitioned)
    {
        return Err(format!(
            "there were {} instances, now there are {instances}: entries without a partition would be those of other instances; \
             all have to hand over all that they have",
            before.instances
        ));
    }
    Ok(())
}

fn check_snapshot(commit: &Commit, snapshot: &StateHandle) -> Result<(), String> {
    let instance = snapshot.of.instance;
    if snapshot.of.checkpoint != commit.id {
        return Err(format!(
            "the snapshot of instance {instance} is for checkpoint {}",
            snapshot.of.checkpoint
        ));
    }
    if let SnapshotKind::Increment { since } = snapshot.kind
        && commit.base != Some(since)
    {
        return Err(format!(
            "the increment of instance {instance} is based on checkpoint {since}, and this one is not"
        ));
    }
    let newer = snapshot
        .outdated
        .iter()
        .find(|(_, before)| **before > commit.id);
    if let Some((state, before)) = newer {
        return Err(format!(
            "for instance {instance} all of state {state:?} is outdated that is older than checkpoint {before}, which isn't there yet"
        ));
    }
    let is_its_own = |file: &str| {
        let name = FileName::new(file).and_then(|name| StoredName::parse(&name));
        // A carried-over snapshot has blocks that were written for an earlier checkpoint.
        let fits = |of: CheckpointId| of.generation == commit.id.generation && of <= commit.id;
        matches!(name, Some(StoredName::Block(block)) if fits(block.checkpoint))
    };
    match snapshot.blocks().find(|block| !is_its_own(&block.file)) {
        Some(block) => Err(format!("{:?} is no block for this checkpoint", block.file)),
        None => Ok(()),
    }
}

/// Checks that no two full snapshots own the same partition.
fn check_partitions(snapshots: &[&StateHandle]) -> Result<(), String> {
    let mut owned: Vec<_> = snapshots
        .iter()
        .filter_map(|snapshot| match snapshot.kind {
            SnapshotKind::Full { partitions } if !partitions.is_empty() => Some(partitions),
            _ => None,
        })
        .collect();
    owned.sort_by_key(|range| range.first());
    match owned.windows(2).find(|pair| pair[0].overlaps(&pair[1])) {
        Some(pair) => {
            let partition = pair[1].first();
            Err(format!("two instances handed over partition {partition}"))
        }
        None => Ok(()),
    }
}

fn summary(snapshots: &[&StateHandle]) -> SnapshotSummary {
    let mut sum = SnapshotSummary::default();
    for snapshot in snapshots {
        match snapshot.kind {
            SnapshotKind::Full { .. } => sum.full += 1,
            SnapshotKind::Increment { .. } => sum.increments += 1,
            SnapshotKind::Unchanged => sum.unchanged += 1,
        }
        sum.took_micros = sum.took_micros.max(snapshot.took_micros);
        for block in snapshot.blocks() {
            sum.entries += u64::from(block.entries);
            sum.blocks += 1;
            sum.bytes += u64::from(block.bytes);
            sum.unpacked += u64::from(block.unpacked);
            sum.xxh3 = Checksum(xxh3_64_with_seed(block.file.as_bytes(), sum.xxh3.0));
        }
    }
    sum
}

/// Returns true if `manifest` was made from the snapshots of `commit`. Compacted layers are
/// ignored.
pub(crate) fn is_of(manifest: &Manifest, commit: &Commit) -> bool {
    let mut vertices: BTreeMap<&str, Vec<&StateHandle>> = BTreeMap::new();
    for snapshot in &commit.snapshots {
        vertices
            .entry(&snapshot.of.vertex)
            .or_default()
            .push(snapshot);
    }
    let is_part = |(name, mut snapshots): (&str, Vec<&StateHandle>)| {
        snapshots.sort_by_key(|snapshot| snapshot.of.instance);
        let part = manifest.vertices.get(name);
        part.is_some_and(|part| part.snapshot == summary(&snapshots))
    };
    manifest.base == commit.base
        && manifest.vertices.len() == vertices.len()
        && vertices.into_iter().all(is_part)
}
