//! The topology's own spouts and bolts in processes of their own.
//!
//! On a cluster, an instance with [`Isolation::Process`](ardea_core::Isolation::Process) is a
//! process of the job's program. The worker of the container starts it with the arguments of its
//! own process; [`COMPONENT_VARIABLE`] names the component. The process builds the topology again,
//! and serves one new instance of the component to the container by the instance protocol.
//! [`process`](crate::process) is the other side.

mod bolt;
mod context;
mod rows;
mod spout;

use std::fmt;
use std::sync::Arc;

use ardea_core::{Checkpointed, Instance, Processor, ProcessorSupplier, Result};
use ardea_instance::protocol::{GuestHello, GuestOptions, ProtocolRange};
use ardea_instance::{COMPONENT_VARIABLE, GuestError, InstanceCommand, SharedParts, guest_failure};

use crate::compile::{BoltWiring, SpoutWiring};
use crate::emitter::StreamPlan;
use crate::failure::Failure;
use crate::parallelism::ComponentParallelism;
use crate::process::{
    ComponentTraits, ProcessBoltProcessor, ProcessParts, ProcessSpout, TupleFormat,
};
use crate::spout_processor::SpoutProcessor;
use crate::state::ComponentState;
use crate::tuple::Origin;
pub(crate) use bolt::BoltGuest;
pub(crate) use spout::SpoutGuest;

/// The part of the topology that the process of a component needs.
#[derive(Debug)]
pub(crate) struct GuestWiring {
    pub(crate) component: Arc<str>,
    /// The streams of the component. Each has one subscriber at most, the host.
    pub(crate) streams: Vec<StreamPlan>,
    /// The inputs of a bolt.
    pub(crate) inputs: Vec<Origin>,
    pub(crate) parallelism: Arc<ComponentParallelism>,
}

/// The processes of this program that run the instances of a component.
#[derive(Clone)]
pub(crate) struct ProgramProcess(SharedParts);

impl fmt::Debug for ProgramProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramProcess({})", self.0.command)
    }
}

impl ProgramProcess {
    /// Returns the processes of a component, by the command of this program.
    pub(crate) fn new(command: InstanceCommand, component: &str) -> Self {
        let command = command.env(COMPONENT_VARIABLE, component);
        ProgramProcess(SharedParts::of_own_program(command))
    }

    fn parts(&self, traits: ComponentTraits) -> ProcessParts {
        ProcessParts {
            shared: self.0.clone(),
            format: TupleFormat::Encoded,
            traits,
        }
    }

    /// Returns the supplier of a bolt's instances.
    pub(crate) fn bolts(
        &self,
        traits: ComponentTraits,
        wiring: Arc<BoltWiring>,
    ) -> Arc<dyn ProcessorSupplier> {
        let parts = self.parts(traits);
        Arc::new(move |instance: Instance| -> Result<Box<dyn Processor>> {
            let bolt = ProcessBoltProcessor::new(&parts, &wiring, instance);
            Ok(Box::new(bolt))
        })
    }

    /// Returns the supplier of a spout's instances.
    pub(crate) fn spouts(
        &self,
        traits: ComponentTraits,
        wiring: Arc<SpoutWiring>,
    ) -> Arc<dyn ProcessorSupplier> {
        let parts = self.parts(traits);
        Arc::new(move |instance: Instance| -> Result<Box<dyn Processor>> {
            let spout = ProcessSpout::new(&parts, &wiring);
            Ok(Box::new(SpoutProcessor::new(spout, &wiring, instance)))
        })
    }
}

/// Returns the state of a component that checkpoints contain, if it has any.
fn checkpointed(state: ComponentState<'_>) -> Option<&mut dyn Checkpointed> {
    match state {
        ComponentState::Checkpointed(state) => Some(state),
        ComponentState::Undeclared | ComponentState::Stateless => None,
    }
}

/// Returns HELLO of a component.
fn hello(role: &str, has_state: bool) -> GuestHello {
    GuestHello {
        protocol: ProtocolRange::OWN,
        language: "rust".into(),
        formats: vec![TupleFormat::Encoded.as_str().into()],
        state: has_state,
        watermarks: false,
        rings: true,
        roles: vec![role.into()],
        options: GuestOptions {
            control: true,
            named_state: true,
            commits: true,
        },
    }
}

/// Returns the failure that a failure of user code is to the host.
fn user_failed(failure: Failure, what: &str) -> GuestError {
    guest_failure(failure.into_error(what))
}
