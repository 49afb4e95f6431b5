//! A host that sends and receives one frame after the other.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Signal, kill_process_group};

use super::CheckSettings;
use crate::process::StartedChild;
use crate::protocol::{
    FrameBuffer, FrameHead, FrameType, GuestFailure, GuestHello, HostHello, InstanceConfiguration,
    InstanceFrame, InstanceRole, ProtocolRange, ResultReader,
};

/// The last lines of standard error that are shown.
const SHOWN_LINES: usize = 5;

/// A process under check. Dropping it kills the process.
pub(crate) struct CheckHost {
    child: StartedChild,
    socket: Option<UnixStream>,
    received: FrameBuffer,
    timeout: Duration,
    role: InstanceRole,
    stderr: Arc<Mutex<Vec<String>>>,
}

impl CheckHost {
    /// Starts the process.
    pub(crate) fn start(settings: &CheckSettings) -> Result<Self, String> {
        let child = StartedChild::start(&settings.command);
        let child =
            child.map_err(|error| format!("cannot start `{}`: {error}", settings.command))?;
        let socket = child.socket.try_clone().map_err(text)?;
        let stderr = Arc::default();
        drain(&child.stdout, None)?;
        drain(&child.stderr, Some(Arc::clone(&stderr)))?;
        Ok(CheckHost {
            child,
            socket: Some(socket),
            received: FrameBuffer::default(),
            timeout: settings.timeout,
            role: settings.role,
            stderr,
        })
    }

    /// Starts the process and completes the handshake. Returns the HELLO of the instance.
    pub(crate) fn ready(
        settings: &CheckSettings,
        restore: Option<&[Vec<u8>]>,
    ) -> Result<(Self, GuestHello), String> {
        let mut host = CheckHost::start(settings)?;
        let hello = host.handshake(settings, restore)?;
        Ok((host, hello))
    }

    fn handshake(
        &mut self,
        settings: &CheckSettings,
        restore: Option<&[Vec<u8>]>,
    ) -> Result<GuestHello, String> {
        self.send_hello(ProtocolRange::OWN)?;
        let hello: GuestHello = self.expect(FrameType::Hello)?.read_json().map_err(text)?;
        let protocol = ProtocolRange::OWN.common(hello.protocol);
        let Some(protocol) = protocol else {
            return Err(format!("it speaks the versions {:?}", hello.protocol));
        };
        if !hello.formats.iter().any(|format| format == "json") {
            let formats = hello.formats.join(", ");
            return Err(format!("it reads only {formats}, and the kit sends json"));
        }
        let role = settings.role.as_str();
        if !hello.roles.iter().any(|it| it == role) {
            let roles = hello.roles.join(", ");
            return Err(format!("it can be {roles}, and the kit checks a {role}"));
        }
        let parameters = settings.command.parameters.clone();
        let configuration = InstanceConfiguration {
            protocol,
            job: "check".into(),
            step: "check".into(),
            instance: 0,
            instances: 1,
            format: "json".into(),
            schema: None,
            keyed: settings.key.is_some(),
            guarantee: "exactly-once".into(),
            restore: restore.is_some(),
            rings: false,
            parameters: serde_json::Value::Object(parameters),
            component: settings.component(),
        };
        self.send(&InstanceFrame::json(
            FrameType::Configure,
            0,
            &configuration,
        ))?;
        self.expect(FrameType::Ready)?;
        for (index, part) in restore.iter().flat_map(|parts| (1..).zip(*parts)) {
            let is_last = restore.is_some_and(|parts| parts.len() == index);
            let head = FrameHead::new(FrameType::Restore, 0).flags(u8::from(is_last));
            self.send(&InstanceFrame::new(head, part.clone()))?;
        }
        Ok(hello)
    }

    /// Sends the host's HELLO.
    pub(crate) fn send_hello(&mut self, protocol: ProtocolRange) -> Result<(), String> {
        let ardea = env!("CARGO_PKG_VERSION").into();
        let hello = HostHello { protocol, ardea };
        self.send(&InstanceFrame::json(FrameType::Hello, 0, &hello))
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &InstanceFrame) -> Result<(), String> {
        self.send_bytes(&frame.to_bytes())
    }

