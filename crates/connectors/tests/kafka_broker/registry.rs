//! Tests of Avro and Protocol Buffers with a schema registry.

mod batches;
mod server;

use std::time::Duration;

use ardea_connectors::collections::items;
use ardea_connectors::kafka::{
    Avro, AvroValues, Protobuf, ProtobufValues, SchemaRegistry, read, write,
};
use ardea_core::ErrorCode;
use ardea_engine::JobStatus;
use ardea_pipeline::Pipeline;
use serde::{Deserialize, Serialize};

use super::environment::{Running, Topic, eventually};
use server::{Registry, TOKEN};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Flight {
    carrier: String,
    delay: Option<i32>,
}

const AVRO: &str = r#"{"type": "record", "name": "Flight", "fields": [
    {"name": "carrier", "type": "string"},
    {"name": "delay", "type": ["null", "int"], "default": null}
]}"#;

const PROTO: &str = r#"
    syntax = "proto3";
    message Airport { string code = 1; }
    message Flight { string carrier = 1; optional int32 delay = 2; }
"#;

fn flights() -> Vec<Flight> {
    let flight = |n: i32| Flight {
        carrier: format!("c{n:03}"),
        delay: (n % 3 != 0).then_some(n),
    };
    (0..100).map(flight).collect()
}

/// Writes flights in one of the formats.
fn fill(topic: &Topic, registry: &Registry, is_avro: bool, flights: Vec<Flight>) {
    let sink = write(&topic.brokers, &topic.name, |flight: &Flight, out| {
        out.key(&flight.carrier);
        Ok(())
    });
    let sink = match is_avro {
        true => sink.avro(AvroValues::new(registry.client(), AVRO)),
        false => sink.protobuf(ProtobufValues::new(registry.client(), PROTO).message("Flight")),
    };
    let p = Pipeline::new("fill");
    p.read_from(items(flights)).write_to(sink.build());
    p.run().expect("written");
}

/// Returns the flights of a topic, and the origins and reasons of its dead letters.
fn drain(topic: &Topic, registry: SchemaRegistry, is_avro: bool) -> (Vec<Flight>, Vec<String>) {
    let p = Pipeline::new("drain");
    let source = read(&topic.brokers, &topic.name);
    let source = match is_avro {
        true => source.avro::<Flight>(registry).until_present().build(),
        false => source.protobuf::<Flight>(registry).until_present().build(),
    };
    let flights = p.read_from(source).collect();
    let running = Running::start(&p);
    eventually("it ends", || running.job.status().is_over());
    assert!(matches!(running.job.status(), JobStatus::Completed));
    let letters = running.job.dead_letters().sample();
    let letters = letters
        .iter()
        .map(|it| format!("{}: {}", it.origin, it.reason));
    (flights.take_sorted(), letters.collect())
}

#[test]
fn records_come_back_in_both_formats() {
    for is_avro in [true, false] {
        let Some(topic) = Topic::new(2) else { return };
        let registry = Registry::start();
        fill(&topic, &registry, is_avro, flights());
        let (read, letters) = drain(&topic, registry.client(), is_avro);
        assert_eq!(read, flights());
        assert_eq!(letters, [""; 0]);
        // Each instance has requested the schema once, and the sink has registered it once.
        assert_eq!(registry.requests(), 2);
        assert_eq!(registry.subjects(), [format!("{}-value", topic.name)]);
    }
}

#[test]
fn what_has_no_schema_or_does_not_fit_it_becomes_a_dead_letter() {
    for is_avro in [true, false] {
        let Some(topic) = Topic::new(1) else { return };
        let registry = Registry::start();
        fill(&topic, &registry, is_avro, flights()[..2].to_vec());
        let bad: [&[u8]; 5] = [
            b"{\"carrier\":\"UA\"}",
            b"\0\0",
            b"\0\0\0\x03\xe7xyz",
            b"\0\0\0\0\x01",
            b"\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        let p = Pipeline::new("bad");
        let values: Vec<Vec<u8>> = bad.iter().map(|value| value.to_vec()).collect();
        p.read_from(items(values)).write_to(write(
            &topic.brokers,
            &topic.name,
            |value: &Vec<u8>, out| {
                out.value(value);
                Ok(())
            },
        ));
        p.run().expect("written");
        fill(&topic, &registry, is_avro, flights()[2..].to_vec());
        let (read, letters) = drain(&topic, registry.client(), is_avro);
        assert_eq!(read, flights());
        assert_eq!(letters.len(), bad.len(), "{letters:?}");
        assert!(letters[0].contains("first byte is 123"), "{letters:?}");
        assert!(letters[1].contains("too short"), "{letters:?}");
        assert!(letters[2].contains("no schema 999"), "{letters:?}");
        assert!(
            letters[2].starts_with(&format!("{}[0]@4", topic.name)),
            "{letters:?}"
        );
    }
}

#[test]
fn values_of_older_and_newer_schemas_are_read_as_the_schema_of_the_records() {
    let Some(topic) = Topic::new(1) else { return };
    let registry = Registry::start();
    let older = r#"{"type": "record", "name": "Flight", "fields": [
        {"name": "carrier", "type": "string"}]}"#;
    let newer = r#"{"type": "record", "name": "Flight", "fields": [
        {"name": "gate", "type": "string", "default": ""},
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": null}]}"#;
    #[derive(Clone, Serialize, Deserialize)]
    struct Older {
        carrier: String,
    }
    #[derive(Clone, Serialize, Deserialize)]
    struct Newer {
        gate: String,
        carrier: String,
        delay: Option<i32>,
    }
    let p = Pipeline::new("older");
    p.read_from(items([Older {
        carrier: "old".into(),
    }]))
    .write_to(
        write(&topic.brokers, &topic.name, |_: &Older, _| Ok(()))
            .avro(AvroValues::new(registry.client(), older))
            .build(),
    );
    p.run().expect("written");
    let new = Newer {
        gate: "B7".into(),
        carrier: "new".into(),
        delay: Some(3),
    };
    let p = Pipeline::new("newer");
    p.read_from(items([new])).write_to(
        write(&topic.brokers, &topic.name, |_: &Newer, _| Ok(()))
            .avro(AvroValues::new(registry.client(), newer))
            .build(),
    );
    p.run().expect("written");
    let p = Pipeline::new("read");
    let avro = Avro::new(registry.client()).reader_schema(AVRO);
    let source = read(&topic.brokers, &topic.name).avro::<Flight>(avro);
    let flights = p.read_from(source.until_present().build()).collect();
    p.run().expect("read");
    let flight = |carrier: &str, delay| Flight {
        carrier: carrier.into(),
        delay,
    };
    assert_eq!(
        flights.take_sorted(),
        [flight("new", Some(3)), flight("old", None)]
    );
}

