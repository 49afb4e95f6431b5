//! The diagnosis of a job: the causes for which it is slow, late or stuck.
//!
//! In reading order:
//!
//! * [`figures`]: the input, [`Figures`]; read from the job's metrics history by [`collect`].
//! * [`cause`]: the builder of a cause.
//! * [`failures`], [`load`], [`event_time`], [`checkpoints`], [`resources`]: the rules. Each is a
//!   pure function from figures to causes.
//!
//! A rule reports a cause only with the figures that show it. Severities are comparable between
//! rules: a cause that stops the job is near one, and a symptom that slows nothing is below 0.3.

mod cause;
mod checkpoints;
mod collect;
mod event_time;
mod failures;
mod figures;
mod load;
mod resources;

#[cfg(test)]
mod example;

use ardea_metrics::History;
use ardea_rest::{CauseView, DiagnosisView, JobDescription, LogicalEdge};

use crate::daemon::metrics_view;
use collect::collect;
pub(crate) use figures::Figures;

/// Returns the diagnosis of a job from its metrics history and its description.
pub(crate) fn diagnose(
    history: &History,
    job: &JobDescription,
    edges: &[LogicalEdge],
    now_ms: u64,
) -> DiagnosisView {
    let top = metrics_view::top(history, job, edges, now_ms);
    let figures = collect(history, job, edges, &top);
    DiagnosisView {
        causes: causes(&figures),
        is_measured: metrics_view::has_any(history),
        job: figures.job,
        phase: figures.phase,
        at_ms: figures.at_ms,
    }
}

/// Returns the causes that the figures show, the most severe first.
fn causes(figures: &Figures) -> Vec<CauseView> {
    let rules = [
        failures::causes,
        load::causes,
        event_time::causes,
        checkpoints::causes,
        resources::causes,
    ];
    let mut causes: Vec<CauseView> = rules.iter().flat_map(|rule| rule(figures)).collect();
    causes.sort_by(|one, other| {
        let by_severity = other.severity.total_cmp(&one.severity);
        by_severity.then_with(|| one.kind.cmp(&other.kind))
    });
    causes
}
