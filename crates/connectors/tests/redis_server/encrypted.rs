//! Tests of TLS connections.

use std::fs;

use ardea_connectors::collections::items;
use ardea_connectors::redis::{Commands, RedisSink, write};
use ardea_core::{Error, ErrorCode};
use ardea_pipeline::Pipeline;
use redis::{Client, ClientTlsConfig, TlsCertificates};

use super::{numbers, started};

type Set = fn(&u64, &mut Commands);

fn set(n: &u64, commands: &mut Commands) {
    commands.set(n, n);
}

fn run(sink: RedisSink<u64, Set>) -> Result<(), Error> {
    let p = Pipeline::new("encrypted");
    p.read_from(items(numbers(100))).write_to(sink);
    p.run()
}

#[test]
fn a_server_is_reached_by_tls_with_certificates_on_both_sides() {
    let Some(server) = started("redis-tls.sh") else {
        return;
    };
    let file = |name: &str| server.folder().join(name);
    let url = format!("rediss://{}/", server.address());
    let sink = || write(url.clone(), set as Set);
    run(sink()
        .authority(file("ca.pem"))
        .certificate(file("client.pem"), file("client.key")))
    .unwrap();
    let certificates = TlsCertificates {
        client_tls: Some(ClientTlsConfig {
            client_cert: fs::read(file("client.pem")).unwrap(),
            client_key: fs::read(file("client.key")).unwrap(),
        }),
        root_cert: Some(fs::read(file("ca.pem")).unwrap()),
    };
    let client = Client::build_with_tls(&url[..], certificates).unwrap();
    let size: u64 = redis::cmd("DBSIZE")
        .query(&mut client.get_connection().unwrap())
        .unwrap();
    assert_eq!(size, 100);

    // A sentinel with TLS, and the server that it names.
    let port = fs::read_to_string(file("sentinel.port")).unwrap();
    let sentinel = format!(
        "rediss+sentinel://{}:{}/main/1",
        server.address().ip(),
        port.trim()
    );
    run(write(sentinel, set as Set)
        .authority(file("ca.pem"))
        .certificate(file("client.pem"), file("client.key")))
    .unwrap();
    let mut connection = client.get_connection().unwrap();
    redis::cmd("SELECT")
        .arg(1)
        .query::<()>(&mut connection)
        .unwrap();
    let size: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(size, 100);

    // Untrusted certificates on either side are reported and not retried.
    let certified = sink().certificate(file("client.pem"), file("client.key"));
    let error = run(certified).expect_err("the authority is not known");
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
    let error = run(sink().authority(file("ca.pem"))).expect_err("it wants a certificate");
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
    let error = run(sink().authority("/nowhere.pem")).expect_err("no such file");
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
}
