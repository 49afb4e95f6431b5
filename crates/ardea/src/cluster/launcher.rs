//! Starts and stops hosts on this machine: processes that outlive their starter.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_output::{OUTPUT_VARIABLE, OutputFiles, OutputStart, ReadFrom};
use ardea_rest::{ApiError, ClusterSettings};
use ardea_scheduler::{IGNORE_TERMINAL_SIGNALS, TUNE_MALLOC};
use rustix::process::{Pid, Signal, kill_process};

use super::host_start::{HOST_START_VARIABLE, HostStart};
use super::old_logs;
use super::run_files::RunFile;

/// The time limit for a host to come up, and to exit.
const HOST_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest wait for another process that is starting hosts.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The largest number of characters of a job's name that become part of its hosts' names.
const JOB_NAME_CHARS: usize = 40;

/// The number of hosts of a cluster for one job.
const HOSTS_PER_JOB: usize = 2;

/// A launcher of a cluster's hosts, which run this program as processes on this machine.
#[derive(Clone, Debug)]
pub struct Launcher {
    cluster: ClusterSettings,
}

/// A running host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunningHost {
    /// The host's name.
    pub name: String,
    /// The address of the host's REST interface: `http://HOST:PORT`.
    pub api: String,
    /// The configured port, if it was in use when the host started.
    pub taken_port: Option<u16>,
    /// The host's process number.
    pub pid: u32,
    /// The only job that the host serves, if any.
    pub job: Option<String>,
}

impl Launcher {
    /// Creates a launcher for `cluster`.
    pub fn of(cluster: ClusterSettings) -> Self {
        Launcher { cluster }
    }

    /// Returns the hosts that run on this machine, sorted by name.
    pub fn running(&self) -> Vec<RunningHost> {
        self.files().into_iter().map(RunningHost::from).collect()
    }

    /// Returns the run files of this cluster's hosts. Another cluster may use the same folder.
    fn files(&self) -> Vec<RunFile> {
        let mut files = RunFile::all(&self.cluster.directory);
        files.retain(|file| file.cluster.is_empty() || file.cluster == self.cluster.name);
        files
    }

    /// Starts general hosts until `hosts` of them run, and waits until they are up. Returns the
    /// hosts that it started. Of several concurrent callers, one starts the hosts and the others
    /// find them running.
    ///
    /// # Errors
    /// The error reported by a host that did not come up, or [`ErrorCode::StartFailed`] if it
    /// reported none; the hosts that came up stay. [`ErrorCode::WriteFailed`] if the cluster's
    /// folder is not writable.
    pub fn start(&self, hosts: usize) -> Result<Vec<RunningHost>> {
        let _lock = self.lock()?;
        let running = self.running();
        let taken = |name: &str| running.iter().any(|host| host.name == name);
        let general = running.iter().filter(|host| host.job.is_none()).count();
        let names = (1..).map(|number| format!("host-{number}"));
        let names: Vec<String> = names
            .filter(|name| !taken(name))
            .take(hosts.saturating_sub(general))
            .collect();
        let mut children = Vec::new();
        for (number, name) in names.iter().enumerate() {
            // The first host gets the configured port.
            let port = if number == 0 && general == 0 {
                self.cluster.port
            } else {
                0
            };
            children.push(self.spawn(HostStart::of(name.as_str(), &self.cluster, port))?);
        }
        let mut started = Vec::new();
        for child in children {
            match self.await_host(child) {
                Ok(host) => started.push(host),
                // Hosts whose run files were not visible before may have come up.
                Err(_) if self.general() >= hosts => {}
                Err(error) => return Err(error),
            }
        }
        Ok(started)
    }

    /// Returns the number of general hosts that run.
    fn general(&self) -> usize {
        let running = self.running().into_iter();
        running.filter(|host| host.job.is_none()).count()
    }

