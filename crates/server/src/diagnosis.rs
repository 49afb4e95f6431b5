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

use ardea_rest::CauseView;

pub(crate) use collect::collect;
pub(crate) use figures::Figures;

/// Returns the causes that the figures show, the most severe first.
pub(crate) fn causes(figures: &Figures) -> Vec<CauseView> {
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
