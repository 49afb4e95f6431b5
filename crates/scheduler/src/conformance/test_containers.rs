//! The program of the suite's containers, which connects to the test and executes its commands.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ardea_coordination::control::{WORKER_START_VARIABLE, WorkerId, WorkerStart};
use ardea_coordination::packing::ContainerId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use super::soon;

/// The setting with the path of the test's socket.
pub(super) const SOCKET: &str = "test.socket";

/// The connected containers of a test.
#[derive(Debug)]
pub struct TestContainers {
    listener: UnixListener,
    path: PathBuf,
    waiting: Vec<TestContainer>,
}

/// A container that has connected to the test. Dropping this ends the container.
#[derive(Debug)]
pub struct TestContainer {
    /// The container's id and incarnation.
    pub worker: WorkerId,
    /// The container's process id.
    pub pid: u32,
    /// The start parameters of the container's worker.
    pub start: WorkerStart,
    read: tokio::io::BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl TestContainers {
    /// Listens at a socket in `folder`, whose path must be short.
    pub(super) fn listen_in(folder: &Path) -> Self {
        let path = folder.join("crew");
        TestContainers {
            listener: UnixListener::bind(&path).expect("a socket"),
            path,
            waiting: Vec::new(),
        }
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next incarnation of this container to connect.
    ///
    /// # Panics
    ///
    /// If no incarnation connects within a minute.
    pub async fn arrival(&mut self, job: &str, container: u32) -> TestContainer {
        let is_it = |member: &TestContainer| {
            member.start.job.name == job && member.worker.container == ContainerId(container)
        };
        if let Some(at) = self.waiting.iter().position(is_it) {
            return self.waiting.remove(at);
        }
        let what = format!("container {container} of {job} calls");
        let arrival = async {
            loop {
                let (stream, _) = self.listener.accept().await.expect("a call");
                let Some(member) = TestContainer::greet(stream).await else {
                    continue;
                };
                if is_it(&member) {
                    return member;
                }
                self.waiting.push(member);
            }
        };
        soon(&what, arrival).await
    }

    /// Returns true if no unexpected container has connected.
    pub async fn no_other_connects(&mut self) -> bool {
        let call = self.listener.accept();
        let none = tokio::time::timeout(std::time::Duration::ZERO, call).await;
        none.is_err() && self.waiting.is_empty()
    }
}

impl TestContainer {
    /// Reads a container's first line; `None` if the container dies before.
    async fn greet(stream: UnixStream) -> Option<TestContainer> {
        let (read, write) = stream.into_split();
        let mut read = tokio::io::BufReader::new(read);
        let mut line = String::new();
        read.read_line(&mut line).await.ok()?;
        let (pid, start) = line.trim().split_once(' ')?;
        let start: WorkerStart = serde_json::from_str(start).expect("what it was told");
        Some(TestContainer {
            worker: start.worker,
            pid: pid.parse().expect("a number"),
            start,
            read,
            write,
        })
    }

    /// Sends a command to the container, and waits for the answer. Commands: `exit CODE` (without
    /// an answer), `stdout TEXT`, `stderr TEXT`, `child` (starts a process outside the container's
    /// process group and answers with its pid), `pwd`.
    pub async fn command(&mut self, what: &str) -> String {
        let line = format!("{what}\n");
        self.write
            .write_all(line.as_bytes())
            .await
            .expect("it listens");
        let mut answer = String::new();
        let answered = self.read.read_line(&mut answer);
        // `exit` has no answer.
        let _ = soon("an answer", answered).await;
        answer.trim().to_string()
    }

    /// Returns true if the container's process runs.
    pub fn is_alive(&self) -> bool {
        is_alive(self.pid)
    }
}

/// Returns true if the process of this pid runs. A zombie does not run.
pub(super) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| Some(!stat.rsplit_once(") ")?.1.starts_with(['Z', 'X'])))
        .unwrap_or(false)
}

/// Runs a container of the suite; does nothing in any other process.
///
/// # Panics
///
/// If the test can't be reached, which means that it is over.
pub fn run_container() {
    let Ok(told) = std::env::var(WORKER_START_VARIABLE) else {
        return;
    };
    let start: WorkerStart = serde_json::from_str(&told).expect("what it is told");
    let Some(socket) = start.settings.get(SOCKET) else {
        return;
    };
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("the test listens");
    let commands = BufReader::new(stream.try_clone().expect("a second handle"));
    writeln!(stream, "{} {told}", std::process::id()).expect("the test listens");
    for command in commands.lines().map_while(Result::ok) {
        let (verb, rest) = command.split_once(' ').unwrap_or((&command, ""));
        let answer = match verb {
            "exit" => std::process::exit(rest.parse().unwrap_or(99)),
            "stdout" => {
                let _ = writeln!(std::io::stdout(), "{rest}");
                String::new()
            }
            "stderr" => {
                let _ = writeln!(std::io::stderr(), "{rest}");
                String::new()
            }
            "child" => child().to_string(),
            "pwd" => {
                std::env::current_dir().map_or_else(|e| e.to_string(), |p| p.display().to_string())
            }
            _ => "what?".to_string(),
        };
        if writeln!(stream, "{answer}").is_err() {
            break;
        }
    }
    std::process::exit(86);
}

/// Starts a process that sleeps for ten minutes, in a separate process group.
fn child() -> u32 {
    let mut command = Command::new("sleep");
    command
        .arg("600")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().expect("a process").id()
}
