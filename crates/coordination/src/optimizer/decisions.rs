//! The decision when a finding is proposed or carried out.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::elasticity::ElasticityTimer;
use crate::packing::VertexName;

use super::{
    Finding, FindingChange, JobStatistics, OptimizerConfig, OptimizerMode, OptimizerRule,
    OptimizerRules,
};

/// The number of consecutive windows that must have a finding.
const WINDOWS: u32 = 3;

/// An event for the optimizer of a job.
#[derive(Clone, PartialEq, Debug)]
pub enum OptimizerEvent {
    /// Time has passed. `is_running` is true while all instances run and no change is under way.
    Tick {
        /// True while the job's work can be measured.
        is_running: bool,
    },
    /// The statistics of the window, as [`OptimizerAction::Measure`] has requested; `None` if an
    /// instance was not measured.
    Measured(Option<JobStatistics>),
    /// The change that [`OptimizerAction::Apply`] requested was carried out, or refused.
    Applied,
}

/// An action requested by the optimizer of a job.
#[derive(Clone, PartialEq, Debug)]
pub enum OptimizerAction {
    /// Measure the work of the last window.
    Measure,
    /// Report a finding.
    Propose(FindingReport),
    /// Report a finding, and change the numbers of instances.
    Apply(FindingReport, BTreeMap<VertexName, u32>),
    /// A reported finding does not hold any more.
    Withdraw(FindingReport),
}

/// A finding and the name of its rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FindingReport {
    /// The name of the rule.
    pub rule: String,
    /// The finding.
    pub finding: Finding,
}

impl fmt::Display for FindingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            subject, figures, ..
        } = &self.finding;
        write!(f, "{}: {subject}: {figures}", self.rule)
    }
}

/// A finding of the last windows.
#[derive(Debug)]
struct FindingState {
    report: FindingReport,
    /// The number of consecutive windows with the finding.
    windows: u32,
    is_reported: bool,
}

/// Decides when findings are proposed or carried out. Work is measured at the end of each window.
///
/// A finding is reported once, when three windows in a row have it, and withdrawn when a window
/// does not. A change is carried out if the last one is a cool-down ago.
pub struct Optimizer {
    config: OptimizerConfig,
    rules: Vec<(String, Box<dyn OptimizerRule>)>,
    timer: ElasticityTimer,
    is_measuring: bool,
    is_applying: bool,
    last_change: Option<Duration>,
    /// The findings of the last window, by rule and subject.
    tracked: BTreeMap<(String, String), FindingState>,
}

