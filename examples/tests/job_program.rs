//! Tests of a job program from the command line, with a fake cluster.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;

use ardea_rest::testing::FakeCluster;
use ardea_rest::{Server, ServerConfig};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Runs the program in its own folder.
fn word_count(folder: &TempDir, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_word-count"));
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_string_lossy().starts_with("ARDEA_");
        if is_ours || name == "XDG_CONFIG_HOME" || name == "XDG_STATE_HOME" {
            command.env_remove(name);
        }
    }
    command
        .args(line.split_whitespace())
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn succeed(folder: &TempDir, line: &str) -> String {
    let output = word_count(folder, line);
    assert!(output.status.success(), "{line}: {output:?}");
    out(&output)
}

fn fails(folder: &TempDir, line: &str, code: i32, says: &str) {
    let output = word_count(folder, line);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
    assert!(err.contains(says), "{line}: {err}");
}

#[test]
fn without_a_command_the_job_runs_here() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("text"),
        "one two two\nthree three three\n",
    )
    .unwrap();
    for line in [
        "text --total 2 --top 9",
        "run --threads 1 -- text --total 2 --top 9",
    ] {
        let printed = succeed(&folder, line);
        let mut lines: Vec<&str> = printed.lines().map(str::trim).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["1  one", "2  two", "3  three"], "{line}");
    }
}

#[test]
fn it_explains_itself_and_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let help = succeed(&folder, "help");
    assert!(
        help.contains("Usage: word-count") && help.contains("submit"),
        "{help}"
    );
    assert!(succeed(&folder, "submit --help").contains("--cluster"));
    fails(&folder, "submit --clutser x", 2, "'--cluster'");
    fails(&folder, "run --set slise=1s", 2, "did you mean slice?");
    fails(&folder, "none.txt", 3, "ARD-301");
    fails(&folder, "plan --json none.txt", 3, "\"code\":\"ARD-301\"");
    fails(&folder, "submit --at http://127.0.0.1:1", 3, "ARD-303");
    fails(&folder, "submit --name=", 2, "no job can be called");
}

#[test]
fn its_plan_is_shown_and_too_large_a_job_is_refused_with_the_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let plan = succeed(&folder, "plan --set job.containers=2");
    for part in [
        "lines (1)",
        "→ split",
        "container 2",
        "5 instances in 2 containers",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let large = "plan --set instance.memory=2GiB --set container.memory=1GiB";
    fails(&folder, large, 2, "wants 2GiB memory");
}

#[test]
fn it_submits_itself_with_its_files_once() {
    let runtime = Runtime::new().unwrap();
    let cluster = FakeCluster::new();
    let config = ServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = Server::bind(Arc::new(cluster.clone()), config);
    let server = runtime.block_on(server).unwrap();
    let at = format!("--at http://{}", server.address().unwrap());
    runtime.spawn(server.serve());

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text"), "one two two\n").unwrap();
    let submitted = succeed(
        &folder,
        &format!("submit {at} --file text --json -- text --top 3"),
    );
    assert!(
        submitted.contains("\"cluster\":\"pretended\""),
        "{submitted}"
    );
    assert!(submitted.contains("\"phase\":\"running\""), "{submitted}");
    let told = succeed(
        &folder,
        &format!("submit {at} --name again --file text text"),
    );
    assert_eq!(
        told,
        "again is running on cluster pretended: 5 instances in 1 container\n"
    );
    fails(&folder, &format!("submit {at}"), 2, "ARD-603");
    // The same program and files are one package.
    let packages = folder
        .path()
        .join(".local/state/ardea/clusters/local/packages");
    let stored = fs::read_dir(packages).unwrap().flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().len() >= 64
    });
    assert_eq!(
        stored.count(),
        2,
        "the one with a file, and the one without"
    );
}
