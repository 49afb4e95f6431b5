//! Layers of a vertex' state. A layer has the entries that the snapshots of one epoch add to the
//! state.
//!
//! The state of a vertex is a chain of layers, oldest first. The newest entry of a key is valid. A
//! layer can also replace all older entries of some slots (partitions or instances), as a full
//! snapshot does in the partitions of its instance. The chain can therefore be read regardless of
//! the parallelism at which each layer was written. Blocks are never moved.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::store::block::BlockRef;
use crate::store::partitions::{Space, Span};
use crate::store::{CheckpointId, PartitionRange, SnapshotKind, StateHandle};

/// A layer of a vertex' state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Layer {
    /// The checkpoint that added the layer; for a compacted layer, that of its newest input.
    pub from: CheckpointId,
    /// The number of layers that it was compacted from; one for an original layer.
    pub folded: u32,
    /// The slots in which the layer replaces all older entries.
    pub replaces: Replaces,
    /// The blocks of each state. A later block takes precedence over earlier ones.
    pub states: BTreeMap<String, Vec<BlockRef>>,
}

/// The slots (partitions or instances) in which a layer replaces all older entries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Replaces {
    /// All slots.
    pub everything: bool,
    /// The replaced partitions, unless all slots are.
    pub partitions: Vec<PartitionRange>,
    /// The instances whose unpartitioned entries are replaced, unless all slots are.
    pub instances: BTreeSet<u32>,
}

impl Replaces {
    pub fn has(&self, of: Space, slot: u32) -> bool {
        self.everything
            || match of {
                Space::Partitions => self.partitions.iter().any(|range| range.has(slot)),
                Space::Instances => self.instances.contains(&slot),
            }
    }

    fn is_nothing(&self) -> bool {
        !self.everything && self.partitions.is_empty() && self.instances.is_empty()
    }

    /// Adds the slots that a newer layer replaces.
    fn add(&mut self, newer: &Replaces) {
        self.everything |= newer.everything;
        for range in &newer.partitions {
            if !self.partitions.contains(range) {
                self.partitions.push(*range);
            }
        }
        self.instances.extend(&newer.instances);
    }
}

impl Layer {
    /// Creates the layer of one vertex from its snapshots.
    pub fn of(from: CheckpointId, snapshots: &[&StateHandle]) -> Self {
        let mut replaces = Replaces {
            everything: snapshots
                .iter()
                .all(|snapshot| matches!(snapshot.kind, SnapshotKind::Full { .. })),
            ..Replaces::default()
        };
        let mut states: BTreeMap<String, Vec<BlockRef>> = BTreeMap::new();
        for snapshot in snapshots {
            if let (SnapshotKind::Full { partitions }, false) = (snapshot.kind, replaces.everything)
            {
                replaces
                    .partitions
                    .extend((!partitions.is_empty()).then_some(partitions));
                replaces.instances.insert(snapshot.of.instance);
            }
            for (state, blocks) in &snapshot.states {
                states
                    .entry(state.clone())
                    .or_default()
                    .extend(blocks.iter().cloned());
            }
        }
        Layer {
            from,
            folded: 1,
            replaces,
            states,
        }
    }

    pub fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        self.states.values().flatten()
    }

    pub fn bytes(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.bytes)).sum()
    }

    /// Returns true if the layer has entries without a partition.
    pub fn has_unpartitioned(&self) -> bool {
        self.blocks()
            .any(|block| block.places.of == Space::Instances)
    }
}

/// A compacted layer, ready to replace its inputs.
#[derive(Clone, Debug)]
pub(crate) struct CompactedLayer {
    /// The checkpoints of the input layers, which are adjacent in a chain; oldest first, never
    /// empty.
    pub from: Vec<CheckpointId>,
    /// True if no layer was older than the inputs, so that tombstones were dropped.
    pub is_oldest: bool,
    /// The blocks of each state.
    pub states: BTreeMap<String, Vec<BlockRef>>,
}

/// Returns a layer that combines `layers`, with the blocks `states`; `None` if there are no layers.
fn union(layers: &[Layer], states: BTreeMap<String, Vec<BlockRef>>) -> Option<Layer> {
    let (first, newer) = layers.split_first()?;
    let mut union = Layer {
        states,
        ..first.clone()
    };
    for layer in newer {
        union.from = layer.from;
        union.folded += layer.folded;
        union.replaces.add(&layer.replaces);
    }
    Some(union)
}

