//! Round trips of types with serde attributes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ardea_core::ErrorCode;
use proptest::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};

use crate::rows::ValueCodec;
use crate::{ExchangeData, Local, SerdeValues};

/// Encodes to payloads of about `limit` bytes and decodes them.
fn round_trip<T: ExchangeData>(values: &[T], limit: usize) -> Vec<T> {
    let (here, there) = (SerdeValues::default(), SerdeValues::default());
    let (mut done, mut back) = (0, Vec::new());
    while done < values.len() {
        let mut payload = Vec::new();
        let count = here.put(&values[done..], limit, &mut payload).unwrap();
        there.get(&payload, count, &mut back).unwrap();
        done += count;
    }
    back
}

#[track_caller]
fn comes_back<T: ExchangeData + PartialEq + Debug + Clone>(value: T) {
    let values = vec![value; 3];
    assert_eq!(round_trip(&values, 0), values);
    assert_eq!(round_trip(&values, 10_000), values);
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(f64),
    Box(u32, u32),
    Named {
        name: String,
        of: Option<Box<Shape>>,
    },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Inside {
    Bid { price: u64, extra: Vec<u8> },
    Person(Person),
    Nothing,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", content = "of")]
enum Beside {
    Number(i128),
    Pair(char, bool),
    Nothing,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum UntaggedValue {
    Shape(Shape),
    Number(i64),
    Text(String),
    List(Vec<f32>),
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Person {
    #[serde(deserialize_with = "text_or_empty")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    age: Option<u8>,
    #[serde(skip)]
    cache: u64,
    #[serde(rename(deserialize = "the city"))]
    city: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

fn text_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Flat {
    id: u64,
    #[serde(flatten)]
    rest: HashMap<String, UntaggedValue>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Literal {
    of: &'static str,
    #[serde(borrow)]
    maybe: Cow<'static, str>,
    bytes: &'static [u8],
    own: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Empty;

#[test]
fn values_of_all_kinds_come_back() {
    comes_back(());
    comes_back(Empty);
    comes_back((
        true,
        'ä',
        -1i8,
        u16::MAX,
        i32::MIN,
        f32::MAX,
        f64::MIN,
        u128::MAX,
        i128::MIN,
    ));
    comes_back((Some(Some(3)), Some(None::<u8>), None::<Option<u8>>));
    comes_back([[1u64; 3]; 30]);
    comes_back(vec![vec![7u8; 300], vec![]]);
    comes_back("x".repeat(1000));
    comes_back(BTreeMap::from([
        ((1, 'a'), vec!["b".to_string()]),
        ((2, 'c'), vec![]),
    ]));
    comes_back(IpAddr::from([127, 0, 0, 1]));
    comes_back(std::time::Duration::from_nanos(1_234_567_891_011));
    comes_back((Arc::<str>::from("shared"), Box::<[u8]>::from([1, 2])));
    comes_back(Shape::Point);
    comes_back(vec![
        Shape::Circle(0.5),
        Shape::Box(3, 4),
        Shape::Named {
            name: "n".into(),
            of: Some(Box::new(Shape::Point)),
        },
    ]);
}

#[test]
fn enums_that_are_told_apart_in_any_way_come_back() {
    comes_back(vec![
        Inside::Bid {
            price: 5,
            extra: vec![1; 20],
        },
        Inside::Person(somebody()),
        Inside::Nothing,
    ]);
    comes_back(vec![
        Beside::Number(-7),
        Beside::Pair('x', true),
        Beside::Nothing,
    ]);
    comes_back(vec![
        UntaggedValue::Shape(Shape::Named {
            name: "n".into(),
            of: None,
        }),
        UntaggedValue::Shape(Shape::Point),
        UntaggedValue::Number(-1),
        UntaggedValue::Text("t".into()),
        UntaggedValue::List(vec![1.5; 9]),
    ]);
}

fn somebody() -> Person {
    Person {
        age: Some(50),
        tags: vec![String::new()],
        ..Person::default()
    }
}

#[test]
fn fields_that_are_left_out_renamed_or_read_otherwise_come_back() {
    let person = |name: &str, age, tags: &[&str]| Person {
        name: name.into(),
        age,
        cache: 0,
        city: "Oslo".into(),
        tags: tags.iter().map(|tag| tag.to_string()).collect(),
    };
    // All fields are present: the other name of the city is accepted.
    comes_back(person("ann", Some(7), &["a"]));
    comes_back(person("", Some(0), &["a", ""]));
    // Some fields are omitted: the city cannot be found by name.
    let error = SerdeValues::default()
        .put(&[person("", None, &[])], 0, &mut Vec::new())
        .unwrap_err();
    assert!(error.to_string().contains("\"city\""), "{error}");
    let flat = |id, text: &str| Flat {
        id,
        rest: HashMap::from([
            ("text".into(), UntaggedValue::Text(text.into())),
            ("number".into(), UntaggedValue::Number(id as i64)),
        ]),
    };
    comes_back(vec![flat(1, "a"), flat(2, "")]);
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Gaps {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<u8>,
}

proptest! {
    #[test]
    fn any_fields_may_be_left_out(
        records in prop::collection::vec(any::<(Option<u8>, Option<u8>, Option<u8>)>(), 0..40), limit in 0usize..200,
    ) {
        let records: Vec<Gaps> = records.into_iter().map(|(a, b, c)| Gaps { a, b, c }).collect();
        prop_assert_eq!(&round_trip(&records, limit), &records);
    }

    #[test]
    fn lists_of_numbers_come_back(
        lists in prop::collection::vec(prop::collection::vec(any::<i64>(), 0..30), 0..5),
        mixed in prop::collection::vec(prop_oneof![any::<i64>().prop_map(UntaggedValue::Number), any::<String>().prop_map(UntaggedValue::Text)], 0..30),
    ) {
        prop_assert_eq!(&round_trip(std::slice::from_ref(&lists), 100), std::slice::from_ref(&lists));
        prop_assert_eq!(&round_trip(&mixed, 100), &mixed);
    }

    #[test]
    fn any_bytes_give_values_or_an_error(payload in prop::collection::vec(any::<u8>(), 0..200), count in 0usize..70_000) {
        read_as::<Vec<UntaggedValue>>(&payload, count);
        read_as::<Inside>(&payload, count);
        read_as::<Flat>(&payload, count);
        read_as::<(Literal, Vec<()>)>(&payload, count);
    }

    #[test]
    fn a_payload_with_a_byte_changed_gives_values_or_an_error(at in 0usize..1000, byte in any::<u8>()) {
        let values = vec![
            (UntaggedValue::List(vec![1.0; 12]), Gaps { b: Some(1), ..Gaps::default() }, Inside::Nothing),
            (UntaggedValue::Text("text".into()), Gaps::default(), Inside::Person(somebody())),
        ];
        let mut payload = Vec::new();
        SerdeValues::default().put(&values, 10_000, &mut payload).unwrap();
        let at = at % payload.len();
        payload[at] = byte;
        read_as::<(UntaggedValue, Gaps, Inside)>(&payload, 2);
    }
}

fn read_as<T: ExchangeData>(payload: &[u8], count: usize) {
    let mut values: Vec<T> = Vec::new();
    let _ = SerdeValues::default().get(payload, count, &mut values);
    assert!(values.capacity() <= 8 + 2 * payload.len().max(values.len()));
}

#[test]
fn literals_come_back_and_are_the_same_wherever_they_are_read() {
    let literal = Literal {
        of: "ann",
        maybe: Cow::Borrowed("bob"),
        bytes: b"some bytes",
        own: "own".into(),
    };
    comes_back(literal.clone());
    comes_back(Literal {
        bytes: b"few",
        ..literal
    });
    let back = round_trip(&[("to be", 1), ("or", 2), ("to be", 3)], 1000);
    assert_eq!(back[0].0.as_ptr(), back[2].0.as_ptr());
}

#[test]
fn a_record_that_does_not_come_back_is_refused_where_it_is_sent() {
    /// Written as a string, read as a number.
    #[derive(Deserialize)]
    struct Odd(#[expect(dead_code)] u64);
    impl Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str("odd")
        }
    }
    let error = SerdeValues::default()
        .put(&[Odd(1)], 100, &mut Vec::new())
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError);
    assert!(error.to_string().contains("odd"), "{error}");
    let error = SerdeValues::default()
        .put(&[Local(1)], 100, &mut Vec::new())
        .unwrap_err();
    assert!(error.to_string().contains("Local"), "{error}");
}

#[derive(Serialize, Deserialize)]
struct Nested(Option<Rc<Nested>>);

#[test]
fn values_too_deep_in_each_other_are_refused_on_both_sides() {
    let mut chain = None;
    for _ in 0..100_000 {
        chain = Some(Rc::new(Nested(chain)));
    }
    let mut payload = Vec::new();
    let mut writer = crate::writer::Writer::new(&mut payload);
    assert!(chain.serialize(&mut writer).is_err());
    let mut payload = vec![crate::tag::SOME; 100_000];
    payload.extend([0; 6]);
    let mut reader = crate::reader::Reader::of(&payload, false).unwrap();
    assert!(Nested::deserialize(&mut reader).is_err());
    // So that dropping it does not recurse either.
    while let Some(Ok(mut link)) = chain.map(Rc::try_unwrap) {
        chain = link.0.take();
    }
}

/// State values are read by later versions of their types.
mod kept {
    use super::*;
    use crate::{StateValue, state_codec_of};
    use ardea_core::{Schema, StateCodec};
    use std::sync::Arc;

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Old {
        a: i32,
        b: i32,
        text: String,
    }

    /// The same number of fields, of which only one is the same.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct New {
        b: i64,
        #[serde(default)]
        c: i32,
        #[serde(alias = "text")]
        name: Option<String>,
    }

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    enum OldKind {
        First,
        Second(u8),
    }

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    enum NewKind {
        Added(String),
        Second(u16),
        First,
    }

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    enum LessKind {
        Added(String),
        First,
    }

    /// Serde reads other names than it writes.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct TwoNames {
        #[serde(rename(serialize = "x", deserialize = "y"))]
        a: i32,
        b: i32,
    }

    fn codec<T: StateValue>() -> Arc<dyn StateCodec<T>> {
        state_codec_of().unwrap()
    }

    fn written<T: StateValue>(value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec().put(value, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn fields_are_found_by_their_names_and_never_by_their_places() {
        let old = Old {
            a: 1,
            b: -2,
            text: "three".into(),
        };
        let bytes = written(&vec![Some(old)]);
        let new = codec::<Vec<Option<New>>>().get(&bytes).unwrap();
        let expected = New {
            b: -2,
            c: 0,
            name: Some("three".into()),
        };
        assert_eq!(new, [Some(expected)]);
    }

    #[test]
    fn variants_are_found_by_their_names_and_one_that_is_gone_is_an_error() {
        let bytes = written(&vec![OldKind::First, OldKind::Second(7)]);
        let new = codec::<Vec<NewKind>>().get(&bytes).unwrap();
        assert_eq!(new, [NewKind::First, NewKind::Second(7)]);
        let less = codec::<Vec<LessKind>>();
        assert!(less.get(&bytes).is_err());
        let first = written(&vec![OldKind::First]);
        assert_eq!(less.get(&first).unwrap(), [LessKind::First]);
    }

    #[test]
    fn a_type_with_other_names_where_it_is_read_is_kept_by_places_by_every_codec() {
        let value = vec![TwoNames { a: 1, b: 2 }; 3];
        for _ in 0..3 {
            let bytes = written(&value);
            assert_eq!(codec::<Vec<TwoNames>>().get(&bytes).unwrap(), value);
        }
    }

    /// The layout of `TwoNames`, with its fields in another order.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Turned {
        b: i32,
        y: i32,
    }

    #[test]
    fn what_is_kept_by_places_is_told_apart_and_read_by_no_other_type() {
        let schema = codec::<TwoNames>().schema();
        assert!(matches!(schema, Schema::Placed(_)), "{schema:?}");
        assert!(matches!(codec::<Turned>().schema(), Schema::Struct(_)));
        let bytes = written(&TwoNames { a: 1, b: 2 });
        let error = codec::<Turned>().get(&bytes).unwrap_err();
        assert!(error.to_string().contains("by position"), "{error}");
    }

    #[test]
    fn a_field_that_is_missing_and_has_no_value_of_its_own_is_named() {
        let bytes = written(&TwoNames { a: 1, b: 2 });
        let error = codec::<Old>().get(&bytes).unwrap_err();
        assert!(error.to_string().contains("Old"), "{error}");
    }
}
