//! How a container's process is started so that none is ever lost: it waits at a gate until it is written down.
//!
//! What is started is a shell that waits for a word on its standard input and then becomes the program; number and start
//! time stay the same. If whoever starts it dies before the word, the input ends, and the shell with it. So there is no moment at which
//! a program runs of which no record says so.
//!
//! The process gets a group of its own, so that no Ctrl-C and no terminal's end reaches it. It gets no session of its own: Linux may share
//! cores out by sessions first (`kernel.sched_autogroup_enabled`), and then a thread of one container that has little to do waits for
//! milliseconds behind one of another container, or of its host, that stands back. So there may be a terminal, which stops whole groups that
//! want to read it, and a group that is stopped while its host ends is told to hang up: those signals are ignored, and reading fails at once.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ardea_core::{Error, ErrorCode, Result};

use super::process::ProcessMark;

/// The variable that holds, behind the gate, the number of the process that went through it: those that it starts have other numbers.
pub(super) const OWN_PROCESS_VARIABLE: &str = "ARDEA_CONTAINER_PROCESS";

/// What a shell says before it becomes a program that no terminal is to stop or end.
pub const UNATTENDED: &str = "trap '' HUP TTIN TTOU";

/// What a shell says before it becomes a program whose memory comes and goes in large pieces, as cuts and blocks of snapshots are: they are not given back to
/// the system, which clears each page before it gives it out anew, if there are no more than 32 MiB of them at the end of an arena. For programs with the C
/// library of GNU, which has an arena for each few threads; what is set in the environment already counts.
pub const KEEPS_MEMORY: &str = "export GLIBC_TUNABLES=\"${GLIBC_TUNABLES:-glibc.malloc.mmap_threshold=8388608:glibc.malloc.trim_threshold=33554432}\"";

/// Waits for the word, then becomes the program.
const GATE: &str = r#"read -r word && [ "$word" = go ] || exit 125
export ARDEA_CONTAINER_PROCESS=$$; exec "$@" </dev/null"#;

/// What is to be started.
pub(super) struct Start<'a> {
    /// The program.
    pub(super) executable: &'a Path,
    /// What is passed to it.
    pub(super) arguments: &'a [String],
    /// Where it runs.
    pub(super) folder: &'a Path,
    /// The variables that it gets beside those of this process, of which those that begin with `ARDEA_` are left out.
    pub(super) environment: Vec<(String, String)>,
    /// Where its output goes.
    pub(super) stdout: File,
    /// Where its complaints go.
    pub(super) stderr: File,
}

/// A process that waits at the gate. Dropping this sends it away.
#[derive(Debug)]
pub(super) struct AtGate {
    child: Option<Child>,
    mark: ProcessMark,
}

impl AtGate {
    /// Starts a process up to the gate.
    pub(super) fn new(start: Start<'_>) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorCode::StartFailed,
                format!("cannot start {}", start.executable.display()),
            )
            .because(error)
        };
        let mut command = Command::new("sh");
        command.process_group(0);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        let mut child = command
            .arg("-c")
            .arg(format!("{UNATTENDED}; {KEEPS_MEMORY}; {GATE}"))
            .arg("ardea-container")
            .arg(start.executable)
            .args(start.arguments)
            .envs(start.environment)
            .current_dir(start.folder)
            .stdin(Stdio::piped())
            .stdout(start.stdout)
            .stderr(start.stderr)
            .spawn()
            .map_err(failed)?;
        match ProcessMark::of(child.id()) {
            Ok(mark) => Ok(AtGate {
                child: Some(child),
                mark,
            }),
            Err(error) => {
                send_away(&mut child);
                Err(failed(error))
            }
        }
    }

    /// The process, before and behind the gate.
    pub(super) fn mark(&self) -> &ProcessMark {
        &self.mark
    }

    /// Opens the gate. The process is not waited for any more by this.
    pub(super) fn open(mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let said = child.stdin.take().map(|mut input| input.write_all(b"go\n"));
        match said {
            Some(Ok(())) => Ok(()),
            failed => {
                self.child = Some(child);
                let error = Error::new(
                    ErrorCode::StartFailed,
                    "a container's process ended before its program began",
                );
                Err(match failed {
                    Some(Err(why)) => error.because(why),
                    _ => error,
                })
            }
        }
    }
}

