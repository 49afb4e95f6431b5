//! The optimizer of a job: the leader measures the work of the job's instances, and reports or
//! carries out what the rules find.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_coordination::control::{CommandId, JobMaster, JobPhase, MasterEvent, Rejection};
use ardea_coordination::elasticity::{SizeChange, VertexLoad};
use ardea_coordination::optimizer::{
    InstanceStatistics, JobStatistics, Optimizer, OptimizerAction, OptimizerConfig, OptimizerEvent,
    OptimizerMode, OptimizerRules, StepStatistics,
};
use ardea_coordination::packing::{InstanceId, JobDemand};
use ardea_core::{Error, Timestamp};
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{Batch, History, Labels, Selector, Value};

use crate::leader::Submitted;
use crate::leader::driver::Driver;
use crate::leader::elasticity::command_of;
use crate::leader::job_metrics::now;

/// The end of the name of a step that combines records before their exchange by key.
const COMBINATION: &str = ": partial";

/// The optimizer of a job, and the command that carries out its latest change.
pub(crate) struct JobOptimizer {
    optimizer: Optimizer,
    /// The command of the latest change, until it is answered.
    command: Option<CommandId>,
    /// The number of reported findings and changes.
    findings: u64,
    /// The time of the first measurement.
    measured_since: Option<Timestamp>,
}

impl JobOptimizer {
    /// Creates the optimizer of a job.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for wrong settings.
    pub(crate) fn of(submitted: &Submitted, rules: &OptimizerRules) -> Result<Self, Error> {
        let config = OptimizerConfig::by(&submitted.definition.settings)?;
        Ok(JobOptimizer {
            optimizer: Optimizer::new(config, rules),
            command: None,
            findings: 0,
            measured_since: None,
        })
    }
}

impl Driver {
    /// Measures the work of the job at the end of a window, and follows what the rules find.
    pub(super) fn optimize(&mut self) {
        if self.adaptation.optimization.optimizer.config().mode == OptimizerMode::Off {
            return;
        }
        let is_running = self.candidate.master().is_some_and(is_running);
        let tick = OptimizerEvent::Tick { is_running };
        let begin = self.begin.elapsed();
        let actions = self.adaptation.optimization.optimizer.on(begin, tick);
        if actions.is_empty() {
            return;
        }
        let measured = OptimizerEvent::Measured(self.statistics());
        let actions = self.adaptation.optimization.optimizer.on(begin, measured);
        for action in actions {
            self.follow_finding(action);
        }
        self.measure_optimizer();
    }

    fn follow_finding(&mut self, action: OptimizerAction) {
        let optimization = &mut self.adaptation.optimization;
        match action {
            OptimizerAction::Measure => {}
            OptimizerAction::Propose(report) => {
                optimization.findings += 1;
                let change = &report.finding.change;
                self.event_history
                    .notice(format!("optimizer: {report}; proposed: {change}"));
            }
            OptimizerAction::Withdraw(report) => {
                let subject = &report.finding.subject;
                let what = format!("optimizer: {}: {subject}: this has ended", report.rule);
                self.event_history.notice(what);
            }
            OptimizerAction::Apply(report, counts) => {
                optimization.findings += 1;
                let what = format!("optimizer: {report}; changes: {}", report.finding.change);
                self.event_history.notice(what);
                let record = self.candidate.master().and_then(JobMaster::record);
                let change = SizeChange::Instances(counts);
                let command = record.and_then(|record| command_of(&change, &record.demand));
                let Some(command) = command else {
                    return self.optimizer_is_answered();
                };
                let id = self.next_command();
                self.adaptation.optimization.command = Some(id);
                self.master(MasterEvent::Command(id, command));
            }
        }
    }

    fn optimizer_is_answered(&mut self) {
        let now = self.begin.elapsed();
        let optimizer = &mut self.adaptation.optimization.optimizer;
        optimizer.on(now, OptimizerEvent::Applied);
    }

