//! The context of an instance in the process of its component.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{DeadLetter, DeadLetters, Guarantee, Instance, InstanceContext, Waker};
use ardea_instance::protocol::{GuestDeadLetter, InstanceConfiguration};

use super::GuestWiring;
use crate::context::ComponentContext;

/// The dead letters that user code has written, until they are sent to the host.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadLetterBuffer(Arc<Mutex<Vec<GuestDeadLetter>>>);

impl DeadLetterBuffer {
    fn letters(&self) -> MutexGuard<'_, Vec<GuestDeadLetter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record that user code failed to process.
    pub(super) fn add_failed(&self, origin: &str, reason: String) {
        self.letters().push(GuestDeadLetter {
            origin: origin.into(),
            raw: String::new(),
            reason,
            failed: true,
        });
    }

    /// Takes all letters.
    pub(super) fn take(&self) -> Vec<GuestDeadLetter> {
        std::mem::take(&mut *self.letters())
    }

    /// Returns dead letters that are added here.
    fn receiver(&self) -> DeadLetters {
        let letters = self.clone();
        DeadLetters::with_receiver(move |letter: DeadLetter| {
            letters.letters().push(GuestDeadLetter {
                origin: letter.origin,
                raw: String::from_utf8_lossy(&letter.raw).into_owned(),
                reason: letter.reason,
                failed: false,
            });
            Ok(())
        })
    }
}

/// Returns the context of the instance that CONFIGURE describes.
pub(super) fn context(
    configuration: &InstanceConfiguration,
    wiring: &GuestWiring,
    waker: Waker,
    letters: &DeadLetterBuffer,
) -> ComponentContext {
    let all = [
        Guarantee::None,
        Guarantee::AtLeastOnce,
        Guarantee::ExactlyOnce,
    ];
    let guarantee = all
        .into_iter()
        .find(|it| it.as_str() == configuration.guarantee);
    wiring
        .parallelism
        .rescale_named(&configuration.component.parallelism);
    ComponentContext {
        instance: InstanceContext {
            job: configuration.job.as_str().into(),
            instance: Instance {
                index: configuration.instance,
                parallelism: configuration.instances,
            },
            waker,
            dead_letters: Arc::new(letters.receiver()),
            guarantee: guarantee.unwrap_or_default(),
            ..InstanceContext::detached(&wiring.component)
        },
        parallelism: Arc::clone(&wiring.parallelism),
    }
}
