//! Keeps the process of one instance alive.

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

/// When a process that has died is started again.
const RESTART: BackoffConfig = BackoffConfig {
    first: Duration::ZERO,
    second: Duration::from_millis(100),
    most: Duration::from_secs(10),
    forgets_after: Duration::from_secs(30),
};

/// How long a process may take to take in what it is told.
const LISTENS_WITHIN: Duration = Duration::from_millis(20);

/// How long a process has to end when it is not needed any more.
const GRACE: Duration = Duration::from_secs(2);

/// What a process is started with, and who is told of its death.
pub(super) struct Task {
    /// Program and arguments.
    pub(super) command: Vec<std::ffi::OsString>,
    /// As of the first start.
    pub(super) start: InstanceStart,
    /// How often in a row it is started again.
    pub(super) most_in_a_row: u32,
    /// Told why the process has died, each time.
    pub(super) died: Box<dyn Fn(Death) + Send>,
}

/// The end of a process that was still needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Death {
    /// Why it died.
    pub(crate) why: String,
    /// The kind of error that it ended with, if it was one.
    pub(crate) code: Option<ErrorCode>,
    /// How often that has happened in a row, where it is not started again since that is too often.
    pub(crate) too_often: Option<u32>,
}

/// The process of an instance, as its stand-in sees it.
pub(super) struct Kept {
    pub(super) vertex: String,
    pub(super) instance: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    socket: Option<UnixStream>,
    /// The number of the process, while there is one.
    process: Option<u32>,
    is_paused: bool,
    is_draining: bool,
    parallelisms: ardea_engine::Parallelisms,
    is_stopped: bool,
    late: u64,
    late_in_part: u64,
    bad: u64,
    /// What became of the messages of this process's source, and of those of the processes before it.
    messages: Option<MessageCounts>,
    messages_before: MessageCounts,
    stand_in: Waker,
}

