//! The command that starts the process of an instance, and the limits of that process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::OnError;
use serde_json::{Map, Value};

/// The environment variable with the name of the vertex or component that a process of the job's
/// own program is to serve.
pub const COMPONENT_VARIABLE: &str = "ARDEA_COMPONENT";

/// The optimizations of the transfer between a host and its process. All are on by default; a
/// measurement may turn some off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferOptions {
    /// Buffers of answered batches are used again.
    pub reuses_buffers: bool,
    /// The head of a frame is sent before the payload of the batch, which is not copied.
    pub shares_payloads: bool,
    /// Large payloads go through shared memory, if the process can use it.
    pub rings: bool,
}

impl Default for TransferOptions {
    fn default() -> Self {
        TransferOptions {
            reuses_buffers: true,
            shares_payloads: true,
            rings: true,
        }
    }
}

/// A command that speaks the instance protocol, and the settings of a step that runs it.
///
/// ```
/// use ardea_instance::InstanceCommand;
///
/// let command = InstanceCommand::new("node")
///     .file("double.js", "// the program, which becomes part of the job")
///     .arg("double.js")
///     .parameter("factor", 2);
/// assert_eq!(command.to_string(), "node double.js");
/// ```
#[derive(Clone, Debug)]
pub struct InstanceCommand {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) files: Vec<(String, Arc<[u8]>)>,
    pub(crate) parameters: Map<String, Value>,
    pub(crate) window_batches: usize,
    pub(crate) batch_bytes: usize,
    pub(crate) start_timeout: Duration,
    pub(crate) answer_timeout: Duration,
    pub(crate) stop_timeout: Duration,
    pub(crate) deaths_per_record: u32,
    pub(crate) restarts_in_a_row: u32,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) address_space_bytes: Option<u64>,
    pub(crate) cpu_millicores: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) on_error: OnError,
    pub(crate) transfer: TransferOptions,
}

impl InstanceCommand {
    /// Creates a command. A program without a slash is searched in `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        InstanceCommand {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            directory: None,
            files: Vec::new(),
            parameters: Map::new(),
            window_batches: 4,
            batch_bytes: 256 << 10,
            start_timeout: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
            deaths_per_record: 3,
            restarts_in_a_row: 10,
            memory_bytes: None,
            address_space_bytes: None,
            cpu_millicores: None,
            open_files: None,
            on_error: OnError::default(),
            transfer: TransferOptions::default(),
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item: Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory. Default: that of the host, or a temporary directory if the
    /// command has [files](Self::file).
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Adds a file that is written to a temporary directory before the process starts. That
    /// directory is the working directory, so `name` is a valid argument. The file is part of the
    /// job's program, so that it is present on all hosts.
    pub fn file(mut self, name: impl Into<String>, content: impl AsRef<[u8]>) -> Self {
        self.files.push((name.into(), Arc::from(content.as_ref())));
        self
    }

    /// Sets a parameter that the instance gets in CONFIGURE.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.into(), value.into());
        self
    }

    /// Sets the maximum number of batches that the process has not answered. Default: 4.
    pub fn window_batches(mut self, batches: usize) -> Self {
        self.window_batches = batches.max(1);
        self
    }

    /// Sets the approximate maximum size of a batch. Default: 256 KiB.
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes.clamp(1, 8 << 20);
        self
    }

    /// Sets the time within which the process must be ready. Default: 60 s.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Sets the time within which the process must answer or send a heartbeat. A process that does
    /// neither is killed. Default: 60 s.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// Sets the time within which the process must exit when it is stopped. Default: 10 s.
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        self.stop_timeout = timeout;
        self
    }

    /// Sets the number of deaths of the process after which a record that was in flight at each of
    /// them becomes a dead letter. Default: 3. At least 2: many records are in flight at the first
    /// death, which does not identify one.
    pub fn deaths_per_record(mut self, deaths: u32) -> Self {
        self.deaths_per_record = deaths.max(2);
        self
    }

    /// Sets the number of restarts of the process without an answer between them, after which the
    /// job fails. Default: 10.
    pub fn restarts_in_a_row(mut self, restarts: u32) -> Self {
        self.restarts_in_a_row = restarts;
        self
    }

    /// Limits the resident memory of the process. The host reads it five times a second, and kills
    /// a process that exceeds it. A control group also limits all processes of the instance, if the
    /// host may create one.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Limits the address space of the process (`RLIMIT_AS`): an allocation beyond it fails.
    /// Programs with a garbage collector reserve much more than they use.
    pub fn address_space_bytes(mut self, bytes: u64) -> Self {
        self.address_space_bytes = Some(bytes);
        self
    }

    /// Limits the processor time, in thousandths of a core, by a control group (version 2). The log
    /// has a warning if the host may not create one.
    pub fn cpu_millicores(mut self, millicores: u64) -> Self {
        self.cpu_millicores = Some(millicores);
        self
    }

    /// Limits the open files of the process (`RLIMIT_NOFILE`).
    pub fn open_files(mut self, files: u64) -> Self {
        self.open_files = Some(files);
        self
    }

    /// Sets the policy for records that the instance can't process. Default: dead letters.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = policy;
        self
    }

    /// Sets the optimizations of the transfer, for measurements.
    pub fn transfer(mut self, options: TransferOptions) -> Self {
        self.transfer = options;
        self
    }
}

impl std::fmt::Display for InstanceCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.args
            .iter()
            .try_for_each(|arg| write!(f, " {}", arg.display()))
    }
}
