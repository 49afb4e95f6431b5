//! Tests that the OpenAPI document and the server agree.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use ardea_coordination::packing::{
    ContainerId, JobDemand, MilliCores, PackingConfig, PackingPolicy, Resources, RoundRobin,
    VertexDemand,
};
use ardea_rest::testing::word_count;
use ardea_rest::{UpgradeRequest, openapi_document};
use serde_json::Value;

use crate::fixture::serve_word_count;

/// Returns each operation of the document with its path and method.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().unwrap().clone();
        let path = path.clone();
        methods
            .into_iter()
            .map(move |(method, operation)| (path.clone(), method, operation))
    };
    paths.iter().flat_map(of_path).collect()
}

/// Collects all references within a part of the document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(place)) = fields.get("$ref") {
                found.insert(place.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn whatever_the_document_refers_to_is_in_it() {
    let document = openapi_document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for place in found {
        let pointer = place.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{place} is missing");
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(schema["description"].is_string(), "{name} is not explained");
    }
}

#[test]
fn every_operation_is_named_once_and_explains_itself_and_its_parameters() {
    let document = openapi_document();
    let mut names = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let place = format!("{method} {path}");
        assert!(
            names.insert(operation["operationId"].to_string()),
            "{place}"
        );
        assert!(
            !operation["summary"].as_str().unwrap().is_empty(),
            "{place}"
        );
        let parameters = operation["parameters"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for parameter in &parameters {
            assert!(parameter["description"].is_string(), "{place}: {parameter}");
            assert!(parameter["schema"].is_object(), "{place}: {parameter}");
            assert!(
                !parameter.to_string().contains("null"),
                "{place}: {parameter}"
            );
        }
        let in_path: BTreeSet<String> = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| format!("{{{}}}", parameter["name"].as_str().unwrap()))
            .collect();
        let braced: BTreeSet<String> = path
            .split('/')
            .filter(|part| part.starts_with('{'))
            .map(str::to_string)
            .collect();
        assert_eq!(in_path, braced, "{place}");
    }
}

/// Checks recursively that an object has the fields that its schema requires, and no others, and
/// that `null` is a value of its schema.
fn fits(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(target) = schema["$ref"].as_str() {
        let target = document.pointer(target.strip_prefix('#').unwrap()).unwrap();
        return fits(document, target, value, place);
    }
    if value.is_null() {
        let kinds = schema.get("type").or(schema.get("anyOf"));
        let is_nullable = kinds.is_some_and(|kinds| kinds.to_string().contains("\"null\""));
        assert!(is_nullable || kinds.is_none(), "{place} is null: {schema}");
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            fits(
                document,
                &schema["items"],
                item,
                &format!("{place}/{index}"),
            );
        }
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return;
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        assert!(fields.contains_key(name), "{place} lacks {name}");
    }
    for (name, value) in fields {
        let schema = known.get(name);
        let schema = schema.unwrap_or_else(|| panic!("{place} has {name}, which is unknown"));
        fits(document, schema, value, &format!("{place}/{name}"));
    }
}

#[test]
fn types_of_other_crates_are_described_as_they_are_written() {
    let each = Resources {
        cpu: MilliCores(500),
        memory_bytes: 1,
        disk_bytes: 2,
    };
    let vertex = VertexDemand::new("v", 3, each).attribute("rack", "1");
    let demand = JobDemand::new("j").vertex(vertex);
    let mut config = PackingConfig {
        containers: NonZeroU32::new(2),
        ..PackingConfig::default()
    };
    config.extra.insert("a".into(), "b".into());
    let plan = RoundRobin.pack(&demand, &config).unwrap();
    let plan = plan.with_attribute(ContainerId(1), "rack", "1");
    let definition = word_count("c", "j", 7).definition;
    let document = openapi_document();
    for (name, value) in [
        ("Resources", serde_json::to_value(each)),
        ("Resources", serde_json::to_value(Resources::UNLIMITED)),
        ("JobDemand", serde_json::to_value(&demand)),
        ("PackingConfig", serde_json::to_value(&config)),
        (
            "PackingConfig",
            serde_json::to_value(PackingConfig::default()),
        ),
        ("PackingPlan", serde_json::to_value(&plan)),
        ("JobDefinition", serde_json::to_value(&definition)),
    ] {
        let schema = &document["components"]["schemas"][name];
        assert!(schema["properties"].is_object(), "{name} is not described");
        fits(&document, schema, &value.unwrap(), name);
    }
}

/// Returns the body of an upgrade request for the job `word-count`.
fn upgrade_of_word_count() -> String {
    let next = word_count("pretended", "word-count", 43);
    let request = UpgradeRequest {
        definition: next.definition,
        demand: next.demand,
        packing: next.packing,
        patience_ms: 60_000,
    };
    serde_json::to_string(&request).unwrap()
}