    /// Sends bytes. The socket is also read, so that a process that answers early is not blocked.
    pub(crate) fn send_bytes(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let until = Instant::now() + self.timeout;
        while !bytes.is_empty() {
            let Some(socket) = &mut self.socket else {
                return Err("the connection is closed".into());
            };
            match socket.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN | PollFlags::OUT, until)?;
                    self.receive()?;
                }
                Err(error) => return Err(format!("it closed the connection: {error}")),
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags, until: Instant) -> Result<(), String> {
        let left = until.saturating_duration_since(Instant::now());
        let Some(socket) = self.socket.as_ref().filter(|_| !left.is_zero()) else {
            return Err(format!("it did not answer within {:?}", self.timeout));
        };
        let timeout = Timespec::try_from(left).ok();
        // An interruption is followed by another wait.
        let _ = poll(&mut [PollFd::new(socket, events)], timeout.as_ref());
        Ok(())
    }

    /// Reads the received bytes; returns false at the end.
    fn receive(&mut self) -> Result<bool, String> {
        let mut bytes = [0; 1 << 14];
        while let Some(socket) = &mut self.socket {
            match socket.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(read) => self.received.push(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Reads the payload of a RESULT.
    pub(crate) fn read_result<'a>(
        &self,
        payload: &'a [u8],
        rows: u32,
    ) -> Result<ResultReader<'a>, String> {
        match self.role {
            InstanceRole::Bolt => ResultReader::bolt(payload, rows),
            _ => ResultReader::rows(payload, rows),
        }
        .map_err(text)
    }

    /// Returns true if a frame of this kind may come at any time.
    fn is_unrequested(&self, head: FrameHead) -> bool {
        match head.kind {
            FrameType::Log | FrameType::Heartbeat | FrameType::Metric => true,
            FrameType::Acks => self.role == InstanceRole::Bolt,
            FrameType::Emit => self.role == InstanceRole::Bolt && head.sequence == 0,
            _ => false,
        }
    }

    /// Returns the next frame that may not come at any time; `None` if the process closed the
    /// connection.
    pub(crate) fn next_frame(&mut self) -> Result<Option<InstanceFrame>, String> {
        let until = Instant::now() + self.timeout;
        let mut is_open = true;
        loop {
            while let Some(frame) = self.received.take().map_err(text)? {
                if !self.is_unrequested(frame.head) {
                    return Ok(Some(frame));
                }
            }
            if !is_open {
                return Ok(None);
            }
            self.wait(PollFlags::IN, until)?;
            is_open = self.receive()?;
        }
    }

    /// Returns the next frame, which must be of the type `kind`.
    pub(crate) fn expect(&mut self, kind: FrameType) -> Result<InstanceFrame, String> {
        match self.next_frame()? {
            None => Err(self.ended(kind)),
            Some(frame) if frame.head.kind == kind => Ok(frame),
            Some(frame) => Err(self.unexpected(&frame, kind)),
        }
    }

    /// Returns the complaint about an end of the connection in place of a frame.
    pub(crate) fn ended(&mut self, wanted: FrameType) -> String {
        let end = match self.ends_within(Duration::from_secs(1)) {
            Some(status) => super::super::process::describe(status),
            None => "closed the connection".into(),
        };
        format!("it {end} instead of sending {}", wanted.as_str())
    }

    /// Returns the complaint about a frame in place of another one.
    pub(crate) fn unexpected(&self, frame: &InstanceFrame, wanted: FrameType) -> String {
        let kind = frame.head.kind;
        if kind == FrameType::Error
            && let Ok(GuestFailure { message, .. }) = frame.read_json()
        {
            return format!("it reported the failure {message:?}");
        }
        format!("it sent {} instead of {}", kind.as_str(), wanted.as_str())
    }

    /// Closes the connection, as a host that died.
    pub(crate) fn hang_up(&mut self) {
        if let Some(socket) = self.socket.take() {
            // It fails if the other side has closed it.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Waits for the exit status.
    pub(crate) fn ends_within(&mut self, most: Duration) -> Option<ExitStatus> {
        let timeout = Timespec::try_from(most).ok();
        let mut end = [PollFd::new(&self.child.end, PollFlags::IN)];
        let _ = poll(&mut end, timeout.as_ref());
        let child: &mut Child = &mut self.child.child;
        child.try_wait().ok().flatten()
    }

    /// Returns the last lines of standard error.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        let lines = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        lines[lines.len().saturating_sub(SHOWN_LINES)..].to_vec()
    }
}

impl Drop for CheckHost {
    fn drop(&mut self) {
        // It fails if all processes of the group have ended.
        let _ = kill_process_group(self.child.group, Signal::KILL);
        let _ = self.child.child.wait();
    }
}

/// Reads a pipe to its end on another thread, and retains its last lines.
fn drain(pipe: &OwnedFd, lines: Option<Arc<Mutex<Vec<String>>>>) -> Result<(), String> {
    let flags = fcntl_getfl(pipe).map_err(text)?;
    fcntl_setfl(pipe, flags - OFlags::NONBLOCK).map_err(text)?;
    let pipe = std::fs::File::from(pipe.try_clone().map_err(text)?);
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.by_ref().take(4_096).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if let Some(lines) = &lines {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                if lines.len() > 10 * SHOWN_LINES {
                    lines.drain(..5 * SHOWN_LINES);
                }
            }
        }
    });
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
