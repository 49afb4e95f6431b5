//! The most frequent words of a text that is read repeatedly: an endless job for clusters.
//!
//! The program `word-count` is this job. It runs embedded (`word-count book.txt`), submits itself
//! (`word-count submit --file book.txt -- book.txt`), and is the worker in its containers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ardea::Result;
use ardea::core::ErrorCode;
use ardea::job::packaged;
use ardea::topology::*;

use crate::arguments::Arguments;

const TEXT: &str =
    "to be or not to be that is the question\nwhether tis nobler in the mind to suffer\n";

/// Emits lines repeatedly, and replays failed ones.
struct Lines {
    lines: Arc<[String]>,
    next: u64,
    failed: Vec<u64>,
    /// The number of lines to emit; unlimited if `None`.
    total: Option<u64>,
    pause: Duration,
}

impl Spout for Lines {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["line"])
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let number = match self.failed.pop() {
            Some(number) => number,
            None if self.total.is_some_and(|total| self.next >= total) => return Ok(Next::Done),
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        let line = &self.lines[(number % self.lines.len() as u64) as usize];
        out.emit_tracked(MessageId(number), [line])?;
        Ok(match self.pause.is_zero() {
            true => Next::More,
            false => Next::Wait(self.pause),
        })
    }

    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        match self.failed.is_empty() {
            true => Ok(Next::Done),
            false => self.next_tuple(out),
        }
    }

    fn fail(&mut self, MessageId(number): MessageId) {
        self.failed.push(number);
    }
}

/// Splits lines into lower-case words.
struct Split;

impl Bolt for Split {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["word"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let words = tuple.str("line")?.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| !word.is_empty()) {
            out.emit([word.to_lowercase()])?;
        }
        Ok(())
    }
}

/// Counts the words received by its instance, and prints the most frequent ones at an interval.
struct Count {
    counts: HashMap<String, u64>,
    top: usize,
    every: Duration,
}

impl Count {
    fn print(&self) {
        let mut words: Vec<_> = self.counts.iter().collect();
        words.sort_unstable_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        for (word, count) in words.into_iter().take(self.top) {
            println!("{count:>9}  {word}");
        }
    }
}

impl Bolt for Count {
    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        *self
            .counts
            .entry(tuple.str("word")?.to_string())
            .or_default() += 1;
        Ok(())
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn tick(&mut self, _: &mut Collector<'_>) -> Outcome {
        self.print();
        Ok(())
    }

    fn finish(&mut self, _: &mut Collector<'_>) -> Outcome {
        self.print();
        Ok(())
    }
}

/// Builds the topology for the arguments `[FILE] [--total N] [--rate N] [--top N] [--every T]`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for wrong arguments, [`ErrorCode::ReadFailed`] if the file cannot
/// be read.
pub fn build(args: &[String]) -> Result<Topology> {
    let mut args = Arguments::new("word-count", args);
    let total = args.count("--total", u64::MAX)?;
    let rate = args.count("--rate", u64::MAX)?;
    let top = args.count("--top", 5)? as usize;
    let every = args.duration("--every", Duration::from_secs(10))?;
    let text = match args.next_positional() {
        Some(file) => read(&file)?,
        None => TEXT.to_string(),
    };
    args.finish()?;
    let lines: Arc<[String]> = text.lines().map(String::from).collect();
    if lines.is_empty() {
        return Err(
            ardea::Error::new(ErrorCode::InvalidConfig, "the text has no lines")
                .hint("name a file with some, or none"),
        );
    }
    let mut topology = TopologyBuilder::new("word-count");
    topology.reliability(Reliability::AtLeastOnce);
    topology.spout("lines", 1, move || Lines {
        lines: Arc::clone(&lines),
        next: 0,
        failed: Vec::new(),
        total: (total < u64::MAX).then_some(total),
        pause: match rate {
            u64::MAX => Duration::ZERO,
            rate => Duration::from_secs(1) / rate.min(1_000_000) as u32,
        },
    });
    topology.bolt("split", 2, || Split).shuffle("lines");
    let count = move || Count {
        counts: HashMap::new(),
        top,
        every,
    };
    topology.bolt("count", 2, count).fields("split", ["word"]);
    topology.build()
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(packaged(file)).map_err(|error| {
        ardea::Error::new(ErrorCode::ReadFailed, format!("cannot read {file}"))
            .because(error)
            .hint("check the path; on a cluster the file has to be submitted along: --file")
    })
}
