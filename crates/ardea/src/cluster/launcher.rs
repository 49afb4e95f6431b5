//! Starts and stops hosts of this machine: processes that outlive whoever started them.

use std::fs::{self, File, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_output::{OUTPUT_VARIABLE, OutputFiles, OutputStart, Wanted};
use ardea_rest::{ClusterSettings, Fault};
use ardea_scheduler::{KEEPS_MEMORY, UNATTENDED};
use rustix::process::{Pid, Signal, kill_process};

use super::host_start::{HOST_START_VARIABLE, HostStart};
use super::old_logs;
use super::run_files::RunFile;

/// How long a host may take to be there, and to be gone.
const WITHIN: Duration = Duration::from_secs(20);

/// How long somebody else may take who starts hosts as well.
const OTHERS_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(5);

/// How much of its job's name the name of a host has.
const LETTERS_OF_A_JOB: usize = 40;

/// How many hosts a cluster for one job has.
const HOSTS_OF_A_JOB: usize = 2;

/// Starts and stops the hosts of a cluster that are processes of this machine and this program.
#[derive(Clone, Debug)]
pub struct Launcher {
    cluster: ClusterSettings,
}

/// A host that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Started {
    /// Its name.
    pub name: String,
    /// Where its interface is: `http://HOST:PORT`.
    pub api: String,
    /// The port that its interface was to have, if something else had it when the host started.
    pub taken_port: Option<u16>,
    /// Its process.
    pub pid: u32,
    /// The job that it is for, if it is for one.
    pub job: Option<String>,
}

impl Launcher {
    /// Of that cluster.
    pub fn of(cluster: ClusterSettings) -> Self {
        Launcher { cluster }
    }

    /// The hosts that run on this machine, sorted by name.
    pub fn running(&self) -> Vec<Started> {
        self.files().into_iter().map(Started::from).collect()
    }

    /// The files of this cluster's hosts: another one may have been given the same folder.
    fn files(&self) -> Vec<RunFile> {
        let mut files = RunFile::all(&self.cluster.directory);
        files.retain(|file| file.cluster.is_empty() || file.cluster == self.cluster.name);
        files
    }

