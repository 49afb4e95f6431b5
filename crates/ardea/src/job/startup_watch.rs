//! The decision when a job that was just submitted, or restarted, counts as running or as failed.

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{JobSummary, Phase, ProblemView};

/// The time that a job has to run without a new problem to count as running.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The outcome of a job's start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartOutcome {
    /// The job has run for a moment, or is in another phase that needs no waiting.
    In(Phase),
    /// The job can't be packed.
    Impossible,
    /// The job is in safe mode and waits for a decision of the user.
    SafeMode,
    /// An instance or container has failed, was restarted, and has failed again.
    Failing(ProblemView),
}

impl StartOutcome {
    /// Returns true if the job fails repeatedly.
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, StartOutcome::SafeMode | StartOutcome::Failing(_))
    }

    /// Returns the phase of a job that is up; `seen` is the summary that led to this outcome.
    ///
    /// # Errors
    /// The problem of a failing job, with its code; [`ErrorCode::ResourcesImpossible`] if it can't
    /// be packed, and [`ErrorCode::RestartLimitReached`] if it waits for a decision of the user.
    pub fn outcome(self, seen: &JobSummary) -> Result<Phase> {
        let (job, reason) = (&seen.name, seen.reason.clone());
        match self {
            StartOutcome::In(phase) => Ok(phase),
            StartOutcome::Impossible => Err(impossible(job, reason)),
            StartOutcome::SafeMode => Err(in_safe_mode(job, reason)),
            StartOutcome::Failing(problem) => Err(failing(job, &problem)),
        }
    }
}

/// A watcher that decides the outcome of a job's start from the job's summaries.
#[derive(Debug, Default)]
pub struct StartupWatch {
    was_seen: bool,
    /// The time since which the job has been running without a new problem.
    runs_since: Option<Instant>,
    /// The last known problem: its instance, and the instance's problem count.
    last_problem: Option<(String, u64)>,
    /// The number of new problems.
    problems: u64,
}

impl StartupWatch {
    /// Creates a watch for a restarted job; `before` is the job's summary before the restart.
    pub fn again(before: &JobSummary) -> Self {
        let known = before.last_problem.as_ref();
        StartupWatch {
            last_problem: known.map(|known| (known.instance.clone(), known.count)),
            ..StartupWatch::default()
        }
    }

    /// Returns true if the job has been seen at all.
    pub(super) fn was_seen(&self) -> bool {
        self.was_seen
    }

    /// Processes a summary; returns the outcome once it is clear. A single failure is tolerated:
    /// only a second one counts.
    pub fn update(&mut self, job: &JobSummary, now: Instant) -> Option<StartOutcome> {
        self.was_seen = true;
        if let Some(problem) = &job.last_problem {
            let more = match &self.last_problem {
                Some((instance, known)) if *instance == problem.instance => {
                    problem.count.saturating_sub(*known)
                }
                Some(_) => 1,
                None => problem.count,
            };
            if more > 0 {
                self.last_problem = Some((problem.instance.clone(), problem.count));
                self.problems += more;
                self.runs_since = None;
            }
            if self.problems > 1 {
                return Some(StartOutcome::Failing(problem.clone()));
            }
        }
        match job.phase {
            Phase::Running | Phase::Paused => {
                let since = *self.runs_since.get_or_insert(now);
                (now.duration_since(since) >= SETTLE_TIME).then_some(StartOutcome::In(job.phase))
            }
            Phase::Reading | Phase::Starting | Phase::Recovering | Phase::Updating => {
                self.runs_since = None;
                None
            }
            Phase::Impossible => Some(StartOutcome::Impossible),
            Phase::SafeMode => Some(StartOutcome::SafeMode),
            Phase::Finished | Phase::Killing | Phase::Gone => Some(StartOutcome::In(job.phase)),
        }
    }
}

/// Returns the error of a failing job, with the code in the problem's message.
pub(super) fn failing(job: &str, problem: &ProblemView) -> Error {
    let message = &problem.message;
    // A process reports its error after its exit status.
    let told = message
        .split_once(": error: ")
        .map_or(message.as_str(), |(_, told)| told);
    let coded = told.split_once(": ");
    let coded = coded.and_then(|(code, rest)| Some((ErrorCode::from_name(code)?, rest)));
    // A closed output is an error here, and not a silent end as for a local run.
    let coded = coded.filter(|(code, _)| *code != ErrorCode::OutputClosed);
    let (code, why) = coded.unwrap_or((ErrorCode::StartFailed, message));
    let what = format!("job {job:?} was submitted, but {} fails", problem.instance);
    Error::new(code, what).because(why).hint(format!(
        "the cluster restarts it: with a guarantee a few times, then the job waits in safe mode, without one indefinitely; `ardea logs {job}` shows its output, `ardea kill {job}` stops it"
    ))
}

