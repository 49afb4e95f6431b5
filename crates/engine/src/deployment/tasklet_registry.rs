//! The tasklets of a job in this process, and the requests made to each.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, PoisonError};

use ardea_core::{EdgeId, Error, ErrorCode, Result};

use crate::channels::control_queue::{Change, ControlQueue, Handover};
use crate::channels::output::OutputEdge;
use crate::channels::pending_acks::PendingAcks;
use crate::channels::queue::QueueSender;
use crate::deployment::launch::Launch;
use crate::executor::threads::Threads;
use crate::executor::worker_shared::TaskletWaker;
use crate::job::JobShared;
use crate::planning::wiring::{Role, Wiring};
use crate::{Layout, OnInstanceFailure, Placement};

mod queue_wiring;
mod rewire_plan;
mod target_layout;

use rewire_plan::RewirePlan;

/// A queue of an output: the number of the receiving tasklet, and its input.
pub(super) type LaneKey = (u64, usize);

/// The queues of an output, in order; only the first `consumers` get records.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct LaneKeys {
    keys: Vec<LaneKey>,
    consumers: usize,
}

/// A started tasklet.
pub(super) struct Member {
    /// Unique among all tasklets that the job ever had here.
    number: u64,
    place: TaskletWaker,
    mailbox: Arc<ControlQueue>,
    outputs: Vec<LaneKeys>,
    /// True if the tasklet was requested to stop.
    is_leaving: bool,
    /// True if the routing leads to the tasklet, even if it is stopping.
    is_routed: bool,
    is_source: bool,
    is_kept_back: bool,
    was_recalled: bool,
    /// Senders that hold inputs open for producers that are not started yet; by edge and input.
    reservations: BTreeMap<(EdgeId, usize), QueueSender>,
}

impl Member {
    fn has_ended(&self) -> bool {
        self.mailbox.has_ended()
    }

    /// Posts a change and wakes the tasklet.
    fn post_change(&self, change: Change) {
        match self.mailbox.post(change) {
            Ok(()) => self.place.wake(),
            // It has ended meanwhile.
            Err(Change::Lanes { lanes, .. }) => OutputEdge::end_new(lanes),
            Err(Change::Inlets(inlets)) => {
                inlets.into_iter().for_each(|inlet| inlet.receiver.close());
            }
            Err(_) => {}
        }
    }
}

/// Queues of a source that moves to another process. Their readers get the end-of-stream marker
/// when the routing leads to the other process, since all processes then know of the move.
struct RelocatedSourceQueues {
    role: Role,
    lanes: Handover,
    /// The control queue of the source, which shows whether it has ended.
    mailbox: Arc<ControlQueue>,
    is_released: bool,
}

/// All tasklets of a job in this process.
pub(super) struct TaskletRegistry {
    wiring: Arc<Wiring>,
    launch: Arc<Launch>,
    on_failure: OnInstanceFailure,
    members: BTreeMap<Role, Member>,
    /// The next placement of the latest layout.
    next: Option<Placement>,
    /// Queues of sources that moved to other processes.
    left: Vec<RelocatedSourceQueues>,
    next_number: u64,
    /// The thread that got the job's first tasklet.
    first_thread: usize,
    unsettled: Arc<PendingAcks>,
    has_put_off_epochs: bool,
    is_kept: bool,
}

impl TaskletRegistry {
    /// Creates an empty registry.
    pub(super) fn new(launch: Launch, on_failure: OnInstanceFailure, first_thread: usize) -> Self {
        TaskletRegistry {
            wiring: Arc::clone(&launch.wiring),
            launch: Arc::new(launch),
            on_failure,
            members: BTreeMap::new(),
            next: None,
            left: Vec::new(),
            next_number: 0,
            first_thread,
            unsettled: Arc::default(),
            has_put_off_epochs: false,
            is_kept: true,
        }
    }

    /// Declares that the job will not be changed any more.
    pub(super) fn let_go(&mut self) {
        self.is_kept = false;
    }

