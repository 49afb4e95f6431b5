//! When a job that was just submitted can be said to run, or to fail.

use std::time::{Duration, Instant};

use ardea_api::{JobSummary, Phase, ProblemView};

/// For how long a job has to run without a new problem before it is said to.
const SETTLES: Duration = Duration::from_secs(1);

/// What has become of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Settled {
    /// It has run for a moment, or does what else needs no waiting for.
    In(Phase),
    /// It can't be packed.
    Impossible,
    /// It waits for somebody to decide.
    SafeMode,
    /// Something has failed, was started again, and has failed again.
    Failing(ProblemView),
}

/// Looks at a job until it is clear what has become of it.
#[derive(Debug, Default)]
pub(super) struct Settling {
    was_seen: bool,
    /// Since when it has been running without a new problem.
    runs_since: Option<Instant>,
    /// Whose problem was seen last, and which of theirs it was.
    last_problem: Option<(String, u64)>,
    /// How many problems have been seen.
    problems: u64,
}

impl Settling {
    /// Whether it has been seen at all.
    pub(super) fn was_seen(&self) -> bool {
        self.was_seen
    }

    /// It was seen so; what has become of it, if that is clear now. One failure may pass: only a second one says that it fails.
    pub(super) fn sees(&mut self, job: &JobSummary, now: Instant) -> Option<Settled> {
        self.was_seen = true;
        if let Some(problem) = &job.last_problem {
            let which = (problem.instance.clone(), problem.count);
            if self.last_problem.as_ref() != Some(&which) {
                self.last_problem = Some(which);
                self.problems = (self.problems + 1).max(problem.count);
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
            Phase::Reading | Phase::Starting | Phase::Recovering => {
                self.runs_since = None;
                None
            }
            Phase::Impossible => Some(Settled::Impossible),
            Phase::SafeMode => Some(Settled::SafeMode),
            Phase::Updating | Phase::Finished | Phase::Killing | Phase::Gone => {
                Some(Settled::In(job.phase))
            }
        }
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
    fn what_needs_no_waiting_for_is_clear_at_once() {
        for phase in [Phase::Finished, Phase::Killing, Phase::Gone] {
            let settled = Settling::default().sees(&job(phase, None), Instant::now());
            assert_eq!(settled, Some(Settled::In(phase)));
        }
    }
}
