//! The supervisor of an instance's process.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_coordination::control::{Backoff, BackoffConfig, WORKER_START_VARIABLE};
use ardea_core::{Error, ErrorCode, MessageCounts, Result, Waker};

use super::child::ChildProcess;
use super::{FromInstance, INSTANCE_START_VARIABLE, InstanceStart, ToInstance};

/// The delays between restarts of a process.
const RESTART: BackoffConfig = BackoffConfig {
    first: Duration::ZERO,
    second: Duration::from_millis(100),
    most: Duration::from_secs(10),
    forgets_after: Duration::from_secs(30),
};

/// Timeout for writing a message to a process.
const WRITE_TIMEOUT: Duration = Duration::from_millis(20);

/// Maximum time for a stopped process to exit before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// The task of a supervisor: the start parameters of a process, and the callback after its death.
pub(super) struct Task {
    /// Program and arguments.
    pub(super) command: Vec<std::ffi::OsString>,
    /// The start parameters of the first process; later processes get the current state.
    pub(super) start: InstanceStart,
    /// Maximum number of consecutive restarts.
    pub(super) most_in_a_row: u32,
    /// The callback after each unexpected end of the process.
    pub(super) died: Box<dyn Fn(ProcessExit) + Send>,
}

/// The unexpected end of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProcessExit {
    /// The reason.
    pub(crate) why: String,
    /// The code of the error that the process reported, if any.
    pub(crate) code: Option<ErrorCode>,
    /// The number of consecutive deaths, if it is so high that the process is not restarted.
    pub(crate) too_often: Option<u32>,
}

/// The supervised process of an instance, as its proxy sees it.
pub(super) struct SupervisedProcess {
    pub(super) vertex: String,
    pub(super) instance: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    socket: Option<UnixStream>,
    /// The process id, while there is a process.
    process: Option<u32>,
    is_paused: bool,
    is_draining: bool,
    parallelisms: ardea_engine::Parallelisms,
    is_stopped: bool,
    late: u64,
    late_in_part: u64,
    bad: u64,
    /// The message statistics of the current process's source; those of earlier processes are in
    /// `messages_before`.
    messages: Option<MessageCounts>,
    messages_before: MessageCounts,
    stand_in: Waker,
}

impl SupervisedProcess {
    pub(super) fn new(start: &InstanceStart, stand_in: Waker) -> Arc<Self> {
        Arc::new(SupervisedProcess {
            vertex: start.vertex.clone(),
            instance: start.instance,
            state: Mutex::new(State {
                socket: None,
                process: None,
                is_paused: start.is_paused,
                is_draining: false,
                parallelisms: start.parallelisms.clone(),
                is_stopped: false,
                late: 0,
                late_in_part: 0,
                bad: 0,
                messages: None,
                messages_before: MessageCounts::default(),
                stand_in,
            }),
            changed: Condvar::new(),
        })
    }

    /// Sends a message to the process, if there is one. A restarted process starts with the state
    /// that the message sets.
    pub(super) fn send(&self, message: ToInstance) {
        let mut state = self.state();
        match &message {
            ToInstance::Pause(is_paused) => state.is_paused = *is_paused,
            ToInstance::Drain => state.is_draining = true,
            ToInstance::Rescaled(parallelisms) => state.parallelisms.clone_from(parallelisms),
            ToInstance::EndEpoch | ToInstance::Lost => {}
        }
        state.write(&message);
    }

    /// Returns the process id, if there is a process.
    pub(super) fn process(&self) -> Option<u32> {
        self.state().process
    }

    /// Returns the record counts of all processes of the instance so far: late, late in part, and
    /// bad.
    pub(super) fn counted(&self) -> [u64; 3] {
        let state = self.state();
        [state.late, state.late_in_part, state.bad]
    }

    /// Returns the message statistics of the instance's source, if it reports any.
    pub(super) fn messages(&self) -> Option<MessageCounts> {
        let state = self.state();
        let mut messages = state.messages.clone()?;
        messages.add(&state.messages_before);
        Some(messages)
    }

    /// Stops the process and all restarts.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        // The process ends when its socket closes.
        if let Some(socket) = state.socket.take() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns true if the process has been stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Sleeps for `time`, or until the process is stopped.
    fn rest(&self, time: Duration) {
        let rested = self
            .changed
            .wait_timeout_while(self.state(), time, |state| !state.is_stopped);
        drop(rested.unwrap_or_else(PoisonError::into_inner));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Handles the end of a process: adds its counts to those of earlier processes, without the
    /// pending messages.
    fn process_ended(&mut self) {
        (self.socket, self.process) = (None, None);
        if let Some(messages) = &mut self.messages {
            messages.pending = 0;
            self.messages_before.add(&std::mem::take(messages));
        }
    }

    fn write(&mut self, message: &ToInstance) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        let Ok(mut line) = serde_json::to_vec(message) else {
            return;
        };
        line.push(b'\n');
        // A process that does not read is dying or hangs; the next process gets the same state.
        if socket.write_all(&line).is_err() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
            self.socket = None;
        }
    }
}