fn impossible(job: &str, reason: Option<String>) -> Error {
    let what = format!("job {job:?} was submitted, but the cluster can't run it");
    for_reason(Error::new(ErrorCode::ResourcesImpossible, what), reason).hint(format!(
        "if a file of a checkpoint or savepoint can't be read, restore the file: then the job starts by itself; otherwise kill the job (ardea kill {job}) and submit it again, from its newest savepoint (recovery.from), or with fewer resources if there is no room"
    ))
}

/// Returns the error of a job in safe mode, whose guarantee can't be kept.
fn in_safe_mode(job: &str, reason: Option<String>) -> Error {
    let what = format!("job {job:?} was submitted, but does not run");
    for_reason(Error::new(ErrorCode::RestartLimitReached, what), reason).hint(format!(
        "`ardea describe {job}` shows what happened, `ardea logs {job}` what it wrote"
    ))
}

/// Adds the reason reported by the cluster, if any.
fn for_reason(error: Error, reason: Option<String>) -> Error {
    match reason {
        Some(reason) => error.because(reason),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(phase: Phase, problem: Option<(&str, u64)>) -> JobSummary {
        JobSummary {
            name: "job".into(),
            submission: "1".into(),
            phase,
            reason: None,
            since_ms: 0,
            container_count: 1,
            worker_count: 1,
            instance_count: 1,
            version: "0".into(),
            restarting_count: 0,
            leader_changes: false,
            last_problem: problem.map(|(instance, count)| ProblemView {
                instance: instance.into(),
                count,
                at_ms: 0,
                message: "why".into(),
            }),
        }
    }

    #[test]
    fn a_job_runs_when_it_has_run_for_a_moment_since_its_only_problem() {
        let mut settling = StartupWatch::default();
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        assert_eq!(settling.update(&job(Phase::Starting, None), at(0)), None);
        assert_eq!(settling.update(&job(Phase::Running, None), at(100)), None);
        let once = Some(("a#0", 1));
        assert_eq!(settling.update(&job(Phase::Running, once), at(900)), None);
        assert_eq!(settling.update(&job(Phase::Running, once), at(1_800)), None);
        let runs = settling.update(&job(Phase::Running, once), at(1_900));
        assert_eq!(runs, Some(StartOutcome::In(Phase::Running)));
    }

    #[test]
    fn a_job_fails_when_something_has_failed_twice_whatever_it_does_between() {
        for again in [("a#0", 2), ("b#0", 1), ("container 1", 1)] {
            let mut settling = StartupWatch::default();
            let now = Instant::now();
            let once = job(Phase::Recovering, Some(("a#0", 1)));
            assert_eq!(settling.update(&once, now), None);
            let twice = job(Phase::Running, Some(again));
            let settled = settling.update(&twice, now);
            assert!(
                matches!(settled, Some(StartOutcome::Failing(_))),
                "{settled:?}"
            );
        }
    }

    #[test]
    fn what_a_job_failed_of_before_it_begins_again_says_nothing() {
        let mut settling = StartupWatch::again(&job(Phase::SafeMode, Some(("a#0", 4))));
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let as_before = job(Phase::Running, Some(("a#0", 4)));
        assert_eq!(settling.update(&as_before, at(0)), None);
        let once = job(Phase::Recovering, Some(("a#0", 5)));
        assert_eq!(settling.update(&once, at(500)), None);
        let twice = job(Phase::Recovering, Some(("a#0", 6)));
        let settled = settling.update(&twice, at(800)).unwrap();
        assert_eq!(
            settled.outcome(&twice).unwrap_err().code(),
            ErrorCode::StartFailed
        );
        let mut settling = StartupWatch::again(&as_before);
        assert_eq!(settling.update(&as_before, at(0)), None);
        let runs = settling.update(&as_before, at(1_000));
        assert_eq!(runs, Some(StartOutcome::In(Phase::Running)));
    }

    #[test]
    fn what_needs_no_waiting_for_is_clear_at_once() {
        for phase in [Phase::Finished, Phase::Killing, Phase::Gone] {
            let settled = StartupWatch::default().update(&job(phase, None), Instant::now());
            assert_eq!(settled, Some(StartOutcome::In(phase)));
        }
    }
}
