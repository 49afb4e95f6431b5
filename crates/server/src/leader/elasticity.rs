//! The elasticity of a job: the leader measures the job's load, asks the policy, and carries out
//! its proposal like a user's command.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    Command, CommandId, JobMaster, JobPhase, JobRecord, MasterEvent, Rejection,
};
use ardea_coordination::elasticity::{
    ElasticityConfig, ElasticityPolicies, ElasticityPolicy, ElasticityTimer, JobLoad,
    ScalingProposal, SizeChange, VertexLoad,
};
use ardea_coordination::packing::{JobDemand, VertexName};
use ardea_core::Error;
use ardea_metastore::{MetadataStore, layout};
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{History, Selector};
use ardea_scheduler::Drains;

use crate::leader::Submitted;
use crate::leader::adaptation::AdaptationResult;
use crate::leader::driver::{Driver, TaskResult};
use crate::leader::job_metrics::now;

/// The policy of a job, and the time at which it is asked next.
pub(crate) struct Elasticity {
    policy: Box<dyn ElasticityPolicy>,
    window: Duration,
    timer: ElasticityTimer,
    /// The command that carries out the latest proposal, until it is answered.
    command: Option<CommandId>,
    /// The latest reason for which a proposal was refused.
    refused: String,
}

impl Elasticity {
    /// Returns the elasticity of a job, if it has one.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an unknown policy or wrong
    /// settings.
    pub(crate) fn of(
        submitted: &Submitted,
        policies: &ElasticityPolicies,
    ) -> Result<Option<Self>, Error> {
        let config = ElasticityConfig::by(&submitted.definition.settings)?;
        let policy = policies.policy_of(&config)?;
        Ok(policy.map(|policy| Elasticity {
            policy,
            window: config.window,
            timer: ElasticityTimer::new(config.window),
            command: None,
            refused: String::new(),
        }))
    }

    /// Handles the reply to the command `id`. Returns the refusal, if the command is that of the
    /// latest proposal and the refusal is another than before.
    fn answered(&mut self, id: CommandId, reply: &Result<(), Rejection>) -> Option<String> {
        self.command.take_if(|command| *command == id)?;
        let refusal = reply.as_ref().err()?.to_string();
        let is_new = refusal != self.refused;
        self.refused.clone_from(&refusal);
        is_new.then_some(refusal)
    }
}

impl Driver {
    /// Counts the cluster's hosts at the end of a window, if the job has a policy.
    pub(crate) fn follow_load(&mut self) {
        let Some(elasticity) = &mut self.adaptation.elasticity else {
            return;
        };
        let is_running = self.candidate.master().is_some_and(is_running);
        let is_free = is_running && elasticity.command.is_none();
        if elasticity.timer.ends(self.begin.elapsed(), is_free) {
            let (state, done) = (Arc::clone(&self.setup.state), self.done.clone());
            self.tasks.spawn(async move {
                // Without an answer, the next window follows.
                if let Ok(hosts) = count_hosts(state).await {
                    let _ = done.send(TaskResult::Adapted(AdaptationResult::Hosts(hosts)));
                }
            });
        }
    }

    /// Changes the size of the job if its policy proposes that. `hosts` is the number of hosts of
    /// the cluster.
    pub(super) fn follow_load_over(&mut self, hosts: u32) {
        let Some((proposal, command)) = self.proposed_change(hosts) else {
            return;
        };
        let reason = proposal.reason;
        self.event_history.notice(format!("elasticity: {reason}"));
        let id = self.next_command();
        if let Some(elasticity) = &mut self.adaptation.elasticity {
            elasticity.command = Some(id);
        }
        self.master(MasterEvent::Command(id, command));
    }

    /// Notes that a proposal of the policy was refused.
    pub(super) fn note_refused_change(&mut self, id: CommandId, reply: &Result<(), Rejection>) {
        let elasticity = self.adaptation.elasticity.as_mut();
        if let Some(refusal) = elasticity.and_then(|it| it.answered(id, reply)) {
            let what = format!("elasticity: the change was refused: {refusal}");
            self.event_history.notice(what);
        }
    }

    fn proposed_change(&mut self, hosts: u32) -> Option<(ScalingProposal, Command)> {
        let elasticity = self.adaptation.elasticity.as_mut()?;
        let master = self
            .candidate
            .master()
            .filter(|master| is_running(master))?;
        let record = master.record()?;
        let window = elasticity.window;
        let load = self
            .links
            .metrics()
            .ask(|history| load_of(record, history, (window, hosts)));
        let proposal = elasticity.policy.decide(&load?)?;
        let command = command_of(&proposal.change, &record.demand)?;
        Some((proposal, command))
    }
}

fn is_running(master: &JobMaster) -> bool {
    *master.phase() == JobPhase::Running && master.is_settled()
}