impl fmt::Debug for SupervisedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

/// Starts the supervising thread.
///
/// # Errors
/// If the system refuses a thread.
pub(super) fn supervise(kept: Arc<SupervisedProcess>, task: Task) -> Result<JoinHandle<()>> {
    let name = format!("ardea-keep-{}", task.start.instance);
    let thread = std::thread::Builder::new().name(name);
    thread
        .spawn(move || run_processes(&kept, &task))
        .map_err(|error| {
            Error::new(
                ErrorCode::LimitReached,
                "cannot start the supervising thread of an instance's process",
            )
            .because(error)
            .hint("raise the limit of threads for this process")
        })
}

/// Runs one process after the other, until [`SupervisedProcess::stop`].
fn run_processes(kept: &SupervisedProcess, task: &Task) {
    let began = Instant::now();
    let mut backoff = Backoff::new(RESTART);
    let (mut incarnation, mut deaths_in_a_row) = (0, 0_u32);
    while !kept.is_stopped() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.map_or(0, |now| now.as_millis() as u64);
        incarnation = millis.max(incarnation + 1);
        let born = began.elapsed();
        let Some((why, code)) = run_process(kept, task, incarnation) else {
            return;
        };
        if began.elapsed() > born + RESTART.forgets_after {
            deaths_in_a_row = 0;
        }
        deaths_in_a_row = deaths_in_a_row.saturating_add(1);
        let is_too_often = deaths_in_a_row > task.most_in_a_row;
        (task.died)(ProcessExit {
            why,
            code,
            too_often: is_too_often.then_some(deaths_in_a_row),
        });
        if is_too_often {
            return;
        }
        let elapsed = began.elapsed();
        kept.rest(backoff.failed(elapsed).saturating_sub(elapsed));
    }
}

/// Runs one process from its start to its end. Returns the reason and the error code of an
/// unexpected end.
fn run_process(
    kept: &SupervisedProcess,
    task: &Task,
    incarnation: u64,
) -> Option<(String, Option<ErrorCode>)> {
    let (mut process, mut socket) = match spawn(kept, task, incarnation) {
        Ok(spawned) => spawned?,
        Err(error) => return Some((format!("its process can't be started: {error}"), None)),
    };
    let (mut heard, mut failure) = (Vec::new(), None);
    let mut buffer = [0; 4096];
    while let Ok(true) = process.wait_readable(&socket) {
        let Ok(bytes @ 1..) = socket.read(&mut buffer) else {
            break;
        };
        heard.extend_from_slice(&buffer[..bytes]);
        let whole = heard.iter().rposition(|byte| *byte == b'\n');
        for line in heard
            .drain(..whole.map_or(0, |at| at + 1))
            .as_slice()
            .split(|byte| *byte == b'\n')
        {
            handle_line(kept, line, &mut failure);
        }
    }
    let status = process.ends_within(GRACE);
    kept.state().process_ended();
    if kept.is_stopped() {
        return None;
    }
    Some(failure.unwrap_or_else(|| {
        let why = match status {
            Some(status) => format!("its process has ended: {status}"),
            None => "its process had to be killed".to_string(),
        };
        (why, None)
    }))
}

/// Starts a process; `None` if [`SupervisedProcess::stop`] has been called.
fn spawn(
    kept: &SupervisedProcess,
    task: &Task,
    incarnation: u64,
) -> io::Result<Option<(ChildProcess, UnixStream)>> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_write_timeout(Some(WRITE_TIMEOUT))?;
    // Locked until the socket is stored, so that `stop` can close it.
    let mut state = kept.state();
    if state.is_stopped {
        return Ok(None);
    }
    let start = InstanceStart {
        incarnation,
        is_paused: state.is_paused,
        parallelisms: state.parallelisms.clone(),
        ..task.start.clone()
    };
    let (program, arguments) = task
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("it has no program"))?;
    let child = Command::new(program)
        .args(arguments)
        // The first variable marks the program as a worker, the second as an instance of one.
        .env(WORKER_START_VARIABLE, serde_json::to_string(&start.worker)?)
        .env(INSTANCE_START_VARIABLE, serde_json::to_string(&start)?)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    let process = ChildProcess::of(child)?;
    state.socket = Some(ours.try_clone()?);
    state.process = Some(process.number());
    if state.is_draining {
        state.write(&ToInstance::Drain);
    }
    Ok(Some((process, ours)))
}

