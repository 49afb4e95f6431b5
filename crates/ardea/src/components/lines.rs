//! A spout of the lines of a file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::PathBuf;

use ardea_core::{Error, ErrorCode, Result};
use ardea_topology::{
    ComponentContext, MessageId, Next, Outcome, Outputs, Settings, Spout, SpoutCollector,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinesSettings {
    file: PathBuf,
    #[serde(default)]
    repeat: bool,
}

/// Emits the lines of a file. Of several instances each reads the whole and emits its share: every n-th line.
pub(super) struct Lines {
    path: PathBuf,
    repeats: bool,
    reader: Option<BufReader<File>>,
    /// Which of how many instances this is.
    share: (u64, u64),
    /// The number of the next line.
    next: u64,
    pending: HashMap<u64, String>,
    failed: Vec<u64>,
}

impl Lines {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let LinesSettings { file, repeat } = settings.parse()?;
        Ok(Lines {
            path: crate::job::packaged(file),
            repeats: repeat,
            reader: None,
            share: (0, 1),
            next: 0,
            pending: HashMap::new(),
            failed: Vec::new(),
        })
    }

    fn unreadable(&self, error: std::io::Error) -> Error {
        let what = format!("cannot read {}", self.path.display());
        Error::new(ErrorCode::ReadFailed, what)
            .because(error)
            .hint("check the path and its permissions; on a cluster, submit it with --file")
    }

    /// The next line of this instance; none at the end.
    fn read(&mut self) -> Result<Option<String>> {
        loop {
            let Some(reader) = &mut self.reader else {
                return Ok(None);
            };
            let mut line = Vec::new();
            let read = reader.read_until(b'\n', &mut line);
            if read.map_err(|error| self.unreadable(error))? == 0 {
                // A file without lines has none the second time either.
                if !self.repeats || self.next == 0 {
                    self.reader = None;
                } else if let Some(reader) = &mut self.reader {
                    let begun = reader.rewind();
                    begun.map_err(|error| self.unreadable(error))?;
                }
                continue;
            }
            let is_own = self.next % self.share.1 == self.share.0;
            self.next += 1;
            if is_own {
                let text = String::from_utf8_lossy(&line);
                return Ok(Some(text.trim_end_matches(['\n', '\r']).to_string()));
            }
        }
    }
}

impl Spout for Lines {
    fn has_fixed_instances() -> bool {
        true
    }

    fn outputs(&self) -> Outputs {
        Outputs::fields(["line"])
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        let instance = context.instance();
        self.share = (instance.index.into(), instance.parallelism.into());
        let file = File::open(&self.path).map_err(|error| self.unreadable(error))?;
        self.reader = Some(BufReader::new(file));
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let (number, line) = match self.failed.pop() {
            Some(number) => (number, self.pending.remove(&number)),
            None => {
                let line = self.read()?;
                (self.next, line)
            }
        };
        let Some(line) = line else {
            return Ok(match self.failed.is_empty() {
                true => Next::Done,
                false => Next::More,
            });
        };
        let message = MessageId(number);
        out.emit_tracked(message, [line.as_str()])?;
        self.pending.insert(number, line);
        Ok(Next::More)
    }

    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        match self.failed.is_empty() {
            true => Ok(Next::Done),
            false => self.next_tuple(out),
        }
    }

    fn ack(&mut self, MessageId(number): MessageId) {
        self.pending.remove(&number);
    }

    fn fail(&mut self, MessageId(number): MessageId) {
        self.failed.push(number);
    }
}
