//! JSON lines and CSV: values, mistakes, and comparison with other readers.

use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float64Type, Int8Type, Int64Type, TimestampMillisecondType, UInt64Type,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    let fields = fields.iter();
    let fields =
        fields.map(|(name, kind, is_nullable)| Field::new(*name, kind.clone(), *is_nullable));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn all_types() -> SchemaRef {
    schema(&[
        ("flag", DataType::Boolean, true),
        ("small", DataType::Int8, true),
        ("id", DataType::UInt64, false),
        ("rate", DataType::Float64, true),
        ("text", DataType::Utf8, true),
        ("at", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        ("day", DataType::Date32, true),
    ])
}

/// Decodes records; returns the index and the reason of each bad one.
fn decode_records<'a>(
    mut decoder: ColumnDecoder,
    records: impl IntoIterator<Item = &'a [u8]>,
) -> (RecordBatch, Vec<(usize, String)>) {
    let mut bad = Vec::new();
    for (index, record) in records.into_iter().enumerate() {
        let rows = decoder.rows();
        let expected = match decoder.decode(record) {
            Ok(Some(())) => rows + 1,
            Ok(None) => rows,
            Err(reason) => {
                bad.push((index, reason));
                rows
            }
        };
        assert_eq!(decoder.rows(), expected);
    }
    (decoder.finish().unwrap(), bad)
}

/// Decodes JSON lines.
fn decode(decoder: ColumnDecoder, lines: &[u8]) -> (RecordBatch, Vec<(usize, String)>) {
    decode_records(decoder, lines.split(|byte| *byte == b'\n'))
}

/// Returns a decoder of CSV with this header.
fn csv(delimiter: u8, header: &[u8]) -> Result<ColumnDecoder, String> {
    let mut decoder = ColumnDecoder::csv(all_types(), delimiter).unwrap();
    assert!(decoder.awaits_header());
    decoder.decode(header)?;
    Ok(decoder)
}

/// Returns the reason for a bad line of JSON.
fn reason(line: &str) -> String {
    let block = format!("{{\"id\":1}}\n{line}\n{{\"id\":2}}");
    let (batch, bad) = decode(ColumnDecoder::json(all_types()).unwrap(), block.as_bytes());
    assert!(batch.columns().iter().all(|column| column.len() == 2));
    assert_eq!((bad.len(), bad[0].0), (1, 1), "{line}");
    bad[0].1.clone()
}

#[test]
fn values_of_every_type_are_read_wherever_they_stand() {
    let block = br#"{"id":18446744073709551615,"flag":true,"small":-128,"rate":-1.5e3,"text":"h\u00e9\n\ud83d\ude00","at":"1970-01-01T00:00:01.5Z","day":"1970-01-03"}

  { "x" : [1, {"id": 3}, "]"], "text" : "" , "rate":7,"id":0,"small" : null , "at":-4}	
{"id":5,"\u0066lag":false}"#;
    let (batch, bad) = decode(ColumnDecoder::json(all_types()).unwrap(), block);
    assert_eq!(bad, []);
    assert_eq!(batch.num_rows(), 3);
    let flags: Vec<_> = batch.column(0).as_boolean().iter().collect();
    assert_eq!(flags, [Some(true), None, Some(false)]);
    let small: Vec<_> = batch.column(1).as_primitive::<Int8Type>().iter().collect();
    assert_eq!(small, [Some(-128), None, None]);
    let ids = batch.column(2).as_primitive::<UInt64Type>();
    assert_eq!(ids.values(), &[u64::MAX, 0, 5]);
    let rates: Vec<_> = batch
        .column(3)
        .as_primitive::<Float64Type>()
        .iter()
        .collect();
    assert_eq!(rates, [Some(-1500.0), Some(7.0), None]);
    let texts: Vec<_> = batch.column(4).as_string::<i32>().iter().collect();
    assert_eq!(texts, [Some("hé\n😀"), Some(""), None]);
    let times = batch.column(5).as_primitive::<TimestampMillisecondType>();
    assert_eq!(
        times.iter().collect::<Vec<_>>(),
        [Some(1500), Some(-4), None]
    );
    let days = batch.column(6).as_primitive::<Date32Type>();
    assert_eq!(days.iter().collect::<Vec<_>>(), [Some(2), None, None]);
}

