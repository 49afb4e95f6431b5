//! The facts known about a type.

use std::ops::Range;

use ardea_core::{EnumSchema, FieldSchema, Schema, StructSchema, VariantSchema};

use super::PassEnd;

/// The number of samples of each scalar type.
pub(super) const SAMPLES: usize = 9;

/// The index of a node in the tree: one value within the type, such as a field.
pub(super) type NodeId = usize;

/// The facts known about one value within the type.
#[derive(Default)]
pub(super) struct Node {
    pub(super) parent: NodeId,
    pub(super) kind: Kind,
    pub(super) parts: Range<NodeId>,
    /// The index of the sample of a scalar, or the number of variants of an enum that were tried.
    pub(super) turn: usize,
    /// True if no more facts about the node can be determined.
    pub(super) is_aborted: bool,
    /// The identity of a struct or enum: the type name of its visitor, and its own name.
    pub(super) of: (&'static str, &'static str),
    /// All names of the struct's fields or the enum's variants, including aliases.
    pub(super) names: &'static [&'static str],
    /// The field of a struct that is examined. After the last one, it is examined which fields must
    /// be present; one further, the struct is done.
    pub(super) at: usize,
    /// The fields of a struct that must be present.
    pub(super) required: Vec<&'static str>,
    /// The aliases of a struct's fields, with the primary name.
    pub(super) aliases: Vec<(&'static str, &'static str)>,
    /// True if an enum has fewer variants than names.
    pub(super) has_aliases: Option<bool>,
    /// A variant that has been read.
    pub(super) readable: Option<usize>,
}

#[derive(Clone, Default, PartialEq)]
pub(super) enum Kind {
    #[default]
    Unknown,
    Leaf(Schema),
    Option,
    List,
    Map,
    Tuple,
    Struct,
    Enum,
}

pub(super) struct TypeTree {
    pub(super) nodes: Vec<Node>,
    /// True if the current pass determined a fact.
    pub(super) has_new_fact: bool,
    /// The last node requested in the current pass, and the last scalar.
    pub(super) last: NodeId,
    pub(super) last_scalar: Option<NodeId>,
}

impl TypeTree {
    pub(super) const ROOT: NodeId = 0;

    pub(super) fn new() -> Self {
        TypeTree {
            nodes: vec![Node::default()],
            has_new_fact: false,
            last: TypeTree::ROOT,
            last_scalar: None,
        }
    }

    pub(super) fn begin_pass(&mut self) {
        self.has_new_fact = false;
        self.last = TypeTree::ROOT;
        self.last_scalar = None;
    }

    /// After a pass without a new fact, switches the last scalar to its next sample, as the type
    /// may have rejected it. If there is no other, the innermost incomplete node is left as it is.
    pub(super) fn end_pass(&mut self) {
        if self.has_new_fact {
            return;
        }
        if let Some(scalar) = self.last_scalar
            && self.nodes[scalar].turn + 1 < SAMPLES
        {
            self.nodes[scalar].turn += 1;
            return;
        }
        let mut id = self.last;
        while self.is_done(id) && id != TypeTree::ROOT {
            id = self.nodes[id].parent;
        }
        let node = &mut self.nodes[id];
        if node.kind == Kind::Struct && node.at < node.names.len() {
            let field = node.parts.start + node.at;
            node.at += 1;
            self.nodes[field].is_aborted = true;
        } else {
            node.is_aborted = true;
        }
    }

    pub(super) fn is_done(&self, id: NodeId) -> bool {
        let node = &self.nodes[id];
        let is_examined = match node.kind {
            Kind::Unknown => false,
            Kind::Struct => node.at > node.names.len(),
            _ => true,
        };
        node.is_aborted || is_examined && node.parts.clone().all(|part| self.is_done(part))
    }

    /// Returns the node of this struct or enum, if it encloses the given node.
    pub(super) fn enclosing(&self, id: NodeId, of: (&str, &str)) -> Option<NodeId> {
        let parents = std::iter::successors(Some(id), |id| {
            (*id != TypeTree::ROOT).then(|| self.nodes[*id].parent)
        });
        parents.skip(1).find(|id| self.nodes[*id].of == of)
    }

    /// Records the outcome of a pass over a struct.
    pub(super) fn record_outcome(&mut self, id: NodeId, outcome: Result<(), &PassEnd>) {
        let node = &self.nodes[id];
        let name = node.names.get(node.at).copied();
        let mut field = node.parts.clone().skip(node.at).take(1);
        if field.any(|field| !self.is_done(field)) {
            return;
        }
        let node = &mut self.nodes[id];
        match (name, outcome) {
            (Some(name), Err(PassEnd::Twice(primary))) => {
                node.at += 1;
                if name != *primary {
                    node.aliases.push((name, primary));
                }
            }
            // A type that accepts a field twice has its own `Deserialize` implementation.
            (Some(_), Ok(()) | Err(PassEnd::Missing(_))) => node.at += 1,
            (None, Ok(())) if node.at == node.names.len() => node.at += 1,
            (None, Err(PassEnd::Missing(name)))
                if node.names.contains(name) && !node.required.contains(name) =>
            {
                node.required.push(name);
            }
            _ => return,
        }
        self.has_new_fact = true;
    }

    pub(super) fn schema(&self, id: NodeId) -> Schema {
        let node = &self.nodes[id];
        let mut parts = node.parts.clone().map(|part| self.schema(part));
        let mut boxed = || Box::new(parts.next().unwrap_or(Schema::Any));
        match &node.kind {
            Kind::Unknown => Schema::Any,
            Kind::Leaf(schema) => schema.clone(),
            Kind::Option => Schema::Option(boxed()),
            Kind::List => Schema::List(boxed()),
            Kind::Map => Schema::Map(boxed(), boxed()),
            Kind::Tuple => Schema::Tuple(parts.collect()),
            Kind::Struct => Schema::Struct(StructSchema {
                name: node.of.1.to_string(),
                fields: (node.names.iter().zip(parts))
                    .filter(|(name, _)| !node.aliases.iter().any(|(alias, _)| alias == *name))
                    .map(|(name, schema)| node.field_schema(name, schema))
                    .collect(),
            }),
            Kind::Enum => Schema::Enum(EnumSchema {
                name: node.of.1.to_string(),
                variants: (node.names.iter().zip(parts))
                    .map(|(name, holds)| VariantSchema {
                        name: name.to_string(),
                        holds,
                    })
                    .collect(),
                has_aliases: node.has_aliases.unwrap_or(node.names.len() > 1),
            }),
        }
    }
}

impl Node {
    fn field_schema(&self, name: &str, schema: Schema) -> FieldSchema {
        // Serde has a default for a missing option.
        let is_known = self.at > self.names.len() || matches!(schema, Schema::Option(_));
        let also = self.aliases.iter().filter(|(_, primary)| *primary == name);
        FieldSchema {
            name: name.to_string(),
            also: also.map(|(alias, _)| alias.to_string()).collect(),
            has_default: is_known && !self.required.contains(&name),
            schema,
        }
    }
}