/// Replaces the input layers in a chain by the compacted layer. Returns false if the chain does not
/// contain the inputs.
///
/// Except for dropped outdated state, a layer is always preceded by the same layers, so the newest
/// input identifies the others. Older inputs may have been pruned meanwhile.
pub(crate) fn put_folded(chain: &mut Vec<Layer>, folded: &CompactedLayer) -> bool {
    let Some(newest) = folded.from.last() else {
        return false;
    };
    let Some(last) = chain.iter().position(|layer| layer.from == *newest) else {
        return false;
    };
    let is_one_of_them = |layer: &Layer| folded.from.contains(&layer.from);
    let first = chain[..=last]
        .iter()
        .position(is_one_of_them)
        .unwrap_or(last);
    let is_as_it_was =
        chain[first..=last].iter().all(is_one_of_them) && (first == 0 || !folded.is_oldest);
    if !is_as_it_was {
        return false;
    }
    // Outdated state is dropped from the oldest layer on. If no input layer has a state any more,
    // the compacted blocks of this state are outdated too.
    let mut states = folded.states.clone();
    states.retain(|state, _| {
        let mut layers = chain[first..=last].iter();
        layers.any(|layer| layer.states.contains_key(state))
    });
    let Some(layer) = union(&chain[first..=last], states) else {
        return false;
    };
    chain.splice(first..=last, [layer]);
    true
}

/// Drops the outdated entries of `state`: those in layers older than the checkpoint `before`.
///
/// The drop always affects a prefix of the chain, so no older entry becomes valid again.
pub(crate) fn drop_outdated(chain: &mut [Layer], state: &str, before: CheckpointId) {
    let older = chain.iter_mut().filter(|layer| layer.from < before);
    for layer in older {
        layer.states.remove(state);
    }
}

/// Returns the states that all snapshots declare outdated, each with the earliest of the declared
/// checkpoints.
pub(crate) fn outdated_for_all(snapshots: &[&StateHandle]) -> BTreeMap<String, CheckpointId> {
    let Some((first, others)) = snapshots.split_first() else {
        return BTreeMap::new();
    };
    let for_all = |(state, before): (&String, &CheckpointId)| {
        let before = others.iter().try_fold(*before, |before, snapshot| {
            let own = snapshot.outdated.get(state)?;
            Some(before.min(*own))
        })?;
        Some((state.clone(), before))
    };
    first.outdated.iter().filter_map(for_all).collect()
}

/// Removes blocks whose slots are all replaced by newer layers, and empty layers. The readable
/// state does not change.
pub(crate) fn prune(chain: &mut Vec<Layer>) {
    let mut newer: Vec<Replaces> = Vec::new();
    for layer in chain.iter_mut().rev() {
        layer.states.retain(|_, blocks| {
            blocks.retain(|block| !is_replaced(&block.places, &newer));
            !blocks.is_empty()
        });
        if !layer.replaces.is_nothing() {
            newer.push(layer.replaces.clone());
        }
    }
    let mut has_older = false;
    chain.retain(|layer| {
        let says_nothing = layer.states.is_empty() && (!has_older || layer.replaces.is_nothing());
        has_older |= !says_nothing;
        !says_nothing
    });
    // The oldest layer has no older entries to replace.
    if let Some(oldest) = chain.first_mut() {
        oldest.replaces = Replaces::default();
    }
}

fn is_replaced(places: &Span, newer: &[Replaces]) -> bool {
    if newer.iter().any(|replaces| replaces.everything) {
        return true;
    }
    let is_replaced = |slot| newer.iter().any(|replaces| replaces.has(places.of, slot));
    !newer.is_empty() && (places.first..=places.last).all(is_replaced)
}

