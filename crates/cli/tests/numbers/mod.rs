//! A job that shows whether records were lost: numbers pass through it with acks, and both ends
//! record them in a folder that outlives its processes (`ledger`).
//!
//! Spouts emit consecutive numbers until the file `enough` exists (`spout`). Bolts `pass` emit them
//! to bolts `record`; files control their faults (`bolts`). The tests of one machine and those of
//! several hosts are programs that are also this job.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ardea::core::{Error, ErrorCode, Isolation};
use ardea::topology::{Reliability, Topology, TopologyBuilder};

mod bolts;
mod ledger;
mod spout;

pub use ledger::Ledger;

use bolts::{Pass, Record};
use spout::Numbers;

/// Returns true if this process is to be the job, and not its tests.
pub fn is_asked_for() -> bool {
    let is_told = |name| std::env::var_os(name).is_some();
    is_told("ARDEA_WORKER")
        || is_told("ARDEA_HOST")
        || std::env::args()
            .nth(1)
            .is_some_and(|word| ["submit", "upgrade", "states"].contains(&&*word))
}

/// Builds the job from its arguments: `FOLDER`, which holds its records, and the fields of
/// [`Shape`].
pub fn build(arguments: &[String]) -> ardea::Result<Topology> {
    let Some((folder, told)) = arguments.split_first() else {
        return Err(wrong("numbers FOLDER [KEY=VALUE …]"));
    };
    let folder = PathBuf::from(folder);
    let shape = Shape::of(told)?;
    let mut topology = TopologyBuilder::new("numbers");
    topology.reliability(Reliability::AtLeastOnce);
    topology.message_timeout(Duration::from_secs(5));
    if let Some(pending) = shape.pending {
        topology.max_spout_pending(pending);
    }
    let here = folder.clone();
    let numbers = move || Numbers::new(here.clone(), shape.rate);
    topology.spout("numbers", shape.spouts, numbers);
    let here = folder.clone();
    let isolation = match shape.has_processes {
        true => Isolation::Process,
        false => Isolation::Tasklet,
    };
    topology
        .bolt("pass", shape.bolts, move || {
            Pass::new(here.clone(), shape.copies)
        })
        .isolation(isolation)
        .shuffle("numbers");
    topology
        .bolt("record", shape.bolts, move || Record::new(folder.clone()))
        .fields("pass", ["number"]);
    topology.build()
}

/// The rate, the parallelism and other parameters of the job.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Numbers per second and spout.
    rate: f64,
    /// Instances of the spout.
    spouts: u32,
    /// Instances of each bolt.
    bolts: u32,
    /// The number of times that `pass` emits each number.
    copies: u32,
    /// True if the instances of `pass` have their own processes.
    has_processes: bool,
    /// The maximum number of pending tuples per spout; by default the capacity of the queues.
    pending: Option<NonZeroUsize>,
}

impl Shape {
    fn of(told: &[String]) -> ardea::Result<Self> {
        let mut shape = Shape {
            rate: 1_000.0,
            spouts: 1,
            bolts: 2,
            copies: 1,
            has_processes: false,
            pending: None,
        };
        for told in told {
            match told.split_once('=') {
                Some(("rate", value)) => shape.rate = parsed(value)?,
                Some(("spouts", value)) => shape.spouts = parsed(value)?,
                Some(("bolts", value)) => shape.bolts = parsed(value)?,
                Some(("copies", value)) => shape.copies = parsed(value)?,
                Some(("processes", value)) => shape.has_processes = parsed(value)?,
                Some(("pending", value)) => shape.pending = Some(parsed(value)?),
                _ => return Err(wrong(format!("{told:?} means nothing to numbers"))),
            }
        }
        Ok(shape)
    }
}

fn parsed<T: FromStr<Err: Display>>(value: &str) -> ardea::Result<T> {
    value
        .parse()
        .map_err(|error| wrong(format!("{value:?}: {error}")))
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidConfig, what.into())
}
