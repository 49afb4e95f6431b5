//! Schema evolution: checks whether values of one type can be read as another.
//!
//! The rules are those of the state codec; tests compare this module with the codec.

use ardea_core::{EnumSchema, FieldSchema, Schema, StructSchema};

/// The result of reading values as another type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evolution {
    /// The values are unchanged.
    Same,
    /// The values are converted. Contains the changes in words.
    Migrates(Vec<String>),
    /// The values cannot be read. Contains the reasons in words.
    Impossible(Vec<String>),
}

/// Compares the type `old` of written values with the type `new` of the reader. Types without a
/// known schema are assumed to be equal.
///
/// ```
/// use ardea_core::Schema;
/// use ardea_checkpoint::savepoint::{Evolution, evolve};
///
/// assert_eq!(evolve(&Schema::I32, &Schema::I64), Evolution::Migrates(vec!["i32 becomes i64".into()]));
/// assert!(matches!(evolve(&Schema::I64, &Schema::I32), Evolution::Impossible(_)));
/// ```
pub fn evolve(old: &Schema, new: &Schema) -> Evolution {
    Comparison::default().run(old, new)
}

/// Compares two types of keys. The canonical bytes of a key determine its partition, and must not
/// change.
pub fn evolve_key(old: &Schema, new: &Schema) -> Evolution {
    let comparison = Comparison {
        are_keys: true,
        ..Comparison::default()
    };
    comparison.run(old, new)
}

/// A comparison of two types, which descends into both in parallel.
#[derive(Default)]
struct Comparison<'a> {
    are_keys: bool,
    changes: Vec<String>,
    faults: Vec<String>,
    /// The fields and variants on the path to the current position.
    path: Vec<String>,
    /// The structs and enums of both types that enclose the current position.
    within: Vec<(&'a Schema, &'a Schema)>,
}

impl<'a> Comparison<'a> {
    fn run(mut self, old: &'a Schema, new: &'a Schema) -> Evolution {
        self.compare(old, new);
        if !self.faults.is_empty() {
            return Evolution::Impossible(self.faults);
        }
        match self.changes.is_empty() {
            true => Evolution::Same,
            false => Evolution::Migrates(self.changes),
        }
    }

    fn place(&self) -> String {
        match self.path.is_empty() {
            true => String::new(),
            false => format!("{}: ", self.path.join(".")),
        }
    }

    fn changes(&mut self, what: &str) {
        let what = format!("{}{what}", self.place());
        self.changes.push(what);
    }

    fn fails(&mut self, what: &str) {
        let what = format!("{}{what}", self.place());
        self.faults.push(what);
    }

    fn within(&mut self, place: &str, compare: impl FnOnce(&mut Self)) {
        self.path.push(place.to_string());
        compare(self);
        self.path.pop();
    }

    fn compare(&mut self, old: &'a Schema, new: &'a Schema) {
        match (old, new) {
            (Schema::Any, _) | (_, Schema::Any) => {}
            (Schema::Placed(old), Schema::Placed(new)) if old == new => {}
            (Schema::Placed(_), _) | (_, Schema::Placed(_)) => self.fails(
                "its fields are identified by position, since serde writes it under other names than it reads, so it can't change",
            ),
            (Schema::Again(name), _) => match self.outer(name, |pair| pair.0) {
                Some(old) => self.meet(old, new),
                None => self.fails(&format!("{name} can't be found in itself")),
            },
            (_, Schema::Again(name)) => match self.outer(name, |pair| pair.1) {
                Some(new) => self.meet(old, new),
                None => self.fails(&format!("{name} can't be found in itself")),
            },
            (Schema::Struct(_), Schema::Struct(_)) | (Schema::Enum(_), Schema::Enum(_)) => {
                self.meet(old, new);
            }
            (Schema::Option(old), Schema::Option(new)) => self.compare(old, new),
            (Schema::List(old), Schema::List(new)) => {
                self.within("[]", |here| here.compare(old, new))
            }
            (Schema::Map(old_key, old), Schema::Map(new_key, new)) => {
                self.within("key", |here| here.compare(old_key, new_key));
                self.within("value", |here| here.compare(old, new));
            }
            (Schema::Tuple(olds), Schema::Tuple(news)) if olds.len() == news.len() => {
                for (number, (old, new)) in olds.iter().zip(news).enumerate() {
                    self.within(&number.to_string(), |here| here.compare(old, new));
                }
            }
            (old, new) if old == new => {}
            (old, Schema::Option(new)) if !self.are_keys && !is_option(old) => {
                let before = self.faults.len();
                self.compare(old, new);
                if self.faults.len() == before {
                    self.changes(&format!("{old} becomes Option<{new}>"));
                }
            }
            (old, new) if widens(old, new, self.are_keys) => {
                self.changes(&format!("{old} becomes {new}"));
            }
            (old, new) => self.fails(&format!("{old} can't be read as {new}")),
        }
    }

