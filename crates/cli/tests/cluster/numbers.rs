//! A job that shows whether anything was lost: numbers go through it with acks, and both ends write down what they know.
//!
//! Between them are bolts that fail when a file tells them to.
//!
//! The spout emits 0, 1, 2 … until the file `enough` is there, and keeps in a file which ones were acked: when it is started again it goes
//! on with the others. The last bolt writes each number that it sees into a file. So at the end both have all of them.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// `FOLDER RATE`: where it is written down, and how many numbers there are a second.
pub fn build(arguments: &[String]) -> Result<Topology> {
    let wrong = || Error::new(ErrorCode::InvalidConfig, "numbers FOLDER RATE");
    let [folder, rate] = arguments else {
        return Err(wrong());
    };
    let folder = PathBuf::from(folder);
    let rate: u32 = rate.parse().map_err(|_| wrong())?;
    let mut topology = TopologyBuilder::new("numbers");
    topology.reliability(Reliability::AtLeastOnce);
    topology.message_timeout(Duration::from_secs(3));
    let here = folder.clone();
    topology.spout("numbers", 1, move || Numbers {
        folder: here.clone(),
        due: VecDeque::new(),
        next: 0,
        is_enough: false,
        pause: Duration::from_secs(1) / rate,
        next_at: Instant::now(),
        acked: None,
    });
    let trips = folder.clone();
    topology
        .bolt("pass", 2, move || Pass {
            folder: trips.clone(),
        })
        .shuffle("numbers");
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
    /// To be emitted again.
    due: VecDeque<u64>,
    next: u64,
    is_enough: bool,
    pause: Duration,
    next_at: Instant,
    acked: Option<File>,
}

impl Numbers {
    /// The next new number, unless there are enough.
    fn draw(&mut self) -> Option<u64> {
        self.is_enough = self.is_enough || self.folder.join("enough").exists();
        self.next += u64::from(!self.is_enough);
        (!self.is_enough).then(|| self.next - 1)
    }
}

impl Spout for Numbers {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn open(&mut self, _: &ComponentContext) -> Outcome {
        let acked = numbers_in(&self.folder, "acked");
        self.next = acked.last().map_or(0, |last| last + 1);
        self.due = (0..self.next).filter(|it| !acked.contains(it)).collect();
        self.acked = Some(open(&self.folder.join("acked"))?);
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        // Acks call it as well, whatever it waits for.
        let now = Instant::now();
        if now < self.next_at {
            return Ok(Next::Wait(self.next_at - now));
        }
        // What it was called too late for is made up for, up to a second of it.
        self.next_at = (self.next_at + self.pause).max(now - Duration::from_secs(1));
        let Some(number) = self.due.pop_front().or_else(|| self.draw()) else {
            return Ok(Next::Done);
        };
        out.emit_tracked(MessageId(number), [number as i64])?;
        Ok(match self.next_at.checked_duration_since(now) {
            Some(wait) if !wait.is_zero() => Next::Wait(wait),
            _ => Next::More,
        })
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

/// Hands on what it is given. It panics, once, when the file `trip` is there, and always when `trip-always` is.
struct Pass {
    folder: PathBuf,
}

impl Bolt for Pass {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let number = tuple.int("number")?;
        let is_told = fs::remove_file(self.folder.join("trip")).is_ok();
        assert!(!is_told, "trips over {number}");
        let is_lame = self.folder.join("trip-always").exists();
        assert!(!is_lame, "always trips over {number}");
        out.emit([number])?;
        Ok(())
    }
}

/// Writes down what it sees; slowly while the file `slow` is there.
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
        if self.folder.join("slow").exists() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
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
