//! Runs tests, a few at a time, since they mostly wait.
//!
//! Supports the common arguments of `cargo test`: parts of names, `--exact`, `--list`, `--skip`.
//! With `--part=2/3` it runs every third test from the second one on.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// The number of tests that run at the same time.
const AT_ONCE: usize = 3;

/// The number of lines of a failure that are repeated at the end of the output.
const LINES_AGAIN: usize = 60;

thread_local! {
    /// The message of the latest panic of this thread.
    static COMPLAINT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A test: it fails by panicking.
pub struct Test {
    pub name: &'static str,
    pub run: fn(),
}

/// Runs the tests that the command line selects.
pub fn run(tests: &[Test]) -> ExitCode {
    let wanted = Wanted::of_command_line();
    let chosen = tests.iter().filter(|it| wanted.has(it.name));
    let (first, step) = wanted.part;
    let chosen: Vec<&Test> = chosen.skip(first - 1).step_by(step).collect();
    if wanted.only_list {
        chosen
            .iter()
            .for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let as_ever = take_hook();
    set_hook(Box::new(move |panic| {
        COMPLAINT.set(panic.to_string());
        as_ever(panic);
    }));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(test) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    let passed = catch_unwind(AssertUnwindSafe(test.run)).is_ok();
                    let seconds = began.elapsed().as_secs_f64();
                    // The format of the standard test harness, so that tools find failures.
                    match passed {
                        true => println!("test {} ... ok ({seconds:.1} s)", test.name),
                        false => {
                            println!("test {} ... FAILED", test.name);
                            let failure = (test.name, COMPLAINT.take());
                            failed.lock().expect("no panic here").push(failure);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic here");
    let (outcome, code) = match failed.len() {
        0 => ("ok", 0),
        _ => ("FAILED", 101),
    };
    if code != 0 {
        println!("\nfailures:");
        for (name, complaint) in &failed {
            println!("---- {name}");
            let mut lines = complaint.lines();
            lines
                .by_ref()
                .take(LINES_AGAIN)
                .for_each(|line| println!("{line}"));
            if lines.next().is_some() {
                println!("(more of it where it was told first)");
            }
        }
        let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
        println!("\nfailures:\n    {}", names.join("\n    "));
    }
    let passed = chosen.len() - failed.len();
    println!(
        "\ntest result: {outcome}. {passed} passed; {} failed\n",
        failed.len()
    );
    ExitCode::from(code)
}

/// The selection of tests.
struct Wanted {
    words: Vec<String>,
    skipped: Vec<String>,
    is_exact: bool,
    only_list: bool,
    /// The number of the part to run, from one, and the number of parts.
    part: (usize, usize),
}

impl Wanted {
    fn of_command_line() -> Self {
        let mut wanted = Wanted {
            words: Vec::new(),
            skipped: Vec::new(),
            is_exact: false,
            only_list: false,
            part: (1, 1),
        };
        let mut given = std::env::args().skip(1);
        while let Some(word) = given.next() {
            match &*word {
                "--exact" => wanted.is_exact = true,
                "--list" => wanted.only_list = true,
                "--skip" => wanted.skipped.extend(given.next()),
                word if word.starts_with("--part=") => wanted.part = part_of(word),
                // Options for running and output are ignored.
                option if option.starts_with('-') => {}
                _ => wanted.words.push(word),
            }
        }
        wanted
    }

    fn has(&self, name: &str) -> bool {
        let is = |word: &String| match self.is_exact {
            true => name == word,
            false => name.contains(&**word),
        };
        (self.words.is_empty() || self.words.iter().any(is)) && !self.skipped.iter().any(is)
    }
}

/// Parses the option `--part`.
fn part_of(option: &str) -> (usize, usize) {
    let numbers = option.trim_start_matches("--part=").split_once('/');
    let numbers = numbers.and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    let is_part = |(part, of): &(usize, usize)| (1..=*of).contains(part);
    numbers.filter(is_part).expect("--part=NUMBER/PARTS")
}
