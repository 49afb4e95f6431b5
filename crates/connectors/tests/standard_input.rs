//! Tests of whole jobs that read standard input from a pipe, each in a separate process.

use std::env;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use ardea_connectors::{OnDamage, files, stdin};
use ardea_core::{Bounded, Dag, Edge, Sink, Source, Vertex};
use ardea_engine::{JobConfig, Node, NodeConfig};

/// The output file of a job in a child process, which runs this program again.
const OUTPUT: &str = "ARDEA_TEST_OUTPUT";

/// The damage policy of the job in a child process.
const ON_DAMAGE: &str = "ARDEA_TEST_ON_DAMAGE";

/// The exit code of a child process whose job had dead letters.
const WITH_DEAD_LETTERS: i32 = 70;

/// The exit code of a child process whose job has failed.
const FAILED: i32 = 71;

/// Runs the job in a child process. Does nothing without the output variable.
#[test]
fn a_job_copies_standard_input_if_told_where_to() {
    let Some(output) = env::var_os(OUTPUT) else {
        return;
    };
    let on_damage = match env::var(ON_DAMAGE).as_deref() {
        Ok("keep") => OnDamage::Keep,
        _ => OnDamage::Fail,
    };
    let source: Source<String, Bounded> = stdin::lines().on_damage(on_damage).build();
    let sink: Sink<String> = files::write_lines(output).build();
    let mut dag = Dag::new();
    let (name, supplier, parallelism, isolation) = source.into_parts();
    let vertex = Vertex::new(name, supplier).parallelism(parallelism);
    let from = dag.vertex(vertex.isolation(isolation));
    let (name, supplier, parallelism, isolation) = sink.into_parts();
    let vertex = Vertex::new(name, supplier).parallelism(parallelism);
    let to = dag.vertex(vertex.isolation(isolation));
    dag.edge(Edge::between(from, to));
    let node = Node::start(NodeConfig::with_threads(1)).unwrap();
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    if let Err(error) = job.join() {
        eprintln!("{error}");
        std::process::exit(FAILED);
    }
    if !job.dead_letters().sample().is_empty() {
        std::process::exit(WITH_DEAD_LETTERS);
    }
}

/// Runs a job that copies `input` in a child process. Returns the published output, if any, the
/// exit code and the error text.
fn copied(input: &[u8], on_damage: OnDamage) -> (Option<String>, i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("copy");
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_job_copies_standard_input_if_told_where_to"])
        .arg("--nocapture")
        .env(OUTPUT, &output)
        .env(
            ON_DAMAGE,
            match on_damage {
                OnDamage::Keep => "keep",
                OnDamage::Fail => "fail",
            },
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let end = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&end.stderr).into_owned();
    let copy = fs::read_to_string(output).ok();
    (copy, end.status.code().expect("an exit code"), told)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn it_is_read_plain_or_compressed() {
    let lines = (0..50_000u64).map(|n| format!("line {n} {}\n", n * 7919 % 104_729));
    let text: String = lines.collect();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for input in [gzip(text.as_bytes()), zstd, text.clone().into_bytes()] {
        let (copy, code, _) = copied(&input, OnDamage::Fail);
        assert!(copy == Some(text.clone()) && code == 0);
    }
}

#[test]
fn compressed_data_that_is_cut_off_fails_the_job_and_publishes_nothing_unless_it_is_to_be_kept() {
    let lines = (0..50_000u64).map(|n| format!("line {n} {}\n", n * 7919 % 104_729));
    let text: String = lines.collect();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for input in [gzip(text.as_bytes()), zstd] {
        let input = &input[..input.len() / 2];
        let (copy, code, told) = copied(input, OnDamage::Fail);
        assert_eq!((copy, code), (None, FAILED), "{told}");
        for part in [
            "ARD-301",
            "stdin",
            "cut off",
            "lines had been read",
            "bytes",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let (copy, code, told) = copied(input, OnDamage::Keep);
        let copy = copy.unwrap();
        assert!(text.starts_with(&copy) && copy.len() > 10_000 && copy.ends_with('\n'));
        assert_eq!(code, WITH_DEAD_LETTERS);
        assert!(told.contains("cut off"), "{told}");
    }
}

#[test]
fn no_byte_one_or_two_are_a_line_unless_they_begin_compressed_data() {
    for (input, expected, code) in [
        (&b""[..], Some(""), 0),
        (b"a", Some("a\n"), 0),
        (b"\x1f", Some("\x1f\n"), 0),
        (b"ab", Some("ab\n"), 0),
        (b"\x1f\x8b", None, FAILED),
        (b"\x28\xb5", Some(""), WITH_DEAD_LETTERS),
    ] {
        let (copy, ended, _) = copied(input, OnDamage::Fail);
        assert_eq!((copy.as_deref(), ended), (expected, code), "{input:?}");
    }
}
