//! The facts known about a type.

use ardea_core::{EnumSchema, FieldSchema, Schema, StructSchema, VariantSchema};

use super::PassEnd;

/// Sample strings, one of which a type written as a string may accept.
pub(super) const TEXTS: [&str; 9] = [
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
/// Sample byte strings.
pub(super) const BYTES: [&[u8]; 3] = [&[], &[0; 16], &[0; 4]];
/// Sample numbers.
pub(super) const NUMBERS: [u8; 2] = [0, 1];

/// The identity of a type: the type name of its visitor, and its own name.
pub(super) type TypeName = (&'static str, &'static str);

/// The index of a node in the tree: one value within the type, such as a field.
pub(super) type NodeId = usize;

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// The index of the sample that answers the next request for the node.
    pub(super) sample: usize,
    /// True if no more facts about the node can be determined.
    is_aborted: bool,
}

#[derive(Debug, Default)]
pub(super) enum Kind {
    #[default]
    Unknown,
    Leaf(Schema),
    /// The name of a field in a struct that accepts any names.
    Identifier,
    Option(NodeId),
    List(NodeId),
    Map(NodeId, NodeId),
    Tuple(Vec<NodeId>),
    Struct(Struct),
    Enum(Enum),
    /// A reference to the enclosing struct or enum of this name.
    Recursive(&'static str),
}

#[derive(Debug)]
pub(super) struct Struct {
    pub(super) name: &'static str,
    /// All names of the struct's fields, including aliases.
    pub(super) names: &'static [&'static str],
    pub(super) fields: Vec<NodeId>,
    /// The primary name of the field for each name.
    primary: Vec<Option<&'static str>>,
    /// The fields that must be present.
    required: Vec<&'static str>,
    stage: StructPhase,
}

/// The question being examined about a struct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StructPhase {
    Fields,
    /// The field that the name at this position belongs to.
    Names(usize),
    Required,
    Done,
}

#[derive(Debug)]
pub(super) struct Enum {
    pub(super) name: &'static str,
    pub(super) names: &'static [&'static str],
    pub(super) variants: Vec<NodeId>,
    /// True if there are fewer variants than names.
    pub(super) has_aliases: Option<bool>,
    /// A variant that has been read.
    pub(super) readable: Option<usize>,
    /// The number of choices before any variant was read.
    pub(super) tries: usize,
}

#[derive(Debug)]
pub(super) struct TypeTree {
    nodes: Vec<Node>,
    /// The number of facts determined.
    learned: u64,
    last_sample: Option<NodeId>,
    /// The structs and enums that enclose the current node.
    path: Vec<(TypeName, NodeId)>,
}

impl TypeTree {
    pub(super) const ROOT: NodeId = 0;

    pub(super) fn new() -> Self {
        TypeTree {
            nodes: vec![Node::default()],
            learned: 0,
            last_sample: None,
            path: Vec::new(),
        }
    }

    /// Starts another pass. Returns the number of facts determined so far.
    pub(super) fn begin_pass(&mut self) -> u64 {
        self.path.clear();
        self.last_sample = None;
        self.learned
    }

