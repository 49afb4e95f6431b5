//! What an instance of a spout or bolt may know of where it runs.

use std::sync::Arc;

use ardea_core::{Clock, Instance, InstanceContext, Waker};

use crate::roster::Roster;

/// What an instance of a spout or bolt may know of where it runs.
#[derive(Clone, Debug)]
pub struct ComponentContext {
    pub(crate) instance: InstanceContext,
    pub(crate) roster: Arc<Roster>,
}

impl ComponentContext {
    /// The topology's name.
    pub fn topology(&self) -> &str {
        &self.instance.job
    }

    /// The component's name.
    pub fn component(&self) -> &str {
        &self.instance.vertex
    }

    /// Which instance of the component this is.
    pub fn instance(&self) -> Instance {
        self.instance.instance
    }

    /// How many instances a component has now; `None` if there is no such component. On a cluster the number may change while the
    /// topology runs.
    pub fn instances_of(&self, component: &str) -> Option<u32> {
        self.roster.instances_of(component)
    }

    /// The time.
    pub fn clock(&self) -> &Clock {
        &self.instance.clock
    }

    /// Has this instance called soon, from any thread: a spout that said it has nothing to emit is asked again.
    pub fn waker(&self) -> &Waker {
        &self.instance.waker
    }
}