    /// Returns the enclosing struct or enum of this name, in the type that `side` selects.
    fn outer(
        &self,
        name: &str,
        side: fn(&(&'a Schema, &'a Schema)) -> &'a Schema,
    ) -> Option<&'a Schema> {
        let outer = self.within.iter().rev().map(side);
        let mut named = outer.filter(|schema| match schema {
            Schema::Struct(of) => of.name == name,
            Schema::Enum(of) => of.name == name,
            _ => false,
        });
        named.next()
    }

    /// Compares two named types, unless the comparison is already inside the same pair (recursive
    /// types).
    fn meet(&mut self, old: &'a Schema, new: &'a Schema) {
        let is_it = |(known_old, known_new): &(&Schema, &Schema)| {
            std::ptr::eq(*known_old, old) && std::ptr::eq(*known_new, new)
        };
        if self.within.iter().any(is_it) {
            return;
        }
        self.within.push((old, new));
        match (old, new) {
            (Schema::Struct(old), Schema::Struct(new)) => self.structs(old, new),
            (Schema::Enum(old), Schema::Enum(new)) => self.enums(old, new),
            (old, new) => self.compare(old, new),
        }
        self.within.pop();
    }

    fn structs(&mut self, old: &'a StructSchema, new: &'a StructSchema) {
        let mut found = Vec::new();
        for field in &old.fields {
            let takes = |candidate: &&FieldSchema| {
                candidate.name == field.name || candidate.also.contains(&field.name)
            };
            let Some(now) = new.fields.iter().find(takes) else {
                self.leaves_out(field);
                continue;
            };
            if found.contains(&&*now.name) {
                self.fails(&format!("two fields become {:?}", now.name));
                continue;
            }
            found.push(&*now.name);
            if now.name != field.name {
                self.changes(&format!(
                    "the field {:?} becomes {:?}",
                    field.name, now.name
                ));
                if self.are_keys {
                    self.fails("the fields of a key stay as they are");
                }
            }
            self.within(&now.name, |here| here.compare(&field.schema, &now.schema));
        }
        let added = new
            .fields
            .iter()
            .filter(|field| !found.contains(&&*field.name));
        for field in added.collect::<Vec<_>>() {
            let name = &field.name;
            match (field.has_default, self.are_keys) {
                (true, false) => self.changes(&format!("the field {name:?} is new")),
                (_, true) => self.fails(&format!("the field {name:?} of a key is new")),
                (false, _) => self.fails(&format!(
                    "the field {name:?} is new and has no default (#[serde(default)], or an Option)"
                )),
            }
        }
    }

    fn leaves_out(&mut self, field: &FieldSchema) {
        let name = &field.name;
        match self.are_keys {
            true => self.fails(&format!("the field {name:?} of a key is gone")),
            false => self.changes(&format!("the field {name:?} is dropped")),
        }
    }

    fn enums(&mut self, old: &'a EnumSchema, new: &'a EnumSchema) {
        for variant in &old.variants {
            let now = new.variants.iter().find(|now| now.name == variant.name);
            match now {
                Some(now) => self.within(&variant.name, |here| {
                    here.compare(&variant.holds, &now.holds);
                }),
                // The name may be a mere alias of another variant, under which no value was
                // written.
                None if old.has_aliases => self.changes(&format!(
                    "a variant {:?} is not known any more: should there be one, it can't be read",
                    variant.name
                )),
                None => self.fails(&format!(
                    "the variant {:?} is gone (#[serde(alias)] would give it another name)",
                    variant.name
                )),
            }
        }
        let is_new = |name: &str| old.variants.iter().all(|variant| variant.name != name);
        let added = new.variants.iter().filter(|variant| is_new(&variant.name));
        for variant in added.collect::<Vec<_>>() {
            self.changes(&format!("the variant {:?} is new", variant.name));
        }
    }
}

fn is_option(schema: &Schema) -> bool {
    matches!(schema, Schema::Option(_))
}

/// Returns true if the number type `new` can represent each value of `old`. For keys, the canonical
/// bytes must be equal too.
fn widens(old: &Schema, new: &Schema, are_keys: bool) -> bool {
    if let (Some(old), Some(new)) = (Whole::of(old), Whole::of(new)) {
        let holds = match (old.is_signed, new.is_signed) {
            (false, true) => old.bits < new.bits,
            (true, false) => false,
            _ => old.bits <= new.bits,
        };
        // Keys of up to 64 bits are all encoded in 64 bits.
        return holds && (!are_keys || new.bits <= 64 || old.bits == new.bits);
    }
    let bits_of_float = |schema: &Schema| match schema {
        Schema::F32 => Some(24),
        Schema::F64 => Some(53),
        _ => None,
    };
    let Some(exact) = bits_of_float(new).filter(|_| !are_keys) else {
        return false;
    };
    match (Whole::of(old), bits_of_float(old)) {
        (Some(whole), _) => whole.bits <= exact,
        (None, Some(float)) => float <= exact,
        (None, None) => false,
    }
}

struct Whole {
    is_signed: bool,
    bits: u32,
}

impl Whole {
    fn of(schema: &Schema) -> Option<Self> {
        let (is_signed, bits) = match schema {
            Schema::U8 => (false, 8),
            Schema::U16 => (false, 16),
            Schema::U32 => (false, 32),
            Schema::U64 => (false, 64),
            Schema::U128 => (false, 128),
            Schema::I8 => (true, 8),
            Schema::I16 => (true, 16),
            Schema::I32 => (true, 32),
            Schema::I64 => (true, 64),
            Schema::I128 => (true, 128),
            _ => return None,
        };
        Some(Whole { is_signed, bits })
    }
}
