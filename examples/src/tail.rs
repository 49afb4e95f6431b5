//! Errors in a log that is still being written.

use std::path::Path;

use ardea::core::Boundedness;
use ardea::prelude::*;

use crate::arguments::{Arguments, from_end};

/// Counts the lines that contain `text`, and all lines, in each window with any lines.
pub fn errors<B: Boundedness>(
    lines: Stream<String, B, Timed>,
    text: String,
    every: Duration,
) -> Stream<WindowResult<(), (u64, u64)>, B, Timed> {
    lines
        .key_by(|_| ())
        .window(Window::tumbling(every))
        .aggregate(
            "errors",
            (
                filtering(move |line: &String| line.contains(&text), count()),
                count(),
            ),
        )
}

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("tail", args);
    let text = args.text("--match")?.unwrap_or_else(|| "ERROR".to_string());
    let every = args.duration("--every", Duration::from_secs(10))?;
    let from_end = args.parsed("--from", from_end)?.unwrap_or(false);
    let file = args.file()?;
    args.finish()?;
    let p = Pipeline::new("tail");
    let mut source = files::lines(Path::new(&file)).follow();
    if from_end {
        source = source.from_end();
    }
    let lines = p
        .read_from(source.build())
        .with_arrival_timestamps(Duration::from_millis(100));
    errors(lines, text.clone(), every)
        .map(move |window| {
            let (errors, lines) = window.value;
            let second = window.start.as_millis() / 1000;
            format!("{second}  {errors} of {lines} lines with {text}")
        })
        .write_to(stdout::lines().build());
    Ok(p)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_written_while_the_job_runs_is_counted_too() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        fs::write(&log, "INFO up\nERROR disk\n").unwrap();
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&seen);
        let p = Pipeline::new("tail");
        let lines = p
            .read_from(files::lines(&log).follow().build())
            .with_arrival_timestamps(Duration::from_millis(10))
            .inspect(move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            });
        let counts = errors(lines, "ERROR".into(), Duration::from_millis(50)).collect();
        let node = Node::start(NodeConfig::default()).unwrap();
        let job = p.submit(&node, JobConfig::default()).unwrap();

        wait_until(|| seen.load(Ordering::SeqCst) == 2);
        let mut file = OpenOptions::new().append(true).open(&log).unwrap();
        file.write_all(b"ERROR net\nINFO ok\nERROR cpu\n").unwrap();
        wait_until(|| seen.load(Ordering::SeqCst) == 5);
        job.drain();
        job.join().unwrap();
        let counts = counts.take();
        let sum =
            |of: fn(&(u64, u64)) -> u64| counts.iter().map(|window| of(&window.value)).sum::<u64>();
        assert_eq!((sum(|c| c.0), sum(|c| c.1)), (3, 5));
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !condition() {
            assert!(Instant::now() < deadline, "nothing happened for 30 seconds");
            thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }
}
