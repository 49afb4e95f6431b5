//! Jobs whose leader has just changed: what is told until it has heard of its containers.

use crate::leader::JobView;
use ardea_core::{Error, ErrorCode};
use ardea_metrics::History;
use ardea_rest::{Answer, JobSummary, Unanswered};

use super::Served;
use crate::daemon::{described, measured};

impl Served {
    /// A job that is led here, in a line. While its leader is changing the numbers are those that are stored.
    pub(super) async fn summary_of(&self, view: &JobView) -> JobSummary {
        let stored = match described::leader_changes(view) {
            true => self.jobs.stored(&view.job.name).await.ok().flatten(),
            false => None,
        };
        described::summary_while(view, stored.as_ref())
    }

    /// What a job's workers have measured. A leader that has just begun to lead it has nothing yet, which is told instead of nothing.
    pub(super) async fn measured<T>(
        &self,
        job: &str,
        ask: impl FnOnce(&History) -> T,
    ) -> Answer<T> {
        let desk = self.desk(job).await?;
        let (view, metrics) = (desk.view().await?, desk.metrics().await?);
        let has_told = metrics.ask(measured::has_any);
        if !has_told && described::is_led_anew(&view) {
            let what = format!(
                "the leader of job {job:?} has just changed, and has not been told what is measured yet"
            );
            let error = Error::new(ErrorCode::Superseded, what);
            let hint =
                "its containers go on; try again when they have told it, after metrics.every";
            return Err(Unanswered::NotYet(error.hint(hint)));
        }
        Ok(metrics.ask(ask))
    }
}
