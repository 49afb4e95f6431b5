//! A deserializer that records the requests of a type and answers with samples.

use std::any::type_name;

use ardea_core::Schema;
use serde::de::{Deserializer, Visitor};

use super::PassEnd;
use super::compound::{SampleEnum, SampleFields, SampleMap, SampleSequence};
use super::tree::{BYTES, Kind, NUMBERS, NodeId, TEXTS, TypeTree};

/// The deserializer of one node of a type.
pub(super) struct SamplingDeserializer<'t> {
    pub(super) tree: &'t mut TypeTree,
    pub(super) node: NodeId,
}

impl<'t> SamplingDeserializer<'t> {
    pub(super) fn of(tree: &'t mut TypeTree, node: NodeId) -> Self {
        SamplingDeserializer { tree, node }
    }

    fn number(&mut self, schema: Schema) -> u8 {
        let sample = self.tree.leaf(self.node, schema);
        NUMBERS.get(sample).copied().unwrap_or_default()
    }

    fn text<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        let sample = self.tree.leaf(self.node, Schema::Text);
        visitor.visit_borrowed_str(TEXTS.get(sample).copied().unwrap_or_default())
    }

    fn bytes<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        let sample = self.tree.leaf(self.node, Schema::Bytes);
        visitor.visit_borrowed_bytes(BYTES.get(sample).copied().unwrap_or_default())
    }

    fn unit<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.tree.leaf(self.node, Schema::Unit);
        visitor.visit_unit()
    }

    /// Returns the only child of the current node, whose kind is set by `kind`.
    fn within(&mut self, kind: fn(NodeId) -> Kind) -> Option<NodeId> {
        if self.tree.is_unknown(self.node) {
            let inner = self.tree.add_some(1)[0];
            self.tree.set(self.node, kind(inner));
        }
        match self.tree.node(self.node).kind {
            Kind::Option(inner) | Kind::List(inner) => Some(inner),
            _ => None,
        }
    }

    pub(super) fn parts<V: Visitor<'static>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        if self.tree.is_unknown(self.node) {
            let parts = self.tree.add_some(len);
            self.tree.set(self.node, Kind::Tuple(parts));
        }
        let parts = match &self.tree.node(self.node).kind {
            Kind::Tuple(parts) => parts.clone(),
            _ => return Err(PassEnd::Enough),
        };
        visitor.visit_seq(SampleSequence::of(self.tree, parts))
    }

    pub(super) fn fields<V: Visitor<'static>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        let SamplingDeserializer { tree, node } = self;
        let of = (type_name::<V>(), name);
        if tree.within(of).is_some() {
            if tree.is_unknown(node) {
                tree.set(node, Kind::Recursive(name));
            }
            return Err(PassEnd::Enough);
        }
        tree.struct_at(node, name, names);
        let offer = tree.offer(node);
        let fields = match &tree.node(node).kind {
            Kind::Struct(of) => of.fields.clone(),
            _ => return Err(PassEnd::Enough),
        };
        tree.enter(of, node);
        let read = visitor.visit_map(SampleFields::of(tree, names, fields, offer));
        tree.leave();
        tree.record_outcome(node, read.as_ref().map(|_| ()).map_err(|why| *why));
        read
    }
}

macro_rules! numbers {
    ($($name:ident $visit:ident $schema:ident;)*) => {$(
        fn $name<V: Visitor<'static>>(mut self, visitor: V) -> Result<V::Value, PassEnd> {
            let number = self.number(Schema::$schema);
            visitor.$visit(number.into())
        }
    )*};
}

impl Deserializer<'static> for SamplingDeserializer<'_> {
    type Error = PassEnd;

    numbers! {
        deserialize_u8 visit_u8 U8;
        deserialize_u16 visit_u16 U16;
        deserialize_u32 visit_u32 U32;
        deserialize_u64 visit_u64 U64;
        deserialize_u128 visit_u128 U128;
        deserialize_i16 visit_i16 I16;
        deserialize_i32 visit_i32 I32;
        deserialize_i64 visit_i64 I64;
        deserialize_i128 visit_i128 I128;
        deserialize_f32 visit_f32 F32;
        deserialize_f64 visit_f64 F64;
    }

