//! The processes of a container's instances.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ardea_coordination::control::WorkerStart;
use ardea_coordination::packing::InstanceId;
use ardea_core::{
    ChunkCodec, Dag, FileUse, Instance, MessageReport, Processor, ProcessorSupplier, Result,
    VertexId, Waker,
};
use ardea_engine::{InstanceAt, Parallelisms, Placement, Site};

use super::cut_out::{CutOut, isolated, with_suppliers};
use super::keeper::{Death, Kept, Task, keep};
use super::stand_in::{StandInP, StartProcess};
use super::{InstanceStart, Passing, ToInstance, site_of};
use crate::crossings::WorkerCrossings;

/// How processes of instances are started.
pub(crate) struct Launch {
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
    pub(crate) worker: WorkerStart,
    /// Where this container listens.
    pub(crate) container_address: String,
    /// How often in a row one that has died is started again.
    pub(crate) most_in_a_row: u32,
    /// Told when a process has died, and why.
    pub(crate) died: Arc<dyn Fn(InstanceId, Death) + Send + Sync>,
}

/// All of them. When this is closed, none is left.
pub(crate) struct InstanceProcesses {
    launch: Launch,
    parallelisms: Mutex<Parallelisms>,
    kept: Mutex<Vec<(Arc<Kept>, JoinHandle<()>)>>,
}

impl InstanceProcesses {
    pub(crate) fn new(launch: Launch) -> Arc<Self> {
        Arc::new(InstanceProcesses {
            launch,
            parallelisms: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// The graph with stand-ins for the vertices whose instances have processes of their own, and which these are.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if records from or to one of them can't become bytes.
    pub(crate) fn stand_in(
        self: &Arc<Self>,
        dag: &Dag,
        crossings: &Arc<WorkerCrossings>,
    ) -> Result<(Dag, Vec<VertexId>)> {
        let isolated = isolated(dag)?;
        let mut suppliers = BTreeMap::new();
        for vertex in &isolated {
            let supplier = StandIns {
                vertex: *vertex,
                name: dag.get(*vertex).name().to_string(),
                cut: CutOut::of(dag, *vertex)?,
                original: Arc::clone(dag.get(*vertex).supplier()),
                processes: Arc::clone(self),
                crossings: Arc::clone(crossings),
            };
            suppliers.insert(*vertex, Arc::new(supplier) as Arc<dyn ProcessorSupplier>);
        }
        let dag = with_suppliers(dag, |vertex| suppliers.get(&vertex).cloned())?;
        Ok((dag, isolated))
    }

    /// Vertices have so many instances from now on.
    pub(crate) fn rescaled(&self, parallelisms: &Parallelisms) {
        let known = self.parallelisms.lock();
        known
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(parallelisms);
        self.tell_all(&ToInstance::Rescaled(parallelisms.clone()));
    }

    /// Tells the processes of all instances.
    pub(crate) fn tell_all(&self, message: &ToInstance) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().for_each(|(kept, _)| kept.tell(message.clone()));
    }

    /// What became of the messages of sources that have processes of their own.
    pub(crate) fn messages(&self) -> Vec<MessageReport> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = kept.iter().filter_map(|(kept, _)| {
            Some(MessageReport {
                vertex: kept.vertex.as_str().into(),
                instance: kept.instance,
                counts: kept.messages()?,
            })
        });
        reports.collect()
    }

    /// The instances that have processes of their own, each with the number of its process, if that is there.
    pub(crate) fn numbers(&self) -> Vec<(InstanceId, Option<u32>)> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Ends all processes, and waits for that.
    pub(crate) fn close(&self) {
        let kept = self.kept.lock();
        let kept = std::mem::take(&mut *kept.unwrap_or_else(PoisonError::into_inner));
        kept.iter().for_each(|(kept, _)| kept.stop());
        // A thread that panicked has said so itself.
        kept.into_iter().for_each(|(_, thread)| drop(thread.join()));
    }

    /// Starts the process of an instance, and keeps it alive until it is stopped.
    fn start(
        &self,
        vertex: &str,
        instance: u32,
        stand_in: Waker,
        is_paused: bool,
    ) -> Result<Arc<Kept>> {
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
        let kept = Kept::new(&start, stand_in);
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
        let thread = keep(Arc::clone(&kept), task)?;
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, thread)| !thread.is_finished());
        all.push((Arc::clone(&kept), thread));
        Ok(kept)
    }
}

/// A placement as the mail sees it: instances in processes of their own are where these are. And these places.
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if there are more than can have processes of their own.
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

/// Makes stand-ins for the instances of a vertex.
struct StandIns {
    vertex: VertexId,
    name: String,
    cut: CutOut,
    original: Arc<dyn ProcessorSupplier>,
    processes: Arc<InstanceProcesses>,
    crossings: Arc<WorkerCrossings>,
}

impl ProcessorSupplier for StandIns {
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>> {
        let site = site_of(self.vertex, instance.index)?;
        let inputs = self.cut.input_streams();
        let inputs = inputs.map(|(stream, codec)| {
            let codec: Arc<dyn ChunkCodec> = Arc::new(Passing(Arc::clone(codec)));
            self.crossings.sending(stream, site, &codec)
        });
        let outputs = self.cut.output_streams();
        let outputs = outputs
            .map(|(stream, codec, lane)| (self.crossings.receiving(stream, site, codec), lane));
        let (processes, name) = (Arc::clone(&self.processes), self.name.clone());
        let index = instance.index;
        let start: Box<StartProcess> =
            Box::new(move |waker, is_paused| processes.start(&name, index, waker, is_paused));
        Ok(Box::new(StandInP::new(
            index,
            start,
            inputs.collect(),
            outputs.collect(),
        )))
    }

    fn files(&self, parallelism: u32) -> Vec<FileUse> {
        self.original.files(parallelism)
    }
}
