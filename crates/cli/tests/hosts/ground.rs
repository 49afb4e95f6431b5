//! Four hosts on this machine: network namespaces on one bridge, created by
//! `scripts/services/hosts.sh`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ardea_metastore::conformance::Skipped;

/// The number of hosts.
pub const HOSTS: usize = 4;

/// The script's exit code if there can be no hosts on this machine.
const NOT_HERE: i32 = 75;

/// The hosts. They and their processes are removed when this value is dropped.
pub struct HostNamespaces {
    script: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    prefix: String,
    subnet: String,
}

impl HostNamespaces {
    /// Creates the hosts.
    pub fn new() -> Result<Self, Skipped> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services");
        let mut script = Command::new(scripts.join("hosts.sh"))
            .arg(HOSTS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the script is there");
        let commands = script.stdin.take();
        let mut answers = BufReader::new(script.stdout.take().expect("it was piped"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("it says something");
        let words: Vec<&str> = line.split_whitespace().collect();
        let &["ready", prefix, subnet] = words.as_slice() else {
            drop(commands);
            let mut said = String::new();
            let mut errors = script.stderr.take().expect("it was piped");
            errors.read_to_string(&mut said).expect("it says why");
            let ended = script.wait().expect("it ends").code();
            let required = std::env::var_os("ARDEA_SERVICES_REQUIRED").is_some_and(|v| v == "1");
            assert!(ended == Some(NOT_HERE) && !required, "hosts.sh: {said}");
            return Err(Skipped(said.trim().to_string()));
        };
        Ok(HostNamespaces {
            prefix: prefix.to_string(),
            subnet: subnet.to_string(),
            script,
            commands,
            answers,
        })
    }

    /// Returns the address of a host, 1 to [`HOSTS`].
    pub fn address(&self, host: usize) -> String {
        format!("{}.{host}", self.subnet)
    }

    /// Returns the address of this machine.
    pub fn here(&self) -> String {
        format!("{}.254", self.subnet)
    }

    /// Returns the beginning of a command that runs on a host.
    pub fn on(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{host}", self.prefix)]);
        command
    }

    /// Returns the processes of a host.
    pub fn processes(&self, host: usize) -> Vec<i32> {
        let listed = Command::new("ip")
            .args(["netns", "pids", &format!("{}-{host}", self.prefix)])
            .output()
            .expect("`ip` is there");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        listed
            .lines()
            .filter_map(|pid| pid.trim().parse().ok())
            .collect()
    }

    /// Sends a command to the script: `cut I`, `cut I J`, `heal I`, `heal I J`.
    pub fn command(&mut self, line: &str) {
        let commands = self.commands.as_mut().expect("it is open until the end");
        writeln!(commands, "{line}").expect("the script reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        assert_eq!(answer.trim(), "ok", "{line}");
    }
}

impl Drop for HostNamespaces {
    fn drop(&mut self) {
        // The script ends at the end of its input.
        self.commands = None;
        let _ = self.script.wait();
    }
}
