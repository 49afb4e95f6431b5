//! Upgrades of a job to another program, and the checks before the job stops.

use std::time::Duration;

use crate::leader::{JobHandle, new_submission};
use ardea_checkpoint::cluster::{CheckpointConfig, compare, make_place, unmake_place};
use ardea_coordination::control::{Command, Successor, UpgradeOrder};
use ardea_core::{Error, ErrorCode};
use ardea_rest::{Answer, ClusterError, UpgradeRequest};

use super::checkpoint_pin::RetryLoop;
use super::savepoints::{newest_committed, promise_of};
use super::{ClusterService, check_room, run_blocking};

impl ClusterService {
    /// Starts the upgrade of a job led by this host.
    pub(super) async fn have_followed(&self, job: &str, request: UpgradeRequest) -> Answer<()> {
        let UpgradeRequest {
            definition,
            demand,
            packing,
            patience_ms,
        } = request;
        let of = &definition.job;
        if of.cluster != self.cluster.name || of.name != job {
            let cluster = &self.cluster.name;
            let what = format!("job {of} can't replace {job:?} of cluster {cluster:?}");
            return Err(Error::new(ErrorCode::WrongCluster, what)
                .hint("an upgrade keeps the name and the cluster of the job")
                .into());
        }
        let desk = self.desk(job).await?;
        // A repeated request.
        if desk.job().submission == of.submission {
            return Ok(());
        }
        self.cluster.instances.check(&demand, None)?;
        check_room(&demand, &definition.scheduler, self.machine)?;
        self.schedulers.get(&definition.scheduler)?;
        let policy = self.managers.get(&definition.packing)?;
        policy.pack(&demand, &packing)?;
        let next = Successor {
            definition,
            demand,
            packing,
        };
        let promise = check_promises(&next)?;
        self.compare(&desk, &next).await?;
        self.have_place(&promise.place).await?;
        // Fail before the job stops if the checkpoint location is not writable.
        let (place, of) = (promise.place, next.definition.job.clone());
        let made = (place.clone(), of.clone());
        run_blocking(move || make_place(&made.0, &made.1)).await??;
        let order = UpgradeOrder {
            next,
            back: new_submission(),
            commit_timeout: Duration::from_millis(patience_ms),
        };
        let command = Command::Upgrade(Box::new(order));
        let done = self.execute(&desk, command).await;
        if let Err(ClusterError::Failed(refused)) = &done
            && refused.code() == ErrorCode::WrongState
        {
            // The folder is empty, so a failure is harmless.
            let _ = run_blocking(move || unmake_place(&place, &of)).await;
        }
        done
    }

    /// Rejects a program that cannot restore the state of the job.
    async fn compare(&self, desk: &JobHandle, next: &Successor) -> Answer<()> {
        let job = &desk.job().name;
        let mut looks = RetryLoop::begin();
        loop {
            let view = desk.view().await?;
            promise_of(&view)?;
            let Some(state) = newest_committed(&view) else {
                return Ok(());
            };
            let Some(stored) = self.jobs.stored(job).await? else {
                return Err(ardea_rest::no_such_job(job, [].into_iter()).into());
            };
            let own = Successor {
                definition: view.submitted.definition.clone(),
                demand: stored.record.demand.clone(),
                packing: stored.record.packing.clone(),
            };
            let (next, shelter) = (next.clone(), self.archives.shelter());
            match run_blocking(move || compare(&own, state, &next, shelter.as_ref())).await? {
                // A newer checkpoint has replaced the one being read.
                Err(error)
                    if error.code() == ErrorCode::NoSuchCheckpoint && looks.go_on(state.epoch) => {}
                found => return Ok(found?.check(job, &format!("the job {}", desk.job()))?),
            }
        }
    }
}

/// Returns the checkpoint configuration of the new program. Rejects a configuration that would lose
/// the job's state or start from a savepoint.
fn check_promises(next: &Successor) -> Result<CheckpointConfig, Error> {
    let job = &next.definition.job.name;
    let Some(promise) = CheckpointConfig::of(&next.definition)? else {
        let what = format!("the new program of {job:?} has no processing guarantee");
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("give it a guarantee: --set guarantee=exactly-once"));
    };
    if promise.from.is_some() {
        let what = format!("the new program of {job:?} would start from a savepoint");
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("remove recovery.from: the new program starts with the state of the job"));
    }
    Ok(promise)
}