    /// Waits for the lock of starting hosts; it is released when dropped or when the process ends.
    /// Returns `None` where the file system has no locks: unique host names then prevent
    /// duplicates.
    fn lock(&self) -> Result<Option<File>> {
        let folder = &self.cluster.directory;
        let failed = |error: std::io::Error| {
            let what = format!("cannot start hosts in {}", folder.display());
            let error = Error::new(ErrorCode::WriteFailed, what).because(error);
            error.hint("check cluster.directory and its permissions")
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join("start.lock");
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(failed)?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(_)) => return Ok(None),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    let what = format!(
                        "another command has been starting hosts of cluster {} for {} s",
                        self.cluster.name,
                        LOCK_TIMEOUT.as_secs()
                    );
                    return Err(Error::new(ErrorCode::StartFailed, what)
                        .hint("end that command, and try again"));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Starts the hosts of a cluster for one job, and waits until they are up.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_for(&self, job: &str) -> Result<Vec<RunningHost>> {
        let running = self.for_job(job).len();
        let mut children = Vec::new();
        for _ in running..HOSTS_PER_JOB {
            children.push(self.spawn(self.host_of(job))?);
        }
        children
            .into_iter()
            .map(|child| self.await_host(child))
            .collect()
    }

    /// Returns true if a job's cluster has fewer hosts than it should.
    pub(super) fn lacks_hosts(&self, job: &str) -> bool {
        self.for_job(job).len() < HOSTS_PER_JOB
    }

    /// Starts a standby host for a job, without waiting until it is up.
    pub(super) fn start_standby(&self, job: &str) -> Result<()> {
        let StartingHost { mut child, .. } = self.spawn(self.host_of(job))?;
        // Reaps the child whenever it ends, so that no zombie is left.
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    fn for_job(&self, job: &str) -> Vec<RunningHost> {
        let mut hosts = self.running();
        hosts.retain(|host| host.job.as_deref() == Some(job));
        hosts
    }

    /// Stops all hosts of this machine, and waits until they are gone. Containers keep running.
    /// Returns the stopped hosts.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if a host does not end in time.
    pub fn stop(&self) -> Result<Vec<RunningHost>> {
        let files = self.files();
        for file in &files {
            let pid = i32::try_from(file.pid).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| file.is_alive()) {
                // Fails only if it has just ended.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + HOST_TIMEOUT;
        while files.iter().any(RunFile::is_alive) {
            if Instant::now() >= deadline {
                let left: Vec<String> = files
                    .iter()
                    .filter(|file| file.is_alive())
                    .map(|file| file.pid.to_string())
                    .collect();
                let what = format!(
                    "hosts did not end within {} s: {}",
                    HOST_TIMEOUT.as_secs(),
                    left.join(", ")
                );
                return Err(Error::new(ErrorCode::LimitReached, what).hint("kill these processes"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(files.into_iter().map(RunningHost::from).collect())
    }

    fn host_of(&self, job: &str) -> HostStart {
        // Job names may hold characters that no folder name can. The random suffix distinguishes
        // the host from one that just died.
        let plain = |letter: char| match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => letter,
            _ => '-',
        };
        let of: String = job.chars().take(JOB_NAME_CHARS).map(plain).collect();
        let name = format!("{of}-{:08x}", ardea_server::leader::new_submission() as u32);
        HostStart::of(name, &self.cluster, 0).for_job(job)
    }

    fn spawn(&self, mut start: HostStart) -> Result<StartingHost> {
        let folder = self.cluster.directory.join("logs");
        let name = start.name.clone();
        let cannot = |code: ErrorCode, error: std::io::Error| {
            Error::new(code, format!("cannot start host {name:?}")).because(error)
        };
        let failed = |error| {
            let error = cannot(ErrorCode::WriteFailed, error);
            error.hint("check cluster.directory and its permissions")
        };
        fs::create_dir_all(&folder).map_err(failed)?;
        let running = self.running();
        let is_running =
            |host: &str| host == start.name || running.iter().any(|other| other.name == host);
        let (time, bytes) = (
            self.cluster.output_retention,
            self.cluster.output_retained_bytes,
        );
        old_logs::sweep(&folder, is_running, time, bytes);
        let log = OutputFiles::new(&folder, format!("{}.log", start.name));
        let out = log.open(&self.cluster.output).map_err(failed)?;
        let (_, written) = log.stored_range().map_err(failed)?;
        let output = OutputStart {
            stdout: log.path(),
            stderr: log.path(),
            bounds: self.cluster.output,
        };
        // An unnamed file, so that nothing is left if a process dies.
        let failure = tempfile::tempfile_in(&folder).map_err(failed)?;
        start.tells_failure = true;
        let told = serde_json::to_string(&start).map_err(|error| {
            let what = format!(
                "cannot serialize the start parameters of host {:?}",
                start.name
            );
            Error::new(ErrorCode::Internal, what).because(error)
        })?;
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!(
                r#"{IGNORE_TERMINAL_SIGNALS}; {TUNE_MALLOC}; exec "$@""#
            ))
            .arg("ardea-host")
            .args(host_command())
            .env(HOST_START_VARIABLE, told)
            .env(OUTPUT_VARIABLE, output.to_variable()?)
            // A new process group but no new session, as for containers
            // (`scheduler/src/runner/gate.rs`).
            .process_group(0)
            .stdin(failure.try_clone().map_err(failed)?)
            .stdout(out.try_clone().map_err(failed)?)
            .stderr(out)
            .spawn()
            .map_err(|error| cannot(ErrorCode::StartFailed, error))?;
        Ok(StartingHost {
            child,
            start,
            log,
            written,
            failure,
        })
    }

    /// Returns the error that prevents writing into the cluster's folder, if any.
    fn folder_write_error(&self) -> Option<std::io::Error> {
        let mut file = tempfile::NamedTempFile::new_in(&self.cluster.directory).ok()?;
        // A block of most file systems.
        file.write_all(&[0; 4096]).err()
    }

    /// Waits until a host is up.
    fn await_host(&self, mut launched: StartingHost) -> Result<RunningHost> {
        let pid = launched.child.id();
        let deadline = Instant::now() + HOST_TIMEOUT;
        loop {
            let files = self.files();
            if let Some(file) = files.into_iter().find(|file| file.pid == pid) {
                return Ok(file.into());
            }
            let ended = launched.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() >= deadline {
                let said = launched.last_output();
                // An empty log may mean that the disk is full.
                let room = self.folder_write_error().filter(|_| said.is_empty());
                return Err(launched.failed(&said, room));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A host that was started.
struct StartingHost {
    child: Child,
    start: HostStart,
    log: OutputFiles,
    /// The length of the log file before this start.
    written: u64,
    /// Its standard input, into which it writes its startup error.
    failure: File,
}

impl StartingHost {
    /// Returns the last output of the host.
    fn last_output(&self) -> String {
        let read = self.log.read(ReadFrom::From(self.written), 64 << 10);
        let bytes = read.map(|piece| piece.bytes).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_string()
    }

    /// Reads the error that the host reported, if any.
    fn reported_error(&mut self) -> Option<Error> {
        self.failure.rewind().ok()?;
        let fault: ApiError = serde_json::from_reader(&self.failure).ok()?;
        Some(fault.into())
    }

    /// Returns the error of a host that did not come up, with the code that it reported. `room` is
    /// the error that prevents writing into the cluster's folder, if any.
    fn failed(&mut self, said: &str, room: Option<std::io::Error>) -> Error {
        let log = format!("its log is {}", self.log.path().display());
        let what = format!("host {:?} did not come up", self.start.name);
        if let Some(error) = self.reported_error() {
            let hint = error.hint_text();
            let hint = hint.map_or(log.clone(), |hint| format!("{hint}; {log}"));
            return Error::new(error.code(), what)
                .because(error.message())
                .hint(hint);
        }
        let error = match (said.is_empty(), room) {
            (false, _) => Error::new(ErrorCode::StartFailed, what).because(said),
            (true, Some(why)) => Error::new(ErrorCode::WriteFailed, what).because(why),
            (true, None) => Error::new(ErrorCode::StartFailed, what),
        };
        error.hint(log)
    }
}

impl From<RunFile> for RunningHost {
    fn from(file: RunFile) -> Self {
        RunningHost {
            name: file.name,
            api: file.api,
            taken_port: file.taken_port,
            pid: file.pid,
            job: file.job,
        }
    }
}

/// The command line of hosts; see [`set_host_command`].
static HOST_COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command line of the hosts that this process starts. By default they run this
/// executable. For a program that an interpreter runs: the interpreter, and its arguments. Only the
/// first call has an effect.
pub fn set_host_command(command: Vec<OsString>) {
    // A second command is ignored.
    let _ = HOST_COMMAND.set(command);
}

fn host_command() -> Vec<OsString> {
    let own = || vec![own_program().into_os_string()];
    HOST_COMMAND.get().cloned().unwrap_or_else(own)
}

/// Returns the path of this program in `/proc`, even if its file has been replaced. The path
/// contains the process's number, since `self` would be the shell that executes the path.
pub(super) fn own_program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}
