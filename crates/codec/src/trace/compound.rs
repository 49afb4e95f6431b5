//! Samples of structs, lists, maps and enums for a traced type.

use serde::de::value::{BorrowedStrDeserializer, U64Deserializer};
use serde::de::{DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::PassEnd;
use super::sampling_deserializer::SamplingDeserializer;
use super::tree::{NodeId, TypeTree};

/// A sequence of values.
pub(super) struct SampleSequence<'t> {
    tree: &'t mut TypeTree,
    left: std::vec::IntoIter<NodeId>,
}

impl<'t> SampleSequence<'t> {
    pub(super) fn of(tree: &'t mut TypeTree, parts: Vec<NodeId>) -> Self {
        SampleSequence {
            tree,
            left: parts.into_iter(),
        }
    }
}

impl SeqAccess<'static> for SampleSequence<'_> {
    type Error = PassEnd;

    fn next_element_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, PassEnd> {
        let Some(node) = self.left.next() else {
            return Ok(None);
        };
        seed.deserialize(SamplingDeserializer::of(self.tree, node))
            .map(Some)
    }
}

/// At most one entry of a map.
pub(super) struct SampleMap<'t> {
    tree: &'t mut TypeTree,
    left: Option<(NodeId, NodeId)>,
    value: NodeId,
}

impl<'t> SampleMap<'t> {
    pub(super) fn of(tree: &'t mut TypeTree, entry: Option<(NodeId, NodeId)>) -> Self {
        SampleMap {
            tree,
            value: entry.map_or(TypeTree::ROOT, |(_, value)| value),
            left: entry,
        }
    }
}

impl MapAccess<'static> for SampleMap<'_> {
    type Error = PassEnd;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, PassEnd> {
        let Some((key, _)) = self.left.take() else {
            return Ok(None);
        };
        seed.deserialize(SamplingDeserializer::of(self.tree, key))
            .map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, PassEnd> {
        seed.deserialize(SamplingDeserializer::of(self.tree, self.value))
    }
}

/// A selection of a struct's fields.
pub(super) struct SampleFields<'t> {
    tree: &'t mut TypeTree,
    names: &'static [&'static str],
    fields: Vec<NodeId>,
    offer: std::vec::IntoIter<usize>,
    at: usize,
}

impl<'t> SampleFields<'t> {
    pub(super) fn of(
        tree: &'t mut TypeTree,
        names: &'static [&'static str],
        fields: Vec<NodeId>,
        offer: Vec<usize>,
    ) -> Self {
        SampleFields {
            tree,
            names,
            fields,
            offer: offer.into_iter(),
            at: 0,
        }
    }
}

impl MapAccess<'static> for SampleFields<'_> {
    type Error = PassEnd;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, PassEnd> {
        let Some(at) = self.offer.next() else {
            return Ok(None);
        };
        self.at = at;
        let name = self.names.get(at).copied().unwrap_or_default();
        seed.deserialize(BorrowedStrDeserializer::new(name))
            .map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, PassEnd> {
        let node = self.fields.get(self.at).copied().ok_or(PassEnd::Enough)?;
        seed.deserialize(SamplingDeserializer::of(self.tree, node))
    }
}

/// One variant of an enum.
pub(super) struct SampleEnum<'t> {
    tree: &'t mut TypeTree,
    called: SampleVariant,
}

enum SampleVariant {
    /// The variant of this name, and the node of its content.
    Name(&'static str, NodeId),
    /// The next unknown variant of the enum at this node.
    Next(NodeId),
}

impl<'t> SampleEnum<'t> {
    pub(super) fn named(tree: &'t mut TypeTree, name: &'static str, holds: NodeId) -> Self {
        let called = SampleVariant::Name(name, holds);
        SampleEnum { tree, called }
    }

    pub(super) fn next(tree: &'t mut TypeTree, of: NodeId) -> Self {
        let called = SampleVariant::Next(of);
        SampleEnum { tree, called }
    }
}

impl<'t> EnumAccess<'static> for SampleEnum<'t> {
    type Error = PassEnd;
    type Variant = SampleContent<'t>;

    fn variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<(T::Value, SampleContent<'t>), PassEnd> {
        let SampleEnum { tree, called } = self;
        let (name, node, of) = match called {
            SampleVariant::Name(name, holds) => (name, holds, None),
            SampleVariant::Next(id) => {
                let variants = tree.enum_of(id).map(|of| of.variants.clone());
                let variants = variants.unwrap_or_default();
                let all = variants.iter().enumerate();
                let undone: Vec<usize> = all
                    .filter(|(_, variant)| !tree.is_done(**variant))
                    .map(|(at, _)| at)
                    .collect();
                let of = tree.enum_of(id).ok_or(PassEnd::Enough)?;
                if undone.is_empty() && of.has_aliases.is_none() {
                    // With fewer variants than names, the index of the last name is not a variant.
                    let last = of.names.len().saturating_sub(1) as u64;
                    let found = seed
                        .deserialize(U64Deserializer::<PassEnd>::new(last))
                        .is_ok();
                    of.has_aliases = Some(!found);
                    tree.record_fact();
                    return Err(PassEnd::Enough);
                }
                // Until a variant has been read, all are tried in turn: a variant that contains the
                // enum itself needs another variant as a sample.
                let turn = match of.readable {
                    Some(_) => 0,
                    None => of.tries % undone.len().max(1),
                };
                of.tries += 1;
                let next = undone
                    .get(turn)
                    .copied()
                    .or(of.readable)
                    .unwrap_or_default();
                let name = of.names.get(next).copied().ok_or(PassEnd::Enough)?;
                (name, of.variants[next], Some((id, next)))
            }
        };
        let value = seed.deserialize(BorrowedStrDeserializer::new(name))?;
        let holds = SampleContent {
            tree,
            name,
            node,
            of,
        };
        Ok((value, holds))
    }
}

/// The content of an enum variant.
pub(super) struct SampleContent<'t> {
    tree: &'t mut TypeTree,
    name: &'static str,
    node: NodeId,
    /// The enum and the index of the variant.
    of: Option<(NodeId, usize)>,
}

impl SampleContent<'_> {
    /// Reads the content. A variant that can be read serves as a sample.
    fn read<R>(
        self,
        read: impl FnOnce(SamplingDeserializer<'_>) -> Result<R, PassEnd>,
    ) -> Result<R, PassEnd> {
        let value = read(SamplingDeserializer::of(self.tree, self.node))?;
        if let Some((id, which)) = self.of
            && let Some(of) = self.tree.enum_of(id)
            && of.readable.is_none()
        {
            of.readable = Some(which);
            self.tree.record_fact();
        }
        Ok(value)
    }
}

impl VariantAccess<'static> for SampleContent<'_> {
    type Error = PassEnd;

    fn unit_variant(self) -> Result<(), PassEnd> {
        self.read(|watcher| {
            watcher.tree.leaf(watcher.node, ardea_core::Schema::Unit);
            Ok(())
        })
    }

    fn newtype_variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<T::Value, PassEnd> {
        self.read(|watcher| seed.deserialize(watcher))
    }

    fn tuple_variant<V: Visitor<'static>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.read(|watcher| watcher.parts(len, visitor))
    }

    fn struct_variant<V: Visitor<'static>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        let name = self.name;
        self.read(|watcher| watcher.fields(name, names, visitor))
    }
}
