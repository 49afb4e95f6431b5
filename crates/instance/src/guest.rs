//! The instance's side of the protocol, for instances in Rust.

mod connection;
mod own_program;
mod state;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use ardea_core::{Timestamp, Waker};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::protocol::{
    EmitWriter, FLAG_AWAITS_COMMIT, FLAG_FAILED_ONLY, FLAG_LAST, FLAG_MORE, FLAG_OF_WATERMARK,
    FrameHead, FrameType, GuestDeadLetter, GuestFailure, GuestHello, InstanceConfiguration,
    InstanceControl, InstanceFrame, InstanceRole, PART_BYTES, PendingRow, ResultWriter,
    SPOUT_IS_DONE, StatePartEntry, StatePartReader, StatePartWriter, TupleAck, UserMetric,
    VertexCounts, Violation, read_message_outcomes, write_tuple_ack_parts,
};
use connection::HostConnection;
pub use own_program::{DeadLetterBuffer, guest_failure, own_command, serve_own_program};
pub(crate) use state::REST;
pub use state::{RestoredEntries, save_state, until_done};

/// A failure of an instance, which ends the job.
#[derive(Debug)]
pub enum GuestError {
    /// The user's code failed.
    Failed(GuestFailure),
    /// The host broke the protocol, or is gone.
    Connection(io::Error),
}

impl GuestError {
    /// Creates a failure of user code.
    pub fn failed(message: impl Into<String>) -> Self {
        GuestError::Failed(GuestFailure {
            message: message.into(),
            ..GuestFailure::default()
        })
    }
}

impl From<io::Error> for GuestError {
    fn from(error: io::Error) -> Self {
        GuestError::Connection(error)
    }
}

impl From<Violation> for GuestError {
    fn from(violation: Violation) -> Self {
        GuestError::Connection(io::Error::new(io::ErrorKind::InvalidData, violation))
    }
}

/// The results of a batch or of a watermark. Large results are sent in parts.
pub struct GuestResults<'a> {
    socket: &'a mut HostConnection,
    head: FrameHead,
    writer: ResultWriter,
}

impl GuestResults<'_> {
    /// Emits a record in a format of rows; `row` is the row of the batch that caused it.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn emit(&mut self, row: u32, time: Timestamp, value: &[u8]) -> Result<(), GuestError> {
        self.writer.emit(row, time, value);
        self.send_part_if_large()
    }

    fn send_part_if_large(&mut self) -> Result<(), GuestError> {
        if self.writer.byte_len() >= PART_BYTES {
            self.send_part()?;
        }
        Ok(())
    }

    /// Sends the present part. Further results of the batch or watermark follow.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn send_part(&mut self) -> Result<(), GuestError> {
        let head = self.head.flags(self.head.flags | FLAG_MORE);
        let payload = self.writer.finish();
        self.socket.send(&InstanceFrame::new(head, payload))
    }

    /// Reports a row that could not be processed: the host handles it by the step's policy.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn fail(&mut self, row: u32, reason: &str) -> Result<(), GuestError> {
        self.writer.fail(row, reason);
        self.send_part_if_large()
    }

    /// Returns the sequence of the batch.
    pub fn sequence(&self) -> u64 {
        self.head.sequence
    }

    /// Holds a row of a bolt: it is answered later, by [`GuestEmits::settle`].
    pub fn hold(&mut self, row: u32) -> PendingRow {
        self.writer.hold(row);
        let batch = self.head.sequence;
        PendingRow { batch, row }
    }

    /// Returns the writer of the present part, for formats of columns.
    pub fn writer(&mut self) -> &mut ResultWriter {
        &mut self.writer
    }

    /// Requests more time from the host.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn heartbeat(&mut self) -> Result<(), GuestError> {
        let heartbeat = InstanceFrame::empty(FrameType::Heartbeat, 0);
        self.socket.send(&heartbeat)
    }
}

/// The tuples that a spout or bolt emits outside of a batch. Many tuples are sent in parts.
pub struct GuestEmits<'a> {
    socket: &'a mut HostConnection,
    head: FrameHead,
    writer: EmitWriter,
}

