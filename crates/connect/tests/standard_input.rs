//! Whole jobs that read standard input, which is a pipe: each in a process of its own, as a process has one standard input.

use std::env;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use ardea_connect::{files, stdin};
use ardea_core::{Bounded, Dag, Edge, Sink, Source, Vertex};
use ardea_engine::{JobConfig, Node, NodeConfig};

/// Where the job of a process of its own writes what it reads; such a process is this program again.
const OUTPUT: &str = "ARDEA_TEST_OUTPUT";

/// What the process ends with, besides 0, if the job has set records aside.
const WITH_DEAD_LETTERS: i32 = 70;

/// The job itself. Without an output there is nothing to do: this is not the process of its own.
#[test]
fn a_job_copies_standard_input_if_told_where_to() {
    let Some(output) = env::var_os(OUTPUT) else {
        return;
    };
    let source: Source<String, Bounded> = stdin::lines().build();
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
    job.join().unwrap();
    if !job.dead_letters().sample().is_empty() {
        std::process::exit(WITH_DEAD_LETTERS);
    }
}

/// What a job copies of `input`, and whether it has set anything aside.
fn copied(input: &[u8]) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("copy");
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_job_copies_standard_input_if_told_where_to"])
        .env(OUTPUT, &output)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let code = child.wait().unwrap().code();
    assert!(
        code == Some(0) || code == Some(WITH_DEAD_LETTERS),
        "{code:?}"
    );
    (fs::read_to_string(output).unwrap(), code != Some(0))
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
        let (copy, is_any_bad) = copied(&input);
        assert!(copy == text && !is_any_bad, "{} bytes of text", copy.len());
    }
}

#[test]
fn of_compressed_data_that_is_cut_off_the_whole_lines_count_and_the_rest_is_set_aside() {
    let lines = (0..50_000u64).map(|n| format!("line {n} {}\n", n * 7919 % 104_729));
    let text: String = lines.collect();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for input in [gzip(text.as_bytes()), zstd] {
        let (copy, is_any_bad) = copied(&input[..input.len() / 2]);
        assert!(text.starts_with(&copy) && copy.len() > 10_000 && copy.ends_with('\n'));
        assert!(is_any_bad);
    }
}

#[test]
fn no_byte_one_or_two_are_a_line_unless_they_begin_compressed_data() {
    for (input, expected, is_bad) in [
        (&b""[..], "", false),
        (b"a", "a\n", false),
        (b"\x1f", "\x1f\n", false),
        (b"ab", "ab\n", false),
        (b"\x1f\x8b", "", true),
        (b"\x28\xb5", "", true),
    ] {
        assert_eq!(copied(input), (expected.to_string(), is_bad), "{input:?}");
    }
}