    /// Notes the reply to the command of the latest change.
    pub(super) fn note_optimized(&mut self, id: CommandId, reply: &Result<(), Rejection>) {
        let command = &mut self.adaptation.optimization.command;
        if command.take_if(|command| *command == id).is_none() {
            return;
        }
        self.optimizer_is_answered();
        if let Err(refusal) = reply {
            let what = format!("optimizer: the change was refused: {refusal}");
            self.event_history.notice(what);
        }
    }

    /// Adds the number of findings to the metrics of the job.
    fn measure_optimizer(&mut self) {
        let at = now();
        let optimization = &mut self.adaptation.optimization;
        let since = *optimization.measured_since.get_or_insert(at);
        let process = Labels::of([("job", &*self.store.job().name)]);
        let window = optimization.optimizer.config().window;
        let mut batch = Batch::new(process, since, at).every(window);
        let findings = Value::Counter(optimization.findings as f64);
        batch.push(catalogue::FINDINGS.name, &Labels::none(), findings);
        self.links.metrics().take_own(&batch);
    }

    /// Returns the work of the last window; `None` if an instance was not measured.
    fn statistics(&self) -> Option<JobStatistics> {
        let record = self.candidate.master()?.record()?;
        let plan = record.plan.as_ref()?;
        let containers = self.view()?.description.containers.into_iter();
        let hosts: BTreeMap<_, _> = containers
            .filter_map(|container| Some((container.id, container.host_name.or(container.host)?)))
            .collect();
        let host_of = |instance: &InstanceId| {
            let container = plan.container_of(instance)?;
            hosts.get(&container).cloned()
        };
        let window = self.adaptation.optimization.optimizer.config().window;
        let metrics = self.links.metrics();
        metrics.ask(|history| statistics_of(&record.demand, history, window, &host_of))
    }
}

fn is_running(master: &JobMaster) -> bool {
    *master.phase() == JobPhase::Running && master.is_settled()
}

fn statistics_of(
    demand: &JobDemand,
    history: &History,
    window: Duration,
    host_of: &dyn Fn(&InstanceId) -> Option<String>,
) -> Option<JobStatistics> {
    let mut steps = Vec::new();
    for mut load in VertexLoad::of(demand) {
        let name = load.vertex.clone();
        let means = |metric: &Metric| means(history, metric, name.as_str(), window);
        let (busy, blocked) = (means(&catalogue::BUSY), means(&catalogue::BLOCKED));
        let (read, written) = (
            means(&catalogue::RECORDS_IN),
            means(&catalogue::RECORDS_OUT),
        );
        if busy.is_empty() {
            return None;
        }
        let instances: Vec<InstanceStatistics> = busy
            .iter()
            .map(|(index, busy)| InstanceStatistics {
                index: *index,
                host: host_of(&InstanceId::new(name.clone(), *index)),
                records_in: read.get(index).copied().unwrap_or(0.0),
                records_out: written.get(index).copied().unwrap_or(0.0),
                busy: busy.clamp(0.0, 1.0),
            })
            .collect();
        let mean = |values: &BTreeMap<u32, f64>| {
            let sum: f64 = values.values().sum();
            (sum / values.len().max(1) as f64).clamp(0.0, 1.0)
        };
        (load.busy, load.blocked) = (mean(&busy), mean(&blocked));
        load.records_per_second = read.values().sum();
        steps.push(StepStatistics {
            is_combination: name.as_str().ends_with(COMBINATION),
            vertex: name,
            load,
            instances,
        });
    }
    Some(JobStatistics { steps })
}

/// Returns the mean of a metric over the window, by instance of a vertex.
fn means(history: &History, metric: &Metric, vertex: &str, window: Duration) -> BTreeMap<u32, f64> {
    let selector = Selector::of(metric.name).with("vertex", vertex);
    let curves = history.recent(&selector, window, now()).into_iter();
    let means = curves.filter_map(|curve| {
        let instance = curve.labels.get("instance")?.parse().ok()?;
        let sum: f64 = curve.points.iter().map(|point| point.value).sum();
        Some((instance, sum / curve.points.len().max(1) as f64))
    });
    means.collect()
}
