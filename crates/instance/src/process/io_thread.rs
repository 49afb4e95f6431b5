//! The thread that serves a process.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_process_group};

use super::child::{StartedChild, describe};
use super::output::{LineBuffer, OutputLimit, OutputLine, OutputStream};
use super::usage::usage_of;
use super::{ChildContext, ChildEnd, ChildEvent, Shared};
use crate::command::InstanceCommand;
use crate::fd_socket;
use crate::protocol::{FrameBuffer, FrameHead, FrameType, InstanceFrame, SharedFrame, Violation};
use crate::rings::PayloadRing;

/// Interval of the readings of processor time and memory; with a limit of memory.
const USAGE_INTERVALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(200));
/// Maximum number of bytes read from one descriptor in a turn.
const TURN_BYTES: usize = 1 << 18;

/// Starts the process after `delay`, and serves it until it has ended.
pub(super) fn run(
    shared: &Shared,
    command: &InstanceCommand,
    context: &ChildContext,
    delay: Duration,
) {
    if wait_for_start(shared, delay) {
        return;
    }
    let event = match StartedChild::start(command) {
        Ok(child) => {
            let service = Service::new(shared, context, child, command);
            ChildEvent::Ended(service.run())
        }
        Err(error) => ChildEvent::NotStarted(error),
    };
    shared.lock().push(event);
    context.waker.wake();
}

