//! The processes of a container's instances.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ardea_coordination::control::WorkerStart;
use ardea_coordination::packing::InstanceId;
use ardea_core::{
    ChunkCodec, Dag, EdgeId, Instance, MessageReport, Processor, Result, VertexId, Waker,
};
use ardea_engine::{InstanceAt, Parallelisms, Placement, ReceiveEnd, RemoteEdges, SendEnd, Site};

use super::process_proxy::{ProcessProxyP, StartProcess};
use super::subgraph::{Subgraph, isolated};
use super::supervisor::{ProcessExit, SupervisedProcess, Task, supervise};
use super::{InstanceStart, PassthroughCodec, ToInstance, site_of};
use crate::remote_edges::WorkerRemoteEdges;

/// The launch settings of instance processes.
pub(crate) struct Launch {
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
    pub(crate) worker: WorkerStart,
    /// The listen address of this container.
    pub(crate) container_address: String,
    /// Maximum number of consecutive restarts of a process.
    pub(crate) most_in_a_row: u32,
    /// The callback after the death of a process, with the instance and the reason.
    pub(crate) died: Arc<dyn Fn(InstanceId, ProcessExit) + Send + Sync>,
}

/// The supervised processes of a container. Closing it ends all of them.
pub(crate) struct InstanceProcesses {
    launch: Launch,
    parallelisms: Mutex<Parallelisms>,
    supervised: Mutex<Vec<(Arc<SupervisedProcess>, JoinHandle<()>)>>,
}

impl InstanceProcesses {
    pub(crate) fn new(launch: Launch) -> Arc<Self> {
        Arc::new(InstanceProcesses {
            launch,
            parallelisms: Mutex::default(),
            supervised: Mutex::default(),
        })
    }

    /// Returns the remote edges of a graph with the proxies of the instances that run in separate
    /// processes.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if an edge of such an instance
    /// has no codec.
    pub(crate) fn with_proxies(
        self: &Arc<Self>,
        dag: &Dag,
        edges: &Arc<WorkerRemoteEdges>,
    ) -> Result<ProxiedEdges> {
        let proxied = isolated(dag)?.into_iter().map(|vertex| {
            let proxied = ProxiedVertex {
                name: dag.get(vertex).name().to_string(),
                cut: Subgraph::of(dag, vertex)?,
            };
            Ok((vertex, proxied))
        });
        Ok(ProxiedEdges {
            vertices: proxied.collect::<Result<_>>()?,
            processes: Arc::clone(self),
            edges: Arc::clone(edges),
        })
    }

    /// Sets the parallelism of vertices, and reports it to all processes.
    pub(crate) fn rescaled(&self, parallelisms: &Parallelisms) {
        let known = self.parallelisms.lock();
        known
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(parallelisms);
        self.send_all(&ToInstance::Rescaled(parallelisms.clone()));
    }

    /// Sends a message to the processes of all instances.
    pub(crate) fn send_all(&self, message: &ToInstance) {
        let kept = self
            .supervised
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.iter().for_each(|(kept, _)| kept.send(message.clone()));
    }

    /// Returns the message statistics of sources in separate processes.
    pub(crate) fn messages(&self) -> Vec<MessageReport> {
        let kept = self
            .supervised
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let reports = kept.iter().filter_map(|(kept, _)| {
            Some(MessageReport {
                vertex: kept.vertex.as_str().into(),
                instance: kept.instance,
                counts: kept.messages()?,
            })
        });
        reports.collect()
    }

    /// Returns the instances in separate processes, with the ids of running processes.
    pub(crate) fn numbers(&self) -> Vec<(InstanceId, Option<u32>)> {
        let kept = self
            .supervised
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let needed = kept.iter().filter(|(kept, _)| !kept.is_stopped());
        needed
            .map(|(kept, _)| {
                (
                    InstanceId::new(&*kept.vertex, kept.instance),
                    kept.process(),
                )
            })
            .collect()
    }

    /// Stops all processes, and waits until they have ended.
    pub(crate) fn close(&self) {
        let kept = self.supervised.lock();
        let kept = std::mem::take(&mut *kept.unwrap_or_else(PoisonError::into_inner));
        kept.iter().for_each(|(kept, _)| kept.stop());
        // A panic has been reported by the thread itself.
        kept.into_iter().for_each(|(_, thread)| drop(thread.join()));
    }

