//! Sources, steps and sinks of a pipeline in processes of the job's own program: results without
//! and with a guarantee, while their processes are killed.
//!
//! The process of an instance is this test program with one test selected. Its environment has the
//! folder of the job, which it builds again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_checkpoint::local::{FaultTolerance, JobEnd, RunFaultTolerant};
use ardea_connectors::format::Encode;
use ardea_connectors::{PollStatus, SourceBatch, SourceBuilder, files, null};
use ardea_core::{Bounded, Dag, ErrorCode, Guarantee, Isolation, Source};
use ardea_engine::{Job, JobConfig, Node, NodeConfig, Parallelisms, Program};
use ardea_instance::{
    COMPONENT_VARIABLE, InstanceCommand, VertexProcesses, check_isolated, serve_vertex,
};
use ardea_pipeline::Pipeline;
use rustix::process::{Pid, Signal, kill_process};

const FOLDER: &str = "ARDEA_TEST_VERTICES";
const KEYS: u64 = 20;
const RECORDS: u64 = 20_000;
/// The number of records after which a process stops at the gate, once.
const UNTIL_GATE: u32 = 700;
const KILLS: usize = 6;
/// The text in place of a process id after the end of a job.
const OVER: &str = "over";

#[test]
fn the_process_of_a_vertex() {
    let Ok(vertex) = std::env::var(COMPONENT_VARIABLE) else {
        return;
    };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let program = pipeline(&folder).program(&Parallelisms::new()).unwrap();
    exit(i32::from(serve_vertex(&program.dag, &vertex).is_err()));
}

/// Stops this process at the gate of the job, after some records. Does nothing in the process of
/// the test.
fn pass_gate(folder: &Path) {
    static RECORDS_SEEN: AtomicU32 = AtomicU32::new(0);
    if std::env::var_os(COMPONENT_VARIABLE).is_none()
        || RECORDS_SEEN.fetch_add(1, Ordering::Relaxed) != UNTIL_GATE
    {
        return;
    }
    // Without a guard there is no gate.
    if let Ok(mut gate) = UnixStream::connect(folder.join("gate")) {
        writeln!(gate, "{}", std::process::id()).unwrap();
        let _ = gate.read(&mut [0; 1]);
    }
}

/// The lines of the sink.
#[derive(Clone)]
struct Line(PathBuf);

impl Encode<(u64, u64)> for Line {
    fn encode(&mut self, (key, count): &(u64, u64), out: &mut Vec<u8>) -> Result<(), String> {
        pass_gate(&self.0);
        writeln!(out, "{key} {count}").map_err(|error| error.to_string())
    }
}

/// Returns the job: the number of records so far, for each record of a key.
fn pipeline(folder: &Path) -> Pipeline {
    let p = Pipeline::new("counts");
    let here = folder.to_owned();
    let numbers: Source<u64, Bounded> = SourceBuilder::batch("numbers")
        .open(|_, from: Option<u64>| Ok(from.unwrap_or(0)))
        .poll(move |next, batch: &mut SourceBatch<'_, u64>| {
            while *next < RECORDS && batch.has_room() {
                pass_gate(&here);
                batch.push(*next);
                *next += 1;
            }
            Ok(match *next < RECORDS {
                true => PollStatus::Ready,
                false => PollStatus::End,
            })
        })
        .offset(|next| *next)
        .build();
    let here = folder.to_owned();
    p.read_from(numbers.isolation(Isolation::Process))
        .map(move |number| {
            pass_gate(&here);
            number
        })
        .named("same")
        .rebalance()
        .key_by(|number| number % KEYS)
        .rolling("counts", count())
        .parallelism(2)
        .recordable()
        .write_to(
            files::write(folder.join("out.txt"), Line(folder.to_owned()))
                .build()
                .isolation(Isolation::Process),
        );
    p
}

/// The job of `pipeline`, as it runs on a cluster, in one process. The steps are isolated as well.
struct Distributed(Pipeline, VertexProcesses);

impl Distributed {
    fn new(folder: &Path) -> Self {
        let command = InstanceCommand::new(std::env::current_exe().unwrap())
            .args([
                "vertices::the_process_of_a_vertex",
                "--exact",
                "--nocapture",
            ])
            .env(FOLDER, folder)
            .batch_bytes(2_000);
        Distributed(pipeline(folder), VertexProcesses::new(command))
    }
}

