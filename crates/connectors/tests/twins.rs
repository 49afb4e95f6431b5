//! Copies in processes of their own, which are killed at any moment: what they write together is there once, and whole at every moment.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ardea_connectors::twins;
use ardea_core::{
    Chunk, Guarantee, Inbox, InstanceContext, Ordinal, Outbox, Rows, Sink, Timestamp, Watermark,
};

/// Tells a process that it is a copy, and which file it writes.
const COPY: &str = "ARDEA_TEST_TWINS";
/// The one test of this file, in which copies live.
const TEST: &str = "copies_that_are_killed_at_any_moment_write_each_result_once";
/// How many slices there are, each with ten numbers.
const SLICES: u64 = 20_000;
const EACH: u64 = 10;
/// How often a copy is killed.
const DEATHS: u64 = 60;
/// How long all may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Reads all numbers from the first on, and writes them.
fn be_a_copy(path: &Path) {
    let sink: Sink<u64> = twins::write_lines(path)
        .slice(Duration::from_micros(EACH))
        .build();
    let (_, supplier, ..) = sink.into_parts();
    let context = InstanceContext {
        guarantee: Guarantee::ExactlyOnce,
        ..InstanceContext::detached("copy")
    };
    let mut processor = supplier.supply(context.instance).unwrap();
    processor.init(&context).unwrap();
    let (mut inbox, mut outbox) = (Inbox::default(), Outbox::new(0, 64));
    let at = |number: u64| Timestamp::from_micros(number as i64);
    for slice in 0..SLICES {
        let numbers = slice * EACH..(slice + 1) * EACH;
        let rows: Rows<u64> = numbers.clone().map(|number| (number, at(number))).collect();
        inbox.fill(Chunk::new(rows));
        processor
            .process(Ordinal::FIRST, &mut inbox, &mut outbox)
            .unwrap();
        let watermark = Watermark(at(numbers.end));
        while !processor.on_watermark(watermark, &mut outbox).unwrap().done {}
    }
    while !processor.complete(&mut outbox).unwrap().done {}
    processor.close();
}

/// A process that ends with the test.
struct Copy(Child);

impl Copy {
    fn start(path: &Path) -> Copy {
        let child = Command::new(env::current_exe().unwrap())
            .args([TEST, "--exact"])
            .env(COPY, path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Copy(child.unwrap())
    }

    /// How it ended, if it has.
    fn end(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn expected() -> String {
    (0..SLICES * EACH)
        .map(|number| format!("{number}\n"))
        .collect()
}

#[test]
fn copies_that_are_killed_at_any_moment_write_each_result_once() {
    if let Some(path) = env::var_os(COPY) {
        return be_a_copy(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let length = || fs::metadata(&path).map_or(0, |data| data.len());
    let expected = expected();
    let all = expected.len() as u64;
    let deadline = Instant::now() + PATIENCE;
    let mut copies = [Copy::start(&path), Copy::start(&path)];
    for death in 1..=DEATHS {
        // Wherever the file has come to then.
        while length() < all * death / (DEATHS + 1) {
            assert!(Instant::now() < deadline, "{} of {all}", length());
            thread::park_timeout(Duration::from_micros(100));
        }
        copies[(death % 2) as usize] = Copy::start(&path);
        let seen = fs::read_to_string(&path).unwrap();
        assert!(expected.starts_with(&seen), "at death {death}");
    }
    for copy in &mut copies {
        let status = loop {
            if let Some(status) = copy.end() {
                break status;
            }
            assert!(Instant::now() < deadline, "a copy never ends");
            thread::park_timeout(Duration::from_millis(1));
        };
        assert!(status.success(), "{status}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
}
