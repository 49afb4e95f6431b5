//! A test with a million records over TCP between threads, under random stalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ardea_core::{Chunk, Clock, Marker, Rows, Timestamp};
use ardea_network::exchange::*;

use crate::pair::{Worker, pair, tcp, until};

const RECORDS: u64 = 1_000_000;

/// A random generator of short pauses.
struct Stalls(u64);

impl Stalls {
    fn stall(&mut self) {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        let draw = self.0 >> 40;
        if draw.is_multiple_of(64) {
            thread::park_timeout(Duration::from_micros(draw % 3_000));
        }
    }
}

/// Polls a worker's link on a separate thread, until `stop` is set.
fn network(mut worker: Worker, stop: Arc<AtomicBool>, seed: u64) -> thread::JoinHandle<Worker> {
    thread::spawn(move || {
        let mut stalls = Stalls(seed);
        until(|| {
            worker.transport.wait(Duration::from_millis(1)).unwrap();
            while worker.poll().unwrap() {
                stalls.stall();
            }
            stop.load(Ordering::SeqCst)
        });
        worker
    })
}

fn send(mut sender: EdgeSender, seed: u64) -> EdgeSender {
    let mut stalls = Stalls(seed);
    let (mut next, mut chunk, mut done) = (0, Chunk::default(), false);
    until(|| {
        stalls.stall();
        if chunk.is_empty() && next < RECORDS {
            let end = RECORDS.min(next + 1 + next % 1000);
            let rows: Rows<(u64, String)> = (next..end)
                .map(|n| ((n, n.to_string()), Timestamp::from_micros(n as i64)))
                .collect();
            chunk = Chunk::new(rows);
            next = end;
        }
        if sender.send(InstanceNumber(0), &mut chunk).unwrap() && next == RECORDS && !done {
            done = sender.mark(Marker::Done).unwrap();
        }
        let most = WindowConfig::default().most + (2 << 20);
        assert!(sender.bytes_in_flight() <= most);
        sender.flush().unwrap() && done
    });
    assert!(sender.blocks_made() <= 8, "{} blocks", sender.blocks_made());
    sender
}

fn receive(mut receiver: EdgeReceiver, clock: &Clock, seed: u64) -> u64 {
    let mut stalls = Stalls(seed);
    let (mut next, mut chunk) = (0, Chunk::default());
    until(|| {
        stalls.stall();
        if receiver.receive(clock.now(), &mut chunk).unwrap().is_some() && !chunk.is_empty() {
            for ((n, text), time) in chunk.rows::<(u64, String)>().unwrap().iter() {
                assert_eq!((*n, time), (next, Timestamp::from_micros(next as i64)));
                assert_eq!(text.parse(), Ok(next));
                next += 1;
            }
            chunk.clear();
        }
        receiver.is_done()
    });
    next
}

#[test]
fn a_million_records_arrive_once_and_in_order_under_random_stalls() {
    let (mut first, mut second) = pair(
        Box::new(tcp()),
        Box::new(tcp()),
        "127.0.0.1:0",
        LinkConfig::default(),
    );
    let stream = StreamId::new(1, 0);
    let receiver = second.receiver::<(u64, String)>(stream);
    let sender = first.sender::<(u64, String)>(stream);
    let clock = second.clock.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let networks = [
        network(first, Arc::clone(&stop), 1),
        network(second, Arc::clone(&stop), 2),
    ];
    let sending = thread::spawn(move || send(sender, 3));
    let received = receive(receiver, &clock, 4);
    assert_eq!(received, RECORDS);
    sending.join().unwrap();
    stop.store(true, Ordering::SeqCst);
    // Both at once: the end of one ends the other's link.
    let workers = networks.map(|network| network.join().unwrap());
    for worker in workers {
        assert_eq!(worker.link.counts().stray_frames, 0);
    }
}
