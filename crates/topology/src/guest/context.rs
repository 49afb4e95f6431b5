//! The context of an instance in the process of its component.

use std::sync::Arc;

use ardea_core::Waker;
use ardea_instance::DeadLetterBuffer;
use ardea_instance::protocol::InstanceConfiguration;

use super::GuestWiring;
use crate::context::ComponentContext;

/// Returns the context of the instance that CONFIGURE describes.
pub(super) fn context(
    configuration: &InstanceConfiguration,
    wiring: &GuestWiring,
    waker: Waker,
    letters: &DeadLetterBuffer,
) -> ComponentContext {
    wiring
        .parallelism
        .rescale_named(&configuration.component.parallelism);
    ComponentContext {
        instance: configuration.context(waker, letters),
        parallelism: Arc::clone(&wiring.parallelism),
    }
}
