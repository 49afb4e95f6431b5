//! One program follows another: what is looked at before anything stops.

use std::time::Duration;

use crate::leader::{JobDesk, new_submission};
use ardea_checkpoint::cluster::{Promise, compare, make_place, unmake_place};
use ardea_coordination::control::{Command, Successor, UpgradeOrder};
use ardea_core::{Error, ErrorCode};
use ardea_rest::{Answer, Unanswered, UpgradeRequest};

use super::holding::Looks;
use super::savepoints::{newest_committed, promise_of};
use super::{Served, check_room, looking};

impl Served {
    /// Has another program follow that of a job that is led here.
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
            let what = format!("job {of} can't follow {job:?} of cluster {cluster:?}");
            return Err(Error::new(ErrorCode::WrongCluster, what)
                .hint("a job is followed by one of its name, on its cluster")
                .into());
        }
        let desk = self.desk(job).await?;
        // Somebody asks again.
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
        // A place that can't be written to would be found out when the job has stopped.
        let (place, of) = (promise.place, next.definition.job.clone());
        let made = (place.clone(), of.clone());
        looking(move || make_place(&made.0, &made.1)).await??;
        let order = UpgradeOrder {
            next,
            back: new_submission(),
            patience: Duration::from_millis(patience_ms),
        };
        let command = Command::Upgrade(Box::new(order));
        let done = self.have_done(&desk, command).await;
        if let Err(Unanswered::Failed(refused)) = &done
            && refused.code() == ErrorCode::WrongState
        {
            // What can't be removed is an empty folder.
            let _ = looking(move || unmake_place(&place, &of)).await;
        }
        done
    }

    /// Refuses a program that can't go on from what the job remembers.
    async fn compare(&self, desk: &JobDesk, next: &Successor) -> Answer<()> {
        let job = &desk.job().name;
        let mut looks = Looks::begin();
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
                definition: view.submitted.definition,
                demand: stored.record.demand.clone(),
                packing: stored.record.packing.clone(),
            };
            let (next, shelter) = (next.clone(), self.archives.shelter());
            match looking(move || compare(&own, state, &next, shelter.as_ref())).await? {
                // It has been followed by newer ones.
                Err(error)
                    if error.code() == ErrorCode::NoSuchSnapshot && looks.go_on(state.epoch) => {}
                found => return Ok(found?.check(job, &format!("the job {}", desk.job()))?),
            }
        }
    }
}

/// What a program promises; refuses one that would lose the state, or begin with another.
fn check_promises(next: &Successor) -> Result<Promise, Error> {
    let job = &next.definition.job.name;
    let Some(promise) = Promise::of(&next.definition)? else {
        let what = format!("the program that is to follow {job:?} promises nothing");
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("give it a guarantee: --set guarantee=exactly-once; topologies have acks instead, and can't follow a job"));
    };
    if promise.from.is_some() {
        let what = format!("the program that is to follow {job:?} would begin from a savepoint");
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("leave recovery.from out: it begins with the state of the job"));
    }
    Ok(promise)
}
