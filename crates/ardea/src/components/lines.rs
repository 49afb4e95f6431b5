//! A spout of the lines of files.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use ardea_connectors::{OnDamage, files};
use ardea_core::{Error, ErrorCode, Result};
use ardea_state::InstanceValue;
use ardea_topology::{
    ComponentContext, ComponentState, MessageId, Next, Outcome, Outputs, Settings, Spout,
    SpoutCollector,
};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinesSettings {
    file: PathBuf,
    #[serde(default)]
    repeat: bool,
    #[serde(default)]
    on_damage: OnDamage,
}

/// The maximum length of a line in bytes.
const MAX_LINE: u64 = 16 << 20;

/// The read position of an instance.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Position {
    /// The current file, relative to the configured path; `None` before the first.
    file: Option<PathBuf>,
    /// The number of times that all files have been read. The shares of the instances rotate with
    /// it.
    round: u64,
    /// The number of the next line in its file.
    next_in_file: u64,
    /// The number of the next line among all.
    next: u64,
}

/// A spout that emits the lines of a file, or of the files of a directory. Each of several
/// instances reads all files and emits every n-th line.
pub(super) struct Lines {
    path: PathBuf,
    repeats: bool,
    on_damage: OnDamage,
    /// The files in reading order, and the index of the next one.
    files: Vec<PathBuf>,
    next_file: usize,
    /// The reader of the current file.
    reader: Option<BufReader<Box<dyn Read + Send>>>,
    /// The index of this instance, and the number of instances.
    share: (u64, u64),
    position: InstanceValue<Position>,
    has_started: bool,
    pending: HashMap<u64, String>,
    failed: Vec<u64>,
}

impl Lines {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let LinesSettings {
            file,
            repeat,
            on_damage,
        } = settings.parse()?;
        Ok(Lines {
            path: crate::job::packaged(file),
            repeats: repeat,
            on_damage,
            files: Vec::new(),
            next_file: 0,
            reader: None,
            share: (0, 1),
            position: InstanceValue::new("position", Position::default()),
            has_started: false,
            pending: HashMap::new(),
            failed: Vec::new(),
        })
    }

    /// Returns the path of the current file.
    fn current_path(&self) -> &Path {
        let at_hand = self.files.get(self.next_file.saturating_sub(1));
        at_hand.unwrap_or(&self.path)
    }

    fn unreadable(&self, error: std::io::Error) -> Error {
        let (file, lines) = (self.current_path().display(), self.position.next_in_file);
        let what = format!("cannot read {file} to its end, {lines} lines had been read");
        Error::new(ErrorCode::ReadFailed, what)
            .because(error)
            .hint("restore the file, or keep the lines before the damage: on_damage: keep")
    }

    fn too_long(&self) -> Error {
        let (file, line) = (
            self.current_path().display(),
            self.position.next_in_file + 1,
        );
        let what = format!("{file}:{line} is a line of more than {MAX_LINE} bytes");
        Error::new(ErrorCode::BadRecord, what).hint("check that it is a file of text")
    }

    /// Reports on standard error that the rest of a damaged file is skipped.
    fn report_damage(&self, error: &std::io::Error) {
        let (file, lines) = (self.current_path().display(), self.position.next_in_file);
        let _ = writeln!(
            std::io::stderr().lock(),
            "ardea: {file} can't be read to its end: {error}; {lines} lines had been read, and are kept"
        );
    }

    /// Opens the next file, or the first file again if `repeats`; returns false if no file is left.
    fn open_next(&mut self) -> Result<bool> {
        if self.next_file == self.files.len() && self.repeats {
            self.next_file = 0;
            self.position.round += 1;
            // Files without lines have none the second time either.
            if self.position.next == 0 {
                self.files.clear();
            }
        }
        let Some(path) = self.files.get(self.next_file) else {
            return Ok(false);
        };
        let reader: Box<dyn Read + Send> = Box::new(files::unpacked(path).map_err(with_advice)?);
        self.reader = Some(BufReader::new(reader));
        self.position.file = Some(relative(path, &self.path));
        self.position.next_in_file = 0;
        self.next_file += 1;
        Ok(true)
    }

    /// Opens the first file, or goes to the restored position, before the first line.
    fn start(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_started, true) {
            return Ok(());
        }
        let Some(file) = self.position.file.clone() else {
            self.open_next()?;
            return Ok(());
        };
        let Some(place) = self
            .files
            .iter()
            .position(|path| relative(path, &self.path) == file)
        else {
            let what = format!(
                "the checkpoint continues in {}, which is gone",
                self.path.join(file).display()
            );
            return Err(Error::new(ErrorCode::ReadFailed, what)
                .hint("restore the file, or start the job without the checkpoint"));
        };
        let lines = self.position.next_in_file;
        self.next_file = place;
        self.open_next()?;
        while self.position.next_in_file < lines {
            match self.read_line()? {
                Some(_) => self.position.next_in_file += 1,
                None => return Err(self.shortened(lines)),
            }
        }
        Ok(())
    }

    fn shortened(&self, lines: u64) -> Error {
        let (file, left) = (self.current_path().display(), self.position.next_in_file);
        let what = format!(
            "{file} has {left} lines, and {lines} had been read when the checkpoint was taken"
        );
        Error::new(ErrorCode::ReadFailed, what)
            .hint("restore the file, or start the job without the checkpoint")
    }

    /// Returns the next line of this instance; `None` at the end.
    fn read(&mut self) -> Result<Option<String>> {
        loop {
            if self.reader.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let Some(line) = self.read_line()? else {
                self.reader = None;
                continue;
            };
            let position = &mut *self.position;
            let is_own = (position.next_in_file + position.round) % self.share.1 == self.share.0;
            position.next_in_file += 1;
            position.next += 1;
            if is_own {
                let text = String::from_utf8_lossy(&line);
                return Ok(Some(text.trim_end_matches(['\n', '\r']).to_string()));
            }
        }
    }

    /// Reads the next line of the current file; `None` at its end.
    fn read_line(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(reader) = &mut self.reader else {
            return Ok(None);
        };
        let mut line = Vec::new();
        let mut within = reader.take(MAX_LINE + 1);
        let read = within.read_until(b'\n', &mut line);
        let is_too_long = line.len() as u64 > MAX_LINE && !line.ends_with(b"\n");
        match read {
            Ok(_) if is_too_long => Err(self.too_long()),
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(line)),
            Err(error) if self.on_damage == OnDamage::Keep => {
                self.report_damage(&error);
                Ok(None)
            }
            Err(error) => Err(self.unreadable(error)),
        }
    }
}

/// Returns the path of a file below `root`, which may be elsewhere on another host.
fn relative(path: &Path, root: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_path_buf()
}

/// Adds a hint for a missing file.
fn with_advice(error: Error) -> Error {
    error.hint("check the path and its permissions; on a cluster, submit it with --file")
}

impl Spout for Lines {
    fn has_fixed_instances() -> bool {
        true
    }

    fn outputs(&self) -> Outputs {
        Outputs::fields(["line"])
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Checkpointed(&mut self.position)
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        let instance = context.instance();
        self.share = (instance.index.into(), instance.parallelism.into());
        self.files = files::listed(&self.path).map_err(with_advice)?;
        self.position.open(context.instance_context());
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.start()?;
        let (number, line) = match self.failed.pop() {
            Some(number) => (number, self.pending.remove(&number)),
            None => {
                let line = self.read()?;
                (self.position.next, line)
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