/// Waits until `delay` has passed; returns true if the process is not needed any more.
fn wait_for_start(shared: &Shared, delay: Duration) -> bool {
    let until = Instant::now() + delay;
    loop {
        if shared.lock().must_end {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        wait(&mut [PollFd::new(&shared.changed, PollFlags::IN)], left);
        let _ = rustix::io::read(&shared.changed, &mut [0; 8]);
    }
}

/// Waits until a descriptor is ready, at most `timeout`.
fn wait(fds: &mut [PollFd<'_>], timeout: Duration) {
    let timeout = Timespec::try_from(timeout).ok();
    // An interruption leaves all descriptors without events.
    let _ = poll(fds, timeout.as_ref());
}

/// A stream of output, until its end.
struct OutputReader {
    pipe: Option<OwnedFd>,
    lines: LineBuffer,
    stream: OutputStream,
}

/// A frame being sent.
struct OutgoingFrame {
    head: Vec<u8>,
    /// The payload, unless the ring has it.
    payload: Arc<Vec<u8>>,
    sent: usize,
    /// A file that goes with the first byte.
    file: Option<OwnedFd>,
}

impl OutgoingFrame {
    /// Returns the bytes that are not sent yet.
    fn rest(&self) -> (&[u8], &[u8]) {
        let of_head = self.sent.min(self.head.len());
        let of_payload = self.sent - of_head;
        (&self.head[of_head..], &self.payload[of_payload..])
    }

    fn is_sent(&self) -> bool {
        self.sent == self.head.len() + self.payload.len()
    }
}

/// The state of the thread.
struct Service<'a> {
    shared: &'a Shared,
    context: &'a ChildContext,
    child: StartedChild,
    received: FrameBuffer,
    sending: Option<OutgoingFrame>,
    /// An offer of a ring to the process.
    offer: Option<OutgoingFrame>,
    rings: PayloadRing,
    /// Received files that were not used.
    files: VecDeque<OwnedFd>,
    pipes: [OutputReader; 2],
    limiter: OutputLimit,
    last_heard: Instant,
    usage_at: Instant,
    /// The limit of resident memory.
    memory_bytes: Option<u64>,
    /// False if payloads are copied behind their heads.
    shares_payloads: bool,
    is_open: bool,
    /// The reason why the process was killed by this thread.
    killed: Option<String>,
    buffer: Vec<u8>,
}

impl<'a> Service<'a> {
    fn new(
        shared: &'a Shared,
        context: &'a ChildContext,
        mut child: StartedChild,
        command: &InstanceCommand,
    ) -> Self {
        let now = Instant::now();
        let warnings = std::mem::take(&mut child.warnings);
        let pipe = |fd: io::Result<OwnedFd>, stream| OutputReader {
            pipe: fd.ok(),
            lines: LineBuffer::default(),
            stream,
        };
        let pipes = [
            pipe(child.stdout.try_clone(), OutputStream::Stdout),
            pipe(child.stderr.try_clone(), OutputStream::Stderr),
        ];
        let mut service = Service {
            shared,
            context,
            child,
            received: FrameBuffer::default(),
            sending: None,
            offer: None,
            rings: PayloadRing::default(),
            files: VecDeque::new(),
            pipes,
            limiter: OutputLimit::new(now),
            last_heard: now,
            usage_at: now,
            memory_bytes: command.memory_bytes,
            shares_payloads: command.transfer.shares_payloads,
            is_open: true,
            killed: None,
            buffer: vec![0; 1 << 16],
        };
        for warning in warnings {
            service.log(OutputStream::Log, warning);
        }
        service
    }

    fn run(mut self) -> ChildEnd {
        let metrics = self.context.instance.metrics.child_process();
        metrics.record_start(self.child.child.id());
        let must_end = {
            let mut exchange = self.shared.lock();
            exchange.group = Some(self.child.group);
            exchange.must_end
        };
        if must_end {
            self.kill("is not needed any more");
        }
        while !self.turn() {}
        // The rest of the output.
        self.receive();
        self.read_output(true);
        {
            // No other thread kills the group when its number may belong to another process.
            let mut exchange = self.shared.lock();
            let _ = kill_process_group(self.child.group, Signal::KILL);
            exchange.group = None;
        }
        let status = self.child.child.wait();
        metrics.record_end();
        let how = match (&self.killed, &status) {
            (Some(reason), _) => reason.clone(),
            (None, Ok(status)) => describe(*status),
            (None, Err(error)) => format!("ended: {error}"),
        };
        ChildEnd {
            how,
            is_success: self.killed.is_none() && status.is_ok_and(|status| status.success()),
            last_lines: self.limiter.last_lines(),
        }
    }

    /// Serves all descriptors once; returns true if the process has ended.
    fn turn(&mut self) -> bool {
        let (may_read, has_frames, allowed, due) = {
            let exchange = self.shared.lock();
            (
                !exchange.is_paused,
                self.sending.is_some() || self.offer.is_some() || !exchange.outgoing.is_empty(),
                exchange.deadline.map(|deadline| deadline.timeout),
                exchange.answer_due(self.last_heard),
            )
        };
        let now = Instant::now();
        let mut timeout = self.usage_at.saturating_duration_since(now);
        if let Some(allowed) = allowed.filter(|_| self.killed.is_none()) {
            if due.is_some_and(|due| due <= now) {
                self.kill(&format!("did not answer for {allowed:?} and was killed"));
            }
            // The wait begins later while the owner has not taken all events.
            let left = due.map_or(allowed, |due| due.saturating_duration_since(now));
            timeout = timeout.min(left);
        }
        let has_ended = self.poll(may_read, has_frames, timeout.max(Duration::from_millis(1)));
        if may_read {
            self.receive();
        }
        self.send();
        self.read_output(false);
        self.observe();
        has_ended
    }

    fn poll(&self, may_read: bool, has_frames: bool, timeout: Duration) -> bool {
        let mut of_socket = PollFlags::empty();
        of_socket.set(PollFlags::IN, may_read);
        of_socket.set(PollFlags::OUT, has_frames);
        let mut fds = vec![
            PollFd::new(&self.child.end, PollFlags::IN),
            PollFd::new(&self.shared.changed, PollFlags::IN),
        ];
        if self.is_open && !of_socket.is_empty() {
            fds.push(PollFd::new(&self.child.socket, of_socket));
        }
        let pipes = self.pipes.iter().filter_map(|pipe| pipe.pipe.as_ref());
        fds.extend(pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        wait(&mut fds, timeout);
        let has_ended = !fds[0].revents().is_empty();
        let _ = rustix::io::read(&self.shared.changed, &mut [0; 8]);
        has_ended
    }

    /// Reads frames from the socket.
    fn receive(&mut self) {
        let (mut total, mut has_news) = (0, false);
        while self.is_open && total < TURN_BYTES {
            let socket = &self.child.socket;
            let read = match fd_socket::receive(socket, &mut self.buffer, &mut self.files) {
                Ok(0) => {
                    self.is_open = false;
                    break;
                }
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.is_open = false;
                    break;
                }
            };
            total += read;
            self.last_heard = Instant::now();
            self.received.push(&self.buffer[..read]);
            has_news |= self.divide();
        }
        if has_news {
            self.context.waker.wake();
        }
    }

    /// Takes the received frames; returns true if there is one for the owner.
    fn divide(&mut self) -> bool {
        let mut has_news = false;
        loop {
            let received = match self.received.take() {
                Ok(None) => return has_news,
                Ok(Some(frame)) => self.rings.receive(frame),
                Err(violation) => Err(violation),
            };
            let event = match received {
                Ok(frame) if frame.head.kind == FrameType::Heartbeat => continue,
                Ok(frame) if frame.head.kind == FrameType::Log => {
                    let text = String::from_utf8_lossy(&frame.payload).into_owned();
                    self.log_if_admitted(OutputStream::Log, text);
                    continue;
                }
                Ok(frame) if frame.head.kind == FrameType::Ring => match self.accept_ring(&frame) {
                    Ok(()) => continue,
                    Err(violation) => self.on_violation(violation),
                },
                Ok(frame) => ChildEvent::Frame(frame),
                Err(violation) => self.on_violation(violation),
            };
            self.shared.lock().push(event);
            has_news = true;
            if !self.is_open {
                return true;
            }
        }
    }

    /// Ends a connection that broke the protocol.
    fn on_violation(&mut self, violation: Violation) -> ChildEvent {
        self.is_open = false;
        self.kill(&format!("broke the protocol ({violation}) and was killed"));
        ChildEvent::Violation(violation)
    }

    /// Opens the ring that the process has offered, and offers one to it.
    fn accept_ring(&mut self, frame: &InstanceFrame) -> Result<(), Violation> {
        self.rings.accept(&frame.payload, self.files.pop_front())?;
        // Without memory for a ring, results come over the socket.
        if let Ok((description, file)) = self.rings.offer() {
            let head = FrameHead::new(FrameType::Ring, 0);
            self.offer = Some(OutgoingFrame {
                head: InstanceFrame::new(head, description).to_bytes(),
                payload: Arc::default(),
                sent: 0,
                file: Some(file),
            });
        }
        Ok(())
    }

    /// Writes frames to the socket.
    fn send(&mut self) {
        while self.is_open {
            if self.sending.is_none() {
                self.sending = self.offer.take().or_else(|| {
                    let frame = self.shared.lock().outgoing.pop_front();
                    frame.map(|frame| self.prepare(frame))
                });
            }
            let Some(sending) = &mut self.sending else {
                return;
            };
            let (rest, file) = (sending.rest(), sending.file.as_ref());
            match fd_socket::send(&self.child.socket, rest, file) {
                Ok(written) => {
                    sending.sent += written;
                    sending.file = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // Of a closed socket the end of the process is the news.
                Err(_) => return,
            }
            if sending.is_sent() {
                self.sending = None;
            }
        }
    }

    /// Prepares a frame for the socket. The ring takes its payload, if it has room.
    fn prepare(&mut self, frame: SharedFrame) -> OutgoingFrame {
        let SharedFrame { head, mut payload } = frame;
        let (mut head, is_in_ring) = self.rings.send_head(head, &payload);
        if is_in_ring {
            payload = Arc::default();
        } else if !self.shares_payloads {
            head.extend_from_slice(&payload);
            payload = Arc::default();
        }
        OutgoingFrame {
            head,
            payload,
            sent: 0,
            file: None,
        }
    }

    /// Reads output until there is none, at most a turn of it unless `to_end`.
    fn read_output(&mut self, to_end: bool) {
        for index in 0..self.pipes.len() {
            let mut lines = Vec::new();
            let mut total = 0;
            let limit = if to_end { 64 * TURN_BYTES } else { TURN_BYTES };
            let pipe = &mut self.pipes[index];
            while total < limit {
                let Some(fd) = &pipe.pipe else { break };
                match rustix::io::read(fd, &mut self.buffer[..]) {
                    Ok(0) => pipe.pipe = None,
                    Ok(read) => {
                        total += read;
                        let bytes = &self.buffer[..read];
                        pipe.lines.push(bytes, &mut |line| lines.push(line));
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(_) => pipe.pipe = None,
                }
            }
            if to_end {
                pipe.lines.finish(&mut |line| lines.push(line));
            }
            let stream = pipe.stream;
            for line in lines {
                if stream == OutputStream::Stderr {
                    self.limiter.retain(&line);
                }
                self.log_if_admitted(stream, line);
            }
        }
        let omitted = self.limiter.take_omitted(Instant::now());
        if omitted > 0 {
            let metrics = self.context.instance.metrics.child_process();
            metrics.count_omitted_lines(omitted);
            let text = format!("{omitted} lines of output were omitted");
            self.log(OutputStream::Log, text);
        }
    }

    fn log_if_admitted(&mut self, stream: OutputStream, text: String) {
        if self.limiter.admits(Instant::now()) {
            self.log(stream, text);
        }
    }

    fn log(&mut self, stream: OutputStream, text: String) {
        let instance = &self.context.instance;
        (self.context.output)(&OutputLine {
            vertex: instance.vertex.to_string(),
            instance: instance.instance.index,
            time: instance.clock.wall(),
            stream,
            text,
        });
    }

    /// Records processor time and memory, if due.
    fn observe(&mut self) {
        let now = Instant::now();
        if now < self.usage_at {
            return;
        }
        let (usual, limited) = USAGE_INTERVALS;
        let limit = self.memory_bytes;
        self.usage_at = now + limit.map_or(usual, |_| limited);
        if let Some((cpu, resident)) = usage_of(self.child.group) {
            let metrics = self.context.instance.metrics.child_process();
            metrics.record_usage(cpu, resident);
            if let Some(limit) = limit.filter(|limit| resident > *limit) {
                let reason = format!("exceeded its memory limit of {limit} bytes and was killed");
                self.kill(&reason);
            }
        }
    }

    fn kill(&mut self, reason: &str) {
        self.killed.get_or_insert_with(|| reason.to_owned());
        // It fails if all processes have ended.
        let _ = kill_process_group(self.child.group, Signal::KILL);
        // A thread that returns here at once would find the process alive.
        thread::yield_now();
    }
}
