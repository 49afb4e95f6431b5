//! Cost of reading and writing a map of a grid, and of passing values through a queue.
//!
//! All members are in this process and communicate over TCP on this machine. The measured member
//! reads local keys, keys of other members, and keys through a near-cache. It writes with the
//! requested number of synchronous backups. Write throughput is measured with many writes in
//! flight, write latency with one at a time. CPU time is that of all members.

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
use crate::usage::{Spent, Stopwatch, reset_peak};

/// Timeout for the members to form a grid and to fill the backups.
const SETTLES: Duration = Duration::from_secs(60);

/// Entries of one call where many writes are in flight.
const TOGETHER: usize = 16_384;

/// Operations between two checks of the clock.
const STRIDE: usize = 64;

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; [`ErrorCode::Network`] and
/// [`ErrorCode::StateUnavailable`] if the members cannot form a grid.
pub fn run(params: &GridParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    // The caller's thread, and the thread that drives its member.
    let noise = noise::measure_noise(2, params.duration)?;
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
                "the members did not form a grid within {} s",
                SETTLES.as_secs()
            ),
        )
        .hint("is the machine very busy?")),
    }
}

/// The measured operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Reads a key of which this member is the primary.
    Get,
    /// Reads a key of which another member is the primary, over the network.
    FarGet,
    /// Reads such a key through a near-cache.
    NearGet,
    /// Writes one entry at a time.
    Put,
    /// Writes many entries at a time.
    PutAll,
    /// Offers a value to a queue and takes it out again.
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
            Kind::Get => "reading local keys",
            Kind::FarGet => "reading keys of other members",
            Kind::NearGet => "reading keys of other members through a near-cache",
            Kind::Put => "writing, one at a time",
            Kind::PutAll => "writing, many at a time",
            Kind::Queue => "passing values through a queue",
        }
    }

    fn figures(self, seen: &Sample) -> Vec<Field> {
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
        // With a single member there are no remote keys.
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

/// The measurements of one kind of operation.
#[derive(Debug)]
struct Sample {
    count: u64,
    spent: Spent,
    nanos: Histogram<u64>,
}

/// The map under test, and its keys by location.
struct Bench<'a> {
    params: &'a GridParams,
    map: GridMap<u64, String>,
    queue: GridQueue<String>,
    /// Keys of which this member is the primary, in no particular order.
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

    fn measure(&self, kind: Kind) -> Result<Sample> {
        let map = match kind {
            Kind::NearGet => self.near()?,
            _ => self.map.clone(),
        };
        let mut nanos = nanoseconds()?;
        self.work(kind, &map, self.params.warmup, &mut nanos)?;
        nanos.reset();
        let meanwhile = Stopwatch::begin();
        let count = self.work(kind, &map, self.params.duration, &mut nanos)?;
        Ok(Sample {
            count,
            spent: meanwhile.spent(),
            nanos,
        })
    }

    /// Returns the map with a near-cache filled with the remote keys. It exists only during reads:
    /// writes would have to invalidate it.
    fn near(&self) -> Result<GridMap<u64, String>> {
        let bytes = (self.params.bytes + 256) * self.params.keys as usize * 2;
        let cache = NearCache::new().bytes(bytes.max(1 << 20));
        let near = self.map.clone().near_cache(cache)?;
        // A read puts the entry into the near-cache.
        for key in &self.there {
            near.get(key)?;
        }
        Ok(near)
    }

    /// Repeats the operation for `time`, and returns the number of operations.
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

/// Applies `act` to the keys in a cycle for `time`, and records the duration of each call. Returns
/// the number of calls.
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

/// Returns the keys from zero to `count` in a scattered order, sorted by a multiplicative hash.
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
    fn a_single_member_has_no_remote_keys() {
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