impl Job for Distributed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn program(&self, parallelism: &Parallelisms) -> ardea_core::Result<Program> {
        let program = self.0.program(parallelism)?;
        let mut isolated = Dag::new();
        for vertex in program.dag.vertices() {
            isolated.vertex(vertex.clone().isolation(Isolation::Process));
        }
        for edge in program.dag.edges() {
            isolated.edge(edge.clone());
        }
        Ok(Program {
            dag: self.1.host(&isolated)?,
            ..program
        })
    }
}

/// Checks that each count of each key was published once.
fn check(folder: &Path) {
    let mut counts = BTreeMap::<u64, Vec<u64>>::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("out") && !name.ends_with(".part") {
            for line in fs::read_to_string(&path).unwrap().lines() {
                let (key, count) = line.split_once(' ').unwrap();
                let counts = counts.entry(key.parse().unwrap()).or_default();
                counts.push(count.parse().unwrap());
            }
        }
    }
    let expected: Vec<u64> = (1..=RECORDS / KEYS).collect();
    assert_eq!(counts.len() as u64, KEYS);
    for (key, mut counts) in counts {
        counts.sort_unstable();
        assert!(counts == expected, "key {key}: {} counts", counts.len());
    }
}

/// Kills the first processes that stop at the gate, and lets the others continue; returns the
/// number of kills.
fn guard_gate(gate: &UnixListener, times: usize) -> usize {
    let mut kills = 0;
    for process in gate.incoming() {
        let (mut process, mut line) = (BufReader::new(process.unwrap()), String::new());
        process.read_line(&mut line).unwrap();
        if line.trim() == OVER {
            break;
        }
        // The host may have killed it before.
        let id = line.trim().parse().ok().and_then(Pid::from_raw);
        let must_die = id.filter(|_| kills < times);
        kills += usize::from(must_die.is_some_and(|id| kill_process(id, Signal::KILL).is_ok()));
    }
    kills
}

fn node() -> Node {
    let two = 2.try_into().unwrap();
    Node::start(NodeConfig::with_threads(two)).unwrap()
}

#[test]
fn a_pipeline_whose_vertices_are_processes_gives_what_it_gives_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let job = Distributed::new(folder.path());
    let node = node();
    let handle = job.start(&node, JobConfig::named("counts")).unwrap();
    assert!(handle.wait(Duration::from_secs(60)).is_over());
    handle.join().unwrap();
    check(folder.path());
}

#[test]
fn results_are_exact_while_processes_of_sources_steps_and_sinks_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = UnixListener::bind(folder.path().join("gate")).unwrap();
    let guard = thread::spawn(move || guard_gate(&gate, KILLS));
    let tolerance = FaultTolerance::in_folder(folder.path().join("state"))
        .guarantee(Guarantee::ExactlyOnce)
        .every(Duration::from_millis(40))
        .pause(Duration::ZERO)
        .attempts(1_000);
    let job = Distributed::new(folder.path());
    let end = job
        .run_fault_tolerant(&tolerance)
        .map(|outcome| outcome.end);
    let mut over = UnixStream::connect(folder.path().join("gate")).unwrap();
    over.write_all(OVER.as_bytes()).unwrap();
    drop(over);
    assert_eq!(guard.join().unwrap(), KILLS);
    assert_eq!(end.unwrap(), JobEnd::Completed);
    check(folder.path());
}

/// A record type without codec.
#[derive(Clone)]
struct Plain;

#[test]
fn an_isolated_source_whose_records_have_no_codec_is_refused_before_it_runs() {
    let p = Pipeline::new("plain");
    let plain: Source<Plain, Bounded> = SourceBuilder::batch("plain")
        .open(|_, _: Option<u64>| Ok(()))
        .poll(|(), _: &mut SourceBatch<'_, Plain>| Ok(PollStatus::End))
        .build();
    p.read_from(plain.isolation(Isolation::Process))
        .map(|_| 1)
        .write_to(null::sink());
    let program = p.program(&Parallelisms::new()).unwrap();
    let error = check_isolated(&program.dag).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    let text = error.to_string();
    assert!(
        text.contains("\"plain\"") && text.contains("recordable"),
        "{text}"
    );
}
