//! Tests of active-active replicas in separate processes that are killed at any moment: results are
//! written once, and the file is valid at all times.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ardea_connectors::active_active;
use ardea_core::{
    Chunk, Guarantee, Inbox, InstanceContext, Ordinal, Outbox, Rows, Sink, Timestamp, Watermark,
};

/// The environment variable that makes a process a replica; its value is the path of the output
/// file.
const COPY: &str = "ARDEA_TEST_REPLICAS";
/// The only test of this file, which also runs in the replicas.
const TEST: &str = "copies_that_are_killed_at_any_moment_write_each_result_once";
/// The number of slices, each with ten numbers.
const SLICES: u64 = 20_000;
const EACH: u64 = 10;
/// The number of times that a replica is killed.
const DEATHS: u64 = 60;
/// The timeout of the test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a replica that reads all numbers from the first and writes them.
fn be_a_copy(path: &Path) {
    let sink: Sink<u64> = active_active::write_lines(path)
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

/// A child process that is killed with the test.
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

    /// Returns the exit status if the process has ended.
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
        // The present length of the file is arbitrary.
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
