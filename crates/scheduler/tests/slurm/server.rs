//! A real Slurm cluster of two nodes, run by `scripts/services/slurm.sh` while a test needs it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ardea_scheduler::conformance::Skipped;

/// The exit code of a script whose server is unavailable on this machine.
const NOT_HERE: i32 = 75;

/// The cluster, which stops with the last test that uses it, or with this process.
#[derive(Debug)]
pub struct Server {
    folder: tempfile::TempDir,
    script: Child,
    input: Option<ChildStdin>,
}

/// The cluster shared by all tests.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

impl Server {
    /// Returns the shared cluster.
    pub fn shared() -> Result<Arc<Server>, Skipped> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Server::start()?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    fn start() -> Result<Server, Skipped> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services/slurm.sh");
        let folder = tempfile::tempdir().expect("a folder");
        // Bound together, so that the ports differ.
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let ports = listeners.map(|listener| listener.local_addr().expect("a port").port());
        let mut script = Command::new(script)
            .arg(folder.path())
            .args(ports.map(|port| port.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the script");
        let mut line = String::new();
        let output = script.stdout.take().expect("it was piped");
        let read = BufReader::new(output).read_line(&mut line);
        let input = script.stdin.take();
        if read.is_ok() && line.starts_with("ready ") {
            return Ok(Server {
                folder,
                script,
                input,
            });
        }
        drop(input);
        let mut said = String::new();
        let mut errors = script.stderr.take().expect("it was piped");
        errors.read_to_string(&mut said).expect("what it said");
        match script.wait().expect("its end").code() {
            Some(NOT_HERE) => Err(Skipped(said.trim().to_string())),
            _ => panic!("slurm.sh: {said}"),
        }
    }

    /// Returns the path of Slurm's configuration.
    pub fn conf(&self) -> String {
        self.folder.path().join("slurm.conf").display().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.script.wait();
    }
}