    pub(super) fn fact_count(&self) -> u64 {
        self.learned
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    fn add(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    pub(super) fn add_some(&mut self, count: usize) -> Vec<NodeId> {
        (0..count).map(|_| self.add()).collect()
    }

    pub(super) fn set(&mut self, id: NodeId, kind: Kind) {
        self.nodes[id].kind = kind;
        self.learned += 1;
    }

    pub(super) fn is_unknown(&self, id: NodeId) -> bool {
        matches!(self.nodes[id].kind, Kind::Unknown)
    }

    /// Records a request for a scalar value and returns the index of its sample.
    pub(super) fn leaf(&mut self, id: NodeId, schema: Schema) -> usize {
        if self.is_unknown(id) {
            self.set(id, Kind::Leaf(schema));
        }
        self.last_sample = Some(id);
        self.nodes[id].sample
    }

    pub(super) fn is_done(&self, id: NodeId) -> bool {
        let node = &self.nodes[id];
        node.is_aborted
            || match &node.kind {
                Kind::Unknown => false,
                Kind::Leaf(_) | Kind::Identifier | Kind::Recursive(_) => true,
                Kind::Option(of) | Kind::List(of) => self.is_done(*of),
                Kind::Map(key, value) => self.is_done(*key) && self.is_done(*value),
                Kind::Tuple(parts) => parts.iter().all(|part| self.is_done(*part)),
                Kind::Struct(of) => {
                    of.stage == StructPhase::Done
                        && of.fields.iter().all(|field| self.is_done(*field))
                }
                Kind::Enum(of) => {
                    of.has_aliases.is_some()
                        && of.variants.iter().all(|variant| self.is_done(*variant))
                }
            }
    }

    /// Switches the last node to its next sample, as the type may have rejected it. Returns false
    /// if there is no other.
    pub(super) fn try_another_sample(&mut self) -> bool {
        let Some(last) = self.last_sample else {
            return false;
        };
        let node = &mut self.nodes[last];
        let samples = match &node.kind {
            Kind::Leaf(Schema::Text) => TEXTS.len(),
            Kind::Leaf(Schema::Bytes) => BYTES.len(),
            Kind::Leaf(_) => NUMBERS.len(),
            _ => 0,
        };
        if node.sample + 1 >= samples {
            return false;
        }
        node.sample += 1;
        true
    }

    /// Leaves the first incomplete node as it is, because nothing more can be determined about it.
    pub(super) fn skip_incomplete(&mut self) {
        let mut at = TypeTree::ROOT;
        while let Some(inner) = self.first_undone(at) {
            at = inner;
        }
        self.learned += 1;
        match &mut self.nodes[at].kind {
            Kind::Struct(of) if matches!(of.stage, StructPhase::Names(_)) => of.next_stage(),
            _ => self.nodes[at].is_aborted = true,
        }
    }

    fn first_undone(&self, id: NodeId) -> Option<NodeId> {
        let undone = |ids: &[NodeId]| ids.iter().copied().find(|id| !self.is_done(*id));
        match &self.nodes[id].kind {
            Kind::Unknown | Kind::Leaf(_) | Kind::Identifier | Kind::Recursive(_) => None,
            Kind::Option(of) | Kind::List(of) => undone(&[*of]),
            Kind::Map(key, value) => undone(&[*key, *value]),
            Kind::Tuple(parts) => undone(parts),
            Kind::Struct(of) => undone(&of.fields),
            Kind::Enum(of) => undone(&of.variants),
        }
    }

    /// Returns the node of this struct or enum, if it encloses the current node.
    pub(super) fn within(&self, of: TypeName) -> Option<NodeId> {
        let mut path = self.path.iter();
        let (_, found) = path.find(|(known, _)| *known == of)?;
        Some(*found)
    }

    pub(super) fn enter(&mut self, of: TypeName, id: NodeId) {
        self.path.push((of, id));
    }

    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    pub(super) fn struct_at(
        &mut self,
        id: NodeId,
        name: &'static str,
        names: &'static [&'static str],
    ) {
        if self.is_unknown(id) {
            let fields = self.add_some(names.len());
            let of = Struct {
                name,
                names,
                fields,
                primary: vec![None; names.len()],
                required: Vec::new(),
                stage: StructPhase::Fields,
            };
            self.set(id, Kind::Struct(of));
        }
    }

    /// Returns the positions of the field names that are offered to a struct in the next pass.
    pub(super) fn offer(&mut self, id: NodeId) -> Vec<usize> {
        loop {
            let Kind::Struct(of) = &self.nodes[id].kind else {
                return Vec::new();
            };
            match of.stage {
                StructPhase::Fields => {
                    let mut fields = of.fields.iter();
                    match fields.position(|field| !self.is_done(*field)) {
                        Some(next) => return vec![next],
                        None => self.next_stage(id),
                    }
                }
                StructPhase::Names(at) if at < of.names.len() => return vec![at, at],
                StructPhase::Names(_) => self.next_stage(id),
                StructPhase::Required | StructPhase::Done => {
                    let names = of.names.iter().enumerate();
                    return names
                        .filter(|(_, name)| of.required.contains(name))
                        .map(|(at, _)| at)
                        .collect();
                }
            }
        }
    }

    fn next_stage(&mut self, id: NodeId) {
        self.learned += 1;
        if let Kind::Struct(of) = &mut self.nodes[id].kind {
            of.next_stage();
        }
    }

    /// Records the outcome of a pass over a struct.
    pub(super) fn record_outcome(&mut self, id: NodeId, outcome: Result<(), PassEnd>) {
        let Kind::Struct(of) = &mut self.nodes[id].kind else {
            return;
        };
        match (of.stage, outcome) {
            (StructPhase::Names(at), Err(PassEnd::Twice(name))) => {
                of.primary[at] = Some(name);
                self.next_stage(id);
            }
            // The type accepts both: it has its own `Deserialize` implementation.
            (StructPhase::Names(_), Ok(()) | Err(PassEnd::Missing(_))) => self.next_stage(id),
            (StructPhase::Required, Err(PassEnd::Missing(name)))
                if of.names.contains(&name) && !of.required.contains(&name) =>
            {
                of.required.push(name);
                self.learned += 1;
            }
            (StructPhase::Required, Ok(())) => self.next_stage(id),
            _ => {}
        }
    }

    pub(super) fn enum_at(
        &mut self,
        id: NodeId,
        name: &'static str,
        names: &'static [&'static str],
    ) {
        if self.is_unknown(id) {
            let variants = self.add_some(names.len());
            let of = Enum {
                name,
                names,
                variants,
                has_aliases: (names.len() < 2).then_some(false),
                readable: None,
                tries: 0,
            };
            self.set(id, Kind::Enum(of));
        }
    }

