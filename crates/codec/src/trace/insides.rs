//! What a type gets of structs, lists, maps and enums while it is watched.

use serde::de::value::{BorrowedStrDeserializer, U64Deserializer};
use serde::de::{DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::Why;
use super::asks::Watcher;
use super::tree::{NodeId, Tree};

/// Values one behind the other.
pub(super) struct Parts<'t> {
    tree: &'t mut Tree,
    left: std::vec::IntoIter<NodeId>,
}

impl<'t> Parts<'t> {
    pub(super) fn of(tree: &'t mut Tree, parts: Vec<NodeId>) -> Self {
        Parts {
            tree,
            left: parts.into_iter(),
        }
    }
}

impl SeqAccess<'static> for Parts<'_> {
    type Error = Why;

    fn next_element_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Why> {
        let Some(node) = self.left.next() else {
            return Ok(None);
        };
        seed.deserialize(Watcher::of(self.tree, node)).map(Some)
    }
}

/// An entry of a map, or none.
pub(super) struct Entry<'t> {
    tree: &'t mut Tree,
    left: Option<(NodeId, NodeId)>,
    value: NodeId,
}

impl<'t> Entry<'t> {
    pub(super) fn of(tree: &'t mut Tree, entry: Option<(NodeId, NodeId)>) -> Self {
        Entry {
            tree,
            value: entry.map_or(Tree::ROOT, |(_, value)| value),
            left: entry,
        }
    }
}

impl MapAccess<'static> for Entry<'_> {
    type Error = Why;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Why> {
        let Some((key, _)) = self.left.take() else {
            return Ok(None);
        };
        seed.deserialize(Watcher::of(self.tree, key)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<T::Value, Why> {
        seed.deserialize(Watcher::of(self.tree, self.value))
    }
}

/// Some fields of a struct.
pub(super) struct Fields<'t> {
    tree: &'t mut Tree,
    names: &'static [&'static str],
    fields: Vec<NodeId>,
    offer: std::vec::IntoIter<usize>,
    at: usize,
}

impl<'t> Fields<'t> {
    pub(super) fn of(
        tree: &'t mut Tree,
        names: &'static [&'static str],
        fields: Vec<NodeId>,
        offer: Vec<usize>,
    ) -> Self {
        Fields {
            tree,
            names,
            fields,
            offer: offer.into_iter(),
            at: 0,
        }
    }
}

impl MapAccess<'static> for Fields<'_> {
    type Error = Why;

    fn next_key_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Why> {
        let Some(at) = self.offer.next() else {
            return Ok(None);
        };
        self.at = at;
        let name = self.names.get(at).copied().unwrap_or_default();
        seed.deserialize(BorrowedStrDeserializer::new(name))
            .map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<T::Value, Why> {
        let node = self.fields.get(self.at).copied().ok_or(Why::Enough)?;
        seed.deserialize(Watcher::of(self.tree, node))
    }
}

/// One variant of an enum.
pub(super) struct OneOf<'t> {
    tree: &'t mut Tree,
    called: Called,
}

enum Called {
    /// This name, with what it holds.
    Name(&'static str, NodeId),
    /// The next that is not known of the enum at this place.
    Next(NodeId),
}

impl<'t> OneOf<'t> {
    pub(super) fn named(tree: &'t mut Tree, name: &'static str, holds: NodeId) -> Self {
        let called = Called::Name(name, holds);
        OneOf { tree, called }
    }

    pub(super) fn next(tree: &'t mut Tree, of: NodeId) -> Self {
        let called = Called::Next(of);
        OneOf { tree, called }
    }
}

impl<'t> EnumAccess<'static> for OneOf<'t> {
    type Error = Why;
    type Variant = Holds<'t>;

    fn variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Holds<'t>), Why> {
        let OneOf { tree, called } = self;
        let (name, node, of) = match called {
            Called::Name(name, holds) => (name, holds, None),
            Called::Next(id) => {
                let variants = tree.enum_of(id).map(|of| of.variants.clone());
                let variants = variants.unwrap_or_default();
                let all = variants.iter().enumerate();
                let undone: Vec<usize> = all
                    .filter(|(_, variant)| !tree.is_done(**variant))
                    .map(|(at, _)| at)
                    .collect();
                let of = tree.enum_of(id).ok_or(Why::Enough)?;
                if undone.is_empty() && of.has_aliases.is_none() {
                    // With fewer variants than names the last name's number is none of a variant.
                    let last = of.names.len().saturating_sub(1) as u64;
                    let found = seed.deserialize(U64Deserializer::<Why>::new(last)).is_ok();
                    of.has_aliases = Some(!found);
                    tree.note();
                    return Err(Why::Enough);
                }
                // Until one could be read, those that hold the enum itself have to wait for another.
                let turn = match of.whole {
                    Some(_) => 0,
                    None => of.tries % undone.len().max(1),
                };
                of.tries += 1;
                let next = undone.get(turn).copied().or(of.whole).unwrap_or_default();
                let name = of.names.get(next).copied().ok_or(Why::Enough)?;
                (name, of.variants[next], Some((id, next)))
            }
        };
        let value = seed.deserialize(BorrowedStrDeserializer::new(name))?;
        let holds = Holds {
            tree,
            name,
            node,
            of,
        };
        Ok((value, holds))
    }
}

/// What a variant holds.
pub(super) struct Holds<'t> {
    tree: &'t mut Tree,
    name: &'static str,
    node: NodeId,
    /// The enum, and which of its variants it is.
    of: Option<(NodeId, usize)>,
}

impl Holds<'_> {
    /// Reads it; one that could be read serves as a sample.
    fn read<R>(self, read: impl FnOnce(Watcher<'_>) -> Result<R, Why>) -> Result<R, Why> {
        let value = read(Watcher::of(self.tree, self.node))?;
        if let Some((id, which)) = self.of
            && let Some(of) = self.tree.enum_of(id)
            && of.whole.is_none()
        {
            of.whole = Some(which);
            self.tree.note();
        }
        Ok(value)
    }
}

impl VariantAccess<'static> for Holds<'_> {
    type Error = Why;

    fn unit_variant(self) -> Result<(), Why> {
        self.read(|watcher| {
            watcher.tree.leaf(watcher.node, ardea_core::Schema::Unit);
            Ok(())
        })
    }

    fn newtype_variant_seed<T: DeserializeSeed<'static>>(self, seed: T) -> Result<T::Value, Why> {
        self.read(|watcher| seed.deserialize(watcher))
    }

    fn tuple_variant<V: Visitor<'static>>(self, len: usize, visitor: V) -> Result<V::Value, Why> {
        self.read(|watcher| watcher.parts(len, visitor))
    }

    fn struct_variant<V: Visitor<'static>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Why> {
        let name = self.name;
        self.read(|watcher| watcher.fields(name, names, visitor))
    }
}
