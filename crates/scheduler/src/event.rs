//! Events of containers, as a stream.

use std::fmt;

use ardea_coordination::control::WorkerId;
use ardea_coordination::packing::ContainerId;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// An event of a container of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ContainerEvent {
    /// The container's process was started, or was found running.
    Started(RunningContainer),
    /// The container's process has ended. For a container of this machine, this is reported within
    /// milliseconds.
    Exited {
        /// The container's id and incarnation.
        worker: WorkerId,
        /// The way the process ended.
        how: Ending,
        /// The last lines that the process wrote to standard error, at most 20.
        last_words: Vec<String>,
    },
    /// A notice for operators, for example that resource limits can't be enforced.
    Notice {
        /// The container concerned, if it concerns one.
        container: Option<ContainerId>,
        /// A sentence without a full stop.
        text: String,
    },
}

/// A running container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningContainer {
    /// The container's id and incarnation.
    pub worker: WorkerId,
    /// The machine that the container runs on, by the address that other machines use.
    pub host: String,
    /// The cluster's name for the host that runs the container, if the scheduler knows it.
    #[serde(default)]
    pub host_name: Option<String>,
    /// The container's process, for display: `pid 4711`, `step 17.3`.
    pub process: String,
}

/// The way a container ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// The process returned this exit code.
    Code(i32),
    /// A signal of this number ended the process.
    Signal(i32),
    /// The machine that the container ran on is lost.
    HostLost,
    /// The exit status is unknown, because the process that started the container had ended before.
    Unknown,
}

/// Formats the ending for display: `ended with code 3`.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Code(code) => write!(f, "ended with code {code}"),
            Ending::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Ending::HostLost => f.write_str("was on a host that is lost"),
            Ending::Unknown => f.write_str("has ended, the reason is unknown"),
        }
    }
}

/// The event stream of one job's containers, in the order of observation.
#[derive(Debug)]
pub struct ContainerEvents(mpsc::UnboundedReceiver<ContainerEvent>);

impl ContainerEvents {
    /// Waits for the next event; `None` after the scheduler was closed or dropped. Cancel-safe.
    pub async fn next(&mut self) -> Option<ContainerEvent> {
        self.0.recv().await
    }

    /// Returns the next event if one is queued, without waiting.
    pub fn try_next(&mut self) -> Option<ContainerEvent> {
        self.0.try_recv().ok()
    }
}

/// The sender of [`ContainerEvents`], for implementations of schedulers.
///
/// The channel is unbounded. There are only a few events for each incarnation, and after a lost
/// event a failed container would not be restarted.
#[derive(Clone, Debug)]
pub struct EventFeed(mpsc::UnboundedSender<ContainerEvent>);

impl EventFeed {
    /// Sends an event; returns `false` if the receiver was dropped.
    pub fn send(&self, event: ContainerEvent) -> bool {
        self.0.send(event).is_ok()
    }

    /// Returns true if the receiver was dropped.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the receiver is dropped.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Creates an event channel, for implementations of schedulers.
pub fn container_events() -> (EventFeed, ContainerEvents) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (EventFeed(sender), ContainerEvents(receiver))
}