impl GuestEmits<'_> {
    /// Emits a tracked tuple of a spout.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn emit_tracked(&mut self, message: u64, value: &[u8]) -> Result<(), GuestError> {
        let anchor = PendingRow {
            batch: message,
            row: 0,
        };
        self.emit(&[anchor], value)
    }

    /// Emits a tuple that is anchored to held tuples of a bolt.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn emit(&mut self, anchors: &[PendingRow], value: &[u8]) -> Result<(), GuestError> {
        self.writer.push(anchors, value);
        if self.writer.byte_len() >= PART_BYTES {
            self.send(self.head.flags | FLAG_MORE, 0)?;
        }
        Ok(())
    }

    /// Acks and fails tuples that a bolt held, after the tuples that were emitted before.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn settle(&mut self, acks: &[TupleAck]) -> Result<(), GuestError> {
        if self.writer.tuples() > 0 {
            self.send(self.head.flags | FLAG_MORE, 0)?;
        }
        let head = FrameHead::new(FrameType::Acks, 0);
        for payload in write_tuple_ack_parts(acks) {
            self.socket.send(&InstanceFrame::new(head, payload))?;
        }
        Ok(())
    }

    /// Sends the present part, if it has tuples.
    pub(crate) fn flush(&mut self) -> Result<(), GuestError> {
        match self.writer.tuples() {
            0 => Ok(()),
            _ => self.send(self.head.flags, 0),
        }
    }

    fn send(&mut self, flags: u8, wait_millis: i32) -> Result<(), GuestError> {
        let payload = self.writer.finish(wait_millis);
        let frame = InstanceFrame::new(self.head.flags(flags), payload);
        self.socket.send(&frame)
    }
}

/// The state of an instance at a barrier. It is sent in parts.
pub struct GuestState<'a> {
    socket: &'a mut HostConnection,
    epoch: u64,
    is_last: bool,
    awaits_commit: bool,
    writer: StatePartWriter,
}

impl GuestState<'_> {
    /// Returns the epoch that ends at the barrier.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns true if no record follows.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Declares that the instance must live until the checkpoint is durable.
    pub fn await_commit(&mut self) {
        self.awaits_commit = true;
    }

    /// Returns the output of the end of the epoch, which precedes the state.
    pub(crate) fn emits(&mut self) -> GuestEmits<'_> {
        GuestEmits::answering(self.socket, 0)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn put(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        self.writer.push(entry);
        if self.writer.byte_len() >= PART_BYTES {
            let head = FrameHead::new(FrameType::State, self.epoch);
            let payload = self.writer.finish();
            self.socket.send(&InstanceFrame::new(head, payload))?;
        }
        Ok(())
    }
}

/// An instance that is served to a host.
pub trait GuestInstance {
    /// Returns the versions and abilities of the instance.
    fn hello(&self) -> GuestHello;

    /// Configures the instance. Called once, before all other methods but `hello`.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn configure(&mut self, configuration: &InstanceConfiguration) -> Result<(), GuestError> {
        let _ = configuration;
        Ok(())
    }

    /// Processes the payload of a BATCH. Never called for a spout.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn process(&mut self, batch: &[u8], results: &mut GuestResults<'_>) -> Result<(), GuestError>;

    /// Emits up to `limit` tuples of a spout. Returns the milliseconds until the next call, or
    /// [`SPOUT_IS_DONE`].
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn next(&mut self, limit: u32, out: &mut GuestEmits<'_>) -> Result<i32, GuestError> {
        let _ = (limit, out);
        Ok(SPOUT_IS_DONE)
    }

    /// Emits up to `limit` failed messages of a spout again, and nothing else. Called in place of
    /// [`next`](Self::next) when the spout is to end.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn next_failed(&mut self, limit: u32, out: &mut GuestEmits<'_>) -> Result<i32, GuestError> {
        self.next(limit, out)
    }

    /// Emits tuples that are anchored to held tuples of a bolt, after the RESULT of each batch.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn after_batch(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        let _ = out;
        Ok(())
    }

    /// Handles the outcome of a message of a spout.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn on_outcome(&mut self, message: u64, is_acked: bool) -> Result<(), GuestError> {
        let _ = (message, is_acked);
        Ok(())
    }

    /// Handles a regular call of a bolt.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn on_tick(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        let _ = out;
        Ok(())
    }

    /// Handles the end of the input of a bolt. Called again if tuples are replayed after it.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn finish(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        let _ = out;
        Ok(())
    }

    /// Handles a watermark, if `hello` requests watermarks.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn on_watermark(
        &mut self,
        time: Timestamp,
        results: &mut GuestResults<'_>,
    ) -> Result<(), GuestError> {
        let _ = (time, results);
        Ok(())
    }

    /// Writes all state, if `hello` declares state.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn save(&mut self, state: &mut GuestState<'_>) -> Result<(), GuestError> {
        let _ = state;
        Ok(())
    }

    /// Restores an entry, before the first batch.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn restore(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        let _ = entry;
        Ok(())
    }

    /// Completes the restore of `epoch`, before the first batch.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn on_restored(&mut self, epoch: u64) -> Result<(), GuestError> {
        let _ = epoch;
        Ok(())
    }

    /// Takes the waker by which other threads request a call of a spout that waits. Called before
    /// [`configure`](Self::configure).
    fn set_waker(&mut self, waker: Waker) {
        let _ = waker;
    }

    /// Handles a change of the topology, if `hello` accepts CONTROL.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn on_control(&mut self, control: &InstanceControl) -> Result<(), GuestError> {
        let _ = control;
        Ok(())
    }

    /// Takes records that could not be processed outside of a batch. Called after each frame.
    fn take_dead_letters(&mut self) -> Vec<GuestDeadLetter> {
        Vec::new()
    }

    /// Takes metrics to report. Called after each frame; `is_last` before the process ends.
    fn take_metrics(&mut self, is_last: bool) -> Vec<UserMetric> {
        let _ = is_last;
        Vec::new()
    }

    /// Takes the counts of records since the last call. Called after each frame of a vertex.
    fn take_counts(&mut self) -> Option<VertexCounts> {
        None
    }

    /// Handles the commit of an epoch.
    ///
    /// # Errors
    /// A failure, which ends the job.
    fn on_commit(&mut self, epoch: u64) -> Result<(), GuestError> {
        let _ = epoch;
        Ok(())
    }
}

