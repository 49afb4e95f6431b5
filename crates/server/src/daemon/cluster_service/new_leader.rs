//! Responses from the metrics of a job, also while its leader has just changed.

use crate::leader::{JobView, now_ms};
use ardea_core::{Error, ErrorCode};
use ardea_metrics::History;
use ardea_rest::{Answer, ClusterError, DiagnosisView, JobSummary, LogicalPlan};

use super::ClusterService;
use crate::daemon::{describe, metrics_view};
use crate::diagnosis;

impl ClusterService {
    /// Returns the summary of a job led by this host. Until the containers have reported to a new
    /// leader, the numbers come from the stored job.
    pub(super) async fn summary_of(&self, view: &JobView) -> JobSummary {
        let stored = match describe::leader_changes(view) {
            true => self.jobs.stored(&view.job.name).await.ok().flatten(),
            false => None,
        };
        describe::summary_while(view, stored.as_ref())
    }

    /// Queries a job's metrics. A new leader without any metrics returns an error instead of an
    /// empty result.
    pub(super) async fn measured<T>(
        &self,
        job: &str,
        ask: impl FnOnce(&History) -> T,
    ) -> Answer<T> {
        let desk = self.desk(job).await?;
        let (view, metrics) = (desk.view().await?, desk.metrics().await?);
        let has_told = metrics.ask(metrics_view::has_any);
        if !has_told && describe::has_new_leader(&view) {
            let what = format!(
                "the leader of job {job:?} has just changed, and has not received metrics yet"
            );
            let error = Error::new(ErrorCode::Superseded, what);
            let hint = "its containers continue to run; try again after the interval metrics.every";
            return Err(ClusterError::RetryLater(error.hint(hint)));
        }
        Ok(metrics.ask(ask))
    }

    /// Applies `show` to the metrics and the leader's view of a job.
    pub(super) async fn viewed<T>(
        &self,
        job: &str,
        show: fn(&History, &JobView, u64) -> T,
    ) -> Answer<T> {
        let desk = self.desk(job).await?;
        let (view, metrics) = (desk.view().await?, desk.metrics().await?);
        Ok(metrics.ask(|history| show(history, &view, now_ms())))
    }

    /// Returns the diagnosis of a job.
    pub(super) async fn diagnose(&self, job: &str) -> Answer<DiagnosisView> {
        let desk = self.desk(job).await?;
        let (view, metrics) = (desk.view().await?, desk.metrics().await?);
        let edges = LogicalPlan::of(&view.demand).edges;
        Ok(
            metrics
                .ask(|history| diagnosis::diagnose(history, &view.description, &edges, now_ms())),
        )
    }
}
