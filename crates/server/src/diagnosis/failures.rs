//! Causes in phases and failures: jobs that do not run, restart loops, dead letters.

use ardea_rest::{CauseKind, CauseView, FigureUnit, Phase, ProblemView};

use super::cause::{Cause, listed};
use super::figures::{Figures, RECENT, VertexFigures};

/// Number of rollbacks within [`RECENT`] from which attempts are in a loop.
const ROLLBACKS_FROM: f64 = 2.0;

/// Number of problems of an instance or container from which it fails repeatedly.
const PROBLEMS_FROM: u64 = 3;

/// Returns the causes in phases and failures.
pub(super) fn causes(figures: &Figures) -> Vec<CauseView> {
    let mut causes: Vec<CauseView> = not_running(figures).into_iter().collect();
    causes.extend(restart_loop(figures));
    let vertices = figures.vertices.iter();
    causes.extend(vertices.filter_map(|vertex| dead_letters(figures, vertex)));
    causes
}

/// Reports a phase in which the job processes nothing.
fn not_running(figures: &Figures) -> Option<CauseView> {
    let job = &figures.job;
    let (severity, what, advice) = match figures.phase {
        Phase::Running | Phase::Gone => return None,
        Phase::Paused => (
            0.9,
            "the job's sources are paused",
            format!("ardea resume {job}"),
        ),
        Phase::SafeMode => (
            1.0,
            "the job is in safe mode and waits for a decision",
            format!("fix the cause, then `ardea recover {job}`; `ardea describe {job}` has the details"),
        ),
        Phase::Impossible => (
            1.0,
            "the job cannot be placed or restored",
            format!("change its resources or the cluster; `ardea describe {job}` has the details"),
        ),
        Phase::Reading => (
            0.8,
            "no host leads the job at present",
            "wait for the next leader; if none comes, look at the metadata store and the hosts: ardea cluster status".to_string(),
        ),
        Phase::Starting | Phase::Recovering | Phase::Updating => (
            0.8,
            "the job's containers or instances are not complete",
            format!("wait for them; `ardea describe {job}` lists those that are missing, `ardea logs {job}` their output"),
        ),
        Phase::Finished => (0.3, "all sources of the job have ended", "nothing to do".to_string()),
        Phase::Killing => (0.8, "the job is being killed", "nothing to do".to_string()),
    };
    let summary = match &figures.reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what.to_string(),
    };
    let up = figures.containers.iter().filter(|it| it.is_up).count() as f64;
    let cause = Cause::new(CauseKind::NotRunning, severity, summary)
        .figure("containers that are up", up, FigureUnit::Count)
        .figure(
            "containers",
            figures.containers.len() as f64,
            FigureUnit::Count,
        );
    Some(cause.advice(advice))
}

/// Reports instances, containers or attempts that fail repeatedly, with the latest problem.
fn restart_loop(figures: &Figures) -> Option<CauseView> {
    let failing = figures.vertices.iter().filter(|it| it.is_failing);
    let mut names: Vec<String> = failing.map(|it| it.name.clone()).collect();
    let recent_ms = u64::try_from(RECENT.as_millis()).unwrap_or(u64::MAX);
    let is_recent = |it: &&ProblemView| figures.at_ms.saturating_sub(it.at_ms) <= recent_ms;
    let recent: Vec<&ProblemView> = figures.problems.iter().filter(is_recent).collect();
    let rollbacks = figures.checkpoints.as_ref().map_or(0.0, |it| it.rollbacks);
    let many = recent.iter().filter(|it| it.count >= PROBLEMS_FROM);
    let many: Vec<String> = many.map(|it| it.instance.clone()).collect();
    let severity = match (names.is_empty(), rollbacks >= ROLLBACKS_FROM) {
        (false, _) => 0.95,
        (_, true) => 0.9,
        _ if !many.is_empty() => 0.6,
        _ => return None,
    };
    if names.is_empty() {
        names = many;
    }
    let latest = recent.first();
    let what = match (names.is_empty(), latest) {
        (false, _) => format!("{} fails repeatedly", listed(&names)),
        (true, Some(latest)) => format!(
            "the job returns to its last checkpoint repeatedly, latest because of {}",
            latest.instance
        ),
        (true, None) => "the job returns to its last checkpoint repeatedly".to_string(),
    };
    let summary = match latest {
        Some(latest) => format!("{what}: {}", latest.message),
        None => what,
    };
    let problems = recent.iter().map(|it| it.count).sum::<u64>() as f64;
    let mut cause = Cause::new(CauseKind::RestartLoop, severity, summary).figure(
        "problems of these instances and containers",
        problems,
        FigureUnit::Count,
    );
    if let Some(name) = names.first() {
        cause = cause.of(name.as_str());
    }
    if rollbacks > 0.0 {
        cause = cause.figure("rollbacks in five minutes", rollbacks, FigureUnit::Count);
    }
    let job = &figures.job;
    Some(cause.advice(format!(
        "mend what the message says: `ardea describe {job}` has all problems, `ardea logs {job}` the output; a bad record can go to dead letters instead"
    )))
}

