//! A real server, started by a script of `scripts/services` for the duration of a test.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The exit code of a script whose server is not available on this machine.
const NOT_HERE: i32 = 75;

/// If set to `1`, tests fail instead of being skipped when a server is not available.
const REQUIRED: &str = "ARDEA_SERVICES_REQUIRED";

/// The reason why a test can't run on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped(pub String);

/// A server on a free port of this machine, with its data in a temporary folder. It stops when this
/// value is dropped, and when the test's process ends for any reason.
#[derive(Debug)]
pub struct Server {
    script: PathBuf,
    folder: tempfile::TempDir,
    address: IpAddr,
    port: u16,
    peer: u16,
    running: Mutex<Option<Running>>,
}

/// The script, which runs until its input ends, and the server, which is the script's child.
#[derive(Debug)]
struct Running {
    script: Child,
    input: ChildStdin,
    pid: i32,
}

impl Server {
    /// Starts the server of `scripts/services/SCRIPT`.
    ///
    /// # Panics
    ///
    /// If the server is available and does not start.
    pub fn start(script: &str) -> Result<Self, Skipped> {
        Self::start_at(script, Ipv4Addr::LOCALHOST.into())
    }

    /// Starts a server that listens at `address`, for clients on other hosts.
    ///
    /// # Panics
    ///
    /// If the server is available and does not start.
    pub fn start_at(script: &str, address: IpAddr) -> Result<Self, Skipped> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services");
        for attempt in 1.. {
            let (port, peer) = free_ports(address);
            let server = Server {
                script: scripts.join(script),
                folder: tempfile::tempdir().expect("a temporary folder"),
                address,
                port,
                peer,
                running: Mutex::default(),
            };
            match server.run() {
                Ok(()) => return Ok(server),
                Err(Failed::NotHere(why))
                    if std::env::var_os(REQUIRED).is_none_or(|v| v != "1") =>
                {
                    return Err(Skipped(why));
                }
                // Another process may have taken the port meanwhile.
                Err(Failed::Broken(_)) if attempt < 3 => {}
                Err(error) => panic!("{script}: {error}"),
            }
        }
        unreachable!("the third attempt returns or panics")
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.address, self.port))
    }

    /// Returns the folder of its data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the server with `kill -9`. Its data is kept.
    pub fn kill(&self) {
        let mut running = self.running();
        let Some(gone) = running.take() else { return };
        if let Some(pid) = rustix::process::Pid::from_raw(gone.pid) {
            // The script reported this process id, and still is its parent.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        gone.end();
    }

    /// Starts the server again after it was killed, on the same port and with its data.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        if let Err(error) = self.run() {
            panic!("{} did not start again: {error}", self.script.display());
        }
    }

    fn run(&self) -> Result<(), Failed> {
        let mut script = Command::new(&self.script)
            .arg(self.folder.path())
            .arg(self.port.to_string())
            .arg(self.peer.to_string())
            .env("ARDEA_SERVICES_ADDRESS", self.address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failed::Broken(error.to_string()))?;
        let input = script.stdin.take().expect("it was piped");
        let output = script.stdout.take().expect("it was piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let pid = line
            .trim()
            .strip_prefix("ready ")
            .and_then(|pid| pid.parse().ok());
        if let (Ok(_), Some(pid)) = (read, pid) {
            *self.running() = Some(Running { script, input, pid });
            return Ok(());
        }
        drop(input);
        let mut said = String::new();
        if let Some(mut errors) = script.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        let ended = script.wait().ok().and_then(|status| status.code());
        let said = said.trim().to_string();
        match ended {
            Some(NOT_HERE) => Err(Failed::NotHere(said)),
            _ => Err(Failed::Broken(said)),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Ends the script, which ends the server.
    fn end(mut self) {
        drop(self.input);
        let _ = self.script.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running().take() {
            running.end();
        }
    }
}

/// The reason why a script did not start its server.
enum Failed {
    NotHere(String),
    Broken(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failed::NotHere(why) | Failed::Broken(why)) = self;
        f.write_str(why)
    }
}

/// Number of ports reserved for a server: scripts may use further ones after the second.
const BLOCK: u16 = 4;

/// Returns the first two ports of a block in which nothing listens. The block lies below the ports
/// of outgoing connections, because a restarted server needs the same port again. Each process
/// starts its search elsewhere.
fn free_ports(address: IpAddr) -> (u16, u16) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(97);
    let mut blocks = std::iter::repeat_with(|| {
        let step = NEXT.fetch_add(u32::from(BLOCK), Ordering::Relaxed);
        10_000 + u16::try_from(begin.wrapping_add(step) % 20_000).unwrap_or(0)
    });
    let is_free = |port| TcpListener::bind((address, port)).is_ok();
    let first = blocks
        .by_ref()
        .take(5_000)
        .find(|first| (*first..first + BLOCK).all(is_free));
    match first {
        Some(first) => (first, first + 1),
        None => panic!("there are no free ports at {address}"),
    }
}

/// Prints that a test was skipped, visible on the terminal although the test passes.
pub(super) fn report_skipped(test: &str, why: &Skipped) {
    // The test harness would capture the output of `eprintln!`.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {}", why.0);
}
