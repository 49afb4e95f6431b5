//! What happens to containers, as a stream of events.

use std::fmt;

use ardea_coordination::control::WorkerId;
use ardea_coordination::packing::ContainerId;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// Something that has happened to a container of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ContainerEvent {
    /// Its process was started, or was found running.
    Started(RunningContainer),
    /// Its process has ended. For a container of this machine this is told within milliseconds.
    Exited {
        /// Which life of which container.
        worker: WorkerId,
        /// How it has ended.
        how: Ending,
        /// The last lines that it wrote to standard error, at most 20.
        last_words: Vec<String>,
    },
    /// Something that a person may want to know, such as that limits can't be enforced.
    Notice {
        /// The container it is about, if it is about one.
        container: Option<ContainerId>,
        /// A sentence without a full stop.
        text: String,
    },
}

/// A container that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningContainer {
    /// Which life of which container.
    pub worker: WorkerId,
    /// The machine that it runs on, by the name under which others reach it.
    pub host: String,
    /// The name in the cluster of the host that runs it, if a host does and the scheduler knows which.
    #[serde(default)]
    pub host_name: Option<String>,
    /// What it is there, for people: `pid 4711`, `step 17.3`.
    pub process: String,
}

/// How a container has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// Its process returned this code.
    Code(i32),
    /// A signal of this number ended its process.
    Signal(i32),
    /// The machine that it ran on is lost.
    HostLost,
    /// It has ended, and nobody can say how: whoever started it was gone before.
    Unknown,
}

/// As a person would say it: `ended with code 3`.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Code(code) => write!(f, "ended with code {code}"),
            Ending::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Ending::HostLost => f.write_str("was on a host that is lost"),
            Ending::Unknown => f.write_str("has ended, it is not known how"),
        }
    }
}

/// The events of one job's containers, in the order in which they were noticed.
#[derive(Debug)]
pub struct ContainerEvents(mpsc::UnboundedReceiver<ContainerEvent>);

impl ContainerEvents {
    /// The next event; `None` when the scheduler was closed or dropped. Cancel-safe.
    pub async fn next(&mut self) -> Option<ContainerEvent> {
        self.0.recv().await
    }

    /// The next event if it has happened already.
    pub fn try_next(&mut self) -> Option<ContainerEvent> {
        self.0.try_recv().ok()
    }
}

/// For implementations: tells [`ContainerEvents`].
///
/// There is no bound: there are a few events a life of a container, and a lost one would be a container that nobody mends.
#[derive(Clone, Debug)]
pub struct EventFeed(mpsc::UnboundedSender<ContainerEvent>);

impl EventFeed {
    /// Tells an event; `false` if nobody listens any more.
    pub fn tell(&self, event: ContainerEvent) -> bool {
        self.0.send(event).is_ok()
    }

    /// Whether nobody listens any more.
    pub fn is_forsaken(&self) -> bool {
        self.0.is_closed()
    }

    /// Ready when nobody listens any more.
    pub async fn forsaken(&self) {
        self.0.closed().await;
    }
}

/// For implementations: the two ends of a stream of events.
pub fn container_events() -> (EventFeed, ContainerEvents) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (EventFeed(sender), ContainerEvents(receiver))
}
