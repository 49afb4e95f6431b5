//! The tasklets of a job in this process, and what has been said of each.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, PoisonError};

use ardea_core::{EdgeId, Error, ErrorCode, Result};

use crate::job::JobShared;
use crate::launch::Launch;
use crate::mailbox::{Change, Handover, Mailbox, Unsettled};
use crate::output::OutputEdge;
use crate::queue::QueueSender;
use crate::threads::Threads;
use crate::wiring::{Role, Wiring};
use crate::worker::TaskletWaker;
use crate::{Crossings, Layout, OnInstanceFailure, Placement};

mod draft;
mod joining;
mod wanted;

use draft::Draft;

/// A queue of an output: the tasklet that it leads to, and the input there.
pub(crate) type LaneKey = (u64, usize);

/// The queues of an output, in order; only the first ones get records.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct LaneKeys {
    keys: Vec<LaneKey>,
    consumers: usize,
}

/// A tasklet that was started.
pub(crate) struct Member {
    /// Its own among all that the job ever had here.
    number: u64,
    place: TaskletWaker,
    mailbox: Arc<Mailbox>,
    outputs: Vec<LaneKeys>,
    /// It is to end when nobody routes to it any more, or at once.
    is_leaving: bool,
    /// The routes lead to it, although it may be leaving.
    is_routed: bool,
    is_source: bool,
    is_kept_back: bool,
    was_recalled: bool,
    /// Hold inputs open for producers that have not been started; by edge and input.
    reservations: BTreeMap<(EdgeId, usize), QueueSender>,
}

impl Member {
    fn has_ended(&self) -> bool {
        self.mailbox.has_ended()
    }

    /// Leaves a change, and sees to it that it is carried out soon.
    fn tell(&self, change: Change) {
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

/// Queues of a source that runs elsewhere, or is about to: their readers learn of its end when the routes lead there, and so when all
/// know where it goes on.
struct Left {
    role: Role,
    lanes: Handover,
    /// The source's, which tells whether it has ended.
    mailbox: Arc<Mailbox>,
    is_released: bool,
}

/// All of them.
pub(crate) struct Roster {
    wiring: Arc<Wiring>,
    launch: Arc<Launch>,
    on_failure: OnInstanceFailure,
    crossings: Option<Arc<dyn Crossings>>,
    members: BTreeMap<Role, Member>,
    /// By which records will be routed next, as was said last.
    next: Option<Placement>,
    /// Queues of sources that went elsewhere.
    left: Vec<Left>,
    next_number: u64,
    /// Where the job's tasklets began to be spread over the threads.
    first_thread: usize,
    unsettled: Arc<Unsettled>,
    has_put_off_epochs: bool,
    is_kept: bool,
}

impl Roster {
    /// Without any yet.
    pub(crate) fn new(
        launch: Launch,
        on_failure: OnInstanceFailure,
        crossings: Option<Arc<dyn Crossings>>,
        first_thread: usize,
    ) -> Self {
        Roster {
            wiring: Arc::clone(&launch.wiring),
            launch: Arc::new(launch),
            on_failure,
            crossings,
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

    /// The job is not going to be changed any more.
    pub(crate) fn let_go(&mut self) {
        self.is_kept = false;
    }

    /// Whether the job may still be changed.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Starts what the layout asks for and is not there, ends what it does not ask for, and joins all to each other.
    ///
    /// # Errors
    /// As [`Deployment::rewire`](crate::Deployment::rewire); nothing has changed then.
    pub(crate) fn arrange(
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
            job.put_off_epochs();
        }
        let drafted = Draft::make(self, layout, threads, job);
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

    /// Calls the ends of edges back that were dismissed and have not ended: from now on they don't, unless they are dismissed again.
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

    /// After a change that was refused: dismisses those again that were called back.
    fn dismiss_again(&mut self) {
        for member in self.members.values_mut() {
            if std::mem::take(&mut member.was_recalled) {
                member.is_leaving = true;
                member.tell(Change::Dismiss);
            }
        }
    }

    /// Whether all that was asked for has been done: queues have been changed, and what was to end has ended, but for the instances
    /// that the routes lead to.
    ///
    /// Ends of edges that come from other processes end when those say so: that is theirs to wait for.
    pub(crate) fn is_settled(&mut self, job: &JobShared) -> bool {
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

    /// Tells the readers of queues that have been left behind of their end, as far as there is room; whether all have been told that
    /// are to be.
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

    /// Strikes off those that were to end and have ended.
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

    /// The error if something that is still ending is wanted again.
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
