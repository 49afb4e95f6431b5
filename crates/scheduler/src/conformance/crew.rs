//! What the suite's containers run: a program that calls the test as soon as it runs, and does as it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ardea_coordination::control::{WORKER_START_VARIABLE, WorkerId, WorkerStart};
use ardea_coordination::packing::ContainerId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use super::soon;

/// The setting that tells a container where the test listens.
pub(super) const SOCKET: &str = "test.socket";

/// The containers of a test that are there.
#[derive(Debug)]
pub struct Crew {
    listener: UnixListener,
    path: PathBuf,
    waiting: Vec<Member>,
}

/// A container that has called the test. It ends when this is dropped.
#[derive(Debug)]
pub struct Member {
    /// Who it is.
    pub worker: WorkerId,
    /// Its process.
    pub pid: u32,
    /// What it was told about itself.
    pub start: WorkerStart,
    read: tokio::io::BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Crew {
    /// Listens in this folder, whose path has to be short.
    pub(super) fn listen_in(folder: &Path) -> Self {
        let path = folder.join("crew");
        Crew {
            listener: UnixListener::bind(&path).expect("a socket"),
            path,
            waiting: Vec::new(),
        }
    }

    /// Where it listens.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next life of this container that calls.
    ///
    /// # Panics
    ///
    /// If it doesn't within a minute.
    pub async fn arrival(&mut self, job: &str, container: u32) -> Member {
        let is_it = |member: &Member| {
            member.start.job.name == job && member.worker.container == ContainerId(container)
        };
        if let Some(at) = self.waiting.iter().position(is_it) {
            return self.waiting.remove(at);
        }
        let what = format!("container {container} of {job} calls");
        let arrival = async {
            loop {
                let (stream, _) = self.listener.accept().await.expect("a call");
                let Some(member) = Member::greet(stream).await else {
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

    /// Whether nobody has called who was not asked for.
    pub async fn nobody_else_calls(&mut self) -> bool {
        let call = self.listener.accept();
        let none = tokio::time::timeout(std::time::Duration::ZERO, call).await;
        none.is_err() && self.waiting.is_empty()
    }
}

impl Member {
    /// Reads what a container says first; nothing if it dies meanwhile.
    async fn greet(stream: UnixStream) -> Option<Member> {
        let (read, write) = stream.into_split();
        let mut read = tokio::io::BufReader::new(read);
        let mut line = String::new();
        read.read_line(&mut line).await.ok()?;
        let (pid, start) = line.trim().split_once(' ')?;
        let start: WorkerStart = serde_json::from_str(start).expect("what it was told");
        Some(Member {
            worker: start.worker,
            pid: pid.parse().expect("a number"),
            start,
            read,
            write,
        })
    }

    /// Tells it to do something, and waits until that is done, unless it ends it: `exit CODE`, `stdout TEXT`, `stderr TEXT`,
    /// `child` (starts a process that leaves its group, and answers with its number), `pwd`.
    pub async fn told(&mut self, what: &str) -> String {
        let line = format!("{what}\n");
        self.write
            .write_all(line.as_bytes())
            .await
            .expect("it listens");
        let mut answer = String::new();
        let answered = self.read.read_line(&mut answer);
        // That the answer doesn't come is the answer to `exit`.
        let _ = soon("an answer", answered).await;
        answer.trim().to_string()
    }

    /// Whether its process runs.
    pub fn is_alive(&self) -> bool {
        is_alive(self.pid)
    }
}

/// Whether the process of that number runs; one that has ended and was not waited for does not.
pub(super) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| Some(!stat.rsplit_once(") ")?.1.starts_with(['Z', 'X'])))
        .unwrap_or(false)
}

/// What a container of the suite does; nothing in a process that is none.
///
/// # Panics
///
/// If it can't reach its test, which means that the test is over.
pub fn act() {
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

/// Starts a process that does nothing for ten minutes, in a group of its own.
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
