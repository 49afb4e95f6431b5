//! A deserializer that records the requests of a type and answers with samples.

use std::any::type_name;
use std::cell::{RefCell, RefMut};

use ardea_core::Schema;
use serde::de::value::{
    BorrowedStrDeserializer, MapDeserializer, SeqDeserializer, U64Deserializer,
};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor,
};

use super::PassEnd;
use super::tree::{Kind, Node, NodeId, SAMPLES, TypeTree};

/// Sample strings, one of which a type written as a string may accept.
const TEXTS: [&str; SAMPLES] = [
    "",
    "0",
    "a",
    "127.0.0.1",
    "127.0.0.1:1",
    "00000000-0000-0000-0000-000000000000",
    "1970-01-01T00:00:00Z",
    "1970-01-01",
    "http://a/",
];
/// The sizes of sample byte strings.
const BYTES: [usize; SAMPLES] = [0, 16, 4, 1, 2, 8, 12, 20, 32];

/// The deserializer of one node of a type. Also the variant of an enum with this node as content.
#[derive(Clone, Copy)]
pub(super) struct SamplingDeserializer<'t> {
    tree: &'t RefCell<TypeTree>,
    id: NodeId,
    /// True within a sample of an enclosing enum: variants are not examined, but one that has been
    /// read is chosen. This ends the recursion.
    is_sample: bool,
}

impl<'t> SamplingDeserializer<'t> {
    pub(super) fn root(tree: &'t RefCell<TypeTree>) -> Self {
        SamplingDeserializer {
            tree,
            id: TypeTree::ROOT,
            is_sample: false,
        }
    }

    fn node(self) -> RefMut<'t, Node> {
        RefMut::map(self.tree.borrow_mut(), |tree| &mut tree.nodes[self.id])
    }

    fn is_done(self) -> bool {
        self.tree.borrow().is_done(self.id)
    }

    /// Marks the node as the last one requested.
    fn enter(self) -> Self {
        if !self.is_sample {
            self.tree.borrow_mut().last = self.id;
        }
        self
    }

    /// Records the first request for a value, and returns its parts.
    fn request(self, kind: Kind, count: usize) -> Result<Vec<Self>, PassEnd> {
        let tree = &mut *self.tree.borrow_mut();
        let first = tree.nodes.len();
        let node = &mut tree.nodes[self.id];
        if node.kind == Kind::Unknown {
            node.kind = kind.clone();
            node.parts = first..first + count;
            tree.nodes.resize_with(first + count, || Node {
                parent: self.id,
                ..Node::default()
            });
            tree.has_new_fact = true;
        }
        let node = &tree.nodes[self.id];
        match node.kind == kind {
            true => Ok(node
                .parts
                .clone()
                .map(|id| SamplingDeserializer { id, ..self })
                .collect()),
            false => Err(PassEnd::Enough),
        }
    }

    /// Records a request for a scalar, and returns the index of its sample.
    fn scalar(self, schema: Schema) -> Result<u8, PassEnd> {
        self.request(Kind::Leaf(schema), 0)?;
        if !self.is_sample {
            self.tree.borrow_mut().last_scalar = Some(self.id);
        }
        Ok(self.node().turn.try_into().unwrap_or_default())
    }

    /// Returns the enclosing struct or enum that is the type of this value as well.
    fn enclosing(self, of: (&'static str, &'static str)) -> Option<Self> {
        let id = self.tree.borrow().enclosing(self.id, of)?;
        self.request(Kind::Leaf(Schema::Again(of.1.into())), 0)
            .ok()?;
        Some(SamplingDeserializer { id, ..self })
    }

    /// Returns the name of the enum variant with this content.
    fn variant_name(self) -> &'static str {
        let tree = self.tree.borrow();
        let parent = &tree.nodes[tree.nodes[self.id].parent];
        let name = parent.names.get(self.id - parent.parts.start);
        name.copied().unwrap_or_default()
    }
}

impl IntoDeserializer<'static, PassEnd> for SamplingDeserializer<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self.enter()
    }
}

macro_rules! scalars {
    ($($name:ident $schema:ident |$sample:pat_param| $visit:ident($($value:expr)?);)*) => {$(
        fn $name<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
            let $sample = self.scalar(Schema::$schema)?;
            visitor.$visit($($value)?)
        }
    )*};
}

impl Deserializer<'static> for SamplingDeserializer<'_> {
    type Error = PassEnd;

    scalars! {
        deserialize_bool Bool |n| visit_bool(n > 0);
        deserialize_u8 U8 |n| visit_u8(n);
        deserialize_u16 U16 |n| visit_u16(n.into());
        deserialize_u32 U32 |n| visit_u32(n.into());
        deserialize_u64 U64 |n| visit_u64(n.into());
        deserialize_u128 U128 |n| visit_u128(n.into());
        deserialize_i8 I8 |n| visit_i8(n.try_into().unwrap_or_default());
        deserialize_i16 I16 |n| visit_i16(n.into());
        deserialize_i32 I32 |n| visit_i32(n.into());
        deserialize_i64 I64 |n| visit_i64(n.into());
        deserialize_i128 I128 |n| visit_i128(n.into());
        deserialize_f32 F32 |n| visit_f32(n.into());
        deserialize_f64 F64 |n| visit_f64(n.into());
        deserialize_char Char |n| visit_char((b'a' + n).into());
        deserialize_str Text |n| visit_borrowed_str(TEXTS[usize::from(n)]);
        deserialize_string Text |n| visit_borrowed_str(TEXTS[usize::from(n)]);
        deserialize_bytes Bytes |n| visit_borrowed_bytes(&[0; 32][..BYTES[usize::from(n)]]);
        deserialize_byte_buf Bytes |n| visit_borrowed_bytes(&[0; 32][..BYTES[usize::from(n)]]);
        deserialize_unit Unit |_| visit_unit();
        deserialize_any Any |_| visit_unit();
        deserialize_ignored_any Any |_| visit_unit();
    }

