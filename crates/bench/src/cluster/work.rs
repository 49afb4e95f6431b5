//! What a container of a bench's job does: the bench's own program, told its work in JSON.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_coordination::control::WorkerStart;
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::Job;
use serde::{Deserialize, Serialize};

use super::wire::{Attended, Who, attend, farewell};
use super::{BENCH_ARGUMENT, Order};
use crate::failover::AccountsLoad;
use crate::latency::{self, ChainLoad};
use crate::nexmark::QueryLoad;
use crate::pulse::{self, PulseLoad};
use crate::rescale::{self, RescaleLoad};
use crate::wordcount::spread::{self, WordcountLoad};
use crate::ysb::AdsLoad;

/// A job of a bench, and what the bench may ask of it in a worker.
pub(crate) type BenchJob = (Box<dyn Job>, Arc<dyn Attended>);

/// The work of a job's containers, the same in each of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Where the bench listens.
    pub(crate) socket: PathBuf,
    pub(crate) kind: Kind,
}

/// Which work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Wordcount(WordcountLoad),
    Pulse(PulseLoad),
    Chain(ChainLoad),
    Query(QueryLoad),
    Accounts(AccountsLoad),
    Ads(AdsLoad),
    Rescale(RescaleLoad),
}

impl Load {
    pub(crate) fn new(socket: PathBuf, kind: Kind) -> Self {
        Load { socket, kind }
    }

    pub(crate) fn wordcount(socket: PathBuf, load: WordcountLoad) -> Self {
        Load {
            socket,
            kind: Kind::Wordcount(load),
        }
    }

    pub(crate) fn pulse(socket: PathBuf, load: PulseLoad) -> Self {
        Load {
            socket,
            kind: Kind::Pulse(load),
        }
    }

    pub(crate) fn chain(socket: PathBuf, load: ChainLoad) -> Self {
        Load {
            socket,
            kind: Kind::Chain(load),
        }
    }

    pub(crate) fn rescale(socket: PathBuf, load: RescaleLoad) -> Self {
        Load {
            socket,
            kind: Kind::Rescale(load),
        }
    }

    /// The job, and what the bench may ask of it.
    pub(crate) fn job(&self) -> Result<BenchJob> {
        let (topology, attended) = match &self.kind {
            Kind::Wordcount(load) => spread::topology(load)?,
            Kind::Pulse(load) => pulse::topology(load)?,
            Kind::Chain(load) => latency::topology(load)?,
            Kind::Query(load) => return load.job(),
            Kind::Accounts(load) => return load.job(),
            Kind::Ads(load) => return load.job(),
            Kind::Rescale(load) => return rescale::job(load),
        };
        Ok((Box::new(topology), attended))
    }

    /// The arguments of the program that does it.
    pub(crate) fn arguments(&self) -> Result<Vec<String>> {
        let told = serde_json::to_string(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a bench's work is no JSON").because(error)
        })?;
        Ok(vec![BENCH_ARGUMENT.to_string(), told])
    }
}

/// Is the worker of a container of a bench's job; `told` is what follows [`BENCH_ARGUMENT`].
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if this is no bench's work, [`ErrorCode::Network`] if the bench is gone; those of
/// [`ardea::job::work`].
pub fn work(start: WorkerStart, told: &str) -> Result<()> {
    let load: Load = serde_json::from_str(told).map_err(|error| {
        Error::new(ErrorCode::InvalidConfig, "this is the work of no bench")
            .because(error)
            .hint("workers of benches are started by `ardea bench`")
    })?;
    let (job, attended) = load.job()?;
    let who = Who {
        container: start.worker.container.0,
        incarnation: start.worker.incarnation,
    };
    // A container that comes when the bench is over has nothing to do.
    attend(&load.socket, who, Arc::clone(&attended))?;
    let outcome = ardea::job::work(start, &*job, &attended.modules());
    attended.obey(Order::Over);
    // One that is given back before the bench is over is asked for nothing more.
    farewell(&load.socket, who, &*attended)?;
    outcome
}
