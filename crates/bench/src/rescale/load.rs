//! The job: numbers at a rate, counted by key and checked for gaps.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_aggregate::count;
use ardea_connectors::generate;
use ardea_core::{
    Clock, Delivery, Inbox, InstanceContext, Ordinal, Outbox, Parallelism, Processor, Result, Sink,
    Timestamp, supplier,
};
use ardea_engine::Job;
use ardea_pipeline::Pipeline;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::cluster::{ControlledLoad, Order, Times, latencies_in};
use crate::nanoseconds;
use crate::usage::monotonic_nanos;

/// The parameters of a run, sent to each container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RescaleLoad {
    pub(crate) sources: u32,
    /// Instances of the counting step, and of the sink.
    pub(crate) counters: u32,
    /// Numbers a second over all sources.
    pub(crate) rate: u64,
    pub(crate) records: u64,
    pub(crate) keys: u64,
}

/// The results seen in a container.
struct Sample {
    records: AtomicU64,
    /// Counts that did not follow the previous count of their key, within one attempt of the job.
    out_of_step: AtomicU64,
    times: Times,
    nanos: Mutex<Histogram<u64>>,
}

impl ControlledLoad for Sample {
    fn handle_order(&self, order: Order) {
        if let Order::Begin { start, from, until } = order {
            self.times.set(start, from, until);
        }
    }

    fn numbers(&self) -> BTreeMap<String, u64> {
        let counters = [("seen", &self.records), ("out_of_step", &self.out_of_step)];
        let read = counters.into_iter();
        read.map(|(name, counter)| (name.to_string(), counter.load(Ordering::Relaxed)))
            .collect()
    }

    fn latencies(&self) -> Vec<(u64, u64)> {
        latencies_in(&self.nanos)
    }
}

/// Returns the job, and the handle by which the bench controls a container of it.
pub(crate) fn job(load: &RescaleLoad) -> Result<(Box<dyn Job>, Arc<dyn ControlledLoad>)> {
    let seen = Arc::new(Sample {
        records: AtomicU64::new(0),
        out_of_step: AtomicU64::new(0),
        times: Times::unknown(),
        nanos: Mutex::new(nanoseconds()?),
    });
    let instances = |count| Parallelism::Exactly(NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN));
    let keys = load.keys.max(1);
    let p = Pipeline::new("rescale");
    let numbers = generate::at_rate(load.rate, |number| number)
        .limit(load.records)
        .parallelism(instances(load.sources))
        .build();
    let sees = Arc::clone(&seen);
    let sink = Sink::new("seen", supplier(move || CheckingSinkP::new(&sees, keys)));
    p.read_from(numbers)
        .with_source_time()
        .key_by(move |number: &u64| number % keys)
        .rolling("counts", count())
        .parallelism(instances(load.counters))
        .write_to(
            sink.parallelism(instances(load.counters))
                .with_delivery(Delivery::Nothing),
        );
    Ok((Box::new(p), seen))
}

/// A sink that records the latency of counts, and gaps between them.
struct CheckingSinkP {
    seen: Arc<Sample>,
    clock: Clock,
    /// The last count of each key; zero before the first.
    last: Vec<u64>,
}

impl CheckingSinkP {
    fn new(seen: &Arc<Sample>, keys: u64) -> Self {
        CheckingSinkP {
            seen: Arc::clone(seen),
            clock: Clock::system(),
            last: vec![0; keys as usize],
        }
    }

    /// Records the latencies of records in the measured time.
    fn time(&self, times: &[Timestamp]) {
        let (wall, now) = (self.clock.wall(), monotonic_nanos());
        let from = self.seen.times.from();
        let nanos = self.seen.nanos.lock();
        let mut nanos = nanos.unwrap_or_else(PoisonError::into_inner);
        for time in times {
            let late = wall.since(*time).as_nanos() as u64;
            if now.saturating_sub(late) >= from {
                nanos.saturating_record(late);
            }
        }
    }
}

impl Processor for CheckingSinkP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<(u64, u64)>()?;
        self.time(rows.times());
        let mut out_of_step = 0;
        for (key, count) in rows.values() {
            let place = *key as usize % self.last.len();
            let last = &mut self.last[place];
            out_of_step += u64::from(*last > 0 && *count != *last + 1);
            *last = *count;
        }
        let records = rows.len() as u64;
        rows.clear();
        self.seen.records.fetch_add(records, Ordering::Relaxed);
        self.seen
            .out_of_step
            .fetch_add(out_of_step, Ordering::Relaxed);
        Ok(())
    }
}
