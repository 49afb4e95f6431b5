//! `cargo xtask test`: builds the test programs of cargo, and runs several in parallel.
//!
//! `cargo test` runs the programs one after the other, and most of them wait for timers, processes
//! and servers. The programs are independent: each has its own folders, ports and clusters. The
//! output of a program goes to a file in `target/test-output`, and is printed as a whole at its
//! end. The programs that took longest in the previous run start first. A program that takes longer
//! than all others runs in parts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// The number of programs at a time on a small machine: most of them wait most of the time.
const MIN_PROGRAMS: usize = 2;

/// The maximum number of programs at a time: each starts its own servers, processes and threads.
const MAX_PROGRAMS: usize = 4;

/// The time after which a program is killed. A test of the first run on a machine may build a
/// server for ten minutes.
const TIME_LIMIT: Duration = Duration::from_secs(45 * 60);

/// The time between two looks at a program that runs.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The programs that run in parts, and the number of their parts. They accept the option `--part`.
const DIVIDED: &[(&str, u32)] = &[("cli/cluster", 3)];

/// A test program, and the folder of its package, in which it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    path: PathBuf,
    package: PathBuf,
    /// The number of the part of its tests to run, from one, and the number of parts.
    part: Option<(u32, u32)>,
}

impl Program {
    /// Returns the package and the program's name without the build's hash: the same text in every
    /// build. The name of a part ends with its number.
    fn name(&self) -> String {
        match self.part {
            Some((part, _)) => format!("{}-{part}", self.program_name()),
            None => self.program_name(),
        }
    }

    fn program_name(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let name = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name);
        let package = self.package.file_name().unwrap_or_default();
        format!("{}/{name}", package.to_string_lossy())
    }

    /// Returns the parts in which the program runs.
    fn parts(self) -> Vec<Program> {
        let name = self.program_name();
        let Some((_, count)) = DIVIDED.iter().find(|(divided, _)| *divided == name) else {
            return vec![self];
        };
        let part = |part| Program {
            part: Some((part, *count)),
            ..self.clone()
        };
        (1..=*count).map(part).collect()
    }
}

/// The result of a program's run.
struct Ended {
    name: String,
    took: Duration,
    has_passed: bool,
}

/// Builds the tests that `cargo test` with these arguments would run, and runs them.
pub fn run(root: &Path, args: &[String]) -> ExitCode {
    let programs = match build(args) {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("test: {error}");
            return ExitCode::FAILURE;
        }
    };
    let times = root.join("target/test-times");
    let before = read_times(&fs::read_to_string(&times).unwrap_or_default());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let side_by_side = (cores / 2).clamp(MIN_PROGRAMS, MAX_PROGRAMS);
    let outputs = root.join("target/test-output");
    if let Err(error) = fs::create_dir_all(&outputs) {
        eprintln!("test: {} cannot be created: {error}", outputs.display());
        return ExitCode::FAILURE;
    }
    let begin = Instant::now();
    let ended = run_all(longest_first(programs, &before), side_by_side, &outputs);
    // If writing fails, only the order of the next run is lost.
    let _ = fs::write(&times, write_times(before, &ended));
    report(&ended, begin.elapsed())
}

/// Builds the programs. Diagnostics go to standard error, as cargo prints them.
fn build(args: &[String]) -> Result<Vec<Program>, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_package(name)) {
        cargo.env_remove(name);
    }
    let mut cargo = cargo
        .arg("test")
        .args(args)
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    let messages = cargo.stdout.take().map(BufReader::new);
    let mut programs: Vec<Program> = messages
        .into_iter()
        .flat_map(BufRead::lines)
        .filter_map(|line| program_of(&line.ok()?))
        .collect();
    let status = cargo.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err("the tests do not build".to_owned());
    }
    programs.sort();
    programs.dedup();
    Ok(programs.into_iter().flat_map(Program::parts).collect())
}

/// Returns true for a variable that `cargo run` sets for the package `xtask`. Build scripts of some
/// dependencies depend on them: with other values than in other commands they are rebuilt.
fn is_of_package(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// Returns the test program announced by a message of cargo, if any.
fn program_of(message: &str) -> Option<Program> {
    if !message.contains("\"reason\":\"compiler-artifact\"") {
        return None;
    }
    // The target has a field `test` too: true for each program that can have tests.
    let (_, profile) = message.split_once("\"profile\":{")?;
    let (profile, _) = profile.split_once('}')?;
    if !profile.contains("\"test\":true") {
        return None;
    }
    let path = PathBuf::from(string_field(message, "executable")?);
    let manifest = PathBuf::from(string_field(message, "manifest_path")?);
    Some(Program {
        path,
        package: manifest.parent()?.to_owned(),
        part: None,
    })
}

/// Returns a string field of a JSON object, without escapes, as for paths.
fn string_field<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = object.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Orders the programs: those without a time first, then by their time in the previous run.
fn longest_first(mut programs: Vec<Program>, before: &BTreeMap<String, Duration>) -> Vec<Program> {
    programs.sort_by_key(|program| {
        let time = before.get(&program.name()).copied();
        std::cmp::Reverse(time.unwrap_or(Duration::MAX))
    });
    programs
}

fn run_all(programs: Vec<Program>, side_by_side: usize, outputs: &Path) -> Vec<Ended> {
    let (waiting, ended) = (Mutex::new(programs.into_iter()), Mutex::new(Vec::new()));
    let next = || waiting.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..side_by_side {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let one = run_one(&program, outputs);
                    if let Ok(mut ended) = ended.lock() {
                        ended.push(one);
                    }
                }
            });
        }
    });
    ended.into_inner().unwrap_or_default()
}