/// Serves an instance to the host that started this process, over standard input. Returns when the
/// host stops the instance or is gone.
///
/// # Errors
/// The failure of the instance, after it is reported to the host.
pub fn serve(instance: &mut dyn GuestInstance) -> Result<(), GuestError> {
    // A hung process would otherwise outlive its host.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    serve_on(instance, socket)
}

/// Serves an instance to a host at the other end of `socket`; see [`serve`].
///
/// # Errors
/// As [`serve`].
pub fn serve_on(instance: &mut dyn GuestInstance, socket: UnixStream) -> Result<(), GuestError> {
    let mut connection = HostConnection::new(socket)?;
    let outcome = run(instance, &mut connection);
    if let Err(GuestError::Failed(failure)) = &outcome {
        let frame = InstanceFrame::json(FrameType::Error, 0, failure);
        connection.send(&frame)?;
    }
    outcome
}

fn run(instance: &mut dyn GuestInstance, socket: &mut HostConnection) -> Result<(), GuestError> {
    let hello = instance.hello();
    socket.send(&InstanceFrame::json(FrameType::Hello, 0, &hello))?;
    instance.set_waker(socket.waker());
    let mut role = InstanceRole::Step;
    while let Some(frame) = socket.next_frame()? {
        let sequence = frame.head.sequence;
        match frame.head.kind {
            FrameType::Hello => {}
            FrameType::Configure => {
                let configuration: InstanceConfiguration = frame.read_json()?;
                role = configuration.component.role;
                if configuration.rings {
                    socket.offer_ring()?;
                }
                instance.configure(&configuration)?;
                socket.send(&InstanceFrame::empty(FrameType::Ready, 0))?;
            }
            FrameType::Restore => {
                let mut entries = StatePartReader::read(&frame.payload)?;
                while let Some(entry) = entries.next_entry()? {
                    instance.restore(entry)?;
                }
                if frame.head.has(FLAG_LAST) {
                    instance.on_restored(sequence)?;
                }
            }
            FrameType::Control => instance.on_control(&frame.read_json()?)?,
            FrameType::Batch => batch(instance, socket, role, &frame)?,
            FrameType::Watermark if role == InstanceRole::Bolt => {
                let mut out = GuestEmits::answering(socket, sequence);
                instance.finish(&mut out)?;
                if out.writer.tuples() > 0 {
                    out.send(FLAG_MORE, 0)?;
                }
                socket.send(&InstanceFrame::empty(FrameType::Watermark, sequence))?;
            }
            FrameType::Watermark => watermark(instance, socket, sequence)?,
            FrameType::Next => {
                let limit = read_limit(&frame.payload)?;
                let mut out = GuestEmits::answering(socket, sequence);
                let wait = match frame.head.has(FLAG_FAILED_ONLY) {
                    true => instance.next_failed(limit, &mut out)?,
                    false => instance.next(limit, &mut out)?,
                };
                out.send(0, wait)?;
            }
            FrameType::Tick => {
                let mut out = GuestEmits::answering(socket, sequence);
                instance.on_tick(&mut out)?;
                out.send(0, 0)?;
            }
            FrameType::Acks => {
                for (message, is_acked) in read_message_outcomes(&frame.payload)? {
                    instance.on_outcome(message, is_acked)?;
                }
            }
            FrameType::Barrier => barrier(instance, socket, frame.head)?,
            FrameType::Commit => {
                instance.on_commit(sequence)?;
                if hello.options.commits {
                    socket.send(&InstanceFrame::empty(FrameType::Commit, sequence))?;
                }
            }
            FrameType::Stop => return send_reports(instance, socket, true),
            kind => {
                let what = format!("the host sent a {}", kind.as_str());
                return Err(Violation::new(what).into());
            }
        }
        send_reports(instance, socket, false)?;
    }
    Ok(())
}

