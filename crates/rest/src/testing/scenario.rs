//! Settings and results of tests with a fake cluster.

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};

use super::FakeCluster;
use crate::{
    CauseKind, CauseView, ClusterError, DeadLetterPosition, DeadLetterView, DeadLettersQuery,
    DeadLettersView, DiagnosisView, FigureUnit, FigureView, TopView,
};

impl FakeCluster {
    /// Makes another host the leader of the job. Requests for the job are redirected to the URL
    /// `base`.
    pub fn set_leader_elsewhere(&self, job: &str, base: &str) {
        self.state().elsewhere.insert(job.into(), base.into());
    }

    /// Makes the next `commands` commands for the job fail because the job has no leader.
    pub fn fail_without_leader(&self, job: &str, commands: u32) {
        let what = format!("the job {job:?} has no leader at present");
        let why = ClusterError::RetryLater(Error::new(ErrorCode::Superseded, what));
        self.refuse(job, commands, why);
    }

    /// Refuses the next `commands` commands for the job, with the error `why`.
    pub fn refuse(&self, job: &str, commands: u32, why: ClusterError) {
        self.state().refusals.insert(job.into(), (commands, why));
    }

    /// Keeps streams of map changes open until the client disconnects. By default they end after
    /// the existing entries.
    pub fn keep_changes_open(&self) {
        self.state().keep_changes_open = true;
    }

    /// Returns the number of refused commands.
    pub fn refused_count(&self) -> u32 {
        self.state().refused
    }

    /// Returns the accepted commands as text, in order.
    pub fn commands(&self) -> Vec<String> {
        self.state().commands.clone()
    }
}

/// Returns a diagnosis that blames the first vertex.
pub(super) fn diagnosis(top: TopView) -> DiagnosisView {
    let causes = top.vertices.first().map(|vertex| CauseView {
        kind: CauseKind::SlowStep,
        subject: Some(vertex.vertex.clone()),
        severity: 0.4,
        summary: format!("the step {} uses all of its time", vertex.vertex),
        figures: vec![FigureView {
            name: format!("busy of {}", vertex.vertex),
            value: vertex.busy.unwrap_or_default(),
            unit: FigureUnit::Ratio,
        }],
        advice: "give it more instances".into(),
    });
    DiagnosisView {
        job: top.job,
        phase: top.phase,
        at_ms: top.at_ms,
        is_measured: true,
        causes: causes.into_iter().collect(),
    }
}

/// Returns a page of three dead letters.
pub(super) fn dead_letters(query: &DeadLettersQuery) -> DeadLettersView {
    let from = query.position().unwrap_or_default().bytes as usize;
    let letters = (0..3).map(|number| DeadLetterView {
        container: ContainerId(1),
        vertex: "counts".into(),
        origin: format!("in.csv:{number}"),
        reason: "no number".into(),
        at_ms: Some(1_000),
        bytes: 3,
        text: Some("1;x".into()),
        base64: None,
    });
    let until = from.saturating_add(query.limit());
    let next = DeadLetterPosition {
        container: ContainerId(1),
        bytes: until as u64,
    };
    DeadLettersView {
        letters: letters.skip(from).take(query.limit()).collect(),
        next: (until < 3).then(|| next.to_text()),
    }
}
