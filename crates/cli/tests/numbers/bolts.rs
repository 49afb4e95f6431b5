//! The bolts: one that fails on request, and one that records its input.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ardea::topology::*;

use super::ledger::SeenFile;

/// A bolt that emits its input. It panics once if the file `trip` exists, and always if
/// `trip-always` does.
pub struct Pass {
    folder: PathBuf,
    /// The number of times that the bolt emits each number.
    copies: u32,
}

impl Pass {
    /// Creates a bolt that is controlled by files of `folder`.
    pub fn new(folder: PathBuf, copies: u32) -> Self {
        Pass { folder, copies }
    }
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
        for _ in 0..self.copies {
            out.emit([number])?;
        }
        Ok(())
    }
}

/// A bolt that records its input; slowly while the file `slow` exists.
pub struct Record {
    folder: PathBuf,
    seen: Option<SeenFile>,
}

impl Record {
    /// Creates a bolt that records into files of `folder`.
    pub fn new(folder: PathBuf) -> Self {
        Record { folder, seen: None }
    }
}

impl Bolt for Record {
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        let instance = context.instance().index;
        self.seen = Some(SeenFile::open(&self.folder, instance)?);
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let number = tuple.int("number")?;
        if self.folder.join("slow").exists() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        match &mut self.seen {
            Some(seen) => seen.add(number)?,
            None => return Err(Failure::new("it was not prepared")),
        }
        Ok(())
    }
}