impl Drop for AtGate {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            send_away(&mut child);
        }
    }
}

/// Ends a process at the gate.
fn send_away(child: &mut Child) {
    drop(child.stdin.take());
    let _ = child.kill();
    let _ = child.wait();
}

fn is_ours(name: &OsString) -> bool {
    name.as_encoded_bytes().starts_with(b"ARDEA_")
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::*;

    fn start(folder: &Path, more: &[(&str, &str)]) -> AtGate {
        let file = |name| File::create(folder.join(name)).expect("a file");
        let arguments = [
            "-c",
            "echo $ARDEA_TEST; cat /proc/$$/stat; grep SigIgn /proc/$$/status; echo $GLIBC_TUNABLES; exit 7",
        ]
        .map(String::from);
        let variables = [("ARDEA_TEST", "hello")].iter().chain(more);
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        AtGate::new(Start {
            executable: Path::new("/bin/sh"),
            arguments: &arguments,
            folder,
            environment: variables.map(owned).collect(),
            stdout: file("out"),
            stderr: file("err"),
        })
        .expect("started")
    }

    /// What a process says that has gone through the gate.
    fn said(folder: &Path, at_gate: AtGate) -> String {
        let handle = at_gate.mark().open().expect("looked").expect("it is there");
        at_gate.open().expect("opened");
        while !handle.has_ended() {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        assert_eq!(handle.ending_of_child(), Some(crate::Ending::Code(7)));
        handle.reap();
        std::fs::read_to_string(folder.join("out")).expect("read")
    }

    #[test]
    fn a_process_keeps_much_of_its_memory_unless_its_environment_says_otherwise() {
        let folder = tempfile::tempdir().expect("a folder");
        let tuned = |more: &[(&str, &str)]| {
            let said = said(folder.path(), start(folder.path(), more));
            said.lines().nth(3).map(str::to_string)
        };
        let own = ("GLIBC_TUNABLES", "glibc.malloc.check=0");
        assert_eq!(tuned(&[own]).as_deref(), Some(own.1));
        // Whoever runs the tests may have set it, too.
        if std::env::var_os(own.0).is_none() {
            assert!(tuned(&[]).is_some_and(|said| said.contains("trim_threshold=33554432")));
        }
    }

    #[test]
    fn a_process_runs_behind_the_gate_in_a_group_of_its_own_that_no_terminal_stops() {
        let folder = tempfile::tempdir().expect("a folder");
        let at_gate = start(folder.path(), &[]);
        let pid = at_gate.mark().pid();
        let said = said(folder.path(), at_gate);
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("hello"));
        let fields = |stat: &str| -> Vec<String> {
            let behind_the_name = stat.rsplit_once(')').expect("a name").1;
            behind_the_name
                .split_whitespace()
                .map(String::from)
                .collect()
        };
        let its = fields(lines.next().expect("its state"));
        let ours = fields(&std::fs::read_to_string("/proc/self/stat").expect("read"));
        let (group, session) = (2, 3);
        assert_eq!(its[group], pid.to_string());
        assert_eq!(its[session], ours[session]);
        let ignored = lines.next().expect("what it ignores");
        let ignored = ignored.rsplit_once('\t').expect("a mask").1;
        let ignored = u64::from_str_radix(ignored, 16).expect("a number");
        let wanted = [Signal::HUP, Signal::TTIN, Signal::TTOU];
        assert!(
            wanted
                .iter()
                .all(|it| ignored & (1 << (it.as_raw() - 1)) != 0)
        );
    }

    #[test]
    fn a_process_that_is_sent_away_at_the_gate_has_done_nothing_and_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let at_gate = start(folder.path(), &[]);
        let mark = at_gate.mark().clone();
        drop(at_gate);
        assert!(mark.open().expect("looked").is_none());
        let said = std::fs::read_to_string(folder.path().join("out")).expect("read");
        assert_eq!(said, "");
    }
}