    fn deserialize_i8<V: Visitor<'static>>(mut self, visitor: V) -> Result<V::Value, PassEnd> {
        let number = self.number(Schema::I8);
        visitor.visit_i8(i8::try_from(number).unwrap_or_default())
    }

    fn deserialize_bool<V: Visitor<'static>>(mut self, visitor: V) -> Result<V::Value, PassEnd> {
        let number = self.number(Schema::Bool);
        visitor.visit_bool(number > 0)
    }

    fn deserialize_char<V: Visitor<'static>>(mut self, visitor: V) -> Result<V::Value, PassEnd> {
        let number = self.number(Schema::Char);
        visitor.visit_char(char::from(b'a' + number))
    }

    fn deserialize_str<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.text(visitor)
    }

    fn deserialize_bytes<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.bytes(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.bytes(visitor)
    }

    fn deserialize_unit<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.unit(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.unit(visitor)
    }

    fn deserialize_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.tree.leaf(self.node, Schema::Any);
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        self.deserialize_any(visitor)
    }

    fn deserialize_identifier<V: Visitor<'static>>(self, _: V) -> Result<V::Value, PassEnd> {
        if self.tree.is_unknown(self.node) {
            self.tree.set(self.node, Kind::Identifier);
        }
        Err(PassEnd::Enough)
    }

    fn deserialize_option<V: Visitor<'static>>(mut self, visitor: V) -> Result<V::Value, PassEnd> {
        match self.within(Kind::Option) {
            Some(inner) if !self.tree.is_done(inner) => {
                visitor.visit_some(SamplingDeserializer::of(self.tree, inner))
            }
            _ => visitor.visit_none(),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'static>>(mut self, visitor: V) -> Result<V::Value, PassEnd> {
        let inner = self.within(Kind::List);
        let undone = inner.filter(|inner| !self.tree.is_done(*inner));
        visitor.visit_seq(SampleSequence::of(self.tree, undone.into_iter().collect()))
    }

    fn deserialize_tuple<V: Visitor<'static>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.parts(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.parts(len, visitor)
    }

    fn deserialize_map<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, PassEnd> {
        let SamplingDeserializer { tree, node } = self;
        if tree.is_unknown(node) {
            let inner = tree.add_some(2);
            tree.set(node, Kind::Map(inner[0], inner[1]));
        }
        let Kind::Map(key, value) = tree.node(node).kind else {
            return Err(PassEnd::Enough);
        };
        let is_known = tree.is_done(key) && tree.is_done(value);
        let read = visitor.visit_map(SampleMap::of(tree, (!is_known).then_some((key, value))));
        if matches!(tree.node(key).kind, Kind::Identifier) {
            // A struct that accepts fields of any name.
            tree.set(node, Kind::Leaf(Schema::Any));
        }
        read
    }

    fn deserialize_struct<V: Visitor<'static>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        self.fields(name, names, visitor)
    }

    fn deserialize_enum<V: Visitor<'static>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassEnd> {
        let SamplingDeserializer { tree, node } = self;
        let of = (type_name::<V>(), name);
        if let Some(outer) = tree.within(of) {
            if tree.is_unknown(node) {
                tree.set(node, Kind::Recursive(name));
            }
            let whole = tree.enum_of(outer).and_then(|of| {
                let whole = of.readable?;
                Some((of.names[whole], of.variants[whole]))
            });
            let (variant, holds) = whole.ok_or(PassEnd::Enough)?;
            return visitor.visit_enum(SampleEnum::named(tree, variant, holds));
        }
        tree.enum_at(node, name, names);
        tree.enter(of, node);
        let read = visitor.visit_enum(SampleEnum::next(tree, node));
        tree.leave();
        read
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
