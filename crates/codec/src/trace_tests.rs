//! Schemas of types of all kinds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::*;
use ardea_core::{EnumSchema, FieldSchema, Schema, StructSchema, VariantSchema};

fn field(name: &str, schema: Schema) -> FieldSchema {
    FieldSchema {
        name: name.into(),
        also: Vec::new(),
        schema,
        has_default: false,
    }
}

fn defaulted(name: &str, schema: Schema) -> FieldSchema {
    FieldSchema {
        has_default: true,
        ..field(name, schema)
    }
}

fn of_struct(name: &str, fields: Vec<FieldSchema>) -> Schema {
    Schema::Struct(StructSchema {
        name: name.into(),
        fields,
    })
}

fn variant(name: &str, holds: Schema) -> VariantSchema {
    VariantSchema {
        name: name.into(),
        holds,
    }
}

fn option(of: Schema) -> Schema {
    Schema::Option(Box::new(of))
}

fn list(of: Schema) -> Schema {
    Schema::List(Box::new(of))
}

#[test]
fn plain_values_are_what_they_are() {
    assert_eq!(schema_of::<i64>(), Schema::I64);
    assert_eq!(schema_of::<i8>(), Schema::I8);
    assert_eq!(schema_of::<u128>(), Schema::U128);
    assert_eq!(schema_of::<f32>(), Schema::F32);
    assert_eq!(schema_of::<bool>(), Schema::Bool);
    assert_eq!(schema_of::<char>(), Schema::Char);
    assert_eq!(schema_of::<()>(), Schema::Unit);
    for text in [
        schema_of::<String>(),
        schema_of::<&'static str>(),
        schema_of::<Arc<str>>(),
    ] {
        assert_eq!(text, Schema::Text);
    }
    assert_eq!(schema_of::<NonZeroU32>(), Schema::U32);
}

