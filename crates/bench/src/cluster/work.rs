//! The work of a container of a bench's job: the bench's own program, with its load in JSON.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_coordination::control::WorkerStart;
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::Job;
use serde::{Deserialize, Serialize};

use super::wire::{ControlledLoad, WorkerIdentity, serve_orders, write_final_report};
use super::{BENCH_ARGUMENT, Order};
use crate::failover::AccountsLoad;
use crate::latency::{self, ChainLoad};
use crate::layouts::{self, StagedLoad};
use crate::nexmark::QueryLoad;
use crate::replayed_numbers::{self, PulseLoad};
use crate::rescale::{self, RescaleLoad};
use crate::scheduling::BatchLoad;
use crate::wordcount::spread::{self, WordcountLoad};
use crate::ysb::AdsLoad;

/// A job of a bench, and the handle by which the bench controls it in a worker.
pub(crate) type BenchJob = (Box<dyn Job>, Arc<dyn ControlledLoad>);

/// The load of a job's containers, the same in each of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) socket: PathBuf,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Wordcount(WordcountLoad),
    Pulse(PulseLoad),
    Chain(ChainLoad),
    Query(QueryLoad),
    Accounts(AccountsLoad),
    Ads(AdsLoad),
    Rescale(RescaleLoad),
    MicroBatches(BatchLoad),
    Staged(StagedLoad),
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

    /// Returns the job and its handle.
    pub(crate) fn job(&self) -> Result<BenchJob> {
        let (topology, attended) = match &self.kind {
            Kind::Wordcount(load) => spread::topology(load)?,
            Kind::Pulse(load) => replayed_numbers::topology(load)?,
            Kind::Chain(load) => latency::topology(load)?,
            Kind::Staged(load) => layouts::topology(load)?,
            Kind::Query(load) => return load.job(),
            Kind::Accounts(load) => return load.job(),
            Kind::Ads(load) => return load.job(),
            Kind::Rescale(load) => return rescale::job(load),
            Kind::MicroBatches(load) => return load.job(),
        };
        Ok((Box::new(topology), attended))
    }

    /// Returns the command-line arguments of a worker with this load.
    pub(crate) fn arguments(&self) -> Result<Vec<String>> {
        let told = serde_json::to_string(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "cannot encode a bench's load as JSON").because(error)
        })?;
        Ok(vec![BENCH_ARGUMENT.to_string(), told])
    }
}

/// Runs a worker of a bench's job; `told` is the argument after [`BENCH_ARGUMENT`].
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the argument is not a load, [`ErrorCode::Network`] if the bench
/// has ended; those of [`ardea::job::work`].
pub fn work(start: WorkerStart, told: &str) -> Result<()> {
    let load: Load = serde_json::from_str(told).map_err(|error| {
        Error::new(
            ErrorCode::InvalidConfig,
            "the load of a bench's worker is invalid",
        )
        .because(error)
        .hint("workers of benches are started by `ardea bench`")
    })?;
    let (job, attended) = load.job()?;
    let who = WorkerIdentity {
        container: start.worker.container.0,
        incarnation: start.worker.incarnation,
    };
    // Fails for a container that starts after the end of the bench.
    serve_orders(&load.socket, who, Arc::clone(&attended))?;
    let outcome = ardea::job::work(start, &*job, &attended.modules());
    attended.handle_order(Order::Over);
    // A container released before the end of the bench still has to report its counts.
    write_final_report(&load.socket, who, &*attended)?;
    outcome
}