#[tokio::test]
async fn every_operation_is_served_as_it_is_described() {
    let served = serve_word_count().await;
    let document = served.ask("GET", "/v1/openapi.json", "", "").await;
    let document: Value = serde_json::from_str(&document.body).unwrap();
    assert_eq!(document, openapi_document());
    let mut operations = operations(&document);
    // Operations that end the job or remove a map come last.
    operations.sort_by_key(|(path, method, _)| match method.as_str() {
        "delete" => (true, usize::MAX - path.len()),
        _ => (false, 0),
    });
    for (path, method, operation) in operations {
        let place = format!("{method} {path}");
        let body = match operation["operationId"].as_str().unwrap() {
            "submitJob" => {
                let request = word_count("pretended", "word-count", 42);
                serde_json::to_string(&request).unwrap()
            }
            "updateParallelism" => r#"{"parallelism": {"words": 3}}"#.to_string(),
            "updateContainerCount" => r#"{"containers": 3}"#.to_string(),
            "recoverJob" => r#"{"from_epoch": 7}"#.to_string(),
            "writeSavepoint" => r#"{"to": "/saved"}"#.to_string(),
            "upgradeJob" => upgrade_of_word_count(),
            "createToken" => r#"{"name": "ci", "role": "viewer"}"#.to_string(),
            "runProgram" => {
                r#"{"action": "submit", "file": "words.yaml", "content": ""}"#.to_string()
            }
            "putEntry" => r#"{"value": {"berth": 7}}"#.to_string(),
            _ => String::new(),
        };
        let has_body = operation["requestBody"].is_object();
        assert_eq!(has_body, !body.is_empty(), "{place}");
        if has_body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body: Value = serde_json::from_str(&body).unwrap();
            fits(&document, schema, &body, &place);
        }
        let mut target = path
            .replace("{job}", "word-count")
            .replace("{container}", "1")
            .replace("{host}", "here")
            .replace("{map}", "berths")
            .replace("{token}", "ci");
        if path.ends_with("/entry") {
            target += "?key=seagull";
        }
        if path.ends_with("/range") {
            target += "?name=ardea_records_in_total";
        }
        let method = method.to_uppercase();
        let is_endless = path.ends_with("/events");
        let answer = match is_endless {
            true => served.begin(&target, "data: ").await,
            false => served.ask(&method, &target, "", &body).await,
        };
        let status = answer.status.to_string();
        assert!(status.starts_with('2'), "{place}: {answer:?}");
        let described = &operation["responses"][&status];
        assert!(described.is_object(), "{place} may answer {status}");
        let Some(content) = described["content"].as_object() else {
            assert!(answer.body.is_empty(), "{place}: {answer:?}");
            let kind = "content-type";
            assert!(
                !answer.head.to_lowercase().contains(kind),
                "{place}: {answer:?}"
            );
            continue;
        };
        let (kind, content) = content.iter().next().unwrap();
        assert!(answer.head.contains(kind), "{place}: {answer:?}");
        if kind == "application/json" {
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            fits(&document, &content["schema"], &body, &place);
        }
    }
}

#[tokio::test]
async fn what_fails_is_described_for_every_operation() {
    let served = serve_word_count().await;
    let document = openapi_document();
    for (path, method, operation) in operations(&document) {
        let place = format!("{method} {path}");
        // A name without recorded jobs is an empty list, not an error.
        if path.starts_with("/v1/jobs/{job}") {
            let mut target = path.replace("{job}", "none").replace("{container}", "1");
            if path.ends_with("/range") {
                target += "?name=x";
            }
            let method = method.to_uppercase();
            let body = match path.rsplit('/').next() {
                Some("recover") => "{}".to_string(),
                Some("savepoint") => r#"{"to": "/saved"}"#.to_string(),
                Some("upgrade") => upgrade_of_word_count(),
                Some("container-count") => r#"{"containers": 3}"#.to_string(),
                _ => r#"{"parallelism": {"words": 3}}"#.to_string(),
            };
            let answer = served.ask(&method, &target, "", &body).await;
            assert_eq!(answer.status, 404, "{place}: {answer:?}");
            let fault: Value = serde_json::from_str(&answer.body).unwrap();
            let described = &operation["responses"]["404"]["content"]["application/problem+json"];
            fits(&document, &described["schema"], &fault, &place);
            assert!(operation["responses"]["307"].is_object(), "{place}");
            let not_yet = &operation["responses"]["503"]["headers"]["Retry-After"];
            assert!(not_yet["description"].is_string(), "{place}");
            assert_eq!(not_yet["schema"]["type"], "integer", "{place}");
        }
    }
}
