//! The on-line placement of a job: the leader compares the job's plan with others by the measured
//! traffic, and carries out a better one like a user's command.

use std::collections::BTreeMap;

use ardea_coordination::control::{
    Command, CommandId, JobMaster, JobPhase, MasterEvent, Rejection,
};
use ardea_coordination::packing::{ContainerId, PackingConfig, PackingPlan};
use ardea_coordination::placement::{
    BalanceFactor, CandidateLimits, CandidatePlacement, EdgeRate, OnlinePlacement, PlacementAction,
    PlacementConfig, PlacementEvent, PlacementMode, PlacementProposal, TrafficRates,
    better_placement, cut_of_plan,
};
use ardea_core::Error;
use ardea_metrics::Value;
use ardea_metrics::catalogue::{self, Metric};

use crate::leader::Submitted;
use crate::leader::adaptation::AdaptationResult;
use crate::leader::driver::{Driver, TaskResult};
use crate::leader::job_metrics::now;
use crate::leader::measured_rates::{edge_rates, rates};

/// The on-line placement of a job, and the command that carries it out.
pub(crate) struct TrafficPlacement {
    online: OnlinePlacement,
    /// The command that carries out the latest change, until it is answered.
    command: Option<CommandId>,
    /// The number of proposals and changes.
    changes: u64,
    /// The traffic between hosts in the last window, under the present plan and the best one.
    cuts: Option<[u64; 2]>,
}

impl TrafficPlacement {
    /// Creates the on-line placement of a job.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for wrong settings.
    pub(crate) fn of(submitted: &Submitted) -> Result<Self, Error> {
        let config = PlacementConfig::by(&submitted.definition.settings)?;
        Ok(TrafficPlacement {
            online: OnlinePlacement::new(config),
            command: None,
            changes: 0,
            cuts: None,
        })
    }

    /// Returns the proposal that holds at present, if there is one.
    pub(crate) fn proposal(&self) -> Option<PlacementProposal> {
        self.online.proposal()
    }

    /// Returns the metrics of the placement, after the first comparison.
    pub(super) fn measured(&self) -> Option<[(Metric, Value); 3]> {
        let [cut, best] = self.cuts?.map(|cut| Value::Gauge(cut as f64));
        let changes = Value::Counter(self.changes as f64);
        Some([
            (catalogue::PLACEMENT_CUT, cut),
            (catalogue::PLACEMENT_BEST_CUT, best),
            (catalogue::PLACEMENTS, changes),
        ])
    }
}

/// A comparison of a plan with others.
struct Comparison {
    plan: PackingPlan,
    packing: PackingConfig,
    hosts: BTreeMap<ContainerId, String>,
    rates: TrafficRates,
    limits: CandidateLimits,
}

impl Driver {
    /// Compares the plan with others at the end of a window.
    pub(super) fn follow_traffic(&mut self) {
        if self.adaptation.placement.online.config().mode == PlacementMode::Off {
            return;
        }
        let is_running = self.candidate.master().is_some_and(is_running);
        let tick = PlacementEvent::Tick { is_running };
        let now = self.begin.elapsed();
        let action = self.adaptation.placement.online.on(now, tick);
        if action != Some(PlacementAction::Compare) {
            return;
        }
        let Some(comparison) = self.comparison() else {
            return self.follow_traffic_to(None);
        };
        let done = self.done.clone();
        self.tasks.spawn_blocking(move || {
            // A comparison that fails finds nothing better.
            let (cut, better) = comparison.run().unwrap_or_default();
            let result = AdaptationResult::Placement(cut, better.map(Box::new));
            let _ = done.send(TaskResult::Adapted(result));
        });
    }

    /// Notes the result of a comparison for the metrics of the job.
    pub(super) fn note_cuts(&mut self, cut: u64, better: Option<&CandidatePlacement>) {
        let best = better.map_or(cut, |better| better.cut_after);
        self.adaptation.placement.cuts = Some([cut, best]);
    }

    /// Handles the result of a comparison.
    pub(super) fn follow_traffic_to(&mut self, better: Option<Box<CandidatePlacement>>) {
        let compared = PlacementEvent::Compared(better);
        let now = self.begin.elapsed();
        match self.adaptation.placement.online.on(now, compared) {
            Some(PlacementAction::Propose(proposal)) => {
                self.adaptation.placement.changes += 1;
                self.event_history
                    .notice(told(&proposal, "a better placement is proposed"));
            }
            Some(PlacementAction::Apply(proposal, plan)) => {
                self.event_history.notice(told(&proposal, "instances move"));
                let id = self.next_command();
                self.adaptation.placement.changes += 1;
                self.adaptation.placement.command = Some(id);
                self.master(MasterEvent::Command(id, Command::Place(plan)));
            }
            Some(PlacementAction::Withdraw) => {
                let what = "placement: the proposed placement is no longer better";
                self.event_history.notice(what.to_string());
            }
            Some(PlacementAction::Compare) | None => {}
        }
    }

    /// Notes the reply to the command of the latest change.
    pub(super) fn note_placed(&mut self, id: CommandId, reply: &Result<(), Rejection>) {
        let placement = &mut self.adaptation.placement;
        if placement
            .command
            .take_if(|command| *command == id)
            .is_none()
        {
            return;
        }
        let applied = PlacementEvent::Applied {
            is_done: reply.is_ok(),
        };
        placement.online.on(self.begin.elapsed(), applied);
        if let Err(refusal) = reply {
            let what = format!("placement: the change was refused: {refusal}");
            self.event_history.notice(what);
        }
    }

    /// Returns the mean rates of the job's edges since this process leads it.
    pub(super) fn measured_edge_rates(&self) -> Vec<EdgeRate> {
        let metrics = self.links.metrics();
        metrics.ask(|history| edge_rates(history, now()))
    }

    /// Returns the comparison for the present plan and the traffic of the last window.
    fn comparison(&self) -> Option<Comparison> {
        let record = self.candidate.master()?.record()?;
        let plan = (**record.plan.as_ref()?).clone();
        let containers = self.view()?.description.containers.into_iter();
        let hosts = containers.filter_map(|container| {
            // Several hosts may be on one machine.
            let host = container.host_name.or(container.host)?;
            Some((container.id, host))
        });
        let config = self.adaptation.placement.online.config();
        let window = config.window;
        let rates = self
            .links
            .metrics()
            .ask(|history| rates(history, window, now()));
        Some(Comparison {
            plan,
            packing: record.packing.clone(),
            hosts: hosts.collect(),
            rates: rates?,
            limits: CandidateLimits {
                balance: BalanceFactor(config.balance_percent),
                groups: config.groups.map(|groups| groups as usize),
                move_cost: config.move_cost / config.cooldown.as_secs().max(1),
            },
        })
    }
}

impl Comparison {
    /// Returns the traffic between hosts at present, and the best other placement.
    fn run(self) -> Result<(u64, Option<CandidatePlacement>), Error> {
        let Comparison {
            plan,
            packing,
            hosts,
            rates,
            limits,
        } = self;
        let cut = cut_of_plan(&plan, &hosts, &rates)?;
        let better = better_placement(&plan, &packing, &hosts, &rates, limits)?;
        Ok((cut, better))
    }
}

fn is_running(master: &JobMaster) -> bool {
    *master.phase() == JobPhase::Running && master.is_settled()
}

fn told(proposal: &PlacementProposal, what: &str) -> String {
    let PlacementProposal {
        cut_before,
        cut_after,
        moves,
    } = proposal;
    format!(
        "placement: {what}: {cut_after} instead of {cut_before} records/s between hosts, by {moves} moves"
    )
}
