//! Keyed state for many keys: in memory, and on disk with a tenth of that memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_config::{format_bytes, parse_bytes, parse_count};
use ardea_core::{
    Chunk, DEFAULT_CHUNK_RECORDS, Error, ErrorCode, Inbox, InstanceContext, MetricsSnapshot,
    Ordinal, Outbox, Processor, Result, Rows, StateBackend, StateCodec, Timestamp,
};
use ardea_engine::StateBackendConfig;
use ardea_operators::{KeyedContext, KeyedLogic, StateCodecs, StatefulMapP};
use serde_json::json;

use crate::bounds::{check_duration, refused};
use crate::flags::time;
use crate::noise;
use crate::report::{Field, Report, fields, machine, rounded, seconds};
use crate::usage::{Spent, Stopwatch, reset_peak};

/// In the hot phase, one record in this many has a key outside the hot set.
const COLD_RECORD_EVERY: u64 = 100;
/// The hot set is one key in this many.
const HOT_KEY_EVERY: u64 = 1_000;

/// The parameters of `ardea bench state`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct StateParams {
    /// Number of keys with state
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1_000_000")]
    pub keys: u64,
    /// Size of each state in bytes
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub value_bytes: usize,
    /// Memory budget of the job whose state is on disk, such as `64MiB` (default: a tenth of the
    /// size of all keys in memory)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Folder on the disk to measure (default: one for temporary files)
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Duration of each measurement, after all keys are loaded
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub duration: Duration,
}

impl StateParams {
    fn check(&self) -> Result<()> {
        check_duration(self.duration)?;
        if self.keys == 0 || self.value_bytes < 8 {
            return Err(refused(
                "give at least one key, and states of at least 8 bytes",
            ));
        }
        Ok(())
    }

    fn fields(&self, memory: u64) -> Vec<Field> {
        fields!(self; keys, value_bytes, memory = format_bytes(memory), duration)
    }
}

/// Runs the benchmark; `progress` receives status texts.
///
/// One step has a state of `value_bytes` for each key, and changes it at each record. It is driven
/// by hand, so that nothing else is measured. First each key comes once (`puts`). Then keys are
/// uniformly distributed (`gets`): with a tenth of the memory, nine in ten are read from disk, and
/// as many are written. Then nearly all records are of a thousandth of the keys (`hot`).
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; errors of the disk.
pub fn run(params: &StateParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, params.duration)?;
    let all = Stopwatch::begin();
    progress("measuring state in memory");
    let in_memory = Measured::of(params, None)?;
    let memory = params.memory.unwrap_or(in_memory.state.state_bytes / 10);
    progress("measuring state on disk");
    let folder = params.folder.clone();
    let folder = folder.unwrap_or_else(|| std::env::temp_dir().join("ardea-state"));
    let on_disk = match cfg!(feature = "state-disk") {
        true => Some(Measured::of(
            params,
            StateBackendConfig::Disk { folder, memory }.store()?,
        )?),
        false => None,
    };
    let mut figures = vec![("duration_s", json!(seconds(all.spent().wall)))];
    figures.extend(in_memory.fields([
        "memory_puts_per_cpu_s",
        "memory_gets_per_cpu_s",
        "memory_hot_per_cpu_s",
        "memory_slowest_ms",
    ]));
    figures.push(("memory_bytes", json!(in_memory.state.state_bytes)));
    figures.extend(of_disk(on_disk.as_ref()));
    figures.extend(machine(all.spent(), noise));
    Ok(Report {
        bench: "state",
        parameters: params.fields(memory),
        figures,
    })
}

/// Returns the figures of state on disk; `null` without that feature.
fn of_disk(measured: Option<&Measured>) -> Vec<Field> {
    let names = [
        "disk_puts_per_cpu_s",
        "disk_gets_per_cpu_s",
        "disk_hot_per_cpu_s",
        "disk_slowest_ms",
    ];
    let mut figures = match measured {
        Some(measured) => measured.fields(names),
        None => names.map(|name| (name, json!(null))).to_vec(),
    };
    let state = measured.map(|measured| &measured.state);
    figures.extend([
        ("disk_keys", json!(state.map(|state| state.state_disk_keys))),
        (
            "disk_bytes",
            json!(state.map(|state| state.state_disk_bytes)),
        ),
    ]);
    figures
}

/// The number of records of a phase, and their cost.
#[derive(Clone, Copy)]
struct Phase {
    records: u64,
    spent: Spent,
}

/// The measurements of one state backend.
struct Measured {
    puts: Phase,
    gets: Phase,
    hot: Phase,
    /// The longest time of a batch of records after all keys were inserted.
    slowest: Duration,
    state: MetricsSnapshot,
}