    fn deserialize_unit_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        let mut inner = self.request(Kind::Option, 1)?.into_iter();
        match inner.find(|inner| !inner.is_done()) {
            Some(inner) => visitor.visit_some(inner.enter()),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_seq<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        let inner = self.request(Kind::List, 1)?.into_iter();
        visitor.visit_seq(SeqDeserializer::new(inner.filter(|inner| !inner.is_done())))
    }

    fn deserialize_tuple<V: Visitor<'static>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        let parts = self.request(Kind::Tuple, len)?;
        visitor.visit_seq(SeqDeserializer::new(parts.into_iter()))
    }

    fn deserialize_tuple_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        let [key, value] = self.request(Kind::Map, 2)?[..] else {
            return Err(PassEnd::Enough);
        };
        let is_known = key.is_done() && value.is_done();
        let entry = (!is_known).then_some((key, value));
        let read = visitor.visit_map(MapDeserializer::new(entry.into_iter()));
        if let Err(PassEnd::FieldName) = read {
            // A struct that accepts fields of any name.
            self.node().kind = Kind::Leaf(Schema::Any);
            self.node().parts = 0..0;
            return Err(PassEnd::Enough);
        }
        read
    }

    fn deserialize_identifier<V: Visitor<'static>>(self, _: V) -> Result<V::Value, PassEnd> {
        Err(PassEnd::FieldName)
    }

    fn deserialize_struct<V: Visitor<'static>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        let of = (type_name::<V>(), name);
        if self.enclosing(of).is_some() {
            return Err(PassEnd::Enough);
        }
        let parts = self.request(Kind::Struct, names.len())?;
        let mut node = self.node();
        (node.of, node.names) = (of, names);
        // A field is offered twice: the error has the name of which it is an alias.
        let offered: Vec<_> = (names.iter().zip(parts).enumerate())
            .filter(|(at, (name, _))| match node.at < names.len() {
                true => *at == node.at,
                false => node.required.contains(name),
            })
            .flat_map(|(_, field)| {
                std::iter::repeat_n(field, 1 + usize::from(node.at < names.len()))
            })
            .map(|(name, value)| (BorrowedStrDeserializer::new(name), value))
            .collect();
        drop(node);
        let read = visitor.visit_map(MapDeserializer::new(offered.into_iter()));
        let outcome = read.as_ref().map(|_| ());
        self.tree.borrow_mut().record_outcome(self.id, outcome);
        read
    }

    fn deserialize_enum<V: Visitor<'static>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        let of = (type_name::<V>(), name);
        if let Some(outer) = self.enclosing(of) {
            let outer = SamplingDeserializer {
                is_sample: true,
                ..outer
            };
            return outer.deserialize_enum(name, names, visitor);
        }
        let parts = self.request(Kind::Enum, names.len())?;
        let undone: Vec<_> = (0..parts.len())
            .filter(|at| !parts[*at].is_done())
            .collect();
        let mut node = self.node();
        (node.of, node.names) = (of, names);
        // Incomplete variants are tried in turn: one that contains the enum itself needs another
        // one as a sample.
        let choice = match node.readable {
            None if self.is_sample => {
                drop(node);
                // Another variant may become readable in a later pass.
                self.tree.borrow_mut().has_new_fact |= undone.len() > 1;
                return Err(PassEnd::Enough);
            }
            Some(readable) if self.is_sample || undone.is_empty() => readable,
            _ => undone
                .get(node.turn % undone.len().max(1))
                .copied()
                .unwrap_or_default(),
        };
        node.turn += 1;
        drop(node);
        let read = visitor.visit_enum(*parts.get(choice).ok_or(PassEnd::Enough)?)?;
        if self.node().readable.is_none() {
            self.node().readable = Some(choice);
            self.tree.borrow_mut().has_new_fact = true;
        }
        Ok(read)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl EnumAccess<'static> for SamplingDeserializer<'_> {
    type Error = PassEnd;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Self), PassEnd> {
        let parent = self.node().parent;
        let parent = SamplingDeserializer { id: parent, ..self };
        if parent.node().has_aliases.is_none() {
            // With fewer variants than names, the index of the last name is not a variant.
            let last = parent.node().names.len().saturating_sub(1) as u64;
            let found = seed.deserialize(U64Deserializer::<PassEnd>::new(last));
            parent.node().has_aliases = Some(found.is_err());
            self.tree.borrow_mut().has_new_fact = true;
            return Err(PassEnd::Enough);
        }
        let value = seed.deserialize(BorrowedStrDeserializer::new(self.variant_name()))?;
        Ok((value, self.enter()))
    }
}

impl VariantAccess<'static> for SamplingDeserializer<'_> {
    type Error = PassEnd;

    fn unit_variant(self) -> Result<(), PassEnd> {
        self.scalar(Schema::Unit).map(|_| ())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'static>>(
        self,
        seed: T,
    ) -> Result<T::Value, PassEnd> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'static>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'static>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.deserialize_struct(self.variant_name(), names, visitor)
    }
}
