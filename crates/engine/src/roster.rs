//! The tasklets of a job in this process, and what has been said of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

use crate::job::JobShared;
use crate::mailbox::{Change, Mailbox, Unsettled};
use crate::output::OutputEdge;
use crate::queue::QueueSender;
use crate::threads::Threads;
use crate::wiring::{Role, Wiring};
use crate::worker::TaskletWaker;
use crate::{Crossings, Layout};

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
    /// The routes lead to it, although it is leaving.
    is_routed: bool,
    is_kept_back: bool,
    /// Holds an end of an edge open for producers that have not been started.
    reservation: Option<QueueSender>,
}

impl Member {
    fn has_ended(&self) -> bool {
        self.mailbox.is_closed()
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

/// All of them.
pub(crate) struct Roster {
    pub(crate) wiring: Wiring,
    crossings: Option<Arc<dyn Crossings>>,
    members: BTreeMap<Role, Member>,
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
        wiring: Wiring,
        crossings: Option<Arc<dyn Crossings>>,
        first_thread: usize,
    ) -> Self {
        Roster {
            wiring,
            crossings,
            members: BTreeMap::new(),
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
                self.is_settled(job);
                Err(error)
            }
        }
    }

    /// Whether all that was asked for has been done: queues have been changed, and what was to end has ended, but for the instances
    /// that the routes lead to.
    pub(crate) fn is_settled(&mut self, job: &JobShared) -> bool {
        let is_settled = self.unsettled.is_none()
            && self
                .members
                .values()
                .all(|member| !member.is_leaving || member.is_routed || member.has_ended());
        if is_settled && self.has_put_off_epochs {
            self.has_put_off_epochs = false;
            job.resume_epochs();
        }
        is_settled
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
            Role::Sender { to, .. } => format!("an edge to process {} is", to.0),
            Role::Receiver { from, .. } => format!("an edge from process {} is", from.0),
        };
        Error::new(
            ErrorCode::WrongState,
            format!("{what} still ending after the last change of the job"),
        )
        .hint("wait until that is settled, then change it again")
    }
}
