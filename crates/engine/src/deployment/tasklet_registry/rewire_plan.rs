//! The new tasklets of a change: their threads and their content.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Instance, Result};

use super::target_layout::{TargetLayout, width};
use super::{Member, TaskletRegistry};
use crate::channels::inlet::NewInlet;
use crate::channels::output::OutputEdge;
use crate::deployment::launch::Launch;
use crate::executor::threads::{ThreadPlacement, Threads};
use crate::executor::worker_shared::TaskletWaker;
use crate::job::{InstanceMetricsHandle, JobShared};
use crate::planning::wiring::{Role, TaskletEdge, Wiring};
use crate::remote::{Receiving, Sending};
use crate::stage::{Code, Kind, ProcessorStage};
use crate::tasklet::RestartFactory;
use crate::{Layout, OnInstanceFailure};

/// Maximum number of dedicated threads for the instances of one vertex.
const MAX_THREADS: usize = 10_000;

/// A tasklet that is about to be started.
pub(super) struct NewTasklet {
    pub(super) member: Member,
    pub(super) stages: Vec<ProcessorStage>,
    pub(super) counted: Vec<InstanceMetricsHandle>,
    pub(super) remake: Option<RestartFactory>,
    pub(super) inlets: Vec<NewInlet>,
    pub(super) outputs: Vec<OutputEdge>,
}

/// A change that is prepared but not applied.
pub(super) struct RewirePlan {
    pub(super) wanted: TargetLayout,
    pub(super) new_tasklets: BTreeMap<Role, NewTasklet>,
    pub(super) places: ThreadPlacement,
}

impl RewirePlan {
    /// # Errors
    /// As [`TaskletRegistry::arrange`].
    pub(super) fn make(
        roster: &TaskletRegistry,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) -> Result<Self> {
        let mut draft = RewirePlan {
            wanted: TargetLayout::of(roster, layout)?,
            new_tasklets: BTreeMap::new(),
            places: ThreadPlacement::default(),
        };
        let found = draft.find_places(roster, threads)?;
        for (role, place) in found {
            let number = roster.next_number + draft.new_tasklets.len() as u64;
            let recruit = NewTasklet::make(roster, (role, number), place, layout)?;
            draft.new_tasklets.insert(role, recruit);
        }
        threads.start(job, &draft.places)?;
        Ok(draft)
    }

    /// Selects a thread for every new tasklet. Instances are spread over the threads, and jobs
    /// start at different ones; each blocking tasklet gets a dedicated thread.
    fn find_places(
        &mut self,
        roster: &TaskletRegistry,
        threads: &Threads,
    ) -> Result<BTreeMap<Role, TaskletWaker>> {
        let plan = &roster.wiring.plan;
        let roles = self
            .wanted
            .chains
            .keys()
            .chain(self.wanted.crossings.keys());
        let new = roles.filter(|role| !roster.members.contains_key(role));
        let new: Vec<Role> = new.copied().collect();
        check_threads(&roster.wiring, &new)?;
        let mut found = BTreeMap::new();
        for role in new {
            let place = match role {
                Role::Chain { chain, .. } if plan.tasklets[chain].is_dedicated() => {
                    threads.reserve_own(&mut self.places)?
                }
                Role::Chain { chain, instance } => {
                    // Instances of the same index stay together if forward edges join them; single
                    // ones take turns.
                    let is_lone = plan.tasklets[chain].parallelism == 1;
                    let number = if is_lone { chain } else { instance as usize };
                    threads.reserve(roster.first_thread + number, &mut self.places)?
                }
                _ => threads.reserve(threads.next(), &mut self.places)?,
            };
            found.insert(role, place);
        }
        Ok(found)
    }
}

fn check_threads(wiring: &Wiring, new: &[Role]) -> Result<()> {
    let mut wanted = vec![0; wiring.plan.tasklets.len()];
    for role in new {
        if let Role::Chain { chain, .. } = role {
            wanted[*chain] += 1;
        }
    }
    for (planned, wanted) in wiring.plan.tasklets.iter().zip(wanted) {
        if planned.is_dedicated() && wanted > MAX_THREADS {
            return Err(Error::new(
                ErrorCode::LimitReached,
                format!(
                    "the vertex {:?} needs {wanted} threads of its own, more than {MAX_THREADS}",
                    planned.names[0]
                ),
            )
            .hint("lower its parallelism"));
        }
    }
    Ok(())
}

impl NewTasklet {
    fn make(
        roster: &TaskletRegistry,
        (role, number): (Role, u64),
        place: TaskletWaker,
        layout: &Layout,
    ) -> Result<Self> {
        let launch = &roster.launch;
        let (mut is_kept_back, mut remake) = (false, None);
        let (stages, counted) = match role {
            Role::Chain { chain, instance } => {
                let head = launch.wiring.plan.tasklets[chain].head();
                let is_placed = layout.routes.site(head, instance) == Some(layout.routes.here());
                is_kept_back = !is_placed && launch.wiring.is_source(chain);
                let counts = layout.placements().map(|p| p.parallelism(head));
                let [now, next] = counts;
                let which = Instance {
                    index: instance,
                    parallelism: if instance < next { next } else { now },
                };
                // Tasklets added later start without restored state.
                let begins = roster.next_number == 0;
                let made = launch.chain(chain, which, &place, (is_kept_back, begins), None)?;
                if let OnInstanceFailure::Restart { at_most } = roster.on_failure {
                    let (launch, counted) = (Arc::clone(launch), made.1.clone());
                    let of = (chain, which);
                    remake = Some(RestartFactory::new(
                        launch,
                        of,
                        place.clone(),
                        counted,
                        at_most,
                    ));
                }
                made
            }
            Role::Sender { edge, .. } | Role::Receiver { edge, .. } => {
                let joint = launch.wiring.joint(edge).ok_or_else(no_crossings)?;
                (
                    vec![crossing(launch, roster, role, joint, &place, layout)?],
                    Vec::new(),
                )
            }
        };
        Ok(NewTasklet {
            member: Member {
                number,
                place,
                mailbox: Arc::default(),
                outputs: Vec::new(),
                is_leaving: false,
                is_routed: false,
                is_source: matches!(role, Role::Chain { chain, .. } if launch.wiring.is_source(chain)),
                is_kept_back,
                was_recalled: false,
                reservations: BTreeMap::new(),
            },
            stages,
            counted,
            remake,
            inlets: Vec::new(),
            outputs: Vec::new(),
        })
    }
}

fn crossing(
    launch: &Launch,
    roster: &TaskletRegistry,
    role: Role,
    joint: &TaskletEdge,
    place: &TaskletWaker,
    layout: &Layout,
) -> Result<ProcessorStage> {
    let remote = launch.remote.as_ref().ok_or_else(no_crossings)?;
    let (code, kind) = match role {
        Role::Sender { edge, to } => {
            let sending = Sending::new(remote.sender(edge, to)?);
            (Code::Sending(Box::new(sending)), Kind::Sender)
        }
        Role::Receiver { edge, from } => {
            let receiving = Receiving::new(remote.receiver(edge, from)?);
            (Code::Receiving(Box::new(receiving)), Kind::Receiver)
        }
        Role::Chain { .. } => return Err(no_crossings()),
    };
    let width = width(roster, role, joint, layout);
    Ok(launch.crossing(joint, code, kind, width, place))
}

fn no_crossings() -> Error {
    Error::new(
        ErrorCode::Internal,
        "an edge leads to another process, but the deployment has no remote edges",
    )
}
