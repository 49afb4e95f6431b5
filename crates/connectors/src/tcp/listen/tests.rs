//! Tests of the server with real clients on the loopback interface.

use std::io::Write;

use ardea_core::{ManualClock, OnError};
use socket2::SockRef;

use super::*;
use crate::format::{Csv, JsonLines};
use crate::testing::{Driven, context, error_contains, signals};

fn start<T: Send + 'static, D: Decode<T>>(source: ListenSource<T, D>) -> (Driven<T>, SocketAddr) {
    let address = source.address();
    let driven = Driven::start(source);
    (driven, address.wait(Duration::from_secs(5)).unwrap())
}

fn client(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn each_client_keeps_its_order_and_its_own_header() {
    let (mut driven, address) = start(listen("0").decode::<(String, u32), _>(Csv::new()));
    let clients: Vec<_> = ["x", "y", "z"]
        .into_iter()
        .map(|name| {
            let rows: String = (0..500).map(|n| format!("{name},{n}\n")).collect();
            client(address, &format!("name,n\n{rows}"))
        })
        .collect();
    driven.run_until_records(1500);
    drop(clients);
    for name in ["x", "y", "z"] {
        let own = driven.values().into_iter().filter(|(from, _)| from == name);
        assert!(own.map(|(_, n)| *n).eq(0..500), "{name}");
    }
    assert!(driven.letters().is_empty());
}

#[test]
fn a_port_in_use_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = Driven::<String>::new(listen(&port), context("s"))
        .err()
        .expect("an error");
    assert_eq!(error.code(), ErrorCode::Network);
    assert!(
        error_contains(
            &error,
            &[&format!("port {port} is taken"), "choose another port"]
        ),
        "{error}"
    );
}

#[test]
fn an_address_that_others_can_reach_must_be_asked_for() {
    let error = Driven::<String>::new(listen("0.0.0.0:0"), context("s"))
        .err()
        .expect("an error");
    assert!(error_contains(&error, &["expose"]), "{error}");
    assert!(Driven::<String>::new(listen("0.0.0.0:0").expose(), context("s")).is_ok());
    let error = Driven::<String>::new(listen("nowhere"), context("s"))
        .err()
        .expect("an error");
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
}

#[test]
fn half_a_line_is_a_record_after_a_good_end_and_a_bad_one_after_a_break() {
    let (mut driven, address) = start(listen(":0"));
    drop(client(address, "a\nb"));
    driven.run_until_records(2);
    let broken = client(address, "c\nhalf");
    driven.run_until_records(3);
    SockRef::from(&broken)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    let peer = broken.local_addr().unwrap();
    drop(broken);
    driven
        .run_until(|driven| driven.context.dead_letters.count() == 1)
        .unwrap();
    let letter = &driven.context.dead_letters.sample()[0];
    assert_eq!(
        (letter.raw.as_slice(), letter.origin.clone()),
        (&b"half"[..], format!("{peer}:2"))
    );
    drop(client(address, "still here\n"));
    driven.run_until_records(4);
}

#[test]
fn clients_over_the_limit_wait_until_one_leaves() {
    let (mut driven, address) = start(listen("localhost:0").max_clients(1));
    let first = client(address, "first\n");
    driven.run_until_records(1);
    let _second = client(address, "second\n");
    let _ = driven.step().unwrap();
    assert_eq!(driven.values(), ["first"]);
    drop(first);
    driven.run_until_records(2);
}

#[test]
fn a_silent_client_is_let_go_and_draining_ends_the_rest() {
    let hand = ManualClock::new();
    let mut context = context("s");
    context.clock = hand.clock();
    let source = listen("0").idle_timeout(Duration::from_secs(5));
    let bound = source.address();
    let mut driven = Driven::new(source, context).unwrap();
    let address = bound.get().unwrap();
    let _silent = client(address, "a\nhalf");
    driven.run_until_records(1);
    hand.advance(Duration::from_secs(5));
    driven
        .run_until(|driven| driven.context.dead_letters.count() == 1)
        .unwrap();
    let _other = client(address, "b\nother half");
    driven.run_until_records(2);
    signals(&driven.context).drain();
    driven.run().unwrap();
    let reasons: Vec<_> = driven
        .letters()
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert!(
        reasons[0].contains("silent") && reasons[1].contains("drained"),
        "{reasons:?}"
    );
    drop(driven);
    assert_eq!(bound.get(), None);
}

#[test]
fn an_endless_line_is_bounded_and_bad_records_follow_the_policy() {
    let source = listen("0")
        .max_line(1000)
        .decode::<u32, _>(JsonLines)
        .on_error(OnError::Drop);
    let (mut driven, address) = start(source);
    let writer = std::thread::spawn(move || {
        let mut stream = client(address, &"9".repeat(3 << 20));
        stream.write_all(b"\nnonsense\n7\n").unwrap();
    });
    driven.run_until_records(1);
    writer.join().unwrap();
    assert_eq!(driven.values(), [&7]);
    assert_eq!(driven.context.dead_letters.dropped(), 2);
}

#[test]
fn cancelling_ends_it_while_it_waits_for_clients() {
    let (mut driven, _) = start(listen("0"));
    let _ = driven.step().unwrap();
    signals(&driven.context).cancel();
    driven.run().unwrap();
}