/// Returns the range of layers to compact in a chain; `None` if compaction is not due. `bytes` are
/// the sizes of the layers, oldest first.
///
/// Starts with the newest layers, and adds the next older layer while it is at most twice as large
/// as the selected ones together. A layer is thus rewritten only together with others of similar
/// size. An entry is rewritten about as often as the logarithm of the number of checkpoints. At
/// most half of `most` layers remain.
pub(crate) fn to_fold(bytes: &[u64], most: usize) -> Option<Range<usize>> {
    let most = most.max(1);
    if bytes.len() <= most {
        return None;
    }
    let left = (most / 2).max(1);
    let mut first = bytes.len() - 1;
    let mut gathered = bytes[first];
    while first > 0 && (first >= left || bytes[first - 1] <= gathered.saturating_mul(2)) {
        first -= 1;
        gathered += bytes[first];
    }
    Some(first..bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::block::Checksum;
    use ardea_core::Epoch;
    use proptest::prelude::*;

    fn id(epoch: u64) -> CheckpointId {
        CheckpointId::new(1, Epoch(epoch))
    }

    fn block(name: &str, first: u32, last: u32) -> BlockRef {
        BlockRef {
            file: name.to_string(),
            places: Span {
                of: Space::Partitions,
                first,
                last,
            },
            entries: 1,
            bytes: 1,
            unpacked: 1,
            xxh3: Checksum(0),
        }
    }

    fn layer(epoch: u64, replaces: &[(u32, u32)], blocks: &[BlockRef]) -> Layer {
        let range = |(first, end): &(u32, u32)| PartitionRange::new(*first, *end).expect("a range");
        Layer {
            from: id(epoch),
            folded: 1,
            replaces: Replaces {
                partitions: replaces.iter().map(range).collect(),
                ..Replaces::default()
            },
            states: BTreeMap::from([("s".to_string(), blocks.to_vec())]),
        }
    }

    fn epochs(chain: &[Layer]) -> Vec<u64> {
        chain.iter().map(|layer| layer.from.epoch.0).collect()
    }

    #[test]
    fn blocks_go_when_all_their_partitions_are_replaced_by_newer_layers_together() {
        let mut chain = vec![
            layer(
                1,
                &[],
                &[block("a", 0, 9), block("b", 10, 19), block("c", 15, 25)],
            ),
            layer(2, &[(10, 15)], &[]),
            layer(3, &[(15, 20)], &[block("d", 15, 16)]),
        ];
        prune(&mut chain);
        let names: Vec<_> = chain
            .iter()
            .flat_map(Layer::blocks)
            .map(|block| &block.file)
            .collect();
        assert_eq!(names, ["a", "c", "d"]);
        assert_eq!(
            epochs(&chain),
            [1, 2, 3],
            "the second still hides what is older"
        );
        let mut chain = vec![
            layer(1, &[], &[block("a", 0, 9)]),
            layer(2, &[(0, 10)], &[]),
        ];
        prune(&mut chain);
        assert_eq!(chain, []);
    }

    #[test]
    fn a_folded_layer_takes_its_place_only_in_the_history_that_it_was_made_of() {
        let chain: Vec<_> = (1..=5)
            .map(|at| layer(at, &[], &[block("a", 0, 9)]))
            .collect();
        let folded = |from: &[u64], is_oldest| CompactedLayer {
            from: from.iter().map(|epoch| id(*epoch)).collect(),
            is_oldest,
            states: BTreeMap::new(),
        };
        let put = |chain: &[Layer], folded: &CompactedLayer| {
            let mut chain = chain.to_vec();
            put_folded(&mut chain, folded).then(|| epochs(&chain))
        };
        assert_eq!(put(&chain, &folded(&[2, 3, 4], false)), Some(vec![1, 4, 5]));
        assert_eq!(
            put(&chain[1..], &folded(&[1, 2, 3], true)),
            Some(vec![3, 4, 5])
        );
        assert_eq!(
            put(&chain[..3], &folded(&[2, 3, 4], false)),
            None,
            "rolled back"
        );
        assert_eq!(
            put(&chain, &folded(&[2, 3, 4], true)),
            None,
            "something is older"
        );
        assert_eq!(
            put(&chain, &folded(&[2, 4], false)),
            None,
            "something is between"
        );
    }

    #[test]
    fn what_went_while_it_was_folded_does_not_come_back() {
        let newer = |epoch: u64, state: &str| {
            let states = BTreeMap::from([(state.to_string(), vec![block("b", 0, 9)])]);
            Layer {
                states,
                ..layer(epoch, &[], &[])
            }
        };
        let folded = CompactedLayer {
            from: vec![id(1), id(2)],
            is_oldest: true,
            states: ["s", "t"]
                .map(|state| (state.to_string(), vec![block("f", 0, 9)]))
                .into(),
        };
        let states = |before: u64| {
            let mut chain = vec![newer(1, "s"), newer(2, "t"), newer(3, "s")];
            drop_outdated(&mut chain, "s", id(before));
            assert!(put_folded(&mut chain, &folded));
            let names = chain.into_iter().flat_map(|layer| layer.states.into_keys());
            names.collect::<Vec<_>>()
        };
        assert_eq!(states(1), ["s", "t", "s"]);
        assert_eq!(states(2), ["t", "s"]);
        assert_eq!(states(4), ["t"]);
    }

    #[test]
    fn something_is_outdated_when_all_instances_say_so_and_as_far_as_all_do() {
        let snapshot = |instance, outdated: &[(&str, u64)]| {
            let of = crate::store::SnapshotOwner {
                checkpoint: id(9),
                vertex: "v".to_string(),
                instance,
                instances: 2,
            };
            let named = |(state, epoch): &(&str, u64)| (state.to_string(), id(*epoch));
            StateHandle::unchanged(of).outdating(outdated.iter().map(named).collect())
        };
        let first = snapshot(0, &[("s", 7), ("t", 9), ("u", 2)]);
        let second = snapshot(1, &[("s", 4), ("u", 5)]);
        let outdated = outdated_for_all(&[&first, &second]);
        let expected = [("s", 4), ("u", 2)].map(|(state, epoch)| (state.to_string(), id(epoch)));
        assert_eq!(outdated, BTreeMap::from(expected));
        let read = StateHandle::from_bytes(&first.to_bytes().expect("written")).expect("read");
        assert_eq!(read, first);
    }

    proptest! {
        #[test]
        fn chains_stay_short_and_entries_are_seldom_written_again(
            base in 0u64..100_000, increments in proptest::collection::vec(1u64..200, 1..400), most in 1usize..12,
        ) {
            let mut chain = vec![base];
            let (mut handed, mut written) = (base, 0);
            for bytes in increments {
                chain.push(bytes);
                handed += bytes;
                if let Some(range) = to_fold(&chain, most) {
                    let sum = chain[range.clone()].iter().sum();
                    written += sum;
                    chain.splice(range, [sum]);
                }
                prop_assert!(chain.len() <= most);
            }
            if most >= 8 {
                prop_assert!(written <= handed * 20, "{written} of {handed}");
            }
        }
    }
}
