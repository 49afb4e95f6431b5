//! The job.

use std::path::{Path, PathBuf};

use ardea::core::{
    Checkpointed, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, RestoredState,
    SnapshotRequest, SnapshotWriter,
};
use ardea::prelude::*;

/// Builds one of these jobs:
///
/// * `parse IN OUT`: numbers, one per line; any other line is a dead letter.
/// * `windows OUT MARK`: counts generated records in windows, some of which are late; panics once,
///   if there is no file `MARK`.
/// * `forever`: counts generated records for ever.
/// * `stuck`: as `forever`, with a step whose state is never saved.
/// * `to-kafka BROKERS TOPIC`, `to-postgres URL TABLE`: numbers from 0 on, for ever.
/// * `clock`: numbers, through a step `honest` and a step `liar` that reads the clock.
/// * `hung MARK`: as `forever`, with a step that panics once, and cannot be created a second time.
///   It writes the file `MARK` when it panics, and `MARK.hung` when its second attempt hangs.
pub fn describe(args: &[String]) -> Result<Pipeline> {
    let path = |at: usize| PathBuf::from(args.get(at).map_or("", String::as_str));
    match args.first().map(String::as_str) {
        Some("parse") => Ok(parse(&path(1), &path(2))),
        Some("windows") => Ok(windows(&path(1), path(2))),
        Some("forever") => Ok(forever(false)),
        Some("stuck") => Ok(forever(true)),
        Some("clock") => Ok(clock()),
        #[cfg(feature = "kafka")]
        Some("to-kafka") => Ok(numbers("to-kafka", to_kafka(&args[1], &args[2]))),
        #[cfg(feature = "postgres")]
        Some("to-postgres") => Ok(numbers("to-postgres", to_postgres(&args[1], &args[2]))),
        Some("hung") => Ok(hung(path(1))),
        _ => Err(Error::new(ErrorCode::InvalidConfig, "which job?")),
    }
}

fn parse(input: &Path, output: &Path) -> Pipeline {
    let p = Pipeline::new("parse");
    p.read_from(files::lines(input).build())
        .try_map(|line| line.parse::<i64>(), OnError::DeadLetter)
        .named("numbers")
        .map(|number| number.to_string())
        .write_to(files::write_lines(output).build());
    p
}

/// The number of records of `windows`.
pub const RECORDS: u64 = 20_000;

/// The number of late records of `windows`.
pub const LATE: u64 = (RECORDS - 10_000) / 100;

fn windows(output: &Path, mark: PathBuf) -> Pipeline {
    let p = Pipeline::new("windows");
    p.read_from(generate::at_rate(20_000, |i| i).limit(RECORDS).build())
        .map(move |number| {
            if number == RECORDS - 1_000 && !mark.exists() {
                std::fs::write(&mark, "").expect("the folder is there");
                panic!("once");
            }
            number
        })
        .named("panics once")
        .with_timestamps(
            |number| {
                let is_late = *number >= 10_000 && number % 100 == 0;
                let time = if is_late { number - 9_000 } else { *number };
                Timestamp::from_millis(time as i64)
            },
            WatermarkPolicy::in_order(),
        )
        .key_by(|_| ())
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregate("count", count())
        .map(|result| format!("{} {}", result.end.as_millis(), result.value))
        .write_to(files::write_lines(output).build());
    p
}

fn forever(is_stuck: bool) -> Pipeline {
    let p = Pipeline::new("forever");
    let numbers = p.read_from(generate::at_rate(1_000, |i| i).build());
    let numbers = match is_stuck {
        false => numbers,
        true => numbers.custom("stuck", |_| Stuck),
    };
    numbers
        .key_by(|number| number % 10)
        .rolling("counts", count())
        .write_to(null::sink());
    p
}

fn clock() -> Pipeline {
    let p = Pipeline::new("clock");
    p.read_from(collections::items((0..1_000u64).collect::<Vec<u64>>()))
        .map(|number| number + 1)
        .named("honest")
        .map(|number| {
            let time = std::time::SystemTime::now();
            let time = time.duration_since(std::time::UNIX_EPOCH);
            number + u64::from(time.map_or(0, |time| time.subsec_nanos()))
        })
        .named("liar")
        .write_to(null::sink());
    p
}

#[cfg(any(feature = "kafka", feature = "postgres"))]
fn numbers(name: &str, sink: Sink<u64>) -> Pipeline {
    let p = Pipeline::new(name);
    p.read_from(generate::at_rate(1_000, |number| number).build())
        .write_to(sink);
    p
}

#[cfg(feature = "kafka")]
fn to_kafka(brokers: &str, topic: &str) -> Sink<u64> {
    ardea::kafka::write(brokers, topic, |number: &u64, out| {
        out.value(number.to_string());
        Ok(())
    })
    .build()
}

#[cfg(feature = "postgres")]
fn to_postgres(url: &str, table: &str) -> Sink<u64> {
    let fill = |number: &u64, row: &mut ardea::postgres::Row<'_>| {
        row.set(number);
    };
    ardea::postgres::write(url, table, ["n"], fill)
        .exactly_once()
        .build()
}

fn hung(mark: PathBuf) -> Pipeline {
    let p = Pipeline::new("hung");
    let panicked = mark.clone();
    p.read_from(generate::at_rate(1_000, |i| i).build())
        .custom("hangs", move |_| {
            if mark.exists() {
                std::fs::write(mark.with_extension("hung"), "").expect("the folder is there");
                loop {
                    std::thread::park();
                }
            }
            Stuck
        })
        .map(move |number: u64| {
            std::fs::write(&panicked, "").expect("the folder is there");
            panic!("at {number}");
        })
        .map(|(): ()| 0)
        .write_to(null::sink());
    p
}

/// A step that passes records through, and whose snapshots never complete.
struct Stuck;

impl Processor for Stuck {
    fn init(&mut self, _: &InstanceContext) -> Result<()> {
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<u64>(Ordinal(0))?;
        let room = lane.room();
        for (number, time) in inbox.rows::<u64>()?.drain_front(room) {
            lane.push(number, time);
        }
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Stuck {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        Ok(())
    }

    fn write_snapshot(&mut self, _: &mut SnapshotWriter<'_>) -> Result<Progress> {
        Ok(Progress::NONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        state.for_each(drop);
        Ok(())
    }
}
