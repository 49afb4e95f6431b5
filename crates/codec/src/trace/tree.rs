//! What has been learned of a type.

use ardea_core::{EnumSchema, FieldSchema, Schema, StructSchema, VariantSchema};

use super::Why;

/// Texts that some type may accept that is written as one.
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
/// The same of bytes.
pub(super) const BYTES: [&[u8]; 3] = [&[], &[0; 16], &[0; 4]];
/// The same of numbers.
pub(super) const NUMBERS: [u8; 2] = [0, 1];

/// What tells a type from others: that of what reads it, and its name.
pub(super) type TypeName = (&'static str, &'static str);

/// A place of a type, among all that have been found.
pub(super) type NodeId = usize;

/// What is known of a place.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// Which sample it gets.
    pub(super) sample: usize,
    /// Nothing more is found out of it.
    is_given_up: bool,
}

#[derive(Debug, Default)]
pub(super) enum Kind {
    #[default]
    Unknown,
    Leaf(Schema),
    /// The name of a field, of which not all are known beforehand.
    Identifier,
    Option(NodeId),
    List(NodeId),
    Map(NodeId, NodeId),
    Tuple(Vec<NodeId>),
    Struct(Struct),
    Enum(Enum),
    /// The struct or enum of this name, in which it lies.
    Again(&'static str),
}

#[derive(Debug)]
pub(super) struct Struct {
    pub(super) name: &'static str,
    /// All that its fields may be called.
    pub(super) names: &'static [&'static str],
    pub(super) fields: Vec<NodeId>,
    /// For each of the names, what the field is really called.
    primary: Vec<Option<&'static str>>,
    /// The fields that have to be there.
    required: Vec<&'static str>,
    stage: Stage,
}

/// What of a struct is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Fields,
    /// Whose name the one at this place is.
    Names(usize),
    Required,
    Over,
}

#[derive(Debug)]
pub(super) struct Enum {
    pub(super) name: &'static str,
    pub(super) names: &'static [&'static str],
    pub(super) variants: Vec<NodeId>,
    /// Whether there are fewer variants than names.
    pub(super) has_aliases: Option<bool>,
    /// A variant that could be read.
    pub(super) whole: Option<usize>,
    /// How often one was chosen before any could be read.
    pub(super) tries: usize,
}

/// All places of a type.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// How often something was learned.
    learned: u64,
    last_sample: Option<NodeId>,
    /// The structs and enums that the place at hand lies in.
    path: Vec<(TypeName, NodeId)>,
}

impl Tree {
    pub(super) const ROOT: NodeId = 0;

    pub(super) fn new() -> Self {
        Tree {
            nodes: vec![Node::default()],
            learned: 0,
            last_sample: None,
            path: Vec::new(),
        }
    }

    /// Another reading begins. How often something was learned until now.
    pub(super) fn begin(&mut self) -> u64 {
        self.path.clear();
        self.last_sample = None;
        self.learned
    }

    pub(super) fn learned(&self) -> u64 {
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

    /// A value without anything in it is asked for; the number of the sample that it gets.
    pub(super) fn leaf(&mut self, id: NodeId, schema: Schema) -> usize {
        if self.is_unknown(id) {
            self.set(id, Kind::Leaf(schema));
        }
        self.last_sample = Some(id);
        self.nodes[id].sample
    }

    pub(super) fn is_done(&self, id: NodeId) -> bool {
        let node = &self.nodes[id];
        node.is_given_up
            || match &node.kind {
                Kind::Unknown => false,
                Kind::Leaf(_) | Kind::Identifier | Kind::Again(_) => true,
                Kind::Option(of) | Kind::List(of) => self.is_done(*of),
                Kind::Map(key, value) => self.is_done(*key) && self.is_done(*value),
                Kind::Tuple(parts) => parts.iter().all(|part| self.is_done(*part)),
                Kind::Struct(of) => {
                    of.stage == Stage::Over && of.fields.iter().all(|field| self.is_done(*field))
                }
                Kind::Enum(of) => {
                    of.has_aliases.is_some()
                        && of.variants.iter().all(|variant| self.is_done(*variant))
                }
            }
    }

    /// The sample that was given last may be the one that is not liked; false if there is no other.
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

    /// The first place of which nothing more can be learned is left as it is.
    pub(super) fn give_up_one(&mut self) {
        let mut at = Tree::ROOT;
        while let Some(inner) = self.first_undone(at) {
            at = inner;
        }
        self.learned += 1;
        match &mut self.nodes[at].kind {
            Kind::Struct(of) if matches!(of.stage, Stage::Names(_)) => of.next_stage(),
            _ => self.nodes[at].is_given_up = true,
        }
    }

    fn first_undone(&self, id: NodeId) -> Option<NodeId> {
        let undone = |ids: &[NodeId]| ids.iter().copied().find(|id| !self.is_done(*id));
        match &self.nodes[id].kind {
            Kind::Unknown | Kind::Leaf(_) | Kind::Identifier | Kind::Again(_) => None,
            Kind::Option(of) | Kind::List(of) => undone(&[*of]),
            Kind::Map(key, value) => undone(&[*key, *value]),
            Kind::Tuple(parts) => undone(parts),
            Kind::Struct(of) => undone(&of.fields),
            Kind::Enum(of) => undone(&of.variants),
        }
    }

    /// The place of this struct or enum, if the place at hand lies in it.
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
                stage: Stage::Fields,
            };
            self.set(id, Kind::Struct(of));
        }
    }

    /// The places of the names of those fields that a struct gets next time.
    pub(super) fn offer(&mut self, id: NodeId) -> Vec<usize> {
        loop {
            let Kind::Struct(of) = &self.nodes[id].kind else {
                return Vec::new();
            };
            match of.stage {
                Stage::Fields => {
                    let mut fields = of.fields.iter();
                    match fields.position(|field| !self.is_done(*field)) {
                        Some(next) => return vec![next],
                        None => self.next_stage(id),
                    }
                }
                Stage::Names(at) if at < of.names.len() => return vec![at, at],
                Stage::Names(_) => self.next_stage(id),
                Stage::Required | Stage::Over => {
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

    /// What came of it.
    pub(super) fn heard(&mut self, id: NodeId, outcome: Result<(), Why>) {
        let Kind::Struct(of) = &mut self.nodes[id].kind else {
            return;
        };
        match (of.stage, outcome) {
            (Stage::Names(at), Err(Why::Twice(name))) => {
                of.primary[at] = Some(name);
                self.next_stage(id);
            }
            // It takes both: one of its own making.
            (Stage::Names(_), Ok(()) | Err(Why::Missing(_))) => self.next_stage(id),
            (Stage::Required, Err(Why::Missing(name)))
                if of.names.contains(&name) && !of.required.contains(&name) =>
            {
                of.required.push(name);
                self.learned += 1;
            }
            (Stage::Required, Ok(())) => self.next_stage(id),
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
                whole: None,
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

    /// Something was learned that only the caller knows.
    pub(super) fn note(&mut self) {
        self.learned += 1;
    }

    /// What is known of a place.
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
            Kind::Again(name) => Schema::Again(name.to_string()),
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
                    // Serde has a value for an option that is missing.
                    let is_known = of.stage == Stage::Over || matches!(schema, Schema::Option(_));
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
            Stage::Fields => Stage::Names(0),
            Stage::Names(at) if at + 1 < self.names.len() => Stage::Names(at + 1),
            Stage::Names(_) => Stage::Required,
            Stage::Required | Stage::Over => Stage::Over,
        };
    }
}