    pub(super) fn enum_of(&mut self, id: NodeId) -> Option<&mut Enum> {
        match &mut self.nodes[id].kind {
            Kind::Enum(of) => Some(of),
            _ => None,
        }
    }

    /// Records a fact determined by the caller.
    pub(super) fn record_fact(&mut self) {
        self.learned += 1;
    }

    pub(super) fn schema(&self, id: NodeId) -> Schema {
        let boxed = |id: &NodeId| Box::new(self.schema(*id));
        match &self.nodes[id].kind {
            Kind::Unknown | Kind::Identifier => Schema::Any,
            Kind::Leaf(schema) => schema.clone(),
            Kind::Option(of) => Schema::Option(boxed(of)),
            Kind::List(of) => Schema::List(boxed(of)),
            Kind::Map(key, value) => Schema::Map(boxed(key), boxed(value)),
            Kind::Tuple(parts) => {
                Schema::Tuple(parts.iter().map(|part| self.schema(*part)).collect())
            }
            Kind::Struct(of) => Schema::Struct(self.struct_schema(of)),
            Kind::Enum(of) => {
                let variants = of.names.iter().zip(&of.variants);
                Schema::Enum(EnumSchema {
                    name: of.name.to_string(),
                    variants: variants
                        .map(|(name, holds)| VariantSchema {
                            name: name.to_string(),
                            holds: self.schema(*holds),
                        })
                        .collect(),
                    has_aliases: of.has_aliases.unwrap_or(true),
                })
            }
            Kind::Recursive(name) => Schema::Again(name.to_string()),
        }
    }

    fn struct_schema(&self, of: &Struct) -> StructSchema {
        let primary = |at: usize| of.primary[at].unwrap_or(of.names[at]);
        let fields = of.names.iter().enumerate();
        let fields = fields.filter(|(at, name)| primary(*at) == **name);
        StructSchema {
            name: of.name.to_string(),
            fields: fields
                .map(|(at, name)| {
                    let schema = self.schema(of.fields[at]);
                    // Serde has a default for a missing option.
                    let is_known =
                        of.stage == StructPhase::Done || matches!(schema, Schema::Option(_));
                    let others = of.names.iter().enumerate();
                    let also = others.filter(|(other, _)| *other != at && primary(*other) == *name);
                    FieldSchema {
                        name: name.to_string(),
                        also: also.map(|(_, also)| also.to_string()).collect(),
                        has_default: is_known && !of.required.contains(name),
                        schema,
                    }
                })
                .collect(),
        }
    }
}

impl Struct {
    fn next_stage(&mut self) {
        self.stage = match self.stage {
            StructPhase::Fields => StructPhase::Names(0),
            StructPhase::Names(at) if at + 1 < self.names.len() => StructPhase::Names(at + 1),
            StructPhase::Names(_) => StructPhase::Required,
            StructPhase::Required | StructPhase::Done => StructPhase::Done,
        };
    }
}
