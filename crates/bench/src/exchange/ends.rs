//! The two ends of the measured edge, each in its own worker.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{Chunk, Clock, Marker, Result, Rows, Timestamp, Waker};
use ardea_network::exchange::{
    Connection, EdgeReceiver, EdgeSender, End, Identity, InstanceNumber, Link, LinkConfig,
    ReceiverConfig, RowsCodec, SenderConfig, Side, StreamId, Transport, Wire, WorkerNumber,
};
use hdrhistogram::Histogram;

use super::params::ExchangeParams;
use crate::usage::thread_cpu_time;
use crate::{LATE_RESULTS_TIMEOUT, nanoseconds};

/// The longest wait of an idle thread before it checks whether the run is over.
const IDLE_WAIT: Duration = Duration::from_millis(20);

/// Records of a chunk.
const CHUNK: u64 = 1_000;

const STREAM: StreamId = StreamId::new(1, 1);

/// A kind of records for the benchmark.
pub(super) trait BenchRecord: Wire {
    fn make(number: u64) -> Self;
}

impl BenchRecord for (u64, u64, u64, u64, u64) {
    #[inline]
    fn make(number: u64) -> Self {
        (number, number ^ 0x5555, number * 3, number >> 3, 7)
    }
}

impl BenchRecord for String {
    #[inline]
    fn make(number: u64) -> Self {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        "overcommunicatio"[..3 + (number >> 60) as usize % 14].to_string()
    }
}

/// State shared by the threads of a run.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) received: AtomicU64,
    pub(super) making_nanos: AtomicU64,
    pub(super) over: AtomicBool,
}

/// A worker of the benchmark.
pub(super) struct Worker {
    transport: Box<dyn Transport>,
    link: Link,
    clock: Clock,
}

impl Worker {
    pub(super) fn new(
        transport: Box<dyn Transport>,
        connection: Box<dyn Connection>,
        side: Side,
        number: u64,
        clock: &Clock,
    ) -> Self {
        let identity = Identity {
            cluster: "bench".into(),
            worker: WorkerNumber(number),
            incarnation: 1,
            token: None,
        };
        let (bell, config) = (transport.waker(), LinkConfig::default());
        Worker {
            link: Link::new(connection, side, identity, bell, config, clock.now()),
            transport,
            clock: clock.clone(),
        }
    }

    /// Polls the link; returns true if it made progress.
    fn step(&mut self, wait: Duration) -> Result<bool> {
        let may_wait = wait.is_zero() || self.link.may_wait();
        self.transport
            .wait(if may_wait { wait } else { Duration::ZERO })?;
        Ok(self.link.poll(self.clock.now())?.made)
    }
}

/// Sends records until the run is over. A paced run sends all that were due by then, unless that
/// takes too long.
pub(super) fn send<T: BenchRecord>(
    mut worker: Worker,
    params: &ExchangeParams,
    start: Timestamp,
    shared: &Shared,
) -> Result<()> {
    let port = worker.link.open(End::Sender, STREAM, Waker::none())?;
    let codec = Arc::new(RowsCodec::<T>::wire());
    let (all, config) = (InstanceNumber::ALL, SenderConfig::default());
    let mut sender = EdgeSender::new(STREAM, all, port, codec, config);
    let (mut chunk, mut next, mut making) = (Chunk::default(), 0, Duration::ZERO);
    let (owed, give_up) = if params.max {
        (0, start)
    } else {
        let until = start + params.warmup + params.duration;
        (params.count(), until + LATE_RESULTS_TIMEOUT)
    };
    let mut is_done = false;
    while !is_done {
        let now = worker.clock.wall();
        let is_over = shared.over.load(Ordering::Relaxed) && (next >= owed || now > give_up);
        if chunk.is_empty() && !is_over {
            let before = thread_cpu_time();
            next = make::<T>(&mut chunk, next, params, start, now)?;
            making += thread_cpu_time() - before;
            let nanos = making.as_nanos() as u64;
            shared.making_nanos.store(nanos, Ordering::Relaxed);
        }
        let all_sent = sender.send(InstanceNumber(0), &mut chunk)?;
        if all_sent && is_over {
            is_done = sender.mark(Marker::Done)?;
        }
        sender.flush()?;
        let made = worker.step(Duration::ZERO)?;
        if !all_sent && !made {
            worker.step(IDLE_WAIT)?;
        }
    }
    // Waits until the other side has received everything and closes.
    while !sender.flush()? || worker.link.peer().is_some() {
        match worker.step(IDLE_WAIT) {
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// Adds the records that are due to the chunk, at most a chunk's worth. Returns the number of the
/// next record.
fn make<T: BenchRecord>(
    chunk: &mut Chunk,
    next: u64,
    params: &ExchangeParams,
    start: Timestamp,
    now: Timestamp,
) -> Result<u64> {
    let rows: &mut Rows<T> = chunk.rows_or_new(CHUNK as usize)?;
    let due = if params.max {
        next + CHUNK
    } else {
        (u128::from(params.rate) * now.since(start).as_micros() / 1_000_000) as u64
    };
    let end = due.clamp(next, next + CHUNK);
    rows.extend_columns(|values, times| {
        values.extend((next..end).map(T::make));
        times.extend((next..end).map(|number| {
            let micros = u128::from(number) * 1_000_000 / u128::from(params.rate);
            start + Duration::from_micros(micros as u64)
        }));
    });
    Ok(end)
}

/// Receives records until the last. Returns the latencies of those due in the measured time, in
/// nanoseconds.
pub(super) fn receive<T: BenchRecord>(
    mut worker: Worker,
    measured: &Option<Range<Timestamp>>,
    shared: &Shared,
) -> Result<Histogram<u64>> {
    let port = worker.link.open(End::Receiver, STREAM, Waker::none())?;
    let codec = Arc::new(RowsCodec::<T>::wire());
    let config = ReceiverConfig::default();
    let mut receiver = EdgeReceiver::new(STREAM, port, codec, config, worker.clock.now());
    let mut latency = nanoseconds()?;
    let (mut chunk, mut received) = (Chunk::default(), 0);
    while !receiver.is_done() {
        let mut made = false;
        while receiver.receive(worker.clock.now(), &mut chunk)?.is_some() {
            made = true;
            if chunk.is_empty() {
                continue;
            }
            let rows = chunk.rows::<T>()?;
            received += rows.len() as u64;
            if let Some(measured) = measured {
                let now = worker.clock.wall();
                for &time in rows.times().iter().filter(|time| measured.contains(time)) {
                    latency.saturating_record(now.since(time).as_nanos() as u64);
                }
            }
            chunk.clear();
        }
        shared.received.store(received, Ordering::Relaxed);
        made |= worker.step(Duration::ZERO)?;
        if !made {
            worker.step(IDLE_WAIT)?;
        }
    }
    Ok(latency)
}
