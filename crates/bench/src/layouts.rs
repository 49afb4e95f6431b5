//! Latency of topologies over hosts and workers: `NnWw` is W workers on N hosts.
//!
//! After "TurboStream: Towards Low-Latency Data Stream Processing" (ICDCS 2018), section VI: three
//! topologies, over shared memory or TCP within a host, packed by traffic or in turn. Hosts are
//! network namespaces of this machine; a delay is added to each message between them.

mod knee;
mod params;
mod run;
mod series;
mod staged_job;

pub use knee::{KneeParams, run_knee};
pub use params::{
    HostLayout, LayoutPacking, LayoutTransport, LayoutsParams, TopologyKind, TopologyParams,
};
pub use series::run_layouts;
pub(crate) use staged_job::{StagedLoad, topology};