/// Passes a BATCH to the instance, and answers it.
fn batch(
    instance: &mut dyn GuestInstance,
    socket: &mut HostConnection,
    role: InstanceRole,
    frame: &InstanceFrame,
) -> Result<(), GuestError> {
    let head = FrameHead::new(FrameType::Result, frame.head.sequence);
    let writer = match role {
        InstanceRole::Bolt => ResultWriter::of_bolt(),
        _ => ResultWriter::default(),
    };
    let mut results = GuestResults {
        socket,
        head,
        writer,
    };
    instance.process(&frame.payload, &mut results)?;
    let payload = results.writer.finish();
    socket.send(&InstanceFrame::new(head, payload))?;
    if role == InstanceRole::Bolt {
        let mut out = GuestEmits::answering(socket, 0);
        instance.after_batch(&mut out)?;
        out.flush()?;
    }
    Ok(())
}

/// Answers a BARRIER with the state.
fn barrier(
    instance: &mut dyn GuestInstance,
    socket: &mut HostConnection,
    head: FrameHead,
) -> Result<(), GuestError> {
    let mut state = GuestState {
        socket,
        epoch: head.sequence,
        is_last: head.has(FLAG_LAST),
        awaits_commit: false,
        writer: StatePartWriter::default(),
    };
    instance.save(&mut state)?;
    let payload = state.writer.finish();
    let flags = match state.awaits_commit {
        true => FLAG_LAST | FLAG_AWAITS_COMMIT,
        false => FLAG_LAST,
    };
    let head = FrameHead::new(FrameType::State, head.sequence).flags(flags);
    socket.send(&InstanceFrame::new(head, payload))
}

/// Sends what the instance reports outside of its answers.
fn send_reports(
    instance: &mut dyn GuestInstance,
    socket: &mut HostConnection,
    is_last: bool,
) -> Result<(), GuestError> {
    for metric in instance.take_metrics(is_last) {
        socket.send(&InstanceFrame::json(FrameType::Metric, 0, &metric))?;
    }
    if let Some(counts) = instance.take_counts() {
        socket.send(&InstanceFrame::json(FrameType::Counts, 0, &counts))?;
    }
    for letter in instance.take_dead_letters() {
        socket.send(&InstanceFrame::json(FrameType::DeadLetter, 0, &letter))?;
    }
    Ok(())
}

fn watermark(
    instance: &mut dyn GuestInstance,
    socket: &mut HostConnection,
    sequence: u64,
) -> Result<(), GuestError> {
    let head = FrameHead::new(FrameType::Result, sequence).flags(FLAG_OF_WATERMARK);
    let writer = ResultWriter::default();
    let mut results = GuestResults {
        socket,
        head,
        writer,
    };
    instance.on_watermark(Timestamp::from_micros(head.time()), &mut results)?;
    if !results.writer.is_empty() {
        let payload = results.writer.finish();
        socket.send(&InstanceFrame::new(head, payload))?;
    }
    socket.send(&InstanceFrame::empty(FrameType::Watermark, sequence))
}

/// Returns the limit of a NEXT.
fn read_limit(payload: &[u8]) -> Result<u32, Violation> {
    let limit = <[u8; 4]>::try_from(payload);
    let limit = limit.map_err(|_| Violation::new("the payload of NEXT is no number"))?;
    Ok(u32::from_le_bytes(limit))
}

impl<'a> GuestEmits<'a> {
    fn answering(socket: &'a mut HostConnection, sequence: u64) -> Self {
        GuestEmits {
            socket,
            head: FrameHead::new(FrameType::Emit, sequence),
            writer: EmitWriter::default(),
        }
    }
}