/// Returns the number of hosts that are not drained.
async fn count_hosts(state: Arc<dyn MetadataStore>) -> Result<u32, Error> {
    let workers = layout::workers()?;
    let nodes = state.children(&workers).await?;
    let drained = Drains::new(state).hosts().await?;
    let names = nodes
        .iter()
        .filter_map(|node| workers.child(node).ok()?.any_name());
    let count = names.filter(|name| !drained.contains(name)).count();
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns the load of a job; `None` if a vertex has not been measured over the window.
fn load_of(
    record: &JobRecord,
    history: &History,
    (window, hosts): (Duration, u32),
) -> Option<JobLoad> {
    let mut vertices = VertexLoad::of(&record.demand);
    for vertex in &mut vertices {
        let mean = |metric: &Metric| {
            let values = means(history, metric, vertex.vertex.as_str(), window);
            let count = values.len() as f64;
            (count > 0.0).then(|| values.iter().sum::<f64>() / count)
        };
        let (busy, blocked) = (mean(&catalogue::BUSY)?, mean(&catalogue::BLOCKED)?);
        let total = |metric: &Metric| -> f64 {
            means(history, metric, vertex.vertex.as_str(), window)
                .iter()
                .sum()
        };
        let read = total(&catalogue::RECORDS_IN);
        (vertex.busy, vertex.blocked) = (busy.clamp(0.0, 1.0), blocked.clamp(0.0, 1.0));
        vertex.records_per_second = match read > 0.0 {
            true => read,
            false => total(&catalogue::RECORDS_OUT),
        };
    }
    let plan = record.plan.as_ref()?;
    Some(JobLoad {
        window,
        hosts,
        containers: u32::try_from(plan.containers().len()).unwrap_or(u32::MAX),
        vertices,
    })
}

/// Returns the mean of a metric over the window, for each instance of a vertex.
fn means(history: &History, metric: &Metric, vertex: &str, window: Duration) -> Vec<f64> {
    let selector = Selector::of(metric.name).with("vertex", vertex);
    let curves = history.recent(&selector, window, now());
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let values = curves.into_iter();
    let values = values.map(|curve| curve.points.iter().map(|point| point.value).collect());
    values.map(mean).collect()
}

/// Returns the command for a change; `None` if it changes nothing that can be changed. Of vertices
/// that must have the same number of instances, the largest number counts.
pub(super) fn command_of(change: &SizeChange, demand: &JobDemand) -> Option<Command> {
    let counts = match change {
        SizeChange::Containers(containers) => return Some(Command::Rescale(*containers)),
        SizeChange::Instances(counts) => counts,
    };
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(**count));
    let count_in = |demand: &JobDemand, name: &VertexName| {
        let vertex = demand.vertices.iter().find(|vertex| vertex.name == *name);
        vertex.map(|vertex| vertex.parallelism)
    };
    let (mut next, mut wanted) = (demand.clone(), BTreeMap::new());
    for (vertex, count) in counts {
        let before = count_in(demand, vertex);
        // Another vertex may have changed this one.
        let is_change = before == count_in(&next, vertex) && before != Some(*count);
        if is_change && let Ok(changed) = next.with_parallelism(vertex.as_str(), *count) {
            next = changed;
            wanted.insert(vertex.clone(), *count);
        }
    }
    (!wanted.is_empty()).then_some(Command::Update(wanted))
}

#[cfg(test)]
mod tests {
    use ardea_coordination::packing::{COLOCATION_ATTRIBUTE, Resources, VertexDemand};

    use super::*;

    fn demand() -> JobDemand {
        let pair = |name| {
            let vertex = VertexDemand::new(name, 2, Resources::ZERO);
            vertex.attribute(COLOCATION_ATTRIBUTE, "maps")
        };
        JobDemand::new("words")
            .vertex(pair("maps"))
            .vertex(pair("writes"))
            .vertex(VertexDemand::new("counts", 4, Resources::ZERO))
    }

    fn update(counts: &[(&str, u32)]) -> Option<Vec<(String, u32)>> {
        let counts = counts.iter();
        let counts = counts.map(|(vertex, count)| (VertexName::new(*vertex), *count));
        match command_of(&SizeChange::Instances(counts.collect()), &demand())? {
            Command::Update(counts) => {
                let counts = counts.into_iter();
                Some(
                    counts
                        .map(|(name, count)| (name.as_str().into(), count))
                        .collect(),
                )
            }
            _ => None,
        }
    }

    #[test]
    fn the_largest_number_counts_for_vertices_that_have_the_same() {
        let both = [("counts", 6), ("maps", 3), ("writes", 5)];
        let expected = [("counts".to_string(), 6), ("writes".to_string(), 5)];
        assert_eq!(update(&both), Some(expected.into()));
    }

    #[test]
    fn a_change_of_nothing_is_no_command() {
        assert_eq!(update(&[("counts", 4), ("maps", 2)]), None);
        assert_eq!(update(&[("none", 7)]), None);
    }
}
