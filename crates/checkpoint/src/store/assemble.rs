//! Makes a snapshot of receipts: which cuts fit together, and what is carried over from the snapshot before.

use std::collections::BTreeMap;

use ardea_core::{Result, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::store::block::Checksum;
use crate::store::failure::refused;
use crate::store::file_name::{FileName, StoredName};
use crate::store::layer::{self, Folded, Layer};
use crate::store::manifest::{CutSummary, Manifest, VertexPart};
use crate::store::{CutKind, CutReceipt, SnapshotId};

/// What makes a snapshot.
#[derive(Clone, PartialEq, Debug)]
pub struct Commit {
    /// What it will be called.
    pub id: SnapshotId,
    /// The snapshot that its increments are based on, the last one that was committed or restored; none for the first of a job.
    pub base: Option<SnapshotId>,
    /// The time of day, for people.
    pub at: Timestamp,
    /// The receipts of all instances of all vertices that have any state.
    pub cuts: Vec<CutReceipt>,
}

/// The manifest of a commit; `folded` are layers that may take the place of others, with their vertices.
///
/// # Errors
/// `SnapshotRefused`, if the cuts don't fit together or to the base.
pub(crate) fn assemble(
    job: &str,
    commit: &Commit,
    base: Option<&Manifest>,
    folded: &[(&str, &Folded)],
) -> Result<Manifest> {
    let mut vertices: BTreeMap<&str, Vec<&CutReceipt>> = BTreeMap::new();
    for cut in &commit.cuts {
        vertices.entry(&cut.of.vertex).or_default().push(cut);
    }
    let is_missing = |name: &&String| !vertices.contains_key(name.as_str());
    if let Some(missing) = base.and_then(|base| base.vertices.keys().find(is_missing)) {
        let why = format!("there is none of vertex {missing:?}");
        return Err(refused(commit.id, why));
    }
    let mut parts = BTreeMap::new();
    for (name, mut cuts) in vertices {
        cuts.sort_by_key(|cut| cut.of.instance);
        let before = base.and_then(|base| base.vertices.get(name));
        check(commit, &cuts, before)
            .map_err(|why| refused(commit.id, format!("of vertex {name:?} {why}")))?;
        let mut layers = before.map_or(Vec::new(), |before| before.layers.clone());
        for (_, folded) in folded.iter().filter(|(vertex, _)| *vertex == name) {
            layer::put_folded(&mut layers, folded);
        }
        let layer = Layer::of(commit.id, &cuts);
        // Without a layer of its own a snapshot's chain ends as the one before it does, and what is folded of either takes the other's place: then both have to
        // be the same.
        if layer.blocks().next().is_some() {
            for (state, before) in layer::outdated_for_all(&cuts) {
                layer::let_go(&mut layers, &state, before);
            }
        }
        layers.push(layer);
        layer::prune(&mut layers);
        let part = VertexPart {
            instances: cuts[0].of.instances,
            cut: summary(&cuts),
            layers,
        };
        parts.insert(name.to_string(), part);
    }
    Ok(Manifest {
        job: job.to_string(),
        snapshot: commit.id,
        base: commit.base,
        at_micros: commit.at.as_micros(),
        vertices: parts,
    })
}

/// Whether the cuts of a vertex, by ascending instance, are one of each instance, and fit to what was before.
fn check(commit: &Commit, cuts: &[&CutReceipt], before: Option<&VertexPart>) -> Result<(), String> {
    let instances = cuts[0].of.instances;
    for (instance, cut) in (0..).zip(cuts) {
        if cut.of.instance != instance {
            let found = cut.of.instance;
            return Err(format!(
                "there is a cut of instance {found} where one of {instance} was expected"
            ));
        }
        if cut.of.instances != instances {
            return Err("the cuts disagree about the number of instances".to_string());
        }
        check_cut(commit, cut)?;
    }
    if cuts.len() != instances as usize {
        return Err(format!(
            "there are {} cuts of {instances} instances",
            cuts.len()
        ));
    }
    check_partitions(cuts)?;
    let is_full = |cut: &&CutReceipt| matches!(cut.kind, CutKind::Full { .. });
    if let Some(before) = before.filter(|before| before.instances != instances)
        && !cuts.iter().all(is_full)
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

fn check_cut(commit: &Commit, cut: &CutReceipt) -> Result<(), String> {
    let instance = cut.of.instance;
    if cut.of.snapshot != commit.id {
        return Err(format!(
            "the cut of instance {instance} is for snapshot {}",
            cut.of.snapshot
        ));
    }
    if let CutKind::Increment { since } = cut.kind
        && commit.base != Some(since)
    {
        return Err(format!(
            "the increment of instance {instance} is based on snapshot {since}, and this one is not"
        ));
    }
    let newer = cut.outdated.iter().find(|(_, before)| **before > commit.id);
    if let Some((state, before)) = newer {
        return Err(format!(
            "for instance {instance} all of state {state:?} is outdated that is older than snapshot {before}, which isn't there yet"
        ));
    }
    let is_its_own = |file: &str| {
        let name = FileName::new(file).and_then(|name| StoredName::parse(&name));
        // One that was carried over has blocks that were written for an earlier one.
        let fits = |of: SnapshotId| of.generation == commit.id.generation && of <= commit.id;
        matches!(name, Some(StoredName::Block(block)) if fits(block.snapshot))
    };
    match cut.blocks().find(|block| !is_its_own(&block.file)) {
        Some(block) => Err(format!("{:?} is no block for this snapshot", block.file)),
        None => Ok(()),
    }
}

/// Whether no two full cuts own the same partition.
fn check_partitions(cuts: &[&CutReceipt]) -> Result<(), String> {
    let mut owned: Vec<_> = cuts
        .iter()
        .filter_map(|cut| match cut.kind {
            CutKind::Full { partitions } if !partitions.is_empty() => Some(partitions),
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

fn summary(cuts: &[&CutReceipt]) -> CutSummary {
    let mut sum = CutSummary::default();
    for cut in cuts {
        match cut.kind {
            CutKind::Full { .. } => sum.full += 1,
            CutKind::Increment { .. } => sum.increments += 1,
            CutKind::Unchanged => sum.unchanged += 1,
        }
        sum.took_micros = sum.took_micros.max(cut.took_micros);
        for block in cut.blocks() {
            sum.entries += u64::from(block.entries);
            sum.blocks += 1;
            sum.bytes += u64::from(block.bytes);
            sum.unpacked += u64::from(block.unpacked);
            sum.xxh3 = Checksum(xxh3_64_with_seed(block.file.as_bytes(), sum.xxh3.0));
        }
    }
    sum
}

/// Whether a manifest was made of these receipts, whatever was folded since.
pub(crate) fn is_of(manifest: &Manifest, commit: &Commit) -> bool {
    let mut vertices: BTreeMap<&str, Vec<&CutReceipt>> = BTreeMap::new();
    for cut in &commit.cuts {
        vertices.entry(&cut.of.vertex).or_default().push(cut);
    }
    let is_part = |(name, mut cuts): (&str, Vec<&CutReceipt>)| {
        cuts.sort_by_key(|cut| cut.of.instance);
        let part = manifest.vertices.get(name);
        part.is_some_and(|part| part.cut == summary(&cuts))
    };
    manifest.base == commit.base
        && manifest.vertices.len() == vertices.len()
        && vertices.into_iter().all(is_part)
}
