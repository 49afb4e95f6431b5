//! Tests of inferred schemas.

use super::*;
use crate::inference::sample::infer_file;

fn json(lines: &str) -> InferredSchema {
    InferredSchema::of_json(lines.lines().map(str::as_bytes))
}

fn csv(lines: &str) -> InferredSchema {
    InferredSchema::of_csv(Csv::new(), lines.lines().map(str::as_bytes))
}

fn kinds(schema: &InferredSchema) -> Vec<(&str, &InferredType, bool)> {
    let fields = schema.fields().iter();
    fields
        .map(|field| (field.name.as_str(), &field.kind, field.is_optional))
        .collect()
}

#[test]
fn fields_have_the_common_type_of_their_values_in_the_order_of_occurrence() {
    let schema = json(
        r#"{"z":1,"a":true,"n":null,"big":18446744073709551615}
           {"z":2.5,"a":"yes","n":7,"big":1,"at":"2026-11-29T17:03:13Z"}"#,
    );
    use InferredType::*;
    assert_eq!(
        kinds(&schema),
        [
            ("z", &Float, false),
            ("a", &Mixed, false),
            ("n", &Integer, true),
            ("big", &Float, false),
            ("at", &Timestamp, true),
        ]
    );
}

#[test]
fn lines_that_are_no_objects_are_counted_and_left_out() {
    let schema = json("{\"a\":1}\n[1]\nnot json\n\n{\"a\":2}");
    assert_eq!((schema.records(), schema.bad_records()), (2, 2));
    assert_eq!(kinds(&schema), [("a", &InferredType::Integer, false)]);
}

#[test]
fn csv_numbers_with_leading_zeros_are_texts_and_empty_fields_are_null() {
    let schema =
        csv("zip,price,born,at,size\n01234,1.5,,2015-07-15 00:00:00+02:00,7\n99999,2,1970,x,NA");
    use InferredType::*;
    assert_eq!(
        kinds(&schema),
        [
            ("zip", &Text, false),
            ("price", &Float, false),
            ("born", &Integer, true),
            ("at", &Text, false),
            ("size", &Text, false),
        ]
    );
}

#[test]
fn structs_have_names_of_the_language_and_keep_those_of_the_file() {
    let schema = json(r#"{"type":"bid","dateTime":7,"item":{"id":1,"tags":["a"]},"none":null}"#);
    assert_eq!(
        schema.to_rust("auction_event"),
        "#[derive(Serialize, Deserialize, Clone, Debug)]
struct AuctionEvent {
    #[serde(rename = \"type\")]
    type_: String,
    #[serde(rename = \"dateTime\")]
    date_time: i64,
    item: AuctionEventItem,
    none: Option<serde_json::Value>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct AuctionEventItem {
    id: i64,
    tags: Vec<String>,
}
"
    );
    assert_eq!(
        schema.to_python("auction_event"),
        "@dataclass
class AuctionEventItem:
    id: int
    tags: list[str]


@dataclass
class AuctionEvent:
    type: str
    date_time: int  # \"dateTime\" in the file
    item: AuctionEventItem
    none: object | None = None
"
    );
    assert_eq!(
        schema.to_sql("auction_event"),
        "CREATE TABLE auction_event (
  type VARCHAR NOT NULL,
  \"dateTime\" BIGINT NOT NULL,
  item STRUCT(id BIGINT, tags VARCHAR[]) NOT NULL,
  none VARCHAR
);
"
    );
}

#[test]
fn a_compressed_file_is_sampled_by_its_first_records() {
    use std::io::Write;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl.gz");
    let file = std::fs::File::create(&path).unwrap();
    let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    for id in 0..100 {
        writeln!(
            file,
            "{{\"id\":{id},\"late\":{}}}",
            if id < 10 { "1" } else { "\"x\"" }
        )
        .unwrap();
    }
    file.finish().unwrap();
    let format = InferredFormat::of_name(&path).unwrap();
    let schema = infer_file(&path, format, 10).unwrap();
    assert_eq!(schema.records(), 10);
    assert_eq!(schema.fields()[1].kind, InferredType::Integer);
}

#[test]
fn a_file_without_a_good_record_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.jsonl");
    std::fs::write(&path, "hello\nworld\n").unwrap();
    let error = infer_file(&path, InferredFormat::JsonLines, 10).unwrap_err();
    assert!(
        error.to_string().contains("none of the first 2 records"),
        "{error}"
    );
}
