//! The start protocol for containers' processes. A process waits at a gate until it is recorded, so
//! that no process is lost.
//!
//! The started process is a shell that waits for the word `go` on its standard input and then
//! executes the program; pid and start time stay the same. If the runner dies before it sends the
//! word, the shell's input ends, and the shell exits. So no program ever runs without a record.
//!
//! The process gets a separate process group, so that it receives neither Ctrl-C nor the hangup of
//! a terminal. It gets no separate session: Linux may distribute cores by session first
//! (`kernel.sched_autogroup_enabled`), and threads of one container would then wait for
//! milliseconds behind low-priority threads of another session. So the process may have a terminal.
//! A terminal stops background groups that read from it, and stopped groups get SIGHUP when their
//! host ends. These signals are ignored, and reads from the terminal fail at once.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ardea_core::{Error, ErrorCode, Result};

use super::process::ProcessMark;

/// The environment variable with the pid of the process that passed the gate. Child processes
/// inherit it, but have other pids.
pub(super) const OWN_PROCESS_VARIABLE: &str = "ARDEA_CONTAINER_PROCESS";

/// Shell command that makes the following program immune to being stopped or ended by a terminal.
pub const IGNORE_TERMINAL_SIGNALS: &str = "trap '' HUP TTIN TTOU";

/// Shell command for a program that repeatedly allocates and frees large blocks, for example for
/// checkpoints. The allocator retains up to 32 MiB of free memory for each arena, because the
/// system would clear returned pages again. Applies to programs with the GNU C library; settings in
/// the environment take precedence.
pub const TUNE_MALLOC: &str = "export GLIBC_TUNABLES=\"${GLIBC_TUNABLES:-glibc.malloc.mmap_threshold=8388608:glibc.malloc.trim_threshold=33554432}\"";

/// Shell script of the gate: waits for the word `go`, then executes the program.
const GATE: &str = r#"read -r word && [ "$word" = go ] || exit 125
export ARDEA_CONTAINER_PROCESS=$$; exec "$@" </dev/null"#;

/// The parameters of a process to be started.
pub(super) struct Start<'a> {
    /// The path of the program.
    pub(super) executable: &'a Path,
    /// The program's arguments.
    pub(super) arguments: &'a [String],
    /// The working folder of the process.
    pub(super) folder: &'a Path,
    /// Environment variables of the process, in addition to those of this process that do not begin
    /// with `ARDEA_`.
    pub(super) environment: Vec<(String, String)>,
    /// The standard output of the process.
    pub(super) stdout: File,
    /// The standard error of the process.
    pub(super) stderr: File,
}

/// A process that waits at the gate. Dropping this kills it.
#[derive(Debug)]
pub(super) struct GatedProcess {
    child: Option<Child>,
    mark: ProcessMark,
}

impl GatedProcess {
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
            .arg(format!("{IGNORE_TERMINAL_SIGNALS}; {TUNE_MALLOC}; {GATE}"))
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
            Ok(mark) => Ok(GatedProcess {
                child: Some(child),
                mark,
            }),
            Err(error) => {
                kill_at_gate(&mut child);
                Err(failed(error))
            }
        }
    }

    /// Returns the identity of the process, the same before and after the gate.
    pub(super) fn mark(&self) -> &ProcessMark {
        &self.mark
    }

    /// Opens the gate. Afterwards this value neither kills nor reaps the process.
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

impl Drop for GatedProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_at_gate(&mut child);
        }
    }
}

/// Kills a process at the gate.
fn kill_at_gate(child: &mut Child) {
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

    fn start(folder: &Path, more: &[(&str, &str)]) -> GatedProcess {
        let file = |name| File::create(folder.join(name)).expect("a file");
        let arguments = [
            "-c",
            "echo $ARDEA_TEST; cat /proc/$$/stat; grep SigIgn /proc/$$/status; echo $GLIBC_TUNABLES; exit 7",
        ]
        .map(String::from);
        let variables = [("ARDEA_TEST", "hello")].iter().chain(more);
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        GatedProcess::new(Start {
            executable: Path::new("/bin/sh"),
            arguments: &arguments,
            folder,
            environment: variables.map(owned).collect(),
            stdout: file("out"),
            stderr: file("err"),
        })
        .expect("started")
    }

    /// Returns the output of a process that has passed the gate.
    fn said(folder: &Path, at_gate: GatedProcess) -> String {
        let handle = at_gate.mark().open().expect("looked").expect("it is there");
        at_gate.open().expect("opened");
        while !handle.has_ended() {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        assert_eq!(handle.exit_status_of_child(), Some(crate::Ending::Code(7)));
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
        // The environment of the test may have it set, too.
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
