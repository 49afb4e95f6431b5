//! The host's side of spouts and bolts in processes of their own.
//!
//! The processes speak the instance protocol. Those of any language get tuples as JSON documents;
//! those of the job's own program, which the module [`guest`](crate::guest) serves, get the
//! encoding of the engine. The host's side of a process is that of crate `ardea-instance`; this
//! module turns tuples into batches, and answers into tuples, acks and failures.

mod bolt;
mod failed_messages;
mod json_tuple;
mod rows;
mod spout;
mod tuple_format;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Instance, Processor, Result, StateShape};
use ardea_instance::protocol::{ComponentOutput, Violation};
use ardea_instance::{GuestInstance, InstanceCommand, SharedParts};

use crate::compile::{BoltWiring, SpoutWiring};
use crate::component::ComponentFactory;
use crate::emitter::StreamPlan;
use crate::guest::GuestWiring;
use crate::outputs::Outputs;
use crate::parallelism::ComponentParallelism;
use crate::spout_processor::SpoutProcessor;
use crate::state::ComponentState;
pub(crate) use bolt::ProcessBoltProcessor;
pub(crate) use spout::ProcessSpout;
pub(crate) use tuple_format::{TupleFormat, read_encoded, write_encoded};

/// The properties of a component that its host needs.
#[derive(Clone, Debug)]
pub(crate) struct ComponentTraits {
    /// True if the component has declared its state.
    pub(crate) declares_state: bool,
    /// The states of the component, as far as they are known.
    pub(crate) states: Vec<StateShape>,
    /// The interval of ticks that the component itself requests.
    pub(crate) tick: Option<Duration>,
}

impl ComponentTraits {
    /// Returns the properties of a component with this state.
    pub(crate) fn of(state: ComponentState<'_>, tick: Option<Duration>) -> Self {
        let (declares_state, states) = match state {
            ComponentState::Undeclared => (false, Vec::new()),
            ComponentState::Stateless => (true, Vec::new()),
            ComponentState::Checkpointed(state) => (true, state.states()),
        };
        ComponentTraits {
            declares_state,
            states,
            tick,
        }
    }
}

/// The parts of a component in processes that its instances share.
#[derive(Clone)]
pub(crate) struct ProcessParts {
    pub(crate) shared: SharedParts,
    pub(crate) format: TupleFormat,
    pub(crate) traits: ComponentTraits,
}

/// A component whose instances are processes of a command.
pub(crate) struct ProcessComponent {
    parts: ProcessParts,
    outputs: Outputs,
}

impl ProcessComponent {
    pub(crate) fn new(command: InstanceCommand, outputs: Outputs) -> Self {
        let parts = ProcessParts {
            shared: SharedParts::new(command),
            format: TupleFormat::Json,
            traits: ComponentTraits {
                declares_state: true,
                states: Vec::new(),
                tick: None,
            },
        };
        ProcessComponent { parts, outputs }
    }

    fn no_guest() -> Error {
        let what = "a component that is a process can't be served by another one";
        Error::new(ErrorCode::Internal, what)
    }
}

impl ComponentFactory<BoltWiring> for ProcessComponent {
    fn outputs(&self) -> Result<Outputs> {
        Ok(self.outputs.clone())
    }

    fn processor(
        &self,
        wiring: &Arc<BoltWiring>,
        instance: Instance,
    ) -> Result<Box<dyn Processor>> {
        let processor = ProcessBoltProcessor::new(&self.parts, wiring, instance);
        Ok(Box::new(processor))
    }

    fn is_process(&self) -> bool {
        true
    }

    fn traits(&self) -> Result<ComponentTraits> {
        Ok(self.parts.traits.clone())
    }

    fn guest(&self, _: GuestWiring) -> Result<Box<dyn GuestInstance>> {
        Err(Self::no_guest())
    }
}

impl ComponentFactory<SpoutWiring> for ProcessComponent {
    fn outputs(&self) -> Result<Outputs> {
        Ok(self.outputs.clone())
    }

    fn processor(
        &self,
        wiring: &Arc<SpoutWiring>,
        instance: Instance,
    ) -> Result<Box<dyn Processor>> {
        let spout = ProcessSpout::new(&self.parts, wiring);
        Ok(Box::new(SpoutProcessor::new(spout, wiring, instance)))
    }

    fn is_process(&self) -> bool {
        true
    }

    fn traits(&self) -> Result<ComponentTraits> {
        Ok(self.parts.traits.clone())
    }

    fn guest(&self, _: GuestWiring) -> Result<Box<dyn GuestInstance>> {
        Err(Self::no_guest())
    }
}

/// The parallelism that the process of a component was told.
#[derive(Debug, Default)]
pub(crate) struct SentParallelism(u64);

impl SentParallelism {
    /// Returns the parallelism of all components if it has changed since the last call.
    fn changed(&mut self, now: &ComponentParallelism) -> Option<BTreeMap<String, u32>> {
        let version = now.version();
        let is_new = version != self.0;
        self.0 = version;
        is_new.then(|| now.all())
    }

    /// Returns the parallelism of all components.
    fn first(&mut self, now: &ComponentParallelism) -> BTreeMap<String, u32> {
        self.0 = now.version();
        now.all()
    }
}

/// Returns the streams of a component for CONFIGURE.
fn outputs_of(streams: &[StreamPlan]) -> Vec<ComponentOutput> {
    let outputs = streams.iter().map(|stream| ComponentOutput {
        stream: stream.name.to_string(),
        fields: names(&stream.fields),
        direct: stream.is_direct,
    });
    outputs.collect()
}

fn names(fields: &[Arc<str>]) -> Vec<String> {
    fields.iter().map(|field| field.to_string()).collect()
}

/// Checks that the component has the stream that a tuple names.
fn check_stream(streams: &[StreamPlan], index: usize) -> Result<(), Violation> {
    let count = streams.len();
    if index < count {
        return Ok(());
    }
    let what = format!("a tuple names the stream {index} of {count}");
    Err(Violation::new(what))
}
