//! Conformance tests for all transports.

use std::time::Duration;

use ardea_core::Epoch;
use ardea_network::exchange::*;

use crate::pair::{connections, host, rings, tcp, transports, until, unused_address};

fn frame(sequence: u64, bytes: usize) -> Frame {
    let mut header = Header::new(Kind::Records, StreamId::new(1, 2));
    header.sequence = sequence;
    header.epoch = Epoch(sequence / 3);
    Frame {
        header,
        payload: Payload::copy_of(&vec![sequence as u8; bytes]),
    }
}

/// Sends frames of these sizes from the `first` connection to the `second`, retrying while queues
/// are full.
fn carry(
    first: (&mut dyn Transport, &mut dyn Connection),
    second: (&mut dyn Transport, &mut dyn Connection),
    sizes: &[usize],
) {
    let mut unsent: Vec<Frame> = (0..)
        .zip(sizes)
        .map(|(at, &size)| frame(at, size))
        .collect();
    unsent.reverse();
    let mut received = 0;
    until(|| {
        first.0.wait(Duration::ZERO).unwrap();
        second.0.wait(Duration::ZERO).unwrap();
        while let Some(frame) = unsent.pop() {
            if let Err(SendBuffer::Frame(frame)) = first.1.send(SendBuffer::Frame(frame)) {
                unsent.push(frame);
                break;
            }
        }
        first.1.flush().unwrap();
        // Control messages between the ends of a connection, and wake-ups.
        assert!(first.1.receive().unwrap().is_none());
        second.1.flush().unwrap();
        while let Some(got) = second.1.receive().unwrap() {
            assert_eq!(got, frame(received as u64, sizes[received]));
            received += 1;
        }
        received == sizes.len()
    });
    assert_eq!(first.1.unsent(), 0);
}

#[test]
fn frames_of_all_sizes_arrive_once_and_in_order_both_ways() {
    let sizes: Vec<usize> = (0..3000)
        .map(|at| [0, 1, 17, 900, 4000][at % 5] * (1 + at % 7))
        .collect();
    for (mut first, mut second, address) in transports() {
        let (mut a, mut b) = connections(&mut *first, &mut *second, address);
        a.allow(1 << 20);
        b.allow(1 << 20);
        carry((&mut *first, &mut *a), (&mut *second, &mut *b), &sizes);
        carry((&mut *second, &mut *b), (&mut *first, &mut *a), &sizes);
    }
}

#[test]
fn a_frame_larger_than_all_buffers_arrives() {
    for (mut first, mut second, address) in transports() {
        let (mut a, mut b) = connections(&mut *first, &mut *second, address);
        a.allow(64 << 20);
        b.allow(64 << 20);
        carry(
            (&mut *first, &mut *a),
            (&mut *second, &mut *b),
            &[5, 20 << 20, 5],
        );
    }
}

#[test]
fn a_longer_payload_than_allowed_ends_the_connection_and_names_the_peer() {
    for (mut first, mut second, address) in transports() {
        let (mut a, mut b) = connections(&mut *first, &mut *second, address);
        a.allow(1000);
        b.allow(1000);
        a.send(SendBuffer::Frame(frame(1, 900))).unwrap();
        a.send(SendBuffer::Frame(frame(2, 2000))).unwrap();
        let mut received = 0;
        let mut gone = None;
        until(|| {
            first.wait(Duration::ZERO).unwrap();
            second.wait(Duration::ZERO).unwrap();
            let _ = a.flush();
            match b.receive() {
                Ok(frame) => received += usize::from(frame.is_some()),
                Err(error) => gone = Some(error),
            }
            gone.is_some()
        });
        assert_eq!(received, 1);
        let gone = gone.unwrap();
        assert!(
            gone.to_string().contains(b.peer()) && gone.to_string().contains("2000"),
            "{gone}"
        );
    }
}

#[test]
fn a_full_connection_returns_the_buffers() {
    for (mut first, mut second, address) in transports() {
        let (mut a, _b) = connections(&mut *first, &mut *second, address);
        let mut sent = 0;
        until(|| {
            first.wait(Duration::ZERO).unwrap();
            a.flush().unwrap();
            sent += 1;
            a.send(SendBuffer::Frame(frame(sent, 100_000))).is_err()
        });
        assert!(sent < 1000, "{sent}");
    }
}

#[test]
fn what_was_sent_before_the_end_arrives_before_the_end() {
    for (mut first, mut second, address) in transports() {
        let (mut a, mut b) = connections(&mut *first, &mut *second, address);
        for at in 0..10 {
            a.send(SendBuffer::Frame(frame(at, 100))).unwrap();
        }
        let mut received = 0;
        let mut end = None;
        until(|| {
            first.wait(Duration::ZERO).unwrap();
            second.wait(Duration::ZERO).unwrap();
            a.flush().unwrap();
            // Some transports perform a handshake first.
            received += u64::from(b.receive().unwrap().is_some());
            a.unsent() == 0
        });
        drop(a);
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
}

#[test]
fn an_unreachable_address_is_reported_by_the_connection() {
    let network = MemoryNetwork::default();
    let free = {
        let mut transport = tcp();
        transport
            .listen("127.0.0.1:0")
            .unwrap()
            .address()
            .to_string()
    };
    let transports: [(Box<dyn Transport>, &str); 4] = [
        (Box::new(network.transport()), "nowhere"),
        (Box::new(tcp()), &free),
        (host(HostPath::UnixSocket), unused_address()),
        (host(rings()), unused_address()),
    ];
    for (mut transport, address) in transports {
        let mut connection = transport.connect(address).unwrap();
        let mut told = None;
        until(|| {
            transport.wait(Duration::ZERO).unwrap();
            told = connection.receive().err();
            told.is_some()
        });
        let told = told.unwrap();
        assert!(
            matches!(told.reason, DisconnectReason::Unreachable(_)),
            "{told}"
        );
        assert!(told.to_string().contains(address), "{told}");
    }
}

#[test]
fn an_address_is_listened_at_once() {
    for (mut first, mut second, address) in transports() {
        let listener = first.listen(address).unwrap();
        let error = second.listen(listener.address()).err().unwrap();
        assert!(error.to_string().contains(listener.address()), "{error}");
        assert!(error.hint_text().is_some());
    }
}

#[test]
fn a_ring_of_the_bell_ends_the_wait_from_another_thread() {
    for (mut first, _, _) in transports() {
        let bell = first.waker();
        let ringing = std::thread::spawn(move || bell.notify());
        first.wait(Duration::from_secs(3600)).unwrap();
        ringing.join().unwrap();
    }
}

#[test]
fn what_arrives_ends_the_wait() {
    for (mut first, mut second, address) in transports() {
        let (mut a, mut b) = connections(&mut *first, &mut *second, address);
        let sending = std::thread::spawn(move || {
            a.send(SendBuffer::Frame(frame(1, 10))).unwrap();
            until(|| {
                first.wait(Duration::ZERO).unwrap();
                a.flush().unwrap();
                a.unsent() == 0
            });
            a
        });
        until(|| {
            second.wait(Duration::from_secs(3600)).unwrap();
            b.receive().unwrap().is_some()
        });
        sending.join().unwrap();
    }
}

#[test]
fn a_port_is_not_opened_to_other_machines_without_protection() {
    let mut open = tcp();
    let error = open.listen("0.0.0.0:0").err().unwrap();
    assert!(error.to_string().contains("token"), "{error}");
    let mut protected = TcpTransport::new(TcpConfig {
        is_protected: true,
        ..TcpConfig::default()
    })
    .unwrap();
    assert!(protected.listen("0.0.0.0:0").is_ok());
}
