//! A real server, run by a script of `scripts/services`, for as long as a test needs it.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The exit code of a script whose server can't be had on this machine.
const NOT_HERE: i32 = 75;

/// Set to `1`, a server that can't be had fails the tests instead of skipping them.
const REQUIRED: &str = "ARDEA_SERVICES_REQUIRED";

/// A test can't be run on this machine, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped(pub String);

/// A server on a free port of this machine, with its data in a folder of its own. Dropping it stops the server, and
/// so does the end of the test's process, whatever ends it.
#[derive(Debug)]
pub struct Server {
    script: PathBuf,
    folder: tempfile::TempDir,
    address: IpAddr,
    port: u16,
    peer: u16,
    running: Mutex<Option<Running>>,
}

/// The script, which waits for the end of its input, and the server, which is the script's child.
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
    /// If the server should run here and doesn't.
    pub fn start(script: &str) -> Result<Self, Skipped> {
        Self::start_at(script, Ipv4Addr::LOCALHOST.into())
    }

    /// The same, listening at that address of this machine: for clients on other hosts.
    ///
    /// # Panics
    ///
    /// If the server should run here and doesn't.
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
                // Somebody else may have taken the port in the meantime.
                Err(Failed::Broken(_)) if attempt < 3 => {}
                Err(error) => panic!("{script}: {error}"),
            }
        }
        unreachable!("the third attempt returns or panics")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.address, self.port))
    }

    /// Where it keeps its data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the server with `kill -9`. Its data stays.
    pub fn kill(&self) {
        let mut running = self.running();
        let Some(gone) = running.take() else { return };
        if let Some(pid) = rustix::process::Pid::from_raw(gone.pid) {
            // The number is the one that the script told, and the script still watches over it.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        gone.end();
    }

    /// Starts it again, after it was killed, on the same port and with its data.
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

/// Why a script did not start its server.
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

/// Ports that a server and those beside it may take: its scripts look for further ones behind the
/// second.
const BLOCK: u16 = 4;

/// Returns the first two ports of a block in which nothing listens. It lies below the ports of
/// outgoing connections, since a server that is started again needs its own once more. Processes
/// begin their search in different places.
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

/// Says on the terminal, where it is seen although the test passes, that a test was skipped.
pub(super) fn say_skipped(test: &str, why: &Skipped) {
    // What `eprintln!` writes is kept back by the test harness.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {}", why.0);
}
