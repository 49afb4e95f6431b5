//! Tests of deserialization from JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::from_json;

#[derive(PartialEq, Debug, Deserialize)]
struct Order {
    id: u64,
    price: Option<f64>,
    exact: String,
    tags: Vec<Option<String>>,
    state: State,
    by_day: BTreeMap<u32, (i8, bool)>,
}

#[derive(PartialEq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Open,
    Paid(i32),
}

const ORDER: &str = r#"{"id":18446744073709551615, "price": 12.50, "other": [{"a": [1e5, null]}, "\u00e4"],
    "exact": 0.12345678901234567890123, "tags": ["a\"b", null, "ä\n"], "state":{"paid": -3}, "by_day":{"7": [1, true]}}"#;

#[test]
fn a_record_is_read_field_by_field() {
    let order: Order = from_json(ORDER).unwrap();
    assert_eq!(order.id, u64::MAX);
    assert_eq!(order.price, Some(12.5));
    assert_eq!(order.exact, "0.12345678901234567890123");
    assert_eq!(
        order.tags,
        [Some("a\"b".to_string()), None, Some("ä\n".to_string())]
    );
    assert_eq!(order.state, State::Paid(-3));
    assert_eq!(order.by_day[&7], (1, true));
    assert_eq!(from_json::<State>("\"open\"").unwrap(), State::Open);
}

#[test]
fn what_serde_json_reads_is_read_the_same() {
    for text in [
        "null",
        " [1, -2.5, \"x\", {}, [] ] ",
        r#"{"a":{"b":[true,false,null]},"c":"\ud83d\ude00"}"#,
        "18446744073709551615",
        "-0.25e-3",
    ] {
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(from_json::<Value>(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn what_serde_json_refuses_is_refused() {
    for text in [
        "",
        "{",
        "[1 2]",
        "[1,]",
        "{\"a\"}",
        "{a:1}",
        "\"open",
        "nul",
        "-",
        "1 2",
        "\"\\ud800\"",
        "[1}",
    ] {
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
        assert!(from_json::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn digits_are_never_lost() {
    let lost = from_json::<f64>("0.12345678901234567890").unwrap_err();
    assert!(
        lost.to_string().contains("0.12345678901234567890"),
        "{lost}"
    );
    assert!(from_json::<f64>("9007199254740993").is_err());
    assert!(from_json::<f32>("0.123456789").is_err());
    assert!(from_json::<i64>("1.5").is_err());
    assert!(from_json::<i64>("9223372036854775808").is_err());
    assert!(from_json::<u8>("256").is_err());
    assert!(from_json::<i64>("null").is_err());
    assert_eq!(from_json::<i64>("-9223372036854775808").unwrap(), i64::MIN);
    assert_eq!(from_json::<i64>("7.00").unwrap(), 7);
    assert_eq!(from_json::<i128>("9223372036854775808").unwrap(), 1 << 63);
    // A record without a fixed type receives long numbers as text.
    let any: Value = from_json("[0.5, 0.12345678901234567890, 123456789012345678901]").unwrap();
    let kept = json!([0.5, "0.12345678901234567890", "123456789012345678901"]);
    assert_eq!(any, kept);
}

#[test]
fn numbers_that_json_lacks_are_read_as_floats_and_as_text() {
    assert!(from_json::<f64>("\"NaN\"").unwrap().is_nan());
    assert_eq!(
        from_json::<f64>("\"-Infinity\"").unwrap(),
        f64::NEG_INFINITY
    );
    assert_eq!(from_json::<f32>("\"Infinity\"").unwrap(), f32::INFINITY);
    assert_eq!(from_json::<String>("\"NaN\"").unwrap(), "NaN");
    assert!(from_json::<i64>("\"NaN\"").is_err());
}

#[test]
fn bytes_are_read_from_hexadecimal() {
    struct Bytes(Vec<u8>);
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl serde::de::Visitor<'_> for Visitor {
                type Value = Bytes;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("bytes")
                }
                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                    Ok(Bytes(bytes.to_vec()))
                }
            }
            deserializer.deserialize_bytes(Visitor)
        }
    }
    assert_eq!(
        from_json::<Bytes>("\"\\\\x00abFF\"").unwrap().0,
        [0, 171, 255]
    );
    assert_eq!(from_json::<Bytes>("\"\\\\x0\"").unwrap().0, b"\\x0");
    assert_eq!(from_json::<String>("\"\\\\x00\"").unwrap(), "\\x00");
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(from_json::<Value>(&nested(100)).is_ok());
    let error = from_json::<Value>(&nested(100_000)).unwrap_err();
    assert!(error.to_string().contains("deep"), "{error}");
    assert!(from_json::<serde::de::IgnoredAny>(&nested(100_000)).is_err());
}
