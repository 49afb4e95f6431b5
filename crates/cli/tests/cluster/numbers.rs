//! A job that shows whether anything was lost: numbers go through it with acks, and both ends write down what they know.
//!
//! The spout emits 0 up to a total, and keeps in a file which ones were acked: when it is started again it goes on with the others. The last
//! bolt writes each number that it sees into a file. So at the end every number has to be in the second.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea::topology::*;
use ardea::{Error, Result};
use ardea_core::ErrorCode;

/// Whether this process is to be the job, and not its tests.
pub fn is_asked_for() -> bool {
    let is_told = |name| std::env::var_os(name).is_some();
    is_told("ARDEA_WORKER")
        || is_told("ARDEA_HOST")
        || std::env::args().nth(1).as_deref() == Some("submit")
}

/// `FOLDER TOTAL RATE`: where it is written down, how many numbers there are, and how many a second.
pub fn build(arguments: &[String]) -> Result<Topology> {
    let wrong = || Error::new(ErrorCode::InvalidConfig, "numbers FOLDER TOTAL RATE");
    let [folder, total, rate] = arguments else {
        return Err(wrong());
    };
    let folder = PathBuf::from(folder);
    let total: u64 = total.parse().map_err(|_| wrong())?;
    let rate: u32 = rate.parse().map_err(|_| wrong())?;
    let mut topology = TopologyBuilder::new("numbers");
    topology.reliability(Reliability::AtLeastOnce);
    topology.message_timeout(Duration::from_secs(3));
    let here = folder.clone();
    topology.spout("numbers", 1, move || Numbers {
        folder: here.clone(),
        due: VecDeque::new(),
        total,
        pause: Duration::from_secs(1) / rate,
        acked: None,
    });
    topology.bolt("pass", 2, || Pass).shuffle("numbers");
    let record = move || Record {
        folder: folder.clone(),
        file: None,
    };
    topology
        .bolt("record", 2, record)
        .fields("pass", ["number"]);
    topology.build()
}

struct Numbers {
    folder: PathBuf,
    due: VecDeque<u64>,
    total: u64,
    pause: Duration,
    acked: Option<File>,
}

impl Spout for Numbers {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn open(&mut self, _: &ComponentContext) -> Outcome {
        let acked = numbers_in(&self.folder, "acked");
        self.due = (0..self.total).filter(|it| !acked.contains(it)).collect();
        self.acked = Some(open(&self.folder.join("acked"))?);
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let Some(number) = self.due.pop_front() else {
            return Ok(Next::Done);
        };
        out.emit_tracked(MessageId(number), [number as i64])?;
        Ok(Next::Wait(self.pause))
    }

    fn ack(&mut self, MessageId(number): MessageId) {
        if let Some(file) = &mut self.acked {
            // What is not written down is emitted once more.
            let _ = file.write_all(&number.to_le_bytes());
        }
    }

    fn fail(&mut self, MessageId(number): MessageId) {
        self.due.push_back(number);
    }
}

/// Hands on what it is given.
struct Pass;

impl Bolt for Pass {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        out.emit([tuple.int("number")?])?;
        Ok(())
    }
}

struct Record {
    folder: PathBuf,
    file: Option<File>,
}

impl Bolt for Record {
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        let name = format!("seen-{}-{}", std::process::id(), context.instance().index);
        self.file = Some(open(&self.folder.join(name))?);
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let number = tuple.int("number")? as u64;
        if let Some(file) = &mut self.file {
            let written = file.write_all(&number.to_le_bytes());
            written.map_err(|error| failed(&self.folder, error))?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<File> {
    let file = File::options().create(true).append(true).open(path);
    file.map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    let what = format!("cannot write {}", path.display());
    Error::new(ErrorCode::WriteFailed, what).because(error)
}

/// All numbers in the files of the folder whose names begin like this.
pub fn numbers_in(folder: &Path, prefix: &str) -> BTreeSet<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let bytes: Vec<Vec<u8>> = files.filter_map(|it| fs::read(it.path()).ok()).collect();
    let chunks = bytes.iter().flat_map(|bytes| bytes.as_chunks::<8>().0);
    chunks.map(|chunk| u64::from_le_bytes(*chunk)).collect()
}