/// Runs a program like `cargo test`, and prints its output at its end.
fn run_one(program: &Program, outputs: &Path) -> Ended {
    let (name, begin) = (program.name(), Instant::now());
    let log = outputs.join(name.replace('/', "-") + ".log");
    let result = run_into(program, &log);
    let took = begin.elapsed();
    let output = fs::read(&log).unwrap_or_default();
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "\n     Running {name} ({:.1} s)", took.as_secs_f64());
    let _ = out.write_all(&output);
    let has_passed = match result {
        Ok(Some(status)) => status.success(),
        Ok(None) => {
            let _ = writeln!(out, "test: {name} was killed after {} s", took.as_secs());
            false
        }
        Err(error) => {
            let _ = writeln!(out, "test: {name} does not run: {error}");
            false
        }
    };
    Ended {
        name,
        took,
        has_passed,
    }
}

/// Runs a program with its output in a file. Returns `None` if it was killed at [`TIME_LIMIT`].
///
/// A pipe would stay open as long as a process that the program left behind.
fn run_into(program: &Program, log: &Path) -> io::Result<Option<ExitStatus>> {
    let log = File::create(log)?;
    let part = program.part.map(|(part, of)| format!("--part={part}/{of}"));
    let mut child = Command::new(&program.path)
        .args(part)
        .current_dir(&program.package)
        .env("CARGO_MANIFEST_DIR", &program.package)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    wait(&mut child, TIME_LIMIT)
}

/// Waits for the end of a process; kills it at the limit, and returns `None` then.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn report(ended: &[Ended], took: Duration) -> ExitCode {
    let count = ended.len();
    let failed: Vec<&str> = ended
        .iter()
        .filter(|one| !one.has_passed)
        .map(|one| one.name.as_str())
        .collect();
    println!("\ntest: {count} programs in {} s", took.as_secs());
    if count == 0 {
        eprintln!("test: no test program was built");
        return ExitCode::FAILURE;
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("test: FAILED: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Parses lines of `name milliseconds`; a line of another form is skipped.
fn read_times(text: &str) -> BTreeMap<String, Duration> {
    let time = |line: &str| {
        let (name, millis) = line.split_once(' ')?;
        Some((name.to_owned(), Duration::from_millis(millis.parse().ok()?)))
    };
    text.lines().filter_map(time).collect()
}

fn write_times(mut times: BTreeMap<String, Duration>, ended: &[Ended]) -> String {
    times.extend(ended.iter().map(|one| (one.name.clone(), one.took)));
    let line = |(name, took): (&String, &Duration)| format!("{name} {}\n", took.as_millis());
    times.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(package: &str, name: &str) -> Program {
        Program {
            path: format!("/t/deps/{name}-0123").into(),
            package: format!("/w/crates/{package}").into(),
            part: None,
        }
    }

    #[test]
    fn a_test_program_is_found_among_the_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/a#0.1.0","manifest_path":"/w/crates/a/Cargo.toml","target":{"kind":["bin"],"name":"b","doctest":false,"test":true},"profile":{"opt_level":"0","test":true},"filenames":[],"executable":"/t/deps/b-0123","fresh":false}"#;
        assert_eq!(program_of(message), Some(program("a", "b")));
        let product = message.replace(r#""0","test":true"#, r#""0","test":false"#);
        assert_eq!(program_of(&product), None, "a program, not its tests");
        let library = message.replace("\"/t/deps/b-0123\"", "null");
        assert_eq!(program_of(&library), None);
    }

    #[test]
    fn a_divided_program_runs_in_parts_with_names_of_their_own() {
        let parts = program("cli", "cluster").parts();
        let names: Vec<_> = parts.iter().map(Program::name).collect();
        assert_eq!(names, ["cli/cluster-1", "cli/cluster-2", "cli/cluster-3"]);
        assert_eq!(program("a", "b").parts(), [program("a", "b")]);
    }

    #[test]
    fn new_programs_begin_first_and_then_the_longest() {
        let programs = vec![
            program("a", "quick"),
            program("a", "slow"),
            program("b", "new"),
        ];
        let before = read_times("a/quick 10\na/slow 5000\nnonsense\n");
        let names: Vec<_> = longest_first(programs, &before)
            .iter()
            .map(Program::name)
            .collect();
        assert_eq!(names, ["b/new", "a/slow", "a/quick"]);
    }

    #[test]
    fn times_of_programs_that_did_not_run_are_kept() {
        let ended = [Ended {
            name: "a/b".to_owned(),
            took: Duration::from_millis(7),
            has_passed: true,
        }];
        let times = write_times(read_times("a/b 1\nc/d 2\n"), &ended);
        assert_eq!(times, "a/b 7\nc/d 2\n");
    }

    #[test]
    fn a_program_that_fails_fails_the_run() {
        let failing = Program {
            path: "/bin/false".into(),
            package: "/".into(),
            part: None,
        };
        assert!(!run_one(&failing, &env::temp_dir()).has_passed);
    }

    #[test]
    fn a_program_over_the_limit_is_killed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(wait(&mut child, Duration::ZERO).unwrap(), None);
        assert!(child.try_wait().unwrap().is_some());
    }

    #[test]
    fn a_process_left_behind_does_not_delay_the_end_of_a_program() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let status = wait(&mut child, Duration::from_secs(100)).unwrap();
        assert!(status.is_some_and(|status| status.success()));
        let mut left = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut left)
            .unwrap();
        let kill = Command::new("kill").arg(left.trim()).status().unwrap();
        assert!(kill.success());
    }
}
