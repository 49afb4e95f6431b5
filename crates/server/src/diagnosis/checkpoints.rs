//! Causes in checkpoints: barriers that wait, and checkpoints that cannot be committed.

use std::time::Duration;

use ardea_rest::{CauseKind, CauseView, FigureUnit, Phase};

use super::cause::Cause;
use super::figures::{CheckpointFigures, Figures, VertexFigures};

/// Number of configured intervals after which the next commit is overdue.
const OVERDUE_INTERVALS: u32 = 5;

/// Minimum time since the latest commit that counts as overdue.
const OVERDUE_FROM: Duration = Duration::from_secs(15);

/// Share of time from which alignment holds back a step.
const ALIGNED_FROM: f64 = 0.2;

/// Returns the causes in checkpoints.
pub(super) fn causes(figures: &Figures) -> Vec<CauseView> {
    let Some(checkpoints) = &figures.checkpoints else {
        return Vec::new();
    };
    let overdue = (figures.phase == Phase::Running)
        .then(|| overdue(figures, checkpoints))
        .flatten();
    overdue.or_else(|| aligned(figures)).into_iter().collect()
}

/// Reports that no epoch was committed for a long time, with the reason or the step that holds back
/// barriers.
fn overdue(figures: &Figures, checkpoints: &CheckpointFigures) -> Option<CauseView> {
    let limit = OVERDUE_FROM.max(checkpoints.every * OVERDUE_INTERVALS);
    let age = checkpoints.age.unwrap_or_default();
    let trouble = checkpoints.epochs.trouble.as_deref();
    if age < limit && trouble.is_none() {
        return None;
    }
    let job = &figures.job;
    let holder = slowest(figures).filter(|_| trouble.is_none());
    let (severity, summary, advice) = match (trouble, holder) {
        (Some(trouble), _) => (
            0.9,
            format!("no checkpoint can be committed: {trouble}"),
            "mend what the reason says, such as a full or missing folder of checkpoints".to_string(),
        ),
        (None, Some(vertex)) => (
            0.6,
            format!(
                "the barriers of the checkpoint wait behind the records in the queues before {}",
                vertex.name
            ),
            format!("speed up {}, or shorten the queues: queue_chunks", vertex.name),
        ),
        (None, None) => (
            0.6,
            "the checkpoint takes long, and no step is slow: its files are written slowly, or a worker does not answer".to_string(),
            format!("look at the disk or bucket of checkpoints.folder; `ardea checkpoints {job}` shows bytes and times"),
        ),
    };
    let mut cause = Cause::new(CauseKind::HeldCheckpoint, severity, summary)
        .figure(
            "time since the latest checkpoint",
            age.as_secs_f64(),
            FigureUnit::Seconds,
        )
        .figure(
            "configured interval",
            checkpoints.every.as_secs_f64(),
            FigureUnit::Seconds,
        )
        .figure(
            "aborted epochs in five minutes",
            checkpoints.aborted,
            FigureUnit::Count,
        );
    if let Some(vertex) = holder {
        let fill = vertex.most(|it| it.queue_fill);
        let name = format!("fill of the input queues of {}", vertex.name);
        cause = cause
            .of(vertex.name.as_str())
            .figure(name, fill, FigureUnit::Ratio);
    }
    Some(cause.advice(advice))
}

/// Returns the vertex that most others wait for.
fn slowest(figures: &Figures) -> Option<&VertexFigures> {
    let vertices = figures.vertices.iter();
    let slow = vertices.filter(|it| figures.waiting_for(&it.name).next().is_some());
    slow.max_by_key(|it| figures.waiting_for(&it.name).count())
}

/// Reports a step whose inputs wait for each other's barriers.
fn aligned(figures: &Figures) -> Option<CauseView> {
    let aligned = |vertex: &&VertexFigures| vertex.most(|it| it.aligned);
    let vertices = figures.vertices.iter();
    let worst = vertices.max_by(|a, b| aligned(a).total_cmp(&aligned(b)))?;
    let share = aligned(&worst);
    if share < ALIGNED_FROM {
        return None;
    }
    let name = &worst.name;
    let summary = format!("inputs of {name} wait for the barriers of its slower inputs");
    let cause = Cause::new(CauseKind::HeldCheckpoint, 0.2 + 0.5 * share, summary)
        .of(name.as_str())
        .figure(format!("alignment of {name}"), share, FigureUnit::Ratio);
    Some(cause.advice("speed up the slower input, take checkpoints less often (checkpoints.every), or choose at-least-once, which does not align"))
}

#[cfg(test)]
mod tests {
    use ardea_rest::EpochsView;

    use super::*;
    use crate::diagnosis::example::figures;
    use crate::diagnosis::figures::InstanceFigures;

    fn held(age_s: u64, trouble: Option<&str>) -> Figures {
        let mut figures = figures();
        figures.checkpoints = Some(CheckpointFigures {
            every: Duration::from_secs(1),
            age: Some(Duration::from_secs(age_s)),
            rollbacks: 0.0,
            aborted: 3.0,
            epochs: EpochsView {
                guarantee: "exactly-once".into(),
                life: 1,
                has_begun: true,
                restored_from: None,
                restored_in_ms: None,
                committed: Some(7),
                is_published: true,
                committed_ms: None,
                took_ms: None,
                interval_ms: 1_000,
                written_bytes: None,
                committed_count: 7,
                aborted_count: 3,
                rolled_back_count: 0,
                safe_mode: None,
                trouble: trouble.map(str::to_string),
            },
        });
        figures
    }

    #[test]
    fn a_checkpoint_that_can_not_be_committed_is_reported_with_the_reason() {
        let causes = causes(&held(2, Some("the folder is full")));
        assert_eq!(causes[0].kind, CauseKind::HeldCheckpoint);
        assert!(causes[0].summary.contains("the folder is full"));
    }

    #[test]
    fn the_slow_step_that_holds_back_barriers_is_named() {
        let mut figures = held(40, None);
        assert!(causes(&figures)[0].summary.contains("no step is slow"));
        figures.vertices[0].waits_for = Some("counts".into());
        let found = causes(&figures);
        assert_eq!(found[0].subject.as_deref(), Some("counts"));
        assert_eq!(causes(&held(3, None)), []);
    }

    #[test]
    fn a_step_with_long_alignment_is_named() {
        let mut figures = held(1, None);
        let waiting = InstanceFigures {
            aligned: 0.6,
            ..crate::diagnosis::example::instance(0.2)
        };
        figures.vertices[1].instances.insert(0, waiting);
        let causes = causes(&figures);
        assert_eq!(causes[0].subject.as_deref(), Some("counts"));
        assert_eq!(causes[0].severity, 0.5);
    }
}
