//! Tests of brokers that require TLS, a certificate or a user.

use std::path::PathBuf;
use std::sync::OnceLock;

use ardea_connectors::collections::items;
use ardea_connectors::kafka::{Sasl, Tls, read, write};
use ardea_core::{Epoch, ErrorCode, Sink, SnapshotRequest};
use ardea_metastore::conformance::Server;
use ardea_pipeline::Pipeline;

use super::driven::Driven;
use super::environment::{Topic, secure_broker};

/// A broker and its addresses by protocol.
struct Secured {
    server: Server,
    ssl: String,
    sasl: String,
    sasl_ssl: String,
}

impl Secured {
    fn get() -> Option<&'static Secured> {
        static BROKER: OnceLock<Option<Secured>> = OnceLock::new();
        let start = || {
            let server = secure_broker()?;
            let ports = std::fs::read_to_string(server.folder().join("ports")).unwrap();
            let ports: Vec<_> = ports.split_whitespace().collect();
            let at = |port: &str| format!("{}:{port}", server.address().ip());
            Some(Secured {
                ssl: at(ports[0]),
                sasl: at(ports[1]),
                sasl_ssl: at(ports[2]),
                server,
            })
        };
        BROKER.get_or_init(start).as_ref()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.folder().join("tls").join(name)
    }

    /// Creates a topic through the listener without security.
    fn topic(&self) -> Topic {
        Topic::at(self.server.address().to_string(), 1)
    }

    fn tls(&self) -> Tls {
        Tls::new().ca_file(self.file("ca.pem"))
    }
}

/// Writes and reads a few records.
fn round_trip(brokers: &str, topic: &Topic, tls: Option<Tls>, sasl: Option<Sasl>) {
    let encode = |n: &u64, out: &mut ardea_connectors::kafka::Outgoing| {
        out.value(n.to_string());
        Ok(())
    };
    let mut sink = write(brokers, &topic.name, encode);
    let mut source = read(brokers, &topic.name).json::<u64>();
    if let Some(tls) = tls {
        sink = sink.tls(tls.clone());
        source = source.tls(tls);
    }
    if let Some(sasl) = sasl {
        sink = sink.sasl(sasl.clone());
        source = source.sasl(sasl);
    }
    let p = Pipeline::new("write");
    p.read_from(items(vec![1u64, 2, 3])).write_to(sink);
    p.run().unwrap();
    let p = Pipeline::new("read");
    let numbers = p.read_from(source.until_present().build()).collect();
    p.run().unwrap();
    assert_eq!(numbers.take_sorted(), [1, 2, 3]);
}

#[test]
fn tls_with_a_client_certificate() {
    let Some(broker) = Secured::get() else { return };
    let tls = broker
        .tls()
        .client_certificate(broker.file("job.pem"), broker.file("job.key"));
    round_trip(&broker.ssl, &broker.topic(), Some(tls), None);
}

#[test]
fn each_mechanism_of_sasl_with_tls_and_without() {
    let Some(broker) = Secured::get() else { return };
    for sasl in [
        Sasl::plain("job", "job-secret"),
        Sasl::scram_sha_256("job", "job-secret"),
        Sasl::scram_sha_512("job", "job-secret"),
    ] {
        round_trip(&broker.sasl, &broker.topic(), None, Some(sasl.clone()));
        round_trip(
            &broker.sasl_ssl,
            &broker.topic(),
            Some(broker.tls()),
            Some(sasl),
        );
    }
}

#[test]
fn a_wrong_password_fails_the_job_and_is_not_shown() {
    let Some(broker) = Secured::get() else { return };
    let topic = broker.topic();
    let p = Pipeline::new("refused");
    let source = read(&broker.sasl, &topic.name)
        .sasl(Sasl::scram_sha_256("job", "wrong-secret"))
        .until_present();
    assert!(!format!("{source:?}").contains("wrong-secret"));
    p.read_from(source.build()).collect();
    let error = p.run().expect_err("the password is wrong");
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
    assert!(error.is_permanent(), "{error}");
    assert!(
        !format!("{error} {error:?}").contains("wrong-secret"),
        "{error}"
    );
    let p = Pipeline::new("refused");
    let sink = write(&broker.sasl, &topic.name, |n: &u64, out| {
        out.value(n.to_string());
        Ok(())
    })
    .sasl(Sasl::plain("job", "wrong-secret"));
    p.read_from(items(vec![1u64])).write_to(sink);
    let error = p.run().expect_err("the password is wrong");
    assert!(error.is_permanent(), "{error}");
    assert!(!error.to_string().contains("wrong-secret"), "{error}");
}

#[test]
fn a_broker_whose_certificate_is_not_trusted_is_refused() {
    let Some(broker) = Secured::get() else { return };
    let topic = broker.topic();
    let p = Pipeline::new("untrusted");
    let source = read(&broker.sasl_ssl, &topic.name)
        .tls(Tls::new())
        .sasl(Sasl::plain("job", "job-secret"))
        .until_present();
    p.read_from(source.build()).collect();
    let error = p.run().expect_err("the broker is not trusted");
    assert!(error.is_permanent(), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn a_user_that_may_not_read_or_write_a_topic_fails_the_job() {
    let Some(broker) = Secured::get() else { return };
    let topic = broker.topic();
    let guest = || Sasl::plain("guest", "guest-secret");
    let p = Pipeline::new("guest");
    let source = read(&broker.sasl, &topic.name)
        .sasl(guest())
        .until_present();
    p.read_from(source.build()).collect();
    let error = p.run().expect_err("it may not read");
    assert!(
        error.is_permanent() && error.to_string().contains(&topic.name),
        "{error}"
    );
    let p = Pipeline::new("guest");
    let sink = write(&broker.sasl, &topic.name, |n: &u64, out| {
        out.value(n.to_string());
        Ok(())
    })
    .sasl(guest());
    p.read_from(items(vec![1u64])).write_to(sink);
    let error = p.run().expect_err("it may not write");
    assert!(
        error.is_permanent() && error.to_string().contains(&topic.name),
        "{error}"
    );
}

#[test]
fn a_broker_that_ends_transactions_too_soon_is_refused_before_anything_is_written() {
    let Some(broker) = Secured::get() else { return };
    let topic = broker.topic();
    let encode = |n: &u64, out: &mut ardea_connectors::kafka::Outgoing| {
        out.value(n.to_string());
        Ok(())
    };
    let sink: Sink<u64> = write(&broker.sasl_ssl, &topic.name, encode)
        .tls(broker.tls())
        .sasl(Sasl::scram_sha_512("job", "job-secret"))
        .build();
    let mut driven = Driven::new(&sink.into_parts().1, "short", (0, 1));
    let error = driven.try_write(0..5).expect_err("30 seconds are too few");
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("30000 ms") && text.contains("60000 ms"),
        "{text}"
    );
    assert!(
        topic
            .texts(ardea_connectors::kafka::Start::Earliest)
            .is_empty()
    );
    // A shorter timeout is accepted.
    let sink: Sink<u64> = write(&broker.sasl_ssl, &topic.name, encode)
        .tls(broker.tls())
        .sasl(Sasl::scram_sha_512("job", "job-secret"))
        .property("transaction.timeout.ms", "20000")
        .build();
    let mut driven = Driven::new(&sink.into_parts().1, "short", (0, 1));
    driven.write(0..5);
    driven.snapshot(SnapshotRequest::full(Epoch(1)));
    driven.commit(1).unwrap();
}