impl Optimizer {
    /// Creates the optimizer of a job that does not run yet.
    pub fn new(config: OptimizerConfig, rules: &OptimizerRules) -> Self {
        Optimizer {
            rules: rules.all(&config),
            timer: ElasticityTimer::new(config.window),
            config,
            is_measuring: false,
            is_applying: false,
            last_change: None,
            tracked: BTreeMap::new(),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// Handles an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: OptimizerEvent) -> Vec<OptimizerAction> {
        if self.config.mode == OptimizerMode::Off {
            return Vec::new();
        }
        match event {
            OptimizerEvent::Tick { is_running } => {
                if !is_running {
                    // The work of a window with an interruption is not that of the job.
                    self.is_measuring = false;
                    self.tracked.values_mut().for_each(|it| it.windows = 0);
                }
                let is_free = is_running && !self.is_applying && !self.is_measuring;
                self.is_measuring |= self.timer.ends(now, is_free);
                match is_free && self.is_measuring {
                    true => vec![OptimizerAction::Measure],
                    false => Vec::new(),
                }
            }
            OptimizerEvent::Measured(job) => {
                let was_asked = std::mem::take(&mut self.is_measuring);
                let job = job.filter(|_| was_asked);
                job.map_or(Vec::new(), |job| self.measured(now, &job))
            }
            OptimizerEvent::Applied => {
                // A refused change is tried again after the cool-down.
                (self.is_applying, self.last_change) = (false, Some(now));
                Vec::new()
            }
        }
    }

    fn measured(&mut self, now: Duration, job: &JobStatistics) -> Vec<OptimizerAction> {
        let mut before = std::mem::take(&mut self.tracked);
        for (rule, code) in &self.rules {
            for finding in code.findings(job) {
                let key = (rule.clone(), finding.subject.clone());
                let known = before.remove(&key);
                let (windows, is_reported) =
                    known.map_or((0, false), |it| (it.windows, it.is_reported));
                let report = FindingReport {
                    rule: rule.clone(),
                    finding,
                };
                let tracked = FindingState {
                    report,
                    windows: windows.saturating_add(1),
                    is_reported,
                };
                self.tracked.insert(key, tracked);
            }
        }
        let gone = before.into_values().filter(|it| it.is_reported);
        let mut actions: Vec<OptimizerAction> = gone
            .map(|it| OptimizerAction::Withdraw(it.report))
            .collect();
        actions.extend(self.due(now));
        actions
    }

    /// Returns the actions for findings of enough windows. At most one change is carried out.
    fn due(&mut self, now: Duration) -> Vec<OptimizerAction> {
        let cools = |last| now.saturating_sub(last) < self.config.cooldown;
        let mut may_apply =
            self.config.mode == OptimizerMode::Apply && !self.last_change.is_some_and(cools);
        let mut actions = Vec::new();
        for tracked in self.tracked.values_mut() {
            if tracked.windows < WINDOWS {
                continue;
            }
            let report = tracked.report.clone();
            match &report.finding.change {
                FindingChange::Instances(counts) if may_apply => {
                    let counts = counts.clone();
                    (may_apply, self.is_applying) = (false, true);
                    (tracked.windows, self.last_change) = (0, Some(now));
                    actions.push(OptimizerAction::Apply(report, counts));
                }
                _ if !tracked.is_reported => {
                    tracked.is_reported = true;
                    actions.push(OptimizerAction::Propose(report));
                }
                _ => {}
            }
        }
        actions
    }
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Optimizer");
        out.field("config", &self.config)
            .field("tracked", &self.tracked)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::statistics::idle;

    /// A rule whose findings are the names of the steps, with a change for `maps`.
    struct Named;

    impl OptimizerRule for Named {
        fn findings(&self, job: &JobStatistics) -> Vec<Finding> {
            let steps = job.steps.iter().map(|step| &step.vertex);
            let found = steps.map(|vertex| Finding {
                subject: vertex.as_str().to_string(),
                figures: "97 % busy".to_string(),
                change: match vertex.as_str() {
                    "maps" => FindingChange::Instances([(vertex.clone(), 4)].into()),
                    _ => FindingChange::ByUser("change the program".to_string()),
                },
            });
            found.collect()
        }
    }

    struct Run {
        optimizer: Optimizer,
        now: Duration,
    }

    impl Run {
        fn new(mode: OptimizerMode) -> Self {
            let config = OptimizerConfig {
                mode,
                ..OptimizerConfig::default()
            };
            let rules = OptimizerRules(BTreeMap::new()).with("named", |_| Box::new(Named));
            Run {
                optimizer: Optimizer::new(config, &rules),
                now: Duration::ZERO,
            }
        }

        /// Lets a window pass that has these steps. Returns its actions in short.
        fn window(&mut self, steps: &[&str]) -> Vec<String> {
            let tick = |is_running| OptimizerEvent::Tick { is_running };
            self.optimizer.on(self.now, tick(true));
            self.now += self.optimizer.config().window;
            let actions = self.optimizer.on(self.now, tick(true));
            if actions != [OptimizerAction::Measure] {
                return vec![format!("{actions:?}")];
            }
            let job = JobStatistics {
                steps: steps.iter().map(|name| idle(name)).collect(),
            };
            let actions = self
                .optimizer
                .on(self.now, OptimizerEvent::Measured(Some(job)));
            let short = |action: &OptimizerAction| match action {
                OptimizerAction::Measure => "measure".to_string(),
                OptimizerAction::Propose(it) => format!("propose {}", it.finding.subject),
                OptimizerAction::Apply(it, _) => format!("apply {}", it.finding.subject),
                OptimizerAction::Withdraw(it) => format!("withdraw {}", it.finding.subject),
            };
            actions.iter().map(short).collect()
        }
    }

    #[test]
    fn a_finding_of_three_windows_is_proposed_once_and_withdrawn_when_it_is_gone() {
        let mut run = Run::new(OptimizerMode::Propose);
        assert!(run.window(&["maps"]).is_empty());
        assert!(run.window(&["maps"]).is_empty());
        assert_eq!(run.window(&["maps"]), ["propose maps"]);
        assert!(run.window(&["maps"]).is_empty());
        assert_eq!(run.window(&[]), ["withdraw maps"]);
        assert!(run.window(&["maps"]).is_empty());
        assert!(run.window(&[]).is_empty(), "it was not proposed again");
    }

    #[test]
    fn a_change_is_applied_once_in_a_cool_down_and_others_are_proposed() {
        let mut run = Run::new(OptimizerMode::Apply);
        for _ in 0..2 {
            assert!(run.window(&["maps", "sink"]).is_empty());
        }
        assert_eq!(
            run.window(&["maps", "sink"]),
            ["apply maps", "propose sink"]
        );
        assert_eq!(run.window(&["maps"]), ["[]"], "the change is under way");
        run.optimizer.on(run.now, OptimizerEvent::Applied);
        let windows = run.optimizer.config().cooldown.as_secs() / 20;
        let mut seen = Vec::new();
        for _ in 0..windows {
            seen.extend(run.window(&["maps", "sink"]));
        }
        assert_eq!(seen, ["propose maps", "apply maps"]);
    }

    #[test]
    fn windows_before_an_interruption_do_not_count() {
        let mut run = Run::new(OptimizerMode::Propose);
        run.window(&["maps"]);
        run.window(&["maps"]);
        run.optimizer
            .on(run.now, OptimizerEvent::Tick { is_running: false });
        assert!(run.window(&["maps"]).is_empty());
        assert!(run.window(&["maps"]).is_empty());
        assert_eq!(run.window(&["maps"]), ["propose maps"]);
    }

    #[test]
    fn an_optimizer_that_is_off_measures_nothing() {
        let mut run = Run::new(OptimizerMode::Off);
        assert_eq!(run.window(&["maps"]), ["[]"]);
    }
}
