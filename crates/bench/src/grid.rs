//! What it costs to read and write a map of a grid, and to pass values through a queue.
//!
//! All members are in this process, and speak to each other over TCP on this machine; the one that is measured with reads what it is the primary of, what others
//! are, and through a near-cache, and writes with as many synchronous backups as were asked for. Throughput of writes is that of many under way at a time,
//! their latency that of one at a time. Cpu time is that of all members.

mod params;

pub use params::GridParams;

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, PartitionId, Result};
use ardea_grid::node::{Grid, GridConfig, GridMap, GridQueue, NearCache};
use hdrhistogram::Histogram;
use serde_json::json;

use crate::nanoseconds;
use crate::noise;
use crate::report::{Field, Report, machine, rounded};
use crate::usage::{Meanwhile, Spent, forget_peak};

/// How long members may take to find each other, and copies to be filled.
const SETTLES: Duration = Duration::from_secs(60);

/// How many entries are put by one call, where many are under way.
const TOGETHER: usize = 16_384;

/// How many operations are done between two looks at whether the time is over.
const STRIDE: usize = 64;

/// Runs the benchmark; `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; [`ErrorCode::Network`] and
/// [`ErrorCode::StateUnavailable`] if no grid comes about.
pub fn run(params: &GridParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    forget_peak();
    progress("listening to the machine's own noise");
    // The caller's thread, and the one that drives its member.
    let noise = noise::listen(2, params.duration)?;
    progress("starting the members, and filling the map");
    let grids = started(params)?;
    let bench = Bench::new(params, &grids[0])?;
    let mut figures = Vec::new();
    let mut all = Spent::default();
    for kind in Kind::ALL {
        progress(kind.what());
        let seen = bench.measure(kind)?;
        all.wall += seen.spent.wall;
        all.cpu += seen.spent.cpu;
        figures.extend(kind.figures(&seen));
    }
    let duration = json!(rounded(all.wall.as_secs_f64(), 1e3));
    figures.insert(0, ("duration_s", duration));
    figures.extend(machine(all, noise));
    Ok(Report {
        bench: "grid",
        parameters: params.fields(),
        figures,
    })
}

fn started(params: &GridParams) -> Result<Vec<Grid>> {
    let config = || GridConfig::new("bench").backups(params.backups);
    let first = Grid::start(config())?;
    let seed = first.endpoint().to_string();
    let mut grids = vec![first];
    for _ in 1..params.members {
        grids.push(Grid::start(config().join([seed.as_str()]))?);
    }
    let is_settled = |grid: &Grid| grid.settled(params.members, SETTLES);
    match grids.iter().all(is_settled) {
        true => Ok(grids),
        false => Err(Error::new(
            ErrorCode::StateUnavailable,
            format!(
                "the members of a grid did not settle within {} s",
                SETTLES.as_secs()
            ),
        )
        .hint("is the machine very busy?")),
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Reading what this member is the primary of.
    Get,
    /// Reading what another one is, which it has to be asked for.
    FarGet,
    /// Reading that through a near-cache.
    NearGet,
    /// Writing, one at a time.
    Put,
    /// Writing, many at a time.
    PutAll,
    /// Offering a value to a queue and taking it out again.
    Queue,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Get,
        Kind::FarGet,
        Kind::NearGet,
        Kind::Put,
        Kind::PutAll,
        Kind::Queue,
    ];

    fn what(self) -> &'static str {
        match self {
            Kind::Get => "reading what is here",
            Kind::FarGet => "reading what other members keep",
            Kind::NearGet => "reading that through a near-cache",
            Kind::Put => "writing, one at a time",
            Kind::PutAll => "writing, many at a time",
            Kind::Queue => "passing values through a queue",
        }
    }

    fn figures(self, seen: &Seen) -> Vec<Field> {
        let names = match self {
            Kind::Get => ["gets", "gets_per_cpu_s", "get_p50_us", "get_p99_us"],
            Kind::FarGet => [
                "far_gets",
                "far_gets_per_cpu_s",
                "far_get_p50_us",
                "far_get_p99_us",
            ],
            Kind::NearGet => [
                "near_gets",
                "near_gets_per_cpu_s",
                "near_get_p50_us",
                "near_get_p99_us",
            ],
            Kind::Put => [
                "single_puts",
                "single_puts_per_cpu_s",
                "put_p50_us",
                "put_p99_us",
            ],
            Kind::PutAll => ["puts", "puts_per_cpu_s", "", ""],
            Kind::Queue => ["passes", "passes_per_cpu_s", "pass_p50_us", "pass_p99_us"],
        };
        let per_cpu = seen.spent.per_cpu_second(seen.count).map(f64::round);
        let quantile = |q: f64| {
            let nanos = seen.nanos.value_at_quantile(q) as f64;
            (!seen.nanos.is_empty()).then(|| rounded(nanos / 1e3, 1e2))
        };
        // There is nobody else to keep what a single member would ask for.
        let is_seen = seen.count > 0;
        let fields = [
            (names[0], json!(is_seen.then_some(seen.count))),
            (names[1], json!(per_cpu.filter(|_| is_seen))),
            (names[2], json!(quantile(0.5))),
            (names[3], json!(quantile(0.99))),
        ];
        let is_named = |(name, _): &Field| !name.is_empty();
        fields.into_iter().filter(is_named).collect()
    }
}