    /// Starts hosts until so many run that are for all jobs, and waits until they are there. Gives those that it started. If several do
    /// this at once, one starts them and the others find them running.
    ///
    /// # Errors
    /// What a host said that did not come, with the code of its error, and [`ErrorCode::StartFailed`] if it had none; those that did come
    /// stay. [`ErrorCode::WriteFailed`] if nothing can be written into the cluster's folder.
    pub fn start(&self, hosts: usize) -> Result<Vec<Started>> {
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
            // The first gets the port that commands know.
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
                // Hosts may have come whose files were not to be seen before.
                Err(_) if self.general() >= hosts => {}
                Err(error) => return Err(error),
            }
        }
        Ok(started)
    }

    /// How many hosts run that are for all jobs.
    fn general(&self) -> usize {
        let running = self.running().into_iter();
        running.filter(|host| host.job.is_none()).count()
    }

    /// Waits until nobody else starts hosts of the cluster; ends when dropped, or with the process. Nobody is kept out where the file
    /// system has no locks: hosts have names, which are given once.
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
        let deadline = Instant::now() + OTHERS_WITHIN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(_)) => return Ok(None),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    let what = format!(
                        "somebody else has been starting hosts of cluster {} for {} s",
                        self.cluster.name,
                        OTHERS_WITHIN.as_secs()
                    );
                    return Err(Error::new(ErrorCode::StartFailed, what)
                        .hint("end that command, and try again"));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Starts the hosts of a cluster that is for one job, and waits until they are there.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_for(&self, job: &str) -> Result<Vec<Started>> {
        let running = self.for_job(job).len();
        let mut children = Vec::new();
        for _ in running..HOSTS_OF_A_JOB {
            children.push(self.spawn(self.host_of(job))?);
        }
        children
            .into_iter()
            .map(|child| self.await_host(child))
            .collect()
    }

    /// Whether a job's cluster has fewer hosts than it should.
    pub(super) fn lacks_hosts(&self, job: &str) -> bool {
        self.for_job(job).len() < HOSTS_OF_A_JOB
    }

    /// Starts a host that stands by for a job; does not wait for it.
    pub(super) fn stand_by(&self, job: &str) -> Result<()> {
        let Launched { mut child, .. } = self.spawn(self.host_of(job))?;
        // Its end is noticed, whenever that is, so that no zombie is left.
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    fn for_job(&self, job: &str) -> Vec<Started> {
        let mut hosts = self.running();
        hosts.retain(|host| host.job.as_deref() == Some(job));
        hosts
    }

    /// Stops all hosts of this machine, and waits until they are gone. Containers go on. Gives those that it stopped.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if one does not end in time.
    pub fn stop(&self) -> Result<Vec<Started>> {
        let files = self.files();
        for file in &files {
            let pid = i32::try_from(file.pid).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| file.is_alive()) {
                // One that has just ended is what is wanted.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + WITHIN;
        while files.iter().any(RunFile::is_alive) {
            if Instant::now() >= deadline {
                let left: Vec<String> = files
                    .iter()
                    .filter(|file| file.is_alive())
                    .map(|file| file.pid.to_string())
                    .collect();
                let what = format!(
                    "hosts did not end within {} s: {}",
                    WITHIN.as_secs(),
                    left.join(", ")
                );
                return Err(Error::new(ErrorCode::LimitReached, what).hint("kill these processes"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(files.into_iter().map(Started::from).collect())
    }

    fn host_of(&self, job: &str) -> HostStart {
        // Jobs may have names that no folder can have. A host that died a moment ago may still be known by its name.
        let plain = |letter: char| match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => letter,
            _ => '-',
        };
        let of: String = job.chars().take(LETTERS_OF_A_JOB).map(plain).collect();
        let name = format!("{of}-{:08x}", ardea_server::leader::new_submission() as u32);
        HostStart::of(name, &self.cluster, 0).for_job(job)
    }

    fn spawn(&self, mut start: HostStart) -> Result<Launched> {
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
        let (time, bytes) = (self.cluster.output_kept_for, self.cluster.output_kept_bytes);
        old_logs::sweep(&folder, is_running, time, bytes);
        let log = OutputFiles::new(&folder, format!("{}.log", start.name));
        let out = log.open(&self.cluster.output).map_err(failed)?;
        let (_, written) = log.kept().map_err(failed)?;
        let output = OutputStart {
            stdout: log.path(),
            stderr: log.path(),
            bounds: self.cluster.output,
        };
        // Nothing is left of it, whoever dies.
        let failure = tempfile::tempfile_in(&folder).map_err(failed)?;
        start.tells_failure = true;
        let told = serde_json::to_string(&start).map_err(|error| {
            let what = format!("cannot tell host {:?} how to start", start.name);
            Error::new(ErrorCode::Internal, what).because(error)
        })?;
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!(r#"{UNATTENDED}; {KEEPS_MEMORY}; exec "$@""#))
            .arg("ardea-host")
            .arg(own_program())
            .env(HOST_START_VARIABLE, told)
            .env(OUTPUT_VARIABLE, output.to_variable()?)
            // A group of its own and no session, as containers have it (`scheduler/src/runner/gate.rs`).
            .process_group(0)
            .stdin(failure.try_clone().map_err(failed)?)
            .stdout(out.try_clone().map_err(failed)?)
            .stderr(out)
            .spawn()
            .map_err(|error| cannot(ErrorCode::StartFailed, error))?;
        Ok(Launched {
            child,
            start,
            log,
            written,
            failure,
        })
    }

    /// Why nothing can be written into the cluster's folder, if that is so.
    fn wants_room(&self) -> Option<std::io::Error> {
        let mut file = tempfile::NamedTempFile::new_in(&self.cluster.directory).ok()?;
        // A block of most file systems.
        file.write_all(&[0; 4096]).err()
    }

    /// Waits until a host is there.
    fn await_host(&self, mut launched: Launched) -> Result<Started> {
        let pid = launched.child.id();
        let deadline = Instant::now() + WITHIN;
        loop {
            let files = self.files();
            if let Some(file) = files.into_iter().find(|file| file.pid == pid) {
                return Ok(file.into());
            }
            let ended = launched.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() >= deadline {
                let said = launched.said();
                // It could not even say so.
                let room = self.wants_room().filter(|_| said.is_empty());
                return Err(launched.failed(&said, room));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A host that was started.
struct Launched {
    child: Child,
    start: HostStart,
    log: OutputFiles,
    /// The position in its log at which it begins.
    written: u64,
    /// Its standard input, into which it writes why it does not come up.
    failure: File,
}

impl Launched {
    /// The last thing that it said.
    fn said(&self) -> String {
        let read = self.log.read(Wanted::From(self.written), 64 << 10);
        let bytes = read.map(|piece| piece.bytes).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_string()
    }

    /// Why it does not come up, if it could tell.
    fn told(&mut self) -> Option<Error> {
        self.failure.rewind().ok()?;
        let fault: Fault = serde_json::from_reader(&self.failure).ok()?;
        Some(fault.into())
    }

    /// Why it did not come up, with the code of the error that it ended with: who has to act is whoever had to there. `room` is what keeps
    /// it from saying anything.
    fn failed(&mut self, said: &str, room: Option<std::io::Error>) -> Error {
        let log = format!("its log is {}", self.log.path().display());
        let what = format!("host {:?} did not come up", self.start.name);
        if let Some(error) = self.told() {
            let hint = error.what_next();
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

impl From<RunFile> for Started {
    fn from(file: RunFile) -> Self {
        Started {
            name: file.name,
            api: file.api,
            taken_port: file.taken_port,
            pid: file.pid,
            job: file.job,
        }
    }
}

/// This program, also when its file has been replaced since. By the number of this process: `self` would be the shell that becomes it.
fn own_program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}
