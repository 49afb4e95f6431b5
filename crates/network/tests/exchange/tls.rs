//! Tests that a peer without a certificate of the cluster is refused, and informed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ardea_network::exchange::*;
use ardea_network::tls::Tls;
use ardea_network::tls::testing::certificates;

use crate::pair::{TIMEOUT, connections, until};

fn tcp(tls: Option<Tls>) -> TcpTransport {
    TcpTransport::new(TcpConfig {
        tls,
        ..TcpConfig::default()
    })
    .unwrap()
}

fn frame() -> SendBuffer {
    SendBuffer::Frame(Frame {
        header: Header::new(Kind::Records, StreamId::new(1, 2)),
        payload: Payload::copy_of(b"secret words"),
    })
}

/// Sends a frame in each direction; returns the errors of both sides.
fn ends(client: Option<Tls>, server: Option<Tls>) -> [String; 2] {
    let (mut first, mut second) = (tcp(client), tcp(server));
    let (mut a, mut b) = connections(&mut first, &mut second, "127.0.0.1:0");
    a.send(frame()).unwrap();
    b.send(frame()).unwrap();
    let mut gone = [None, None];
    until(|| {
        first.wait(Duration::ZERO).unwrap();
        second.wait(Duration::ZERO).unwrap();
        for (connection, gone) in [&mut a, &mut b].into_iter().zip(&mut gone) {
            if gone.is_none() {
                let outcome = connection.flush().and_then(|_| connection.receive());
                *gone = outcome.err().map(|why| why.to_string());
            }
        }
        gone.iter().all(Option::is_some)
    });
    gone.map(Option::unwrap_or_default)
}

#[test]
fn workers_of_another_authority_are_refused_and_told() {
    let [client, server] = ends(Some(certificates()), Some(certificates()));
    assert!(client.contains("another authority"), "{client}");
    assert!(server.contains("can't be reached"), "{server}");
}

#[test]
fn a_worker_without_certificates_does_not_get_in() {
    let mut second = tcp(Some(certificates()));
    let mut listener = second.listen("127.0.0.1:0").unwrap();
    let mut stranger = TcpStream::connect(listener.address()).unwrap();
    stranger.set_read_timeout(Some(TIMEOUT)).unwrap();
    stranger.write_all(&[b'?'; 2000]).unwrap();
    let mut accepted = None;
    let mut gone = None;
    until(|| {
        second.wait(Duration::ZERO).unwrap();
        match &mut accepted {
            None => accepted = listener.accept().unwrap(),
            Some(connection) => gone = connection.receive().err(),
        }
        gone.is_some()
    });
    let gone = gone.unwrap().to_string();
    assert!(gone.contains("doesn't speak TLS"), "{gone}");
    drop(accepted);
    let mut told = Vec::new();
    // An alert and the end, or a reset because of unread bytes.
    let _ = stranger.read_to_end(&mut told);
    assert!(told.len() < 100);
}

#[test]
fn data_is_encrypted_on_the_wire() {
    let mut first = tcp(Some(certificates()));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut a = first
        .connect(&listener.local_addr().unwrap().to_string())
        .unwrap();
    a.send(frame()).unwrap();
    let (mut between, _) = listener.accept().unwrap();
    between.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut heard = [0; 100];
    let mut bytes = 0;
    until(|| {
        first.wait(Duration::ZERO).unwrap();
        a.flush().unwrap();
        a.receive().unwrap();
        between.set_nonblocking(true).unwrap();
        bytes = between.read(&mut heard).unwrap_or(0);
        bytes > 0
    });
    // A TLS handshake record, and none of the data waiting behind it.
    assert_eq!(heard[0], 22);
    assert!(a.unsent() > 0);
}

#[test]
fn a_dropped_stream_sends_a_close_notification() {
    let tls = certificates();
    let (mut first, mut second) = (tcp(Some(tls.clone())), tcp(Some(tls)));
    let (mut a, mut b) = connections(&mut first, &mut second, "127.0.0.1:0");
    a.send(frame()).unwrap();
    until(|| {
        first.wait(Duration::ZERO).unwrap();
        second.wait(Duration::ZERO).unwrap();
        a.flush().unwrap();
        a.receive().unwrap();
        b.flush().unwrap();
        b.receive().unwrap().is_some()
    });
    drop(a);
    let mut gone = None;
    until(|| {
        second.wait(Duration::ZERO).unwrap();
        gone = b.receive().err();
        gone.is_some()
    });
    let gone = gone.unwrap();
    assert!(matches!(gone.reason, DisconnectReason::Closed), "{gone}");
}