#[test]
fn what_holds_others_tells_what() {
    assert_eq!(schema_of::<Option<u8>>(), option(Schema::U8));
    assert_eq!(schema_of::<Vec<Option<u8>>>(), list(option(Schema::U8)));
    assert_eq!(schema_of::<HashSet<String>>(), list(Schema::Text));
    assert_eq!(
        schema_of::<(u8, Vec<char>, [i16; 2])>(),
        Schema::Tuple(vec![
            Schema::U8,
            list(Schema::Char),
            Schema::Tuple(vec![Schema::I16, Schema::I16]),
        ])
    );
    let map = Schema::Map(Box::new(Schema::Text), Box::new(list(Schema::F64)));
    assert_eq!(schema_of::<BTreeMap<String, Vec<f64>>>(), map);
    assert_eq!(schema_of::<HashMap<String, Vec<f64>>>(), map);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Account {
    owner: String,
    #[serde(alias = "saldo", alias = "amount")]
    balance: i64,
    note: Option<String>,
    #[serde(default)]
    limits: Vec<u32>,
    #[serde(rename = "kind")]
    what: Kind,
    #[serde(skip)]
    cached: u8,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
enum Kind {
    Plain,
    Sized(u64),
    Pair(u8, String),
    Named { at: i32, by: Option<String> },
}

fn kind() -> Schema {
    let named = vec![
        field("at", Schema::I32),
        defaulted("by", option(Schema::Text)),
    ];
    Schema::Enum(EnumSchema {
        name: "Kind".into(),
        variants: vec![
            variant("Plain", Schema::Unit),
            variant("Sized", Schema::U64),
            variant("Pair", Schema::Tuple(vec![Schema::U8, Schema::Text])),
            variant("Named", of_struct("Named", named)),
        ],
        has_aliases: false,
    })
}

#[test]
fn a_struct_tells_its_fields_their_other_names_and_which_may_be_missing() {
    let balance = FieldSchema {
        also: vec!["amount".into(), "saldo".into()],
        ..field("balance", Schema::I64)
    };
    let expected = of_struct(
        "Account",
        vec![
            field("owner", Schema::Text),
            balance,
            defaulted("note", option(Schema::Text)),
            defaulted("limits", list(Schema::U32)),
            field("kind", kind()),
        ],
    );
    assert_eq!(schema_of::<Account>(), expected);
}

#[test]
fn an_enum_tells_what_each_of_its_variants_holds() {
    assert_eq!(schema_of::<Kind>(), kind());
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
enum Renamed {
    #[serde(alias = "Old")]
    New,
    Other(u8),
}

#[test]
fn an_enum_says_whether_some_of_its_names_are_of_the_same_variant() {
    let Schema::Enum(of) = schema_of::<Renamed>() else {
        panic!("it is an enum");
    };
    assert!(of.has_aliases);
    let mut names: Vec<_> = of.variants.iter().map(|variant| &*variant.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["New", "Old", "Other"]);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Tree {
    value: u32,
    children: Vec<Tree>,
    parent: Option<Box<Tree>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
enum Expression {
    Number(f64),
    Sum(Box<Expression>, Box<Expression>),
    All(Vec<Expression>),
}

#[test]
fn what_lies_in_itself_is_told_once() {
    let again = || Schema::Again("Tree".into());
    let tree = vec![
        field("value", Schema::U32),
        field("children", list(again())),
        defaulted("parent", option(again())),
    ];
    assert_eq!(schema_of::<Tree>(), of_struct("Tree", tree));
    let again = || Schema::Again("Expression".into());
    let expected = Schema::Enum(EnumSchema {
        name: "Expression".into(),
        variants: vec![
            variant("Number", Schema::F64),
            variant("Sum", Schema::Tuple(vec![again(), again()])),
            variant("All", list(again())),
        ],
        has_aliases: false,
    });
    assert_eq!(schema_of::<Expression>(), expected);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
enum Deep {
    Both(Box<Deep>, Box<Deep>),
    Leaf,
}

#[test]
fn an_enum_whose_first_variant_holds_itself_is_found_out_by_way_of_another() {
    let again = || Schema::Again("Deep".into());
    let expected = Schema::Enum(EnumSchema {
        name: "Deep".into(),
        variants: vec![
            variant("Both", Schema::Tuple(vec![again(), again()])),
            variant("Leaf", Schema::Unit),
        ],
        has_aliases: false,
    });
    assert_eq!(schema_of::<Deep>(), expected);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
enum Late {
    Both(Box<Late>, Box<Late>),
    Named { at: i32, by: u8 },
}

#[test]
fn an_enum_within_itself_is_examined_after_its_readable_variant_of_several_fields() {
    let again = || Schema::Again("Late".into());
    let fields = vec![field("at", Schema::I32), field("by", Schema::U8)];
    let expected = Schema::Enum(EnumSchema {
        name: "Late".into(),
        variants: vec![
            variant("Both", Schema::Tuple(vec![again(), again()])),
            variant("Named", of_struct("Named", fields)),
        ],
        has_aliases: false,
    });
    assert_eq!(schema_of::<Late>(), expected);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Wrapped<T> {
    inner: T,
}

#[test]
fn a_generic_type_within_itself_is_another_type() {
    let inner = of_struct("Wrapped", vec![field("inner", Schema::U8)]);
    let expected = of_struct("Wrapped", vec![field("inner", inner)]);
    assert_eq!(schema_of::<Wrapped<Wrapped<u8>>>(), expected);
}

/// Accepts only some strings.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(from)?;
        match text.starts_with("1970-") {
            true => Ok(Checked),
            false => Err(D::Error::custom("no date")),
        }
    }
}

/// Accepts no sample.
struct Stubborn;

impl<'de> Deserialize<'de> for Stubborn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        u64::deserialize(from)?;
        Err(D::Error::custom("never"))
    }
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Dated {
    at: Checked,
    took: Duration,
    from: Option<IpAddr>,
    #[serde(default)]
    size: u8,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Hard {
    never: Stubborn,
    after: String,
    maybe: Option<u8>,
}

#[test]
fn types_that_check_what_they_read_are_found_out_with_samples() {
    let Schema::Struct(dated) = schema_of::<Dated>() else {
        panic!("it is a struct");
    };
    let names: Vec<_> = dated
        .fields
        .iter()
        .map(|field| (&*field.name, field.has_default))
        .collect();
    assert_eq!(
        names,
        [
            ("at", false),
            ("took", false),
            ("from", true),
            ("size", true)
        ]
    );
    assert_eq!(dated.fields[0].schema, Schema::Text);
}

#[test]
fn what_takes_no_sample_is_taken_for_required_and_the_rest_is_known() {
    let Schema::Struct(hard) = schema_of::<Hard>() else {
        panic!("it is a struct");
    };
    let types: Vec<_> = hard
        .fields
        .iter()
        .map(|field| field.schema.clone())
        .collect();
    assert_eq!(types, [Schema::U64, Schema::Text, option(Schema::U8)]);
    let defaults: Vec<_> = hard.fields.iter().map(|field| field.has_default).collect();
    assert_eq!(defaults, [false, false, true]);
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Open {
    id: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only read")]
enum Untagged {
    Number(u8),
    Text(String),
}

#[test]
fn what_has_no_form_beforehand_is_anything() {
    assert_eq!(schema_of::<Open>(), Schema::Any);
    assert_eq!(schema_of::<Untagged>(), Schema::Any);
    assert_eq!(schema_of::<Vec<Untagged>>(), list(Schema::Any));
}