/// What was seen of one kind of operation.
#[derive(Debug)]
struct Seen {
    count: u64,
    spent: Spent,
    nanos: Histogram<u64>,
}

/// The map, and which of its keys are where.
struct Bench<'a> {
    params: &'a GridParams,
    map: GridMap<u64, String>,
    queue: GridQueue<String>,
    /// Keys that this member is the primary of, in no order.
    here: Vec<u64>,
    there: Vec<u64>,
    value: String,
}

impl<'a> Bench<'a> {
    fn new(params: &'a GridParams, grid: &Grid) -> Result<Self> {
        let map = grid.map::<u64, String>("bench")?;
        let value = "x".repeat(params.bytes);
        let keys: Vec<u64> = scattered(params.keys);
        map.put_all(keys.iter().map(|key| (key, &value)))?;
        let view = grid.view();
        let is_here = |key: &u64| {
            let record = view
                .as_ref()
                .and_then(|view| view.record(PartitionId::of(key)));
            record.is_some_and(|record| record.primary() == Some(grid.id()))
        };
        let (here, there): (Vec<u64>, Vec<u64>) = keys.into_iter().partition(is_here);
        Ok(Bench {
            params,
            map,
            queue: grid.queue("bench", 1_000)?,
            here,
            there,
            value,
        })
    }

    fn measure(&self, kind: Kind) -> Result<Seen> {
        let map = match kind {
            Kind::NearGet => self.near()?,
            _ => self.map.clone(),
        };
        let mut nanos = nanoseconds()?;
        self.work(kind, &map, self.params.warmup, &mut nanos)?;
        nanos.reset();
        let meanwhile = Meanwhile::begin();
        let count = self.work(kind, &map, self.params.duration, &mut nanos)?;
        Ok(Seen {
            count,
            spent: meanwhile.spent(),
            nanos,
        })
    }

    /// The map with a near-cache that has what others keep. It is there only while it is read: who writes has to tell it.
    fn near(&self) -> Result<GridMap<u64, String>> {
        let bytes = (self.params.bytes + 256) * self.params.keys as usize * 2;
        let cache = NearCache::new().bytes(bytes.max(1 << 20));
        let near = self.map.clone().near_cache(cache)?;
        // What is read once is near.
        for key in &self.there {
            near.get(key)?;
        }
        Ok(near)
    }

    /// Does it for so long; how often.
    fn work(
        &self,
        kind: Kind,
        map: &GridMap<u64, String>,
        time: Duration,
        nanos: &mut Histogram<u64>,
    ) -> Result<u64> {
        let get = |key: &u64| match map.get(key)? {
            Some(value) if value.len() == self.params.bytes => Ok(()),
            _ => Err(Error::new(
                ErrorCode::Internal,
                format!("the grid has lost the key {key}"),
            )),
        };
        match kind {
            Kind::Get => timed(&self.here, time, nanos, get),
            Kind::FarGet | Kind::NearGet => timed(&self.there, time, nanos, get),
            Kind::Put => timed(&self.here, time, nanos, |key| map.put(key, &self.value)),
            Kind::Queue => timed(&self.here, time, nanos, |_| {
                self.queue.offer(&self.value)?;
                self.queue.poll().map(drop)
            }),
            Kind::PutAll => {
                let (start, mut count) = (Instant::now(), 0);
                for keys in self.here.chunks(TOGETHER).cycle() {
                    let entries = keys.iter().map(|key| (key, &self.value));
                    map.put_all(entries)?;
                    count += keys.len() as u64;
                    if start.elapsed() >= time {
                        break;
                    }
                }
                Ok(count)
            }
        }
    }
}

/// Works through the keys again and again for so long, and times each; how many it were.
fn timed(
    keys: &[u64],
    time: Duration,
    nanos: &mut Histogram<u64>,
    act: impl Fn(&u64) -> Result<()>,
) -> Result<u64> {
    let (start, mut count) = (Instant::now(), 0);
    for keys in keys.chunks(STRIDE).cycle() {
        for key in keys {
            let begun = Instant::now();
            act(key)?;
            nanos.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        count += keys.len() as u64;
        if start.elapsed() >= time {
            break;
        }
    }
    Ok(count)
}

/// Keys from zero, in an order that has none: each odd multiple is met once.
fn scattered(count: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..count).collect();
    keys.sort_by_cached_key(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_reads_and_writes_in_all_ways() {
        let params = GridParams {
            keys: 10_000,
            duration: Duration::from_millis(100),
            warmup: Duration::from_millis(10),
            ..GridParams::default()
        };
        let report = run(&params, &mut |_| {}).unwrap();
        for name in [
            "gets",
            "far_gets",
            "near_gets",
            "single_puts",
            "puts",
            "passes",
        ] {
            assert!(report.figure(name).as_u64() > Some(0), "{name}: {report:?}");
        }
        assert!(report.figure("put_p99_us").is_number(), "{report:?}");
    }

    #[test]
    fn a_single_member_has_nobody_to_ask() {
        let params = GridParams {
            members: 1,
            backups: 0,
            keys: 10_000,
            duration: Duration::from_millis(50),
            warmup: Duration::from_millis(1),
            ..GridParams::default()
        };
        let report = run(&params, &mut |_| {}).unwrap();
        assert!(report.figure("far_gets").is_null(), "{report:?}");
        assert!(report.figure("far_get_p99_us").is_null(), "{report:?}");
        assert!(report.figure("gets").as_u64() > Some(0), "{report:?}");
    }
}
