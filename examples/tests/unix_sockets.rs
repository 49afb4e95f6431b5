//! Tests of the transport over Unix sockets: the guarantees of every transport.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea::core::{Chunk, Clock, ErrorCode, Marker, Rows, Timestamp, Waker};
use ardea_examples::unix_sockets::UnixSockets;
use ardea_network::exchange::*;

fn transport() -> UnixSockets {
    UnixSockets(Poller::new().unwrap())
}

/// Runs steps until `done`; fails after a minute.
fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        let passed = start.elapsed();
        assert!(passed < Duration::from_secs(60), "nothing comes any more");
        std::thread::yield_now();
    }
}

/// Returns two connected ends; the second has accepted.
fn connections(
    first: &mut UnixSockets,
    second: &mut UnixSockets,
) -> (Box<dyn Connection>, Box<dyn Connection>) {
    let mut listener = second.listen("127.0.0.1:0").unwrap();
    let connecting = first.connect(listener.address()).unwrap();
    let mut accepted = None;
    until(|| {
        second.wait(Duration::ZERO).unwrap();
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    (connecting, accepted.unwrap())
}

fn identity(worker: u64) -> Identity {
    Identity {
        cluster: "harbour".into(),
        worker: WorkerNumber(worker),
        incarnation: 1,
        token: None,
    }
}

fn frame(sequence: u64, bytes: usize) -> Frame {
    let mut header = Header::new(Kind::Records, StreamId::new(1, 2));
    header.sequence = sequence;
    let payload = Payload::copy_of(&vec![sequence as u8; bytes]);
    Frame { header, payload }
}

#[test]
fn an_edge_between_two_workers_carries_records_until_it_is_done() {
    let (mut here, mut there) = (transport(), transport());
    let (connection, accepted) = connections(&mut here, &mut there);
    let (clock, config) = (Clock::system(), LinkConfig::default());
    let (side, bell) = (Side::Connected(None), here.waker());
    let mut ours = Link::new(connection, side, identity(1), bell, config, clock.now());
    let (side, bell) = (Side::Accepted, there.waker());
    let mut theirs = Link::new(accepted, side, identity(2), bell, config, clock.now());

    let (stream, codec) = (StreamId::new(1, 0), Arc::new(RowsCodec::<u64>::wire()));
    let port = ours.open(End::Sender, stream, Waker::none()).unwrap();
    let (all, sends) = (InstanceNumber::ALL, SenderConfig::default());
    let mut sender = EdgeSender::new(stream, all, port, codec.clone(), sends);
    let port = theirs.open(End::Receiver, stream, Waker::none()).unwrap();
    let receives = ReceiverConfig::default();
    let mut receiver = EdgeReceiver::new(stream, port, codec, receives, clock.now());

    let (mut next, mut is_marked, mut got, mut into) = (0u64, false, 0, Chunk::default());
    let mut out = Chunk::new(Rows::<u64>::default());
    until(|| {
        if out.is_empty() && next < 200_000 {
            let rows = (next..next + 1_000).map(|n| (n, Timestamp::from_millis(n as i64)));
            out = Chunk::new(Rows::from_iter(rows));
            next += 1_000;
        }
        let is_sent = out.is_empty() || sender.send(InstanceNumber(0), &mut out).unwrap();
        if is_sent && next == 200_000 && !is_marked {
            is_marked = sender.mark(Marker::Done).unwrap();
        }
        sender.flush().unwrap();
        let _ = ours.poll(clock.now()).unwrap();
        let _ = theirs.poll(clock.now()).unwrap();
        here.wait(Duration::ZERO).unwrap();
        there.wait(Duration::ZERO).unwrap();
        while receiver.receive(clock.now(), &mut into).unwrap().is_some() {
            if !into.is_empty() {
                for value in into.rows::<u64>().unwrap().values() {
                    assert_eq!(*value, got);
                    got += 1;
                }
                into.clear();
            }
        }
        receiver.is_done()
    });
    assert_eq!(got, 200_000);
}

#[test]
fn what_was_sent_before_the_end_arrives_before_the_end() {
    let (mut first, mut second) = (transport(), transport());
    let (mut a, mut b) = connections(&mut first, &mut second);
    for at in 0..10 {
        a.send(SendBuffer::Frame(frame(at, 100))).unwrap();
    }
    until(|| {
        first.wait(Duration::ZERO).unwrap();
        a.flush().unwrap();
        a.unsent() == 0
    });
    drop(a);
    let (mut received, mut end) = (0, None);
    until(|| {
        second.wait(Duration::ZERO).unwrap();
        match b.receive() {
            Ok(frame) => received += u64::from(frame.is_some()),
            Err(gone) => end = Some(gone),
        }
        end.is_some()
    });
    assert_eq!(received, 10);
    assert!(matches!(end.unwrap().reason, DisconnectReason::Closed));
}

#[test]
fn a_stranger_is_allowed_a_greeting_and_nothing_larger() {
    let (mut first, mut second) = (transport(), transport());
    let (mut a, mut b) = connections(&mut first, &mut second);
    a.send(SendBuffer::Frame(frame(1, MAX_HELLO_BYTES + 1)))
        .unwrap();
    let mut end = None;
    until(|| {
        first.wait(Duration::ZERO).unwrap();
        second.wait(Duration::ZERO).unwrap();
        let _ = a.flush();
        end = b.receive().err();
        end.is_some()
    });
    assert!(matches!(
        end.unwrap().reason,
        DisconnectReason::InvalidFrame(_)
    ));
}

#[test]
fn a_sender_that_is_not_read_is_given_its_parcels_back() {
    let (mut first, mut second) = (transport(), transport());
    let (mut a, _b) = connections(&mut first, &mut second);
    let mut sent = 0;
    until(|| {
        first.wait(Duration::ZERO).unwrap();
        a.flush().unwrap();
        sent += 1;
        a.send(SendBuffer::Frame(frame(sent, 100_000))).is_err()
    });
    assert!(sent < 1000, "{sent}");
}

#[test]
fn nobody_at_an_address_is_told_by_the_connection() {
    let mut sockets = transport();
    let free = sockets.listen("127.0.0.1:0").unwrap().address().to_string();
    let mut connection = sockets.connect(&free).unwrap();
    let mut told = None;
    until(|| {
        sockets.wait(Duration::ZERO).unwrap();
        told = connection.receive().err();
        told.is_some()
    });
    let told = told.unwrap();
    assert!(
        matches!(told.reason, DisconnectReason::Unreachable(_)),
        "{told}"
    );
    assert!(told.to_string().contains(&free), "{told}");
}

#[test]
fn an_address_is_listened_at_once_and_free_again_afterwards() {
    let (mut first, mut second) = (transport(), transport());
    let listener = first.listen("127.0.0.1:0").unwrap();
    let address = listener.address().to_string();
    let error = second.listen(&address).err().unwrap();
    assert!(error.to_string().contains(&address), "{error}");
    assert!(error.hint_text().is_some());
    drop(listener);
    second.listen(&address).unwrap();
    let error = second.listen("harbour").err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
}

#[test]
fn a_ring_of_the_bell_ends_the_wait_from_another_thread() {
    let mut sockets = transport();
    let bell = sockets.waker();
    let ringing = std::thread::spawn(move || bell.notify());
    sockets.wait(Duration::from_secs(3600)).unwrap();
    ringing.join().unwrap();
}
