//! Tests of peers outside the cluster, and of peers with another protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ardea_core::{Clock, ManualClock};
use ardea_network::exchange::*;

use crate::pair::{connections, identity, tcp, transports, until};

/// Connects two workers with these identities; returns both disconnections, once for each
/// direction.
fn meet(ours: &Identity, theirs: &Identity) -> Vec<(Disconnected, Disconnected)> {
    let clock = Clock::system();
    let mut ends = Vec::new();
    for (mut first, mut second, address) in transports() {
        let (a, b) = connections(&mut *first, &mut *second, address);
        let link = |connection, side, identity: &Identity, transport: &dyn Transport| {
            let (bell, config) = (transport.waker(), LinkConfig::default());
            Link::new(
                connection,
                side,
                identity.clone(),
                bell,
                config,
                clock.now(),
            )
        };
        let mut a = link(a, Side::Connected(Some(WorkerNumber(2))), ours, &*first);
        let mut b = link(b, Side::Accepted, theirs, &*second);
        let (mut one, mut other) = (None, None);
        until(|| {
            first.wait(Duration::ZERO).unwrap();
            second.wait(Duration::ZERO).unwrap();
            if one.is_none() {
                one = a.poll(clock.now()).err();
            }
            if other.is_none() {
                other = b.poll(clock.now()).err();
            }
            one.is_some() && other.is_some()
        });
        ends.push((one.unwrap(), other.unwrap()));
    }
    ends
}

#[test]
fn a_refusal_reaches_the_refused_with_its_reason() {
    let elsewhere = Identity {
        cluster: "airport".into(),
        ..identity(1)
    };
    for (refused, refuser) in meet(&elsewhere, &identity(2)) {
        assert!(
            matches!(&refused.reason, DisconnectReason::RefusedByPeer(why) if why.contains("airport")),
            "{refused}"
        );
        assert!(
            matches!(&refuser.reason, DisconnectReason::PeerRefused(why) if why.contains("airport")),
            "{refuser}"
        );
        let error = ardea_core::Error::from(refused);
        assert!(
            error
                .hint_text()
                .is_some_and(|hint| hint.contains("cluster"))
        );
    }
}

#[test]
fn the_wrong_worker_at_an_address_is_refused_by_the_one_who_connected() {
    for (refuser, refused) in meet(&identity(1), &identity(3)) {
        assert!(
            matches!(&refuser.reason, DisconnectReason::PeerRefused(why) if why.contains("worker 3")),
            "{refuser}"
        );
        assert!(
            matches!(&refused.reason, DisconnectReason::RefusedByPeer(_)),
            "{refused}"
        );
    }
}

#[test]
fn a_token_lets_in_only_those_who_have_it() {
    let with = |worker, secret: &str| Identity {
        token: Some(Token::new(secret)),
        ..identity(worker)
    };
    for (refused, _) in meet(&with(1, "open sesame"), &with(2, "swordfish")) {
        assert!(refused.to_string().contains("token"), "{refused}");
    }
    for (refused, _) in meet(&identity(1), &with(2, "swordfish")) {
        assert!(refused.to_string().contains("token"), "{refused}");
    }
    assert!(!format!("{:?}", with(2, "swordfish")).contains("swordfish"));
}

/// Creates a worker that listens, and a plain socket connected to it.
fn stranger(clock: &Clock) -> (TcpTransport, Link, TcpStream) {
    let mut transport = tcp();
    let mut listener = transport.listen("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.address()).unwrap();
    let mut accepted = None;
    until(|| {
        transport.wait(Duration::ZERO).unwrap();
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    let link = Link::new(
        accepted.unwrap(),
        Side::Accepted,
        identity(2),
        transport.waker(),
        LinkConfig::default(),
        clock.now(),
    );
    (transport, link, socket)
}

fn end_of(transport: &mut TcpTransport, link: &mut Link, clock: &Clock) -> Disconnected {
    let mut gone = None;
    until(|| {
        transport.wait(Duration::ZERO).unwrap();
        gone = link.poll(clock.now()).err();
        gone.is_some()
    });
    gone.unwrap()
}

#[test]
fn garbage_closes_the_connection_with_an_error_that_names_the_peer() {
    let clock = Clock::system();
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    for round in 0..50 {
        let (mut transport, mut link, mut socket) = stranger(&clock);
        let from = socket.local_addr().unwrap().to_string();
        let mut bytes: Vec<u8> = (0..48 + round * 40).map(|_| random()).collect();
        if round % 2 == 0 {
            bytes[..3].copy_from_slice(b"AX\x01");
        }
        socket.write_all(&bytes).unwrap();
        let gone = end_of(&mut transport, &mut link, &clock);
        assert!(
            matches!(gone.reason, DisconnectReason::InvalidFrame(_)),
            "{gone}"
        );
        assert!(gone.to_string().contains(&from), "{gone}");
        drop(link);
        // Closing with unread bytes causes a reset; both mean the end.
        let _ = socket.read_to_end(&mut Vec::new());
    }
}

#[test]
fn a_stranger_may_not_announce_more_than_a_greeting() {
    let clock = Clock::system();
    let (mut transport, mut link, mut socket) = stranger(&clock);
    let header = Header::new(Kind::Hello, StreamId::new(0, 0));
    socket.write_all(&header.encode(10 << 20)).unwrap();
    let gone = end_of(&mut transport, &mut link, &clock);
    assert!(
        matches!(
            gone.reason,
            DisconnectReason::InvalidFrame(FrameError::TooLong { .. })
        ),
        "{gone}"
    );
}

#[test]
fn a_stranger_that_sends_data_is_told_why_it_is_closed() {
    let clock = Clock::system();
    let (mut transport, mut link, mut socket) = stranger(&clock);
    let header = Header::new(Kind::Done, StreamId::new(1, 1));
    socket.write_all(&header.encode(0)).unwrap();
    let gone = end_of(&mut transport, &mut link, &clock);
    assert!(
        matches!(&gone.reason, DisconnectReason::PeerRefused(why) if why.contains("greeting")),
        "{gone}"
    );
    drop(link);
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("before any greeting"));
}

#[test]
fn a_stranger_that_says_nothing_is_closed_after_a_while() {
    let hand = ManualClock::new();
    let clock = hand.clock();
    let (mut transport, mut link, _socket) = stranger(&clock);
    transport.wait(Duration::ZERO).unwrap();
    assert!(link.poll(clock.now()).is_ok());
    hand.advance(Duration::from_secs(6));
    let gone = end_of(&mut transport, &mut link, &clock);
    assert!(
        matches!(gone.reason, DisconnectReason::TimedOut(_)),
        "{gone}"
    );
}

#[test]
fn a_stranger_that_hangs_up_within_a_frame_was_cut_off() {
    let clock = Clock::system();
    let (mut transport, mut link, mut socket) = stranger(&clock);
    socket.write_all(b"AX\x01").unwrap();
    drop(socket);
    let gone = end_of(&mut transport, &mut link, &clock);
    assert!(matches!(gone.reason, DisconnectReason::Broken(_)), "{gone}");
}
