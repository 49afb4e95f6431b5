//! A state for each of many keys: in memory, and on disk with a tenth of that memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_config::duration::format_duration;
use ardea_config::format_bytes;
use ardea_core::{
    Chunk, DEFAULT_CHUNK_RECORDS, Error, ErrorCode, Inbox, InstanceContext, LocalStore,
    MetricsSnapshot, Ordinal, Outbox, Processor, Result, Rows, StateCodec, Timestamp,
};
use ardea_engine::StatePlace;
use ardea_operators::{KeptAs, KeyedContext, KeyedLogic, StatefulMapP};
use serde_json::json;

use crate::bounds::{check_duration, check_times, refused};
use crate::noise;
use crate::report::{Field, Report, machine, rounded, seconds};
use crate::usage::{Meanwhile, Spent, forget_peak};

/// Of the records that come often all but one in so many are of the keys that come often.
const SELDOM: u64 = 100;
/// And one key in so many comes often.
const FEW: u64 = 1_000;

/// What `ardea bench state` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct StateParams {
    /// How many keys there are.
    pub keys: u64,
    /// The bytes of each state.
    pub value_bytes: usize,
    /// The memory beside the disk; a tenth of what the keys take in memory unless told.
    pub memory: Option<u64>,
    /// A folder on the disk; one for temporary files unless told.
    pub folder: Option<PathBuf>,
    /// How long each of the measurements takes that come after the keys are there.
    pub duration: Duration,
}

impl Default for StateParams {
    fn default() -> Self {
        StateParams {
            keys: 1_000_000,
            value_bytes: 100,
            memory: None,
            folder: None,
            duration: Duration::from_secs(5),
        }
    }
}

impl StateParams {
    fn check(&self) -> Result<()> {
        check_duration(self.duration)?;
        check_times(&[("--duration", self.duration)])?;
        if self.keys == 0 || self.value_bytes < 8 {
            return Err(refused(
                "there has to be a key, and states of 8 bytes at least",
            ));
        }
        Ok(())
    }

    fn fields(&self, memory: u64) -> Vec<Field> {
        vec![
            ("keys", json!(self.keys)),
            ("value_bytes", json!(self.value_bytes)),
            ("memory", json!(format_bytes(memory))),
            ("duration", json!(format_duration(self.duration))),
        ]
    }
}

/// Runs the benchmark; `progress` is told what is going on.
///
/// One step keeps a state of so many bytes for each key, and changes it at each record; it is driven by hand, so that nothing else is measured.
/// First each key comes once (`puts`). Then any key may come next, each as likely as the others (`gets`): with a tenth of the memory nine
/// in ten have to be looked for on disk, and as many go there. Then nearly all records are of a thousandth of the keys (`hot`).
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; what goes wrong with the disk.
pub fn run(params: &StateParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    forget_peak();
    progress("listening to the machine's own noise");
    let noise = noise::listen(1, params.duration)?;
    let all = Meanwhile::begin();
    progress("measuring state in memory");
    let in_memory = Measured::of(params, None)?;
    let memory = params.memory.unwrap_or(in_memory.state.state_bytes / 10);
    progress("measuring state on disk");
    let folder = params.folder.clone();
    let folder = folder.unwrap_or_else(|| std::env::temp_dir().join("ardea-state"));
    let on_disk = match cfg!(feature = "state-disk") {
        true => Some(Measured::of(
            params,
            StatePlace::Disk { folder, memory }.store()?,
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

/// The figures of state on disk; `null` if this was built without.
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

/// How many records of a kind there were, and what they cost.
#[derive(Clone, Copy)]
struct Phase {
    records: u64,
    spent: Spent,
}

/// What was measured of one place of state.
struct Measured {
    puts: Phase,
    gets: Phase,
    hot: Phase,
    /// The longest that a batch of records took, once all keys were there.
    slowest: Duration,
    state: MetricsSnapshot,
}

impl Measured {
    fn of(params: &StateParams, store: Option<Arc<dyn LocalStore>>) -> Result<Measured> {
        let mut bench = Desk::new(params.value_bytes, store)?;
        let keys = params.keys;
        let puts = bench.measure(|done| done < keys, |index| index)?;
        bench.slowest = Duration::ZERO;
        let until = |duration: Duration| {
            let began = Instant::now();
            move |_: u64| began.elapsed() < duration
        };
        let gets = bench.measure(until(params.duration), |index| spread(index) % keys)?;
        let few = (keys / FEW).max(1);
        let hot = bench.measure(until(params.duration), |index| match index % SELDOM {
            0 => spread(index) % keys,
            _ => spread(index) % few,
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

/// Numbers without an order (the finalizer of SplitMix64).
fn spread(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The step that is measured, and what it is driven with.
struct Desk {
    step: Box<dyn Processor>,
    inbox: Inbox,
    outbox: Outbox,
    context: InstanceContext,
    slowest: Duration,
}

impl Desk {
    fn new(value_bytes: usize, store: Option<Arc<dyn LocalStore>>) -> Result<Desk> {
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
        let kept = KeptAs::new(Arc::new(Numbers), Arc::new(Bytes));
        let mut step = StatefulMapP::new(Arc::new(logic)).kept_as(kept);
        let context = InstanceContext {
            local: store,
            ..InstanceContext::detached("state")
        };
        step.init(&context)?;
        Ok(Desk {
            step: Box::new(step),
            inbox: Inbox::default(),
            outbox: Outbox::new(1, DEFAULT_CHUNK_RECORDS),
            context,
            slowest: Duration::ZERO,
        })
    }

    /// Has records come, whose keys `key` says by their numbers, as long as `more` says.
    fn measure(&mut self, more: impl Fn(u64) -> bool, key: impl Fn(u64) -> u64) -> Result<Phase> {
        let (began, mut records) = (Meanwhile::begin(), 0);
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

/// Eight bytes each.
struct Numbers;

impl StateCodec<u64> for Numbers {
    fn put(&self, value: &u64, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<u64> {
        let bytes = bytes
            .try_into()
            .map_err(|_| Error::new(ErrorCode::BadRecord, "a key of the bench is cut short"))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// As they are.
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