fn handle_line(
    kept: &SupervisedProcess,
    line: &[u8],
    failure: &mut Option<(String, Option<ErrorCode>)>,
) {
    match serde_json::from_slice(line) {
        Ok(FromInstance::Failed { code, why }) => {
            *failure = Some((why, ErrorCode::from_name(&code)))
        }
        Ok(FromInstance::Counted {
            late,
            late_in_part,
            bad,
        }) => {
            let mut state = kept.state();
            state.late += late;
            state.late_in_part += late_in_part;
            state.bad += bad;
            let stand_in = state.stand_in.clone();
            drop(state);
            stand_in.wake();
        }
        Ok(FromInstance::Messages(counts)) => kept.state().messages = Some(*counts),
        // Output of user code.
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_coordination::control::{JobRef, WorkerId, WorkerStart};
    use ardea_coordination::packing::{ContainerId, Resources};

    fn task(command: &[&str]) -> Task {
        let job = JobRef {
            cluster: "harbour".into(),
            name: "ferry".into(),
            submission: 1,
        };
        let worker = WorkerStart {
            worker: WorkerId {
                container: ContainerId(1),
                incarnation: 1,
            },
            job,
            state_url: String::new(),
            host: "127.0.0.1".into(),
            resources: Resources::UNLIMITED,
            token_file: None,
            certificates: None,
            settings: Default::default(),
        };
        Task {
            command: command.iter().map(Into::into).collect(),
            start: InstanceStart {
                worker,
                incarnation: 0,
                vertex: "counts".into(),
                instance: 0,
                parallelisms: Default::default(),
                container_address: String::new(),
                is_paused: false,
            },
            most_in_a_row: 2,
            died: Box::new(|_| ()),
        }
    }

    #[test]
    fn no_process_is_started_any_more_once_none_is_needed() {
        let task = task(&["sleep", "1000"]);
        let kept = SupervisedProcess::new(&task.start, Waker::none());
        kept.stop();
        assert!(spawn(&kept, &task, 1).unwrap().is_none());
    }

    #[test]
    fn a_process_that_does_not_listen_is_killed_when_it_is_not_needed_any_more() {
        let task = task(&["sleep", "1000"]);
        let kept = SupervisedProcess::new(&task.start, Waker::none());
        let (process, socket) = spawn(&kept, &task, 1).unwrap().unwrap();
        let id = kept.process().unwrap();
        drop((process, socket));
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn what_can_not_be_started_is_told_with_the_reason() {
        let task = task(&["/no/such/program"]);
        let kept = SupervisedProcess::new(&task.start, Waker::none());
        let (why, _) = run_process(&kept, &task, 1).unwrap();
        assert!(why.contains("can't be started"), "{why}");
    }

    #[test]
    fn what_a_process_says_before_it_ends_is_heard_though_others_hold_its_socket() {
        let said = r#"{"Failed":{"code":"ARD-202","why":"it chokes"}}"#;
        let script = format!("cat <&0 >/dev/null 2>&1 & printf '%s\\nhalf' '{said}' >&0");
        let mut task = task(&["sh", "-c", &script]);
        let kept = SupervisedProcess::new(&task.start, Waker::none());
        let (why, code) = run_process(&kept, &task, 1).unwrap();
        assert_eq!((&*why, code), ("it chokes", Some(ErrorCode::UserError)));
        assert_eq!(kept.process(), None);
        task.command = ["sh", "-c", "cat <&0 >/dev/null 2>&1 & kill -9 $$"]
            .map(Into::into)
            .to_vec();
        let (why, code) = run_process(&kept, &task, 2).unwrap();
        assert!(why.contains("signal: 9") && code.is_none(), "{why}");
    }

    #[test]
    fn messages_of_processes_that_took_each_others_place_are_added_up() {
        let task = task(&["false"]);
        let kept = SupervisedProcess::new(&task.start, Waker::none());
        assert_eq!(kept.messages(), None);
        for _ in 0..2 {
            let counts = MessageCounts {
                acked: 5,
                pending: 7,
                ..MessageCounts::default()
            };
            let told = serde_json::to_vec(&FromInstance::Messages(Box::new(counts)));
            handle_line(&kept, &told.unwrap(), &mut None);
            let told = kept.messages().unwrap();
            assert_eq!((told.acked % 5, told.pending), (0, 7));
            kept.state().process_ended();
        }
        let all = kept.messages().unwrap();
        assert_eq!((all.acked, all.pending), (10, 0));
    }

    #[test]
    fn one_that_dies_too_often_in_a_row_is_not_started_again() {
        let (tell, deaths) = std::sync::mpsc::channel();
        let mut task = task(&["false"]);
        task.died = Box::new(move |death| {
            let _ = tell.send(death.too_often);
        });
        run_processes(&SupervisedProcess::new(&task.start, Waker::none()), &task);
        drop(task);
        assert_eq!(deaths.iter().collect::<Vec<_>>(), [None, None, Some(3)]);
    }
}