impl Kept {
    pub(super) fn new(start: &InstanceStart, stand_in: Waker) -> Arc<Self> {
        Arc::new(Kept {
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

    /// Tells the process, if it is there, and each that takes its place, as far as that has to know.
    pub(super) fn tell(&self, message: ToInstance) {
        let mut state = self.state();
        match &message {
            ToInstance::Pause(is_paused) => state.is_paused = *is_paused,
            ToInstance::Drain => state.is_draining = true,
            ToInstance::Rescaled(parallelisms) => state.parallelisms.clone_from(parallelisms),
            ToInstance::EndEpoch | ToInstance::Lost => {}
        }
        state.write(&message);
    }

    /// The number of the process, if it is there.
    pub(super) fn process(&self) -> Option<u32> {
        self.state().process
    }

    /// What processes have counted so far: records late, late in part, and bad.
    pub(super) fn counted(&self) -> [u64; 3] {
        let state = self.state();
        [state.late, state.late_in_part, state.bad]
    }

    /// What became of the messages of its source, if it is one that counts them.
    pub(super) fn messages(&self) -> Option<MessageCounts> {
        let state = self.state();
        let mut messages = state.messages.clone()?;
        messages.add(&state.messages_before);
        Some(messages)
    }

    /// The process is not needed any more.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        // It ends when nobody can tell it anything.
        if let Some(socket) = state.socket.take() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Whether no process is needed any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Waits, but not if it is stopped.
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
    /// The next one counts from zero; what was pending is nobody's any more.
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
        // A process that does not read any more is about to die, or hangs: what it has to know, the next one is told.
        if socket.write_all(&line).is_err() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
            self.socket = None;
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

/// Starts the thread that keeps a process.
///
/// # Errors
/// If the system refuses a thread.
pub(super) fn keep(kept: Arc<Kept>, task: Task) -> Result<JoinHandle<()>> {
    let name = format!("ardea-keep-{}", task.start.instance);
    let thread = std::thread::Builder::new().name(name);
    thread.spawn(move || lives(&kept, &task)).map_err(|error| {
        Error::new(
            ErrorCode::LimitReached,
            "cannot start the thread that keeps an instance's process",
        )
        .because(error)
        .hint("raise the limit of threads for this process")
    })
}

/// One process after the other, until none is needed any more.
fn lives(kept: &Kept, task: &Task) {
    let began = Instant::now();
    let mut backoff = Backoff::new(RESTART);
    let (mut incarnation, mut deaths_in_a_row) = (0, 0_u32);
    while !kept.is_stopped() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.map_or(0, |now| now.as_millis() as u64);
        incarnation = millis.max(incarnation + 1);
        let born = began.elapsed();
        let Some((why, code)) = life(kept, task, incarnation) else {
            return;
        };
        if began.elapsed() > born + RESTART.forgets_after {
            deaths_in_a_row = 0;
        }
        deaths_in_a_row = deaths_in_a_row.saturating_add(1);
        let is_too_often = deaths_in_a_row > task.most_in_a_row;
        (task.died)(Death {
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

/// One process, from its start to its end. Why it died, and of what kind of error, if it was still needed.
fn life(kept: &Kept, task: &Task, incarnation: u64) -> Option<(String, Option<ErrorCode>)> {
    let (mut process, mut socket) = match spawn(kept, task, incarnation) {
        Ok(spawned) => spawned?,
        Err(error) => return Some((format!("its process can't be started: {error}"), None)),
    };
    let (mut heard, mut failure) = (Vec::new(), None);
    let mut buffer = [0; 4096];
    while let Ok(true) = process.is_heard(&socket) {
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
            hear(kept, line, &mut failure);
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

/// Starts a process, unless none is needed any more.
fn spawn(
    kept: &Kept,
    task: &Task,
    incarnation: u64,
) -> io::Result<Option<(ChildProcess, UnixStream)>> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_write_timeout(Some(LISTENS_WITHIN))?;
    // Held until the socket lies where whoever stops the process closes it.
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
        // By this the program knows that it is to be a worker; by the other, that it is a part of one.
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

fn hear(kept: &Kept, line: &[u8], failure: &mut Option<(String, Option<ErrorCode>)>) {
    match serde_json::from_slice(line) {
        Ok(FromInstance::Failed { code, why }) => *failure = Some((why, ErrorCode::named(&code))),
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
        // What the user's code has written there.
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
        let kept = Kept::new(&task.start, Waker::none());
        kept.stop();
        assert!(spawn(&kept, &task, 1).unwrap().is_none());
    }

    #[test]
    fn a_process_that_does_not_listen_is_killed_when_it_is_not_needed_any_more() {
        let task = task(&["sleep", "1000"]);
        let kept = Kept::new(&task.start, Waker::none());
        let (process, socket) = spawn(&kept, &task, 1).unwrap().unwrap();
        let id = kept.process().unwrap();
        drop((process, socket));
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn what_can_not_be_started_is_told_with_the_reason() {
        let task = task(&["/no/such/program"]);
        let kept = Kept::new(&task.start, Waker::none());
        let (why, _) = life(&kept, &task, 1).unwrap();
        assert!(why.contains("can't be started"), "{why}");
    }

    #[test]
    fn what_a_process_says_before_it_ends_is_heard_though_others_hold_its_socket() {
        let said = r#"{"Failed":{"code":"ARD-202","why":"it chokes"}}"#;
        let script = format!("cat <&0 >/dev/null 2>&1 & printf '%s\\nhalf' '{said}' >&0");
        let mut task = task(&["sh", "-c", &script]);
        let kept = Kept::new(&task.start, Waker::none());
        let (why, code) = life(&kept, &task, 1).unwrap();
        assert_eq!((&*why, code), ("it chokes", Some(ErrorCode::UserError)));
        assert_eq!(kept.process(), None);
        task.command = ["sh", "-c", "cat <&0 >/dev/null 2>&1 & kill -9 $$"]
            .map(Into::into)
            .to_vec();
        let (why, code) = life(&kept, &task, 2).unwrap();
        assert!(why.contains("signal: 9") && code.is_none(), "{why}");
    }

    #[test]
    fn messages_of_processes_that_took_each_others_place_are_added_up() {
        let task = task(&["false"]);
        let kept = Kept::new(&task.start, Waker::none());
        assert_eq!(kept.messages(), None);
        for _ in 0..2 {
            let counts = MessageCounts {
                acked: 5,
                pending: 7,
                ..MessageCounts::default()
            };
            let told = serde_json::to_vec(&FromInstance::Messages(Box::new(counts)));
            hear(&kept, &told.unwrap(), &mut None);
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
        lives(&Kept::new(&task.start, Waker::none()), &task);
        drop(task);
        assert_eq!(deaths.iter().collect::<Vec<_>>(), [None, None, Some(3)]);
    }
}