/// Reports recent bad records.
fn dead_letters(figures: &Figures, vertex: &VertexFigures) -> Option<CauseView> {
    if vertex.bad <= 0.0 {
        return None;
    }
    let name = &vertex.name;
    let passed = vertex.sum(|it| it.in_per_s.max(it.out_per_s)) * RECENT.as_secs_f64();
    let share = (vertex.bad / (passed + vertex.bad)).min(1.0);
    let summary = format!("records that {name} cannot process go to dead letters or are dropped");
    let cause = Cause::new(CauseKind::DeadLetters, 0.2 + 0.5 * share, summary)
        .of(name.as_str())
        .figure("bad records in five minutes", vertex.bad, FigureUnit::Count)
        .figure("share of the records", share, FigureUnit::Ratio);
    Some(cause.advice(format!(
        "look at the dead letters of {name} and at `ardea logs {}`: a format has changed, or the step has a fault",
        figures.job
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::example::figures;

    fn problem(count: u64, at_ms: u64) -> ProblemView {
        ProblemView {
            instance: "counts#1".into(),
            count,
            at_ms,
            message: "ARD-201: index out of bounds".into(),
        }
    }

    #[test]
    fn a_job_that_is_not_running_says_so_with_its_reason() {
        let mut figures = figures();
        for (phase, word) in [
            (Phase::Paused, "paused"),
            (Phase::SafeMode, "safe mode"),
            (Phase::Starting, "not complete"),
            (Phase::Impossible, "cannot be placed"),
            (Phase::Reading, "no host leads"),
        ] {
            figures.phase = phase;
            figures.reason = Some("no room for container 3".into());
            let causes = causes(&figures);
            assert_eq!(causes[0].kind, CauseKind::NotRunning);
            let summary = &causes[0].summary;
            assert!(
                summary.contains(word) && summary.contains("no room"),
                "{summary}"
            );
        }
    }

    #[test]
    fn an_instance_that_fails_repeatedly_is_named_with_its_latest_problem() {
        let mut figures = figures();
        figures.problems = vec![problem(7, figures.at_ms - 1_000)];
        let with_problems = causes(&figures);
        assert_eq!(with_problems[0].kind, CauseKind::RestartLoop);
        assert_eq!(with_problems[0].subject.as_deref(), Some("counts#1"));
        figures.vertices[1].is_failing = true;
        let failing = causes(&figures);
        assert_eq!(failing[0].subject.as_deref(), Some("counts"));
        assert!(failing[0].summary.contains("index out of bounds"));
        assert!(failing[0].severity > with_problems[0].severity);
        // A single problem, and old ones, are no loop.
        figures.vertices[1].is_failing = false;
        for problem in [
            problem(1, figures.at_ms),
            problem(9, figures.at_ms - 400_000),
        ] {
            figures.problems = vec![problem];
            assert_eq!(causes(&figures), []);
        }
    }

    #[test]
    fn dead_letters_are_more_severe_if_they_are_many() {
        let severity = |bad| {
            let mut figures = figures();
            figures.vertices[0].bad = bad;
            let causes = causes(&figures);
            assert_eq!(causes[0].kind, CauseKind::DeadLetters);
            causes[0].severity
        };
        assert!(severity(2.0) < 0.25);
        assert!(severity(300_000.0) > 0.35);
    }
}
