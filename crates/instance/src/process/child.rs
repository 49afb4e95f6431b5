//! The start of a process, and its descriptors.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Component, Path};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;

use super::control_group::ControlGroup;
use super::limits;
use crate::command::InstanceCommand;

/// A started process with the host's ends of its descriptors.
pub(crate) struct StartedChild {
    pub(crate) child: Child,
    pub(crate) group: Pid,
    /// A descriptor that becomes readable when the process ends.
    pub(crate) end: OwnedFd,
    pub(crate) socket: UnixStream,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// Limits that could not be set.
    pub(crate) warnings: Vec<String>,
    _control_group: Option<ControlGroup>,
    /// The directory with the files of the command, removed after the end.
    _files: Option<TempDir>,
}

impl StartedChild {
    /// Starts the process of `command` in a process group of its own.
    ///
    /// # Errors
    /// If the files can't be written, or the program can't be started.
    pub(crate) fn start(command: &InstanceCommand) -> io::Result<Self> {
        let (socket, guest) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let files = write_files(&command.files)?;
        let mut process = Command::new(&command.program);
        process
            .args(&command.args)
            .env("ARDEA_INSTANCE", "1")
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(guest)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(directory) = &command.directory {
            process.current_dir(directory);
        } else if let Some(files) = &files {
            process.current_dir(files.path());
        }
        let mut child = process.spawn()?;
        // The command would keep the guest's end of the socket open.
        drop(process);
        match Self::attach(&mut child, command) {
            Ok((group, end, stdout, stderr, mut warnings)) => Ok(StartedChild {
                _control_group: control_group(group, command, &mut warnings),
                child,
                group,
                end,
                socket,
                stdout,
                stderr,
                warnings,
                _files: files,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn attach(
        child: &mut Child,
        command: &InstanceCommand,
    ) -> io::Result<(Pid, OwnedFd, OwnedFd, OwnedFd, Vec<String>)> {
        let group = Pid::from_child(child);
        let end = pidfd_open(group, PidfdFlags::empty())?;
        let warnings = limits::apply(group, command);
        let missing = || io::Error::other("the process has no output pipe");
        let stdout = OwnedFd::from(child.stdout.take().ok_or_else(missing)?);
        let stderr = OwnedFd::from(child.stderr.take().ok_or_else(missing)?);
        for pipe in [&stdout, &stderr] {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok((group, end, stdout, stderr, warnings))
    }
}

/// Creates the control group of a process, or adds a warning.
fn control_group(
    process: Pid,
    command: &InstanceCommand,
    warnings: &mut Vec<String>,
) -> Option<ControlGroup> {
    match ControlGroup::for_process(process, command) {
        Ok(group) => group,
        Err(error) => {
            warnings.push(format!(
                "its processor time and memory are not limited by a control group: {error}"
            ));
            None
        }
    }
}

/// Writes the files of a command to a temporary directory.
fn write_files(files: &[(String, std::sync::Arc<[u8]>)]) -> io::Result<Option<TempDir>> {
    if files.is_empty() {
        return Ok(None);
    }
    let directory = tempfile::Builder::new().prefix("ardea-").tempdir()?;
    for (name, content) in files {
        let name = Path::new(name);
        let is_below = name
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_below {
            let what = format!("the file {} is outside of the directory", name.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let path = directory.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(Some(directory))
}

/// Returns a status as the rest of a sentence.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(9)) => "was killed by signal 9 (by a user, or for lack of memory)".into(),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}
