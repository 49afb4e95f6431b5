//! The context of a spout or bolt instance.

use std::sync::Arc;

use ardea_core::{Clock, Instance, InstanceContext, Waker};

use crate::parallelism::ComponentParallelism;

/// The context of a spout or bolt instance.
#[derive(Clone, Debug)]
pub struct ComponentContext {
    pub(crate) instance: InstanceContext,
    pub(crate) parallelism: Arc<ComponentParallelism>,
}

impl ComponentContext {
    /// Returns the topology's name.
    pub fn topology(&self) -> &str {
        &self.instance.job
    }

    /// Returns the component's name.
    pub fn component(&self) -> &str {
        &self.instance.vertex
    }

    /// Returns the instance of the component.
    pub fn instance(&self) -> Instance {
        self.instance.instance
    }

    /// Returns the context of the instance in the graph, with which a component opens its states.
    pub fn instance_context(&self) -> &InstanceContext {
        &self.instance
    }

    /// Returns the present parallelism of `component`; `None` if no such component exists. The
    /// parallelism may change while the topology runs on a cluster.
    pub fn instances_of(&self, component: &str) -> Option<u32> {
        self.parallelism.instances_of(component)
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        &self.instance.clock
    }

    /// Returns a waker, usable from any thread: a spout that had nothing to emit is called again.
    pub fn waker(&self) -> &Waker {
        &self.instance.waker
    }
}