#[test]
fn bad_records_say_what_is_wrong_and_lose_no_other_record() {
    for (line, part) in [
        (r#"{"text":"x"}"#, "missing field \"id\""),
        (r#"{"id":null}"#, "expected an unsigned integer, found null"),
        (r#"{"id":1,"id":1}"#, "duplicate field \"id\""),
        (r#"{"id":"1"}"#, "found a string"),
        (r#"{"id":1.0}"#, "1.0"),
        (r#"{"id":-1}"#, "-1 is out of range of UInt64"),
        (r#"{"id":18446744073709551616}"#, "18446744073709551616"),
        (r#"{"id":1,"small":128}"#, "128 is out of range of Int8"),
        (r#"{"id":1,"rate":1e999}"#, "out of range"),
        (r#"{"id":1,"text":5}"#, "expected a string, found a number"),
        (r#"{"id":1,"text":{}}"#, "found an object"),
        (r#"{"id":1,"flag":[true]}"#, "found an array"),
        (r#"{"id":1,"at":"yesterday"}"#, "yesterday"),
        (r#"{"id":1,"day":"1970-13-01"}"#, "1970-13-01"),
        (r#"{"id":1"#, "the line ends"),
        (r#"{"id":1}}"#, "trailing characters"),
        (r#"{"id":01}"#, "leading zero"),
        (r#"{"id":1,"x":"a"#, "a string has no end"),
        (r#"{"id":1,"x":"\q"}"#, "unknown escape"),
        (r#"{"id":1,"x":"\ud800"}"#, "surrogate"),
        ("{\"id\":1,\"x\":\"\t\"}", "control character"),
        (r#"{"id":1,"x":tru}"#, "expected a value"),
        ("[1]", "expected an object"),
        ("7", "expected an object"),
    ] {
        let reason = reason(line);
        assert!(reason.contains(part), "{line}: {reason}");
    }
    let deep = format!("{{\"id\":1,\"x\":{}1{}}}", "[".repeat(500), "]".repeat(500));
    assert!(reason(&deep).contains("128 deep"));
}

#[test]
fn invalid_utf_8_is_found_in_decoded_and_in_skipped_fields() {
    for key in ["text", "other"] {
        let mut block = format!("{{\"id\":1,\"{key}\":\"..........").into_bytes();
        block.extend_from_slice(b"\xff\"}\r\n{\"id\":2}\r\n");
        let (batch, bad) = decode(ColumnDecoder::json(all_types()).unwrap(), &block);
        assert_eq!((batch.num_rows(), bad.len()), (1, 1));
        let (_, reason) = &bad[0];
        assert!(reason.contains("invalid UTF-8 at byte"), "{reason}");
    }
}

#[test]
fn nested_fields_are_reached_by_their_path() {
    let columns = schema(&[
        ("price", DataType::Int64, true),
        ("name", DataType::Utf8, true),
        ("dotted", DataType::Int64, true),
    ]);
    let paths = [
        FieldPath::from("bid.price"),
        "bid.by.name".into(),
        FieldPath::keys(["a.b"]),
    ];
    let decoder = ColumnDecoder::json_at(Arc::clone(&columns), &paths).unwrap();
    let block = br#"{"bid":{"by":{"name":"ann","price":9},"price":3},"a.b":1}
{"price":7,"bid":null}
{"bid":5}
{"person":{"price":1}}"#;
    let (batch, bad) = decode(decoder, block);
    let prices: Vec<_> = batch.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(prices, [Some(3), None, None]);
    assert_eq!(batch.column(1).as_string::<i32>().value(0), "ann");
    assert_eq!(batch.column(2).null_count(), 2);
    assert_eq!(bad.len(), 1);
    assert!(bad[0].1.contains("expected an object"));
    let twice = [FieldPath::from("a"), "a.b".into(), "c".into()];
    assert!(ColumnDecoder::json_at(columns, &twice).is_err());
}

#[test]
fn csv_fields_are_read_by_their_names() {
    let decoder = csv(b',', b"text,x,\"id\",small,rate,at,flag,x").unwrap();
    assert_eq!(decoder.fields(), Some(8));
    let records: [&[u8]; 4] = [
        b"a,,1,-7,2.5,1500,true,",
        b"\"b, \"\"c\"\"\nd\",\"\n\",+2,,nan,1970-01-01T00:00:01Z,,\"\" ",
        b"",
        b"\"\",\xc3\xa9,3,0,1,,false,last",
    ];
    let (batch, bad) = decode_records(decoder, records);
    assert_eq!(bad, []);
    let texts: Vec<_> = batch.column(4).as_string::<i32>().iter().collect();
    assert_eq!(texts, [Some("a"), Some("b, \"c\"\nd"), None]);
    assert_eq!(
        batch.column(2).as_primitive::<UInt64Type>().values(),
        &[1, 2, 3]
    );
    let small: Vec<_> = batch.column(1).as_primitive::<Int8Type>().iter().collect();
    assert_eq!(small, [Some(-7), None, Some(0)]);
    assert!(
        batch
            .column(3)
            .as_primitive::<Float64Type>()
            .value(1)
            .is_nan()
    );
    let times: Vec<_> = batch
        .column(5)
        .as_primitive::<TimestampMillisecondType>()
        .iter()
        .collect();
    assert_eq!(times, [Some(1500), Some(1000), None]);
    assert_eq!(
        batch.column(6).null_count(),
        3,
        "the header has no such field"
    );
}

#[test]
fn bad_csv_records_say_what_is_wrong_and_lose_no_other_record() {
    for (record, part) in [
        ("1", "1 fields where the header has 2"),
        ("1,a,b", "3 fields"),
        (",a", "expected an unsigned integer, found \"\""),
        ("-1,a", "out of range"),
        ("1.0,a", "1.0"),
        ("99999999999999999999,a", "99999999999999999999"),
        ("1,\"a\"b", "text after a closing quote"),
        ("1,\"a", "a quoted field has no end"),
        ("x,\"a\nb\"", "found \"x\""),
    ] {
        let decoder = csv(b';', b"id;text").unwrap();
        let record = record.replace(',', ";");
        let records = [b"1;a", record.as_bytes(), b"2;b"];
        let (batch, bad) = decode_records(decoder, records);
        assert_eq!(batch.num_rows(), 2, "{record}");
        assert_eq!((bad.len(), bad[0].0), (1, 1), "{record}");
        assert!(bad[0].1.contains(part), "{record}: {}", bad[0].1);
    }
    let invalid = decode(csv(b',', b"id,x").unwrap(), b"1,\xff\n2,");
    assert!(invalid.1[0].1.contains("UTF-8") && invalid.0.num_rows() == 1);
    let refused = |header| csv(b',', header).unwrap_err();
    assert!(refused(b"text").contains("no field \"id\""));
    assert!(refused(b"id,id").contains("two fields"));
    assert!(refused(b"id,\"x").contains("no end"));
    assert!(refused(b"id,\xff").contains("UTF-8"));
}

#[test]
fn types_that_no_text_has_are_refused() {
    let list = DataType::new_list(DataType::Int8, true);
    let error = ColumnDecoder::json(schema(&[("tags", list, true)]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("tags") && error.contains("List"), "{error}");
}

/// JSON with the mistakes that people and programs make.
fn nearly_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_string()),
        Just("true".into()),
        Just("-0.5e+7".into()),
        Just("tru".into()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        ".{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        r#""[a-z\\"é/nu0-9]{0,20}""#.prop_map(|text| text),
        Just("1.".into()),
        Just("01".into()),
        Just("-".into()),
        Just("\"".into()),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let comma = prop_oneof![9 => Just(","), 1 => Just(""), 1 => Just(" , ")];
        let items = prop::collection::vec((inner, comma), 0..5);
        (items, any::<bool>()).prop_map(|(items, is_object)| {
            let mut text = String::new();
            for (index, (item, comma)) in items.iter().enumerate() {
                if index > 0 {
                    text.push_str(comma);
                }
                if is_object {
                    text.push_str(&format!("\"k{index}\": "));
                }
                text.push_str(item);
            }
            if is_object {
                format!("{{{text}}}")
            } else {
                format!("[{text}]")
            }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_line_is_well_formed_exactly_if_serde_json_reads_it(value in nearly_json()) {
        let line = format!("{{\"id\":7,\"x\":{value}}}");
        if line.contains('\n') {
            return Ok(());
        }
        let (batch, bad) = decode(ColumnDecoder::json(all_types()).unwrap(), line.as_bytes());
        let expected = serde_json::from_str::<IgnoredAny>(&line);
        prop_assert_eq!(batch.num_rows() == 1, bad.is_empty());
        match &bad[..] {
            [] => prop_assert!(expected.is_ok(), "{}", line),
            // Skipped by serde_json without a check.
            [(_, reason), ..] if reason.contains("surrogate") => {}
            [(_, reason), ..] => prop_assert!(expected.is_err(), "{}: {}", line, reason),
        }
    }

    #[test]
    fn csv_records_are_those_of_the_csv_crate(
        rows in prop::collection::vec((any::<u64>(), "[a-z,\"\r\n é]{0,10}"), 1..20),
    ) {
        let record = |row| {
            let mut writer = ::csv::Writer::from_writer(Vec::new());
            writer.serialize(row).unwrap();
            let mut record = writer.into_inner().unwrap();
            record.pop();
            record
        };
        let records: Vec<Vec<u8>> = rows.iter().map(record).collect();
        let decoder = csv(b',', b"id,text").unwrap();
        let (batch, bad) = decode_records(decoder, records.iter().map(Vec::as_slice));
        prop_assert_eq!(bad, []);
        prop_assert_eq!(batch.num_rows(), rows.len());
        for (at, (id, text)) in rows.iter().enumerate() {
            prop_assert_eq!(batch.column(2).as_primitive::<UInt64Type>().value(at), *id);
            prop_assert_eq!(batch.column(4).as_string::<i32>().value(at), text);
        }
    }

    #[test]
    fn written_values_are_read_back(
        rows in prop::collection::vec(
            (any::<Option<i64>>(), any::<Option<u64>>(), any::<Option<f64>>(), any::<Option<String>>(),
                any::<Option<bool>>()),
            0..20,
        ),
    ) {
        let columns = schema(&[("a", DataType::Int64, true), ("b", DataType::UInt64, true),
            ("c", DataType::Float64, true), ("d", DataType::Utf8, true),
            ("e", DataType::Boolean, true)]);
        let line = |(a, b, c, d, e): &(_, _, Option<f64>, _, _)| {
            let c = c.filter(|c| c.is_finite());
            serde_json::json!({"a": a, "b": b, "c": c, "d": d, "e": e}).to_string()
        };
        let block = rows.iter().map(line).collect::<Vec<_>>().join("\n");
        let (batch, bad) = decode(ColumnDecoder::json(columns).unwrap(), block.as_bytes());
        prop_assert_eq!(bad, []);
        let (a, b) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<UInt64Type>());
        let (c, d) = (batch.column(2).as_primitive::<Float64Type>(), batch.column(3).as_string::<i32>());
        for (at, row) in rows.iter().enumerate() {
            prop_assert_eq!(a.is_valid(at).then(|| a.value(at)), row.0);
            prop_assert_eq!(b.is_valid(at).then(|| b.value(at)), row.1);
            prop_assert_eq!(c.is_valid(at).then(|| c.value(at)), row.2.filter(|c| c.is_finite()));
            prop_assert_eq!(d.is_valid(at).then(|| d.value(at)), row.3.as_deref());
        }
    }
}