    /// Returns true if the job may still be changed.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Starts all tasklets that the layout adds, stops those that it removes, and connects them.
    ///
    /// # Errors
    /// As [`Deployment::rewire`](crate::Deployment::rewire); then nothing is changed.
    pub(super) fn arrange(
        &mut self,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) -> Result<()> {
        self.wiring.check(layout)?;
        self.forget_gone(job);
        self.recall();
        if !self.members.is_empty() && !self.has_put_off_epochs {
            self.has_put_off_epochs = true;
            job.defer_epochs();
        }
        let drafted = RewirePlan::make(self, layout, threads, job);
        match drafted {
            Ok(draft) => {
                draft.carry_out(self, layout, threads, job);
                Ok(())
            }
            Err(error) => {
                self.dismiss_again();
                self.is_settled(job);
                Err(error)
            }
        }
    }

    /// Revokes the stop of ends of edges that have not ended.
    fn recall(&mut self) {
        let mut gone = Vec::new();
        for (role, member) in &mut self.members {
            if matches!(role, Role::Chain { .. }) || !member.is_leaving {
                continue;
            }
            match member.mailbox.post(Change::Recall) {
                Ok(()) => member.place.wake(),
                Err(_) => gone.push(*role),
            }
            member.is_leaving = false;
            member.was_recalled = true;
        }
        gone.iter().for_each(|role| drop(self.members.remove(role)));
    }

    /// Repeats the stop of ends of edges after a change was refused.
    fn dismiss_again(&mut self) {
        for member in self.members.values_mut() {
            if std::mem::take(&mut member.was_recalled) {
                member.is_leaving = true;
                member.post_change(Change::Dismiss);
            }
        }
    }

    /// Returns true if all requests are applied: queues are replaced, and stopped tasklets have
    /// ended except instances to which the routing leads.
    ///
    /// Receiving ends of edges are not awaited: they end when the other processes end them.
    pub(super) fn is_settled(&mut self, job: &JobShared) -> bool {
        let is_settled = self.release()
            && self.unsettled.is_none()
            && self
                .members
                .iter()
                .filter(|(role, member)| {
                    let is_receiver = matches!(role, Role::Receiver { .. });
                    let goes_on = member.is_routed && !member.is_source;
                    member.is_leaving && !goes_on && !is_receiver
                })
                .all(|(_, member)| member.has_ended());
        if is_settled && self.has_put_off_epochs {
            self.has_put_off_epochs = false;
            job.resume_epochs();
        }
        is_settled
    }

    /// Sends end-of-stream markers to the readers of queues left by moved sources, as far as there
    /// is room. Returns true if no released queue is without its marker.
    fn release(&mut self) -> bool {
        self.left.retain_mut(|left| {
            if !left.is_released {
                return true;
            }
            let has_ended = left.mailbox.has_ended();
            let mut lanes = left.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            *lanes = mem::take(&mut *lanes)
                .into_iter()
                .filter_map(QueueSender::end)
                .collect();
            !(has_ended && lanes.is_empty())
        });
        self.left.iter().all(|left| !left.is_released)
    }

    /// Removes stopped tasklets that have ended.
    fn forget_gone(&mut self, job: &JobShared) {
        let mut gone = Vec::new();
        self.members.retain(|_, member| {
            let is_gone = member.is_leaving && member.has_ended();
            if is_gone {
                gone.push(member.number);
            }
            !is_gone
        });
        if !gone.is_empty() {
            job.forget(|number| gone.contains(&number));
        }
    }

    /// Returns the error for a tasklet that is required again while it is still ending.
    fn still_ending(&self, role: Role) -> Error {
        let what = match role {
            Role::Chain { chain, instance } => {
                let names = self.wiring.plan.tasklets[chain].names.join(" → ");
                format!("instance {instance} of {names} is")
            }
            Role::Sender { .. } | Role::Receiver { .. } => "an end of an edge is".to_string(),
        };
        Error::new(
            ErrorCode::WrongState,
            format!("{what} still ending after the last change of the job"),
        )
        .hint("wait until that is settled, then change it again")
    }
}
