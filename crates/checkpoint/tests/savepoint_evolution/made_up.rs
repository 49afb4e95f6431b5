//! A generator of random types, values, and changed types.

use ardea_core::{EnumSchema, FieldSchema, Schema, StructSchema, VariantSchema};

use crate::values::{NAMES, Value, Whole, whole};

/// A deterministic pseudo-random generator with a seed.
pub struct MadeUp {
    state: u64,
    types: u32,
}

const NUMBERS: [Schema; 10] = [
    Schema::U8,
    Schema::U16,
    Schema::U32,
    Schema::U64,
    Schema::I8,
    Schema::I16,
    Schema::I32,
    Schema::I64,
    Schema::F32,
    Schema::F64,
];

impl MadeUp {
    pub fn of(seed: u64) -> Self {
        MadeUp {
            state: seed,
            types: 0,
        }
    }

    fn number(&mut self) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.number() % most.max(1) as u64) as usize
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Returns up to `most` different names of fields or variants.
    fn names(&mut self, most: usize) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = NAMES.to_vec();
        let count = 1 + self.below(most);
        let mut chosen = Vec::new();
        while chosen.len() < count && !names.is_empty() {
            let at = self.below(names.len());
            chosen.push(names.remove(at));
        }
        chosen
    }

    /// Generates a type with a maximum nesting depth.
    pub fn schema(&mut self, depth: u32) -> Schema {
        let kinds = if depth == 0 { 4 } else { 10 };
        match self.below(kinds) {
            0 | 1 => self.one_of(&NUMBERS),
            2 => Schema::Text,
            3 => Schema::Bool,
            4 => Schema::Option(Box::new(self.schema_of_some(depth - 1))),
            5 => Schema::List(Box::new(self.schema(depth - 1))),
            6 => {
                let value = self.schema(depth - 1);
                Schema::Map(Box::new(Schema::Text), Box::new(value))
            }
            7 => {
                let count = 1 + self.below(3);
                Schema::Tuple((0..count).map(|_| self.schema(depth - 1)).collect())
            }
            8 => self.enumeration(),
            _ => self.structure(depth - 1),
        }
    }

    /// Generates the type of an option's content. It is not itself an option, since serde cannot
    /// distinguish nested options.
    fn schema_of_some(&mut self, depth: u32) -> Schema {
        loop {
            let schema = self.schema(depth);
            if !matches!(schema, Schema::Option(_)) {
                return schema;
            }
        }
    }

    fn type_name(&mut self) -> String {
        self.types += 1;
        format!("T{}", self.types)
    }

    fn structure(&mut self, depth: u32) -> Schema {
        let names = self.names(4);
        let fields: Vec<_> = names
            .into_iter()
            .map(|name| self.field(name, depth))
            .collect();
        Schema::Struct(StructSchema {
            fields,
            name: self.type_name(),
        })
    }

    fn field(&mut self, name: &str, depth: u32) -> FieldSchema {
        let schema = self.schema(depth);
        FieldSchema {
            name: name.into(),
            also: Vec::new(),
            // As in serde.
            has_default: matches!(schema, Schema::Option(_)) || self.below(3) == 0,
            schema,
        }
    }

    fn enumeration(&mut self) -> Schema {
        let names = self.names(4);
        let variants: Vec<_> = names
            .into_iter()
            .map(|name| VariantSchema {
                name: name.into(),
                holds: self.held(name),
            })
            .collect();
        Schema::Enum(EnumSchema {
            variants,
            name: self.type_name(),
            has_aliases: false,
        })
    }

    /// Generates the content of a variant: nothing, fields, or one value of another type.
    fn held(&mut self, variant: &str) -> Schema {
        match (self.below(3), self.structure(0)) {
            (0, Schema::Struct(of)) => Schema::Struct(StructSchema {
                name: variant.into(),
                ..of
            }),
            (1, _) => Schema::Unit,
            _ => self.one_of(&NUMBERS),
        }
    }

    /// Generates a value of a type.
    pub fn value(&mut self, schema: &Schema) -> Value {
        if let Some(Whole { least, most }) = whole(schema) {
            let span = (most - least) as u128;
            let number = least + (u128::from(self.number()) % (span + 1)) as i128;
            return Value::Whole(self.one_of(&[number, least, most]));
        }
        match schema {
            // Small integers are exact in floats of any width.
            Schema::F32 | Schema::F64 => Value::Float(self.below(1_000) as f64),
            Schema::Bool => Value::Bool(self.below(2) == 1),
            Schema::Text => Value::Text("x".repeat(self.below(300))),
            Schema::Option(of) => {
                let value = (self.below(3) > 0).then(|| Box::new(self.value(of)));
                Value::Option(value)
            }
            Schema::List(of) => {
                let count = self.below(12);
                Value::List((0..count).map(|_| self.value(of)).collect())
            }
            Schema::Map(_, of) => {
                let names = self.names(5);
                let entries = names.into_iter().map(|name| {
                    let key = Value::Text(name.to_string());
                    (key, self.value(of))
                });
                Value::Map(entries.collect())
            }
            Schema::Tuple(parts) => {
                Value::List(parts.iter().map(|part| self.value(part)).collect())
            }
            Schema::Struct(of) => {
                let fields = of.fields.iter();
                let fields = fields.map(|field| (field.name.clone(), self.value(&field.schema)));
                Value::Struct(fields.collect())
            }
            Schema::Enum(of) => {
                let variant = self.one_of(&of.variants);
                let holds = self.value(&variant.holds);
                Value::Variant(variant.name, Box::new(holds))
            }
            _ => Value::Unit,
        }
    }

    /// Generates a changed type, which may be compatible or not.
    pub fn changed(&mut self, schema: &Schema) -> Schema {
        if self.below(6) == 0 {
            return self.replaced(schema);
        }
        match schema {
            Schema::Option(of) => Schema::Option(Box::new(self.changed_some(of))),
            Schema::List(of) => Schema::List(Box::new(self.changed(of))),
            Schema::Map(key, of) => Schema::Map(key.clone(), Box::new(self.changed(of))),
            Schema::Tuple(parts) => {
                Schema::Tuple(parts.iter().map(|part| self.changed(part)).collect())
            }
            Schema::Struct(of) => self.changed_struct(of),
            Schema::Enum(of) => self.changed_enum(of),
            _ => schema.clone(),
        }
    }

    fn changed_some(&mut self, of: &Schema) -> Schema {
        match self.changed(of) {
            Schema::Option(_) => of.clone(),
            changed => changed,
        }
    }

    fn replaced(&mut self, schema: &Schema) -> Schema {
        match (schema, self.below(4)) {
            (Schema::Option(of), 0) => (**of).clone(),
            (_, 0) => self.schema(1),
            (schema, 1) if !matches!(schema, Schema::Option(_)) => {
                Schema::Option(Box::new(schema.clone()))
            }
            (schema, _) if NUMBERS.contains(schema) => self.one_of(&NUMBERS),
            (schema, _) => schema.clone(),
        }
    }

    fn changed_struct(&mut self, of: &StructSchema) -> Schema {
        let mut fields = of.fields.clone();
        if self.below(4) == 0 && !fields.is_empty() {
            let at = self.below(fields.len());
            fields.remove(at);
        }
        for field in &mut fields {
            field.schema = self.changed(&field.schema);
            field.has_default |= matches!(field.schema, Schema::Option(_));
            field.also.clear();
        }
        let unused = |fields: &[FieldSchema]| {
            let is_used = |name: &str| fields.iter().any(|field| field.name == name);
            let mut names = NAMES.iter().copied();
            names.find(|name| !is_used(name) && of.fields.iter().all(|old| old.name != *name))
        };
        if self.below(4) == 0
            && !fields.is_empty()
            && let Some(name) = unused(&fields)
        {
            let at = self.below(fields.len());
            let field = &mut fields[at];
            field.also = vec![std::mem::replace(&mut field.name, name.into())];
        }
        if self.below(3) == 0
            && let Some(name) = unused(&fields)
        {
            let field = self.field(name, 1);
            let at = self.below(fields.len() + 1);
            fields.insert(at, field);
        }
        if self.below(4) == 0 {
            fields.reverse();
        }
        Schema::Struct(StructSchema {
            name: of.name.clone(),
            fields,
        })
    }

    fn changed_enum(&mut self, of: &EnumSchema) -> Schema {
        let mut variants = of.variants.clone();
        if self.below(6) == 0 && variants.len() > 1 {
            let at = self.below(variants.len());
            variants.remove(at);
        }
        for variant in &mut variants {
            // A variant with fields still has fields after the change.
            variant.holds = match &variant.holds {
                Schema::Struct(of) => self.changed_struct(of),
                other => other.clone(),
            };
        }
        let is_used = |name: &str| variants.iter().any(|variant| variant.name == name);
        let is_old = |name: &str| of.variants.iter().any(|variant| variant.name == name);
        let mut names = NAMES.iter().copied();
        let unused = names.find(|name| !is_used(name) && !is_old(name));
        if self.below(3) == 0
            && let Some(name) = unused
        {
            let holds = self.held(name);
            let at = self.below(variants.len() + 1);
            let name = name.into();
            variants.insert(at, VariantSchema { name, holds });
        }
        if self.below(4) == 0 {
            variants.reverse();
        }
        Schema::Enum(EnumSchema {
            name: of.name.clone(),
            variants,
            has_aliases: false,
        })
    }
}
