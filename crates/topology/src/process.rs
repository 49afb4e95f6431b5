//! Spouts and bolts in processes of their own, in any language.
//!
//! The processes speak the instance protocol, with tuples as JSON documents. The host's side of a
//! process is that of crate `ardea-instance`; this module turns tuples into batches, and answers
//! into tuples, acks and failures.

mod bolt;
mod failed_messages;
mod json_tuple;
mod rows;
mod spout;

use std::sync::Arc;

use ardea_core::{Instance, Processor, Result};
use ardea_instance::protocol::{ComponentOutput, Violation};
use ardea_instance::{InstanceCommand, SharedParts};

use crate::compile::{BoltWiring, SpoutWiring};
use crate::component::ComponentFactory;
use crate::emitter::StreamPlan;
use crate::outputs::Outputs;
use crate::spout_processor::SpoutProcessor;
use bolt::ProcessBoltProcessor;
use spout::ProcessSpout;

/// A component whose instances are processes of a command.
pub(crate) struct ProcessComponent {
    shared: SharedParts,
    outputs: Outputs,
}

impl ProcessComponent {
    pub(crate) fn new(command: InstanceCommand, outputs: Outputs) -> Self {
        ProcessComponent {
            shared: SharedParts::new(command),
            outputs,
        }
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
        let processor = ProcessBoltProcessor::new(self.shared.clone(), wiring, instance);
        Ok(Box::new(processor))
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
        let spout = ProcessSpout::new(self.shared.clone(), wiring);
        Ok(Box::new(SpoutProcessor::new(spout, wiring, instance)))
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
