//! Hosts of a test cluster as network namespaces of this machine.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use ardea_core::{Error, ErrorCode, Result};

/// Network namespaces on one bridge, made by `scripts/services/hosts.sh` of the checkout. They and
/// their processes are removed when this value is dropped.
pub(crate) struct HostNamespaces {
    script: Child,
    commands: Option<ChildStdin>,
    prefix: String,
    subnet: String,
}

impl HostNamespaces {
    /// Creates `hosts` namespaces.
    ///
    /// # Errors
    /// [`ErrorCode::StartFailed`] if there can be none: without root, or outside of a checkout.
    pub(crate) fn new(hosts: usize) -> Result<Self> {
        let failed = |why: String| {
            let what = format!("cannot make {hosts} hosts on this machine: {}", why.trim());
            Error::new(ErrorCode::StartFailed, what)
                .hint("run it as root in a checkout, or name only layouts of one host")
        };
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services");
        let mut script = Command::new(scripts.join("hosts.sh"))
            .arg(hosts.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let commands = script.stdin.take();
        let mut line = String::new();
        if let Some(output) = script.stdout.take() {
            // Without a line the script has failed, and says why below.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let &["ready", prefix, subnet] = words.as_slice() else {
            drop(commands);
            let mut said = String::new();
            if let Some(mut errors) = script.stderr.take() {
                let _ = errors.read_to_string(&mut said);
            }
            let _ = script.wait();
            return Err(failed(said));
        };
        Ok(HostNamespaces {
            prefix: prefix.to_string(),
            subnet: subnet.to_string(),
            script,
            commands,
        })
    }

    /// Returns the address of a host, from 1 on.
    pub(crate) fn address(&self, host: usize) -> String {
        format!("{}.{host}", self.subnet)
    }

    /// Returns the beginning of a command that runs on a host.
    pub(crate) fn on(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{host}", self.prefix)]);
        command
    }
}

impl Drop for HostNamespaces {
    fn drop(&mut self) {
        // The script ends at the end of its input.
        self.commands = None;
        let _ = self.script.wait();
    }
}