impl Measured {
    fn of(params: &StateParams, store: Option<Arc<dyn StateBackend>>) -> Result<Measured> {
        let mut bench = StepHarness::new(params.value_bytes, store)?;
        let keys = params.keys;
        let puts = bench.measure(|done| done < keys, |index| index)?;
        bench.slowest = Duration::ZERO;
        let until = |duration: Duration| {
            let began = Instant::now();
            move |_: u64| began.elapsed() < duration
        };
        let gets = bench.measure(until(params.duration), |index| spread(index) % keys)?;
        let few = (keys / HOT_KEY_EVERY).max(1);
        let hot = bench.measure(until(params.duration), |index| {
            match index % COLD_RECORD_EVERY {
                0 => spread(index) % keys,
                _ => spread(index) % few,
            }
        })?;
        Ok(Measured {
            puts,
            gets,
            hot,
            slowest: bench.slowest,
            state: bench.context.metrics.snapshot(),
        })
    }

    fn fields(&self, [puts, gets, hot, slowest]: [&'static str; 4]) -> Vec<Field> {
        let rate = |phase: Phase| {
            let per_cpu = phase.spent.per_cpu_second(phase.records);
            json!(per_cpu.map(f64::round))
        };
        vec![
            (puts, rate(self.puts)),
            (gets, rate(self.gets)),
            (hot, rate(self.hot)),
            (
                slowest,
                json!(rounded(self.slowest.as_secs_f64() * 1e3, 1e3)),
            ),
        ]
    }
}

/// Returns a pseudo-random number (the finalizer of SplitMix64).
pub(crate) fn spread(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The step under test, with its inputs and outputs.
struct StepHarness {
    step: Box<dyn Processor>,
    inbox: Inbox,
    outbox: Outbox,
    context: InstanceContext,
    slowest: Duration,
}

impl StepHarness {
    fn new(value_bytes: usize, store: Option<Arc<dyn StateBackend>>) -> Result<StepHarness> {
        let logic = KeyedLogic {
            key: |key: &u64| *key,
            create: move || vec![0u8; value_bytes],
            on_record: |state: &mut Vec<u8>,
                        _: &u64,
                        _: u64,
                        _: Timestamp,
                        _: &mut KeyedContext<'_, '_, u64>| {
                state[0] = state[0].wrapping_add(1);
            },
            on_timer: |_: &mut Vec<u8>,
                       _: &u64,
                       _: Timestamp,
                       _: &mut KeyedContext<'_, '_, u64>| {},
        };
        let kept = StateCodecs::new(Arc::new(Numbers), Arc::new(Bytes));
        let mut step = StatefulMapP::new(Arc::new(logic)).with_codecs(kept);
        let context = InstanceContext {
            local: store,
            ..InstanceContext::detached("state")
        };
        step.init(&context)?;
        Ok(StepHarness {
            step: Box::new(step),
            inbox: Inbox::default(),
            outbox: Outbox::new(1, DEFAULT_CHUNK_RECORDS),
            context,
            slowest: Duration::ZERO,
        })
    }

    /// Feeds batches of records while `more` returns true; `key` maps a record's number to its key.
    fn measure(&mut self, more: impl Fn(u64) -> bool, key: impl Fn(u64) -> u64) -> Result<Phase> {
        let (began, mut records) = (Stopwatch::begin(), 0);
        while more(records) {
            let numbers = records..records + DEFAULT_CHUNK_RECORDS as u64;
            let rows: Rows<u64> = numbers
                .map(|index| (key(index), Timestamp::UNIX_EPOCH))
                .collect();
            records += DEFAULT_CHUNK_RECORDS as u64;
            self.inbox.fill(Chunk::new(rows));
            let batch = Instant::now();
            self.step
                .process(Ordinal::FIRST, &mut self.inbox, &mut self.outbox)?;
            self.slowest = self.slowest.max(batch.elapsed());
        }
        let spent = began.spent();
        Ok(Phase { records, spent })
    }
}

/// A codec of eight bytes for each number.
struct Numbers;

impl StateCodec<u64> for Numbers {
    fn put(&self, value: &u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<u64> {
        let bytes = bytes
            .try_into()
            .map_err(|_| Error::new(ErrorCode::BadRecord, "a key of the bench is truncated"))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// A codec that stores bytes unchanged.
struct Bytes;

impl StateCodec<Vec<u8>> for Bytes {
    fn put(&self, value: &Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> StateParams {
        StateParams {
            keys: 20_000,
            duration: Duration::from_millis(100),
            ..StateParams::default()
        }
    }

    #[cfg(feature = "state-disk")]
    #[test]
    fn most_keys_lie_on_disk_and_all_of_it_is_measured() {
        let folder = std::env::temp_dir().join(format!("bench-state-{}", std::process::id()));
        let params = StateParams {
            folder: Some(folder.clone()),
            ..small()
        };
        let report = run(&params, &mut |_| {}).unwrap();
        let keys = report.figure("disk_keys").as_u64().unwrap();
        assert!(keys > 10_000, "{report:?}");
        for name in [
            "memory_gets_per_cpu_s",
            "disk_puts_per_cpu_s",
            "disk_hot_per_cpu_s",
        ] {
            assert!(report.figure(name).is_number(), "{name}: {report:?}");
        }
        let _ = std::fs::remove_dir_all(folder);
    }

    #[test]
    fn keys_and_states_that_are_none_are_refused() {
        for params in [
            StateParams { keys: 0, ..small() },
            StateParams {
                value_bytes: 7,
                ..small()
            },
            StateParams {
                duration: Duration::ZERO,
                ..small()
            },
        ] {
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
