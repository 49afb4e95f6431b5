//! Tests of threads that sleep until woken. No timer hides a lost wake-up: it would stop
//! everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Chunk, Marker, Rows, Timestamp, Waker};
use ardea_network::exchange::*;

use crate::pair::{TIMEOUT, Worker, pair, transports};

const NEVER: Duration = Duration::from_secs(100_000);
const STREAMS: u32 = 3;
const RECORDS: u64 = 60_000;

fn waker() -> Waker {
    let thread = thread::current();
    Waker::new(move || thread.unpark())
}

/// Parks until woken; fails after a timeout.
fn rest(since: Instant) {
    thread::park_timeout(TIMEOUT);
    assert!(since.elapsed() < TIMEOUT, "this thread was not woken");
}

/// Polls a link, and sleeps when there is nothing to do.
fn network(mut worker: Worker, stop: Arc<AtomicBool>) -> thread::JoinHandle<Worker> {
    thread::spawn(move || {
        let start = Instant::now();
        while !stop.load(Ordering::SeqCst) {
            let made = worker.poll().unwrap();
            let may_wait = !made && worker.link.may_wait();
            let wait = if may_wait { TIMEOUT } else { Duration::ZERO };
            worker.transport.wait(wait).unwrap();
            assert!(
                start.elapsed() < TIMEOUT,
                "the network thread was not woken"
            );
        }
        worker
    })
}

/// Sends from this thread, a few records at a time; a full window or queue waits for a wake-up.
fn send(stream: StreamId, port: Port) {
    let codec = Arc::new(RowsCodec::<u64>::wire());
    let config = SenderConfig {
        frame_bytes: 500,
        blocks: 2,
        ..SenderConfig::default()
    };
    let mut sender = EdgeSender::new(stream, InstanceNumber::ALL, port, codec, config);
    let (mut next, mut chunk, start) = (0, Chunk::default(), Instant::now());
    let mut is_done = false;
    while !is_done {
        if chunk.is_empty() && next < RECORDS {
            let end = RECORDS.min(next + 1 + next % 300);
            let rows: Rows<u64> = (next..end).map(|n| (n, Timestamp::MIN)).collect();
            (chunk, next) = (Chunk::new(rows), end);
        }
        let all = sender.send(InstanceNumber(0), &mut chunk).unwrap();
        let marked = all && next == RECORDS && sender.mark(Marker::Done).unwrap();
        let flushed = sender.flush().unwrap();
        is_done = marked;
        if !is_done && (!all || !flushed) {
            rest(start);
        }
    }
    while !sender.flush().unwrap() {
        rest(start);
    }
}

fn receive(stream: StreamId, port: Port) {
    let codec = Arc::new(RowsCodec::<u64>::wire());
    let config = ReceiverConfig {
        window: WindowConfig {
            acknowledge_every: NEVER,
            first: 4_000,
            least: 4_000,
            ..WindowConfig::default()
        },
        first_sequence: 1,
    };
    let mut receiver = EdgeReceiver::new(stream, port, codec, config, Duration::ZERO);
    let (mut next, mut chunk, start) = (0, Chunk::default(), Instant::now());
    while !receiver.is_done() {
        if receiver
            .receive(Duration::ZERO, &mut chunk)
            .unwrap()
            .is_none()
        {
            rest(start);
        } else if !chunk.is_empty() {
            for n in chunk.rows::<u64>().unwrap().values() {
                assert_eq!(*n, next);
                next += 1;
            }
            chunk.clear();
        }
    }
    assert_eq!(next, RECORDS);
}

#[test]
fn no_wake_up_is_lost_between_tasklets_and_network() {
    let config = LinkConfig {
        heartbeat_interval: NEVER,
        silence_timeout: NEVER,
        port_frames: 4,
        port_parcels: 2,
        ..LinkConfig::default()
    };
    for (first, second, address) in transports() {
        let (first, second) = pair(first, second, address, config);
        let links = [first, second].map(|worker| Arc::new(std::sync::Mutex::new(Some(worker))));
        let mut ends = Vec::new();
        for number in 0..STREAMS {
            for (at, end) in [(0, End::Sender), (1, End::Receiver)] {
                let stream = StreamId::new(1, number);
                let link = Arc::clone(&links[at]);
                let (opened, is_open) = std::sync::mpsc::channel();
                ends.push(thread::spawn(move || {
                    let port = {
                        let mut worker = link.lock().unwrap();
                        worker
                            .as_mut()
                            .unwrap()
                            .link
                            .open(end, stream, waker())
                            .unwrap()
                    };
                    opened.send(()).unwrap();
                    match end {
                        End::Sender => send(stream, port),
                        End::Receiver => receive(stream, port),
                    }
                }));
                is_open.recv().unwrap();
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let mut bells = Vec::new();
        let networks = links.map(|link| {
            let worker = link.lock().unwrap().take().unwrap();
            bells.push(worker.transport.waker());
            network(worker, Arc::clone(&stop))
        });
        for end in ends {
            end.join().unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        bells.iter().for_each(NetworkWaker::notify);
        drop(networks.map(|network| network.join().unwrap()));
    }
}
