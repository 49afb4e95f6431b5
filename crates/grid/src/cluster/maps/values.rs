//! Conversion of keys and values from and to JSON, without their Rust types.
//!
//! Encoded values are self-describing and are read without a schema. Values to be written are
//! shaped by the schema, so that the bytes are those which the type itself would write.

mod bytes_to_json;
mod json_to_bytes;

use ardea_codec::{SerdeValues, StateValues, state_codec_of};
use ardea_core::{Error, ErrorCode, Result, Schema, StateCodec};
use bytes::Bytes;
use serde_json::{Value, json};

use bytes_to_json::UntypedValue;
use json_to_bytes::TypedJson;

/// Decodes a key or value to JSON. An unreadable one becomes an object with its size.
pub(crate) fn to_json(bytes: &[u8]) -> Value {
    let codec = StateValues::new(SerdeValues::for_state());
    let seen: Result<UntypedValue> = codec.get(bytes);
    match seen {
        Ok(UntypedValue(value)) => value,
        Err(_) => json!({ "unreadable_bytes": bytes.len() }),
    }
}

/// Encodes a key or value of this schema from JSON. `what` names it in the error text.
///
/// # Errors
/// [`ErrorCode::BadRequest`] with the expected type and the position.
pub(crate) fn from_json(schema: &Schema, value: Value, what: &str) -> Result<Bytes> {
    let codec = state_codec_of::<TypedJson>()
        .ok_or_else(|| Error::new(ErrorCode::Internal, "cannot serialize values given as JSON"))?;
    let shaped = TypedJson::new(schema.clone(), value);
    let mut bytes = Vec::new();
    match codec.put(&shaped, &mut bytes) {
        Ok(()) => Ok(bytes.into()),
        Err(error) => {
            let why = shaped.why().unwrap_or_else(|| error.message());
            let what = format!("not a valid {what} of the map: {why}");
            Err(Error::new(ErrorCode::BadRequest, what)
                .hint(format!("expected JSON for a {schema}")))
        }
    }
}

/// Encodes a key or value given as text: plain text for a text schema, otherwise JSON.
///
/// # Errors
/// As [`from_json`].
pub(crate) fn from_text(schema: &Schema, text: &str, what: &str) -> Result<Bytes> {
    let value = match schema {
        // JSON cannot represent all 128-bit integers, so they are read from text as well.
        Schema::Text | Schema::U128 | Schema::I128 => Value::String(text.to_string()),
        // Text that is not JSON is taken as a string, so that enum variants need no quotes.
        _ => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_string())),
    };
    from_json(schema, value, what)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ardea_codec::{StateValue, schema_of};
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    enum Cargo {
        Empty,
        Tons(u32),
        Boxed { count: u64, size: (f32, f64) },
        Mixed(i8, String),
    }

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Ship {
        name: String,
        #[serde(default)]
        crew: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        flag: Option<char>,
        cargo: Cargo,
        holds: BTreeMap<u16, bool>,
        log: Vec<i64>,
        next: Option<Box<Ship>>,
        unit: (),
    }

    fn written<T: StateValue>(value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        let codec = state_codec_of::<T>().unwrap();
        codec.put(value, &mut bytes).unwrap();
        bytes
    }

    fn ship() -> Ship {
        Ship {
            name: "seagull".into(),
            crew: vec!["ann".into()],
            flag: Some('n'),
            cargo: Cargo::Boxed {
                count: u64::MAX,
                size: (1.5, 2.5),
            },
            holds: BTreeMap::from([(1, true), (7, false)]),
            log: (-5..20).collect(),
            next: None,
            unit: (),
        }
    }

    fn back<T: StateValue>(json: Value) -> Result<T> {
        let bytes = from_json(&schema_of::<T>(), json, "value")?;
        state_codec_of::<T>().unwrap().get(&bytes)
    }

    #[test]
    fn what_a_type_has_written_is_read_without_it_and_written_as_it_would_be() {
        let cargos = [
            Cargo::Empty,
            Cargo::Tons(7),
            Cargo::Mixed(-1, "salt".into()),
            ship().cargo,
        ];
        for cargo in cargos {
            let inner = Ship {
                cargo: cargo.clone(),
                ..ship()
            };
            let ship = Ship {
                next: Some(Box::new(inner)),
                cargo,
                ..ship()
            };
            let json = to_json(&written(&ship));
            assert_eq!(json, serde_json::to_value(&ship).unwrap());
            assert_eq!(back::<Ship>(json).unwrap(), ship);
        }
    }

    #[test]
    fn keys_are_the_same_bytes_whoever_writes_them() {
        fn check<T: StateValue>(key: &T, text: &str) {
            let bytes = from_text(&schema_of::<T>(), text, "key").unwrap();
            assert_eq!(bytes, written(key), "{text}");
            // The printed form of a key finds it again.
            let shown = to_json(&bytes);
            let again = from_json(&schema_of::<T>(), shown, "key").unwrap();
            assert_eq!(again, bytes, "{text}");
        }
        check(&"seagull".to_string(), "seagull");
        check(&"7".to_string(), "7");
        check(&"\"7\"".to_string(), "\"7\"");
        check(&7_u32, "7");
        check(&-7_i64, "-7");
        check(&u128::MAX, &u128::MAX.to_string());
        check(&'x', "\"x\"");
        check(&true, "true");
        check(&("a".to_string(), 1_u8), "[\"a\", 1]");
        check(&Some(3_u16), "3");
        check(&None::<u16>, "null");
        check(&Cargo::Empty, "Empty");
        check(&Cargo::Tons(5), "{\"Tons\": 5}");
        check(&[1_u64, 2], "[1, 2]");
    }

    #[test]
    fn fields_that_are_left_out_get_what_their_type_has_for_them() {
        let json = json!({ "name": "a", "cargo": "Empty", "holds": {}, "log": [], "next": null, "unit": null });
        let ship: Ship = back(json).unwrap();
        assert_eq!(
            (ship.crew.len(), ship.flag, ship.name.as_str()),
            (0, None, "a")
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_where_and_why() {
        let cases = [
            (json!({ "name": 7 }), "name: 7 is no text"),
            (
                json!({ "name": "a", "sails": 3 }),
                "there is no field \"sails\"",
            ),
            (
                json!({ "name": "a", "crew": "ann" }),
                "crew: \"ann\" is no list",
            ),
            (
                json!({ "name": "a", "crew": ["ann", 1] }),
                "crew.1: 1 is no text",
            ),
            (
                json!({ "name": "a", "flag": "no" }),
                "flag: \"no\" is no char",
            ),
            (json!({ "name": "a" }), "the field \"cargo\" is missing"),
            (
                json!({ "name": "a", "cargo": "Full" }),
                "cargo: there is no \"Full\"",
            ),
            (
                json!({ "name": "a", "cargo": { "Tons": -1 } }),
                "cargo.Tons: -1 is no u32",
            ),
            (json!([]), "[] is no Ship"),
        ];
        for (json, why) in cases {
            let error = back::<Ship>(json).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRequest);
            assert!(error.to_string().contains(why), "{why}: {error}");
        }
        let error = back::<u8>(json!(300)).unwrap_err();
        assert!(error.to_string().contains("300 is no u8"), "{error}");
    }

    #[test]
    fn what_nobody_can_read_says_so() {
        assert_eq!(to_json(&[255, 1]), json!({ "unreadable_bytes": 2 }));
    }
}