#[test]
fn a_registry_that_is_away_is_waited_for_and_nothing_is_lost() {
    let Some(topic) = Topic::new(2) else { return };
    let registry = Registry::start();
    fill(&topic, &registry, true, flights());
    registry.stop();
    let p = Pipeline::new("waits");
    let source = read(&topic.brokers, &topic.name).avro::<Flight>(registry.client());
    let flights_read = p.read_from(source.until_present().build()).collect();
    let running = Running::start(&p);
    eventually("it asks", || registry.refused() > 3);
    assert!(!running.job.status().is_over());
    registry.go_on();
    eventually("it ends", || running.job.status().is_over());
    assert_eq!(flights_read.take_sorted(), flights());
    assert_eq!(running.job.dead_letters().sample().len(), 0);
}

#[test]
fn a_registry_that_stays_away_fails_the_job_after_its_limit() {
    let Some(topic) = Topic::new(1) else { return };
    let registry = Registry::start();
    fill(&topic, &registry, true, flights());
    registry.stop();
    let client = registry.client().give_up_after(Duration::from_millis(300));
    let p = Pipeline::new("gives up");
    let source = read(&topic.brokers, &topic.name).avro::<Flight>(client.clone());
    p.read_from(source.until_present().build()).collect();
    let error = p.run().expect_err("the registry is away");
    assert_eq!(error.code(), ErrorCode::Network);
    assert!(error.to_string().contains("schema registry"), "{error}");
    let p = Pipeline::new("cannot write");
    let sink = write(&topic.brokers, &topic.name, |_: &Flight, _| Ok(()));
    p.read_from(items(flights()))
        .write_to(sink.avro(AvroValues::new(client, AVRO)).build());
    let error = p.run().expect_err("the registry is away");
    assert_eq!(error.code(), ErrorCode::Network);
}

#[test]
fn a_registry_with_credentials_refuses_others_and_takes_these() {
    let Some(topic) = Topic::new(1) else { return };
    let registry = Registry::with_token();
    let url = registry.url();
    for wrong in [
        SchemaRegistry::at(&url),
        SchemaRegistry::at(&url).basic_auth("job", "a-wrong-secret"),
    ] {
        let p = Pipeline::new("refused");
        let sink = write(&topic.brokers, &topic.name, |_: &Flight, _| Ok(()));
        let sink = sink.avro(AvroValues::new(wrong, AVRO));
        p.read_from(items(flights())).write_to(sink.build());
        let error = p.run().expect_err("refused");
        assert_eq!(error.code(), ErrorCode::Unauthorized);
        assert!(
            !format!("{error:?}").contains("a-wrong-secret"),
            "{error:?}"
        );
    }
    for right in [
        SchemaRegistry::at(&url).bearer_token(TOKEN),
        SchemaRegistry::at(&url).basic_auth("job", TOKEN),
    ] {
        let p = Pipeline::new("taken");
        let sink = write(&topic.brokers, &topic.name, |_: &Flight, _| Ok(()));
        let sink = sink.avro(AvroValues::new(right, AVRO));
        p.read_from(items(flights())).write_to(sink.build());
        p.run().expect("written");
    }
}

#[test]
fn a_schema_that_is_not_registered_is_refused_where_nothing_may_be_registered() {
    let Some(topic) = Topic::new(1) else { return };
    let registry = Registry::start();
    let p = Pipeline::new("unregistered");
    let sink = write(&topic.brokers, &topic.name, |_: &Flight, _| Ok(()));
    let values = AvroValues::new(registry.client(), AVRO).registered_only();
    p.read_from(items(flights()))
        .write_to(sink.avro(values).build());
    let error = p.run().expect_err("it is not registered");
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(error.to_string().contains("Schema not found"), "{error}");
    let protobuf = Protobuf::new(registry.client());
    assert!(format!("{protobuf:?}").contains(&registry.url()));
}
