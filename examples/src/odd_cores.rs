//! A custom scheduler: runs containers on the odd cores of this machine and leaves the even ones to
//! other programs.
//!
//! The scheduler delegates to the scheduler `local`, and pins the process of each started container
//! with all its threads; child processes inherit the pinning.

use std::process::Command;
use std::sync::Arc;

use ardea_coordination::control::SchedulerTraits;
use ardea_scheduler::{
    ContainerEvent, ContainerEvents, EventFeed, LaunchPlan, Local, Pending, RunningContainer,
    Scheduler, SchedulerKind, container_events,
};

/// The scheduler; add it with `Schedulers::none().with("odd-cores", OddCores::of(local))`.
#[derive(Debug)]
pub struct OddCores {
    local: Local,
    cores: Vec<String>,
}

impl OddCores {
    /// Creates a scheduler for the odd cores of this machine, or for its only core.
    pub fn of(local: Local) -> Self {
        let count = std::thread::available_parallelism().map_or(1, |count| count.get());
        let odd = (1..count).step_by(2).map(|core| core.to_string());
        let cores = odd.collect();
        OddCores { local, cores }
    }

    /// Returns the numbers of the cores in the format of `taskset`.
    pub fn cores(&self) -> String {
        match self.cores.is_empty() {
            true => "0".to_string(),
            false => self.cores.join(","),
        }
    }
}

impl SchedulerKind for OddCores {
    fn traits(&self) -> SchedulerTraits {
        self.local.traits()
    }

    fn initialize(&self, launch: LaunchPlan) -> Pending<'_, (Arc<dyn Scheduler>, ContainerEvents)> {
        Box::pin(async move {
            let (scheduler, events) = self.local.initialize(launch).await?;
            let (feed, pinned) = container_events();
            tokio::spawn(pass_on(events, feed, self.cores()));
            Ok((scheduler, pinned))
        })
    }
}

/// Forwards container events and pins started containers. Ends with the scheduler, or when the
/// receiver is gone.
async fn pass_on(mut events: ContainerEvents, feed: EventFeed, cores: String) {
    while let Some(event) = events.next().await {
        let trouble = match &event {
            ContainerEvent::Started(running) => pin(running, &cores).err(),
            _ => None,
        };
        let container = match &event {
            ContainerEvent::Started(running) => Some(running.worker.container),
            _ => None,
        };
        let told = feed.send(event);
        if let Some(why) = trouble {
            let text = format!("it is not pinned to the cores {cores}: {why}");
            feed.send(ContainerEvent::Notice { container, text });
        }
        if !told {
            return;
        }
    }
}

fn pin(running: &RunningContainer, cores: &str) -> Result<(), String> {
    let pid = running.process.strip_prefix("pid ").unwrap_or_default();
    let pinned = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", cores, pid])
        .output();
    match pinned {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => Err(format!("taskset: {error}")),
    }
}
