//! Iterations of three processes over loopback, one of which is killed.
//!
//! The test program starts itself as the processes.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{ErrorCode, Result};
use ardea_iteration::{
    Dataset, Iterate, PeerListener, Snapshot, SparseVector, Variables, Vector, VectorUpdate,
};
use ardea_network::rpc::Security;

const PROCESSES: usize = 3;
const ITERATIONS: u64 = 60;
const GROUP: u64 = 10;
const FEATURES: usize = 500;
/// The folder of a process, which makes the test program one of the processes.
const FOLDER: &str = "ARDEA_TEST_ITERATION_FOLDER";
/// The number of the process, the attempt, and the iteration in which it ends itself.
const PLACE: &str = "ARDEA_TEST_ITERATION_PLACE";

fn train(
    variables: Variables,
    iterate: impl FnOnce(Variables) -> Iterate<'static>,
    ends_at: Option<u64>,
) -> Result<Vec<u8>> {
    let mut variables = variables;
    let dataset = Dataset::split((1..=3000_u32).map(f64::from).collect(), 8)?;
    let model = variables.add("model", Vector::zeros(FEATURES))?;
    let folder = env::var_os(FOLDER).map(PathBuf::from);
    if let Some(Ok(bytes)) = folder.map(|folder| fs::read(folder.join("snapshot"))) {
        variables.restore(&Snapshot::from_bytes(&bytes)?)?;
    }
    let report = iterate(variables)
        .iterations(ITERATIONS)
        .group(GROUP)
        .run(&dataset, |task| {
            let current = task.get(&model)?;
            if Some(task.iteration()) == ends_at {
                // As with SIGKILL: no destructor runs, and no message is sent.
                std::process::abort();
            }
            let mut update = vec![0.0; FEATURES];
            for number in task.partition() {
                let at = (*number as usize * 7) % 50;
                update[at] += (1.0 - 0.001 * current.as_slice()[at]) / number;
            }
            task.commit(
                &model,
                VectorUpdate::Sparse(SparseVector::from_dense(&update)),
            )
        })?;
    report.into_variables().snapshot()?.to_bytes()
}

/// Runs as one of the processes: prints its address, reads those of all, and writes snapshots and
/// the result to its folder.
fn run_process(folder: &Path, place: &str) -> Result<()> {
    let numbers: Vec<u64> = place
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let [process, attempt, ends_at] = numbers[..] else {
        panic!("{place} is not a place");
    };
    let listener = PeerListener::bind("127.0.0.1:0", &Security::new("test"), attempt)?;
    println!("address {}", listener.address());
    io::stdout().flush().unwrap();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).unwrap();
    let addresses: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let exchange = listener.connect(process as u32, &addresses, Duration::from_secs(30))?;
    let (kept, result) = (folder.to_owned(), folder.join("result"));
    let iterate = move |variables| {
        let sink = move |snapshot: Snapshot| {
            fs::write(kept.join("snapshot"), snapshot.to_bytes()?).unwrap();
            Ok(())
        };
        Iterate::new(variables)
            .exchange(Arc::new(exchange))
            .snapshots(NonZeroU32::MIN, sink)
    };
    let ends_at = (ends_at > 0).then_some(ends_at);
    fs::write(result, train(Variables::new(), iterate, ends_at)?).unwrap();
    Ok(())
}

#[test]
fn process_of_a_run() {
    if let (Some(folder), Ok(place)) = (env::var_os(FOLDER), env::var(PLACE)) {
        let outcome = run_process(Path::new(&folder), &place);
        let end = match &outcome {
            Ok(()) => "done".to_owned(),
            Err(error) => error.code().as_str().to_owned(),
        };
        println!("end {end}");
    }
}

/// Runs the three processes to their end; returns how each has ended, if it could say so.
fn run_attempt(folder: &Path, attempt: u64, killed: Option<usize>) -> Vec<Option<String>> {
    let mut children: Vec<Child> = (0..PROCESSES)
        .map(|process| {
            let ends_at = if Some(process) == killed { 34 } else { 0 };
            Command::new(env::current_exe().unwrap())
                .args(["--exact", "process_of_a_run", "--nocapture"])
                .env(FOLDER, folder.join(process.to_string()))
                .env(PLACE, format!("{process} {attempt} {ends_at}"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut outputs: Vec<_> = children
        .iter_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()).lines())
        .collect();
    let mut find = |process: usize, word: &str| {
        let mut lines = outputs[process].by_ref().map(|line| line.unwrap());
        lines.find_map(|line| {
            let (_, rest) = line.split_once(word)?;
            Some(rest.trim().to_owned())
        })
    };
    let addresses: Vec<_> = (0..PROCESSES)
        .map(|process| find(process, "address ").unwrap())
        .collect();
    for child in &mut children {
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{}", addresses.join(" ")).unwrap();
    }
    let ends = (0..PROCESSES)
        .map(|process| find(process, "end "))
        .collect();
    for child in &mut children {
        child.wait().unwrap();
    }
    ends
}

#[test]
fn a_killed_process_is_restored_from_its_snapshot_with_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    for process in 0..PROCESSES {
        fs::create_dir(folder.path().join(process.to_string())).unwrap();
    }
    let ends = run_attempt(folder.path(), 1, Some(1));
    let lost = Some(ErrorCode::PeerLost.as_str().to_owned());
    assert_eq!(ends, [lost.clone(), None, lost]);
    let snapshot = fs::read(folder.path().join("1/snapshot")).unwrap();
    assert_eq!(Snapshot::from_bytes(&snapshot).unwrap().iterations(), 30);

    let ends = run_attempt(folder.path(), 2, None);
    assert!(
        ends.iter().all(|end| end.as_deref() == Some("done")),
        "{ends:?}"
    );
    let expected = train(Variables::new(), Iterate::new, None).unwrap();
    for process in 0..PROCESSES {
        let result = fs::read(folder.path().join(format!("{process}/result"))).unwrap();
        assert!(result == expected, "process {process} has another result");
    }
}
