//! The storage of a job's checkpoints, as its leader sees it.

use std::fmt;
use std::sync::Arc;

use ardea_coordination::control::{
    EpochsConfig, EpochsNote, EpochsRecord, JobDefinition, JobRef, Left, Needed, Successor,
};
use ardea_core::{Error, ErrorCode, Result};

/// What a master has to know of the snapshots of jobs with a guarantee, which it has taken and does not keep itself.
///
/// A process that stands for a job asks for its epochs first; what it says of one that it has not asked about, or that promises nothing, changes
/// nothing.
pub trait Snapshots: Send + Sync + fmt::Debug {
    /// What the job promises by its settings, and when its epochs end; none if it promises nothing.
    ///
    /// # Errors
    ///
    /// If its settings make no sense.
    fn epochs(&self, definition: &JobDefinition) -> Result<Option<EpochsConfig>>;

    /// Makes snapshots of what workers have saved for the epochs that this record adds to those before it. Called before the record is written,
    /// which is what commits them, and again if that has to be tried again. May wait for as long as writing takes.
    ///
    /// # Errors
    ///
    /// Why there is no such snapshot: then the record is not written, and the epoch given up. Of a job that it was not asked about, or that is
    /// [gone](Self::gone), none can be made.
    fn make(&self, job: &JobRef, record: &Arc<EpochsRecord>) -> Result<()> {
        let _ = (job, record);
        Ok(())
    }

    /// Whether the job begins with state from elsewhere. Must not wait.
    fn brings(&self, job: &JobRef) -> bool {
        let _ = job;
        false
    }

    /// The record that the epochs of a job [begin with](Self::brings) that has none yet: brings its state first. None if it begins with
    /// nothing. May wait for as long as bringing takes; called again it goes on from what there is.
    ///
    /// # Errors
    ///
    /// Why the state can't be brought: then the job does not begin.
    fn first(&self, job: &JobRef) -> Result<Option<Arc<EpochsRecord>>> {
        let _ = job;
        Ok(None)
    }

    /// Makes ready that `next` goes on from what another job of its name has left, and gives its definition as it has to be stored for that.
    /// May wait for files; to do it again changes nothing.
    ///
    /// # Errors
    ///
    /// If `next` can't go on from there, or nothing can be written for it.
    fn follow(&self, next: &Successor, left: &Left<'_>) -> Result<JobDefinition> {
        let _ = left;
        let what = format!(
            "no state is kept here that {} could go on from",
            next.definition.job
        );
        Err(Error::new(ErrorCode::WrongState, what))
    }

    /// Something has come of the job's epochs that a person may want to read. Must not wait.
    fn noted(&self, job: &JobRef, note: &EpochsNote) {
        let _ = (job, note);
    }

    /// The job is gone. Must not wait.
    fn gone(&self, job: &JobRef) {
        let _ = job;
    }

    /// The job needs only these snapshots, as [`EpochsAction::Keep`](ardea_coordination::control::EpochsAction::Keep)
    /// says. Must not wait: it may be done late, or not at all if another one follows.
    fn keep(&self, job: &JobRef, needed: &Needed);
}
