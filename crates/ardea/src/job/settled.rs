//! When a job that was just submitted, or has just begun again, can be said to run, or to fail.

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{JobSummary, Phase, ProblemView};

/// For how long a job has to run without a new problem before it is said to.
const SETTLES: Duration = Duration::from_secs(1);

/// What has become of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It has run for a moment, or does what else needs no waiting for.
    In(Phase),
    /// It can't be packed.
    Impossible,
    /// It waits for somebody to decide.
    SafeMode,
    /// Something has failed, was started again, and has failed again.
    Failing(ProblemView),
}

impl Settled {
    /// Whether it fails of something, again and again.
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Settled::SafeMode | Settled::Failing(_))
    }

    /// What it does, if it does something; `seen` is how the job was seen then.
    ///
    /// # Errors
    /// What it fails of, with the code of that; [`ErrorCode::ResourcesImpossible`] if it can't be packed, and [`ErrorCode::FailsAgain`] if it
    /// waits for somebody to decide.
    pub fn outcome(self, seen: &JobSummary) -> Result<Phase> {
        let (job, reason) = (&seen.name, seen.reason.clone());
        match self {
            Settled::In(phase) => Ok(phase),
            Settled::Impossible => Err(impossible(job, reason)),
            Settled::SafeMode => Err(in_safe_mode(job, reason)),
            Settled::Failing(problem) => Err(failing(job, &problem)),
        }
    }
}

/// Looks at a job until it is clear what has become of it.
#[derive(Debug, Default)]
pub struct Settling {
    was_seen: bool,
    /// Since when it has been running without a new problem.
    runs_since: Option<Instant>,
    /// Whose problem was seen last, or known before, and which of theirs it was.
    last_problem: Option<(String, u64)>,
    /// How many problems are new.
    problems: u64,
}

impl Settling {
    /// Of a job that has been seen so before it was told to begin again.
    pub fn again(before: &JobSummary) -> Self {
        let known = before.last_problem.as_ref();
        Settling {
            last_problem: known.map(|known| (known.instance.clone(), known.count)),
            ..Settling::default()
        }
    }

    /// Whether it has been seen at all.
    pub(super) fn was_seen(&self) -> bool {
        self.was_seen
    }

    /// It was seen so; what has become of it, if that is clear now. One failure may pass: only a second one says that it fails.
    pub fn sees(&mut self, job: &JobSummary, now: Instant) -> Option<Settled> {
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
                return Some(Settled::Failing(problem.clone()));
            }
        }
        match job.phase {
            Phase::Running | Phase::Paused => {
                let since = *self.runs_since.get_or_insert(now);
                (now.duration_since(since) >= SETTLES).then_some(Settled::In(job.phase))
            }
            Phase::Reading | Phase::Starting | Phase::Recovering | Phase::Updating => {
                self.runs_since = None;
                None
            }
            Phase::Impossible => Some(Settled::Impossible),
            Phase::SafeMode => Some(Settled::SafeMode),
            Phase::Finished | Phase::Killing | Phase::Gone => Some(Settled::In(job.phase)),
        }
    }
}

/// What a job fails of, with the code that whoever failed has told.
pub(super) fn failing(job: &str, problem: &ProblemView) -> Error {
    let message = &problem.message;
    // A process tells its error behind how it has ended.
    let told = message
        .split_once(": error: ")
        .map_or(message.as_str(), |(_, told)| told);
    let coded = told.split_once(": ");
    let coded = coded.and_then(|(code, rest)| Some((ErrorCode::named(code)?, rest)));
    // That nobody read what a job wrote is its failure, and no reason to end here in silence.
    let coded = coded.filter(|(code, _)| *code != ErrorCode::OutputClosed);
    let (code, why) = coded.unwrap_or((ErrorCode::StartFailed, message));
    let what = format!(
        "the cluster has job {job:?}, and {} fails",
        problem.instance
    );
    Error::new(code, what).because(why).hint(format!(
        "it is tried again: with a guarantee some times, then the job waits in safe mode, without one again and again; `ardea logs {job}` shows what it wrote, `ardea kill {job}` gives it up"
    ))
}

fn impossible(job: &str, reason: Option<String>) -> Error {
    let what = format!("the cluster has job {job:?}, and can't run it");
    for_reason(Error::new(ErrorCode::ResourcesImpossible, what), reason).hint(format!(
        "if something of a snapshot or savepoint can't be read, restore it: then it begins by itself; else kill it (ardea kill {job}), and submit it again from its newest savepoint (recovery.from) when that is mended, or with less if there is no room"
    ))
}

/// It has a guarantee that it can't keep.
fn in_safe_mode(job: &str, reason: Option<String>) -> Error {
    let what = format!("the cluster has job {job:?}, which does not run");
    for_reason(Error::new(ErrorCode::FailsAgain, what), reason).hint(format!(
        "`ardea describe {job}` shows what happened, `ardea logs {job}` what it wrote"
    ))
}

/// As the cluster says why, if it does.
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
        let mut settling = Settling::default();
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        assert_eq!(settling.sees(&job(Phase::Starting, None), at(0)), None);
        assert_eq!(settling.sees(&job(Phase::Running, None), at(100)), None);
        let once = Some(("a#0", 1));
        assert_eq!(settling.sees(&job(Phase::Running, once), at(900)), None);
        assert_eq!(settling.sees(&job(Phase::Running, once), at(1_800)), None);
        let runs = settling.sees(&job(Phase::Running, once), at(1_900));
        assert_eq!(runs, Some(Settled::In(Phase::Running)));
    }

    #[test]
    fn a_job_fails_when_something_has_failed_twice_whatever_it_does_between() {
        for again in [("a#0", 2), ("b#0", 1), ("container 1", 1)] {
            let mut settling = Settling::default();
            let now = Instant::now();
            let once = job(Phase::Recovering, Some(("a#0", 1)));
            assert_eq!(settling.sees(&once, now), None);
            let twice = job(Phase::Running, Some(again));
            let settled = settling.sees(&twice, now);
            assert!(matches!(settled, Some(Settled::Failing(_))), "{settled:?}");
        }
    }

    #[test]
    fn what_a_job_failed_of_before_it_begins_again_says_nothing() {
        let mut settling = Settling::again(&job(Phase::SafeMode, Some(("a#0", 4))));
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let as_before = job(Phase::Running, Some(("a#0", 4)));
        assert_eq!(settling.sees(&as_before, at(0)), None);
        let once = job(Phase::Recovering, Some(("a#0", 5)));
        assert_eq!(settling.sees(&once, at(500)), None);
        let twice = job(Phase::Recovering, Some(("a#0", 6)));
        let settled = settling.sees(&twice, at(800)).unwrap();
        assert_eq!(
            settled.outcome(&twice).unwrap_err().code(),
            ErrorCode::StartFailed
        );
        let mut settling = Settling::again(&as_before);
        assert_eq!(settling.sees(&as_before, at(0)), None);
        let runs = settling.sees(&as_before, at(1_000));
        assert_eq!(runs, Some(Settled::In(Phase::Running)));
    }

    #[test]
    fn what_needs_no_waiting_for_is_clear_at_once() {
        for phase in [Phase::Finished, Phase::Killing, Phase::Gone] {
            let settled = Settling::default().sees(&job(phase, None), Instant::now());
            assert_eq!(settled, Some(Settled::In(phase)));
        }
    }
}