    /// Starts and supervises the process of an instance until it is stopped.
    fn start(
        &self,
        vertex: &str,
        instance: u32,
        stand_in: Waker,
        is_paused: bool,
    ) -> Result<Arc<SupervisedProcess>> {
        let parallelisms = self.parallelisms.lock();
        let start = InstanceStart {
            worker: self.launch.worker.clone(),
            incarnation: 0,
            vertex: vertex.to_owned(),
            instance,
            parallelisms: parallelisms.unwrap_or_else(PoisonError::into_inner).clone(),
            container_address: self.launch.container_address.clone(),
            is_paused,
        };
        let kept = SupervisedProcess::new(&start, stand_in);
        let (died, id) = (
            Arc::clone(&self.launch.died),
            InstanceId::new(vertex, instance),
        );
        let task = Task {
            command: self.launch.command.clone(),
            start,
            most_in_a_row: self.launch.most_in_a_row,
            died: Box::new(move |death| died(id.clone(), death)),
        };
        let thread = supervise(Arc::clone(&kept), task)?;
        let mut all = self
            .supervised
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, thread)| !thread.is_finished());
        all.push((Arc::clone(&kept), thread));
        Ok(kept)
    }
}

/// Returns the placement for side channels, and the sites of the instances in separate processes.
/// In this placement each such instance has its own site.
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the limits on separate processes
/// are exceeded.
pub(crate) fn with_processes(
    placement: &Placement,
    vertices: usize,
    ids: impl Iterator<Item = VertexId>,
    run: &[InstanceAt],
    isolated: &[VertexId],
) -> Result<(Placement, Vec<Site>)> {
    let mut sites = vec![Vec::new(); vertices];
    let mut own = Vec::new();
    for id in ids {
        let count = placement.parallelism(id);
        let of = (0..count).map(|instance| {
            let site = placement.site(id, instance).unwrap_or(placement.here());
            let is_own =
                site == placement.here() && isolated.contains(&id) && run.contains(&(id, instance));
            if !is_own {
                return Ok(site);
            }
            let site = site_of(id, instance)?;
            own.push(site);
            Ok(site)
        });
        sites[id.index()] = of.collect::<Result<_>>()?;
    }
    Ok((Placement::new(placement.here(), sites), own))
}

/// The [`RemoteEdges`] of a container, with the proxies of its instances in separate processes.
pub(crate) struct ProxiedEdges {
    vertices: BTreeMap<VertexId, ProxiedVertex>,
    processes: Arc<InstanceProcesses>,
    edges: Arc<WorkerRemoteEdges>,
}

/// A vertex whose instances run in separate processes.
struct ProxiedVertex {
    name: String,
    cut: Subgraph,
}

impl ProxiedEdges {
    /// Returns the vertices whose instances run in separate processes.
    pub(crate) fn vertices(&self) -> Vec<VertexId> {
        self.vertices.keys().copied().collect()
    }
}

impl RemoteEdges for ProxiedEdges {
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn SendEnd>> {
        self.edges.sender(edge, to)
    }

    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn ReceiveEnd>> {
        self.edges.receiver(edge, from)
    }

    fn proxy(&self, vertex: VertexId, instance: Instance) -> Result<Option<Box<dyn Processor>>> {
        let Some(proxied) = self.vertices.get(&vertex) else {
            return Ok(None);
        };
        let site = site_of(vertex, instance.index)?;
        let inputs = proxied.cut.input_streams();
        let inputs = inputs.map(|(stream, codec)| {
            let codec: Arc<dyn ChunkCodec> = Arc::new(PassthroughCodec(Arc::clone(codec)));
            self.edges.sending(stream, site, &codec)
        });
        let outputs = proxied.cut.output_streams();
        let outputs =
            outputs.map(|(stream, codec, lane)| (self.edges.receiving(stream, site, codec), lane));
        let (processes, name) = (Arc::clone(&self.processes), proxied.name.clone());
        let index = instance.index;
        let start: Box<StartProcess> =
            Box::new(move |waker, is_paused| processes.start(&name, index, waker, is_paused));
        Ok(Some(Box::new(ProcessProxyP::new(
            index,
            start,
            inputs.collect(),
            outputs.collect(),
        ))))
    }
}
