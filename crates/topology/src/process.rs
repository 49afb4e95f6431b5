//! Spouts and bolts in processes of their own, in any language.
//!
//! The processes speak the instance protocol, with tuples as JSON documents. The host's side of a
//! process is that of crate `ardea-instance`; this module turns tuples into batches, and answers
//! into tuples, acks and failures.

mod bolt;
mod json_tuple;
mod rows;
mod spout;

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Instance, Processor, Result};
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
        let spout = ProcessSpout::new(self.shared.clone(), wiring, instance);
        Ok(Box::new(SpoutProcessor::new(spout, wiring, instance)))
    }
}

#[cold]
fn unopened() -> Error {
    Error::new(ErrorCode::Internal, "a process is used before its start")
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

/// Returns the stream that a tuple names.
fn stream_at(streams: &[StreamPlan], index: usize) -> Result<&StreamPlan, Violation> {
    let count = streams.len();
    let missing = || Violation::new(format!("a tuple names the stream {index} of {count}"));
    streams.get(index).ok_or_else(missing)
}
