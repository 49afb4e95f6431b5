//! Instances of the job's own program: the command, the context and the errors of their processes.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{
    DeadLetter, DeadLetters, Error, ErrorCode, Guarantee, Instance, InstanceContext, Result, Waker,
};

use super::{GuestError, GuestInstance, serve};
use crate::command::InstanceCommand;
use crate::protocol::{GuestDeadLetter, GuestFailure, InstanceConfiguration};

/// Returns the command of this program with the arguments of this process.
///
/// # Errors
/// If the path of this program is not known.
pub fn own_command() -> Result<InstanceCommand> {
    let program = std::env::current_exe().map_err(|error| {
        let what = "the path of this program is not known";
        Error::new(ErrorCode::StartFailed, what).because(error)
    })?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    Ok(InstanceCommand::new(program).args(arguments))
}

/// Serves an instance to the host that started this process, as [`serve`] does.
///
/// # Errors
/// The failure of the instance, which was reported to the host.
pub fn serve_own_program(instance: &mut dyn GuestInstance) -> Result<()> {
    serve(instance).map_err(|error| match error {
        GuestError::Failed(failure) => Error::new(ErrorCode::UserError, failure.message),
        GuestError::Connection(error) => {
            let what = "the connection of an instance to its container has failed";
            Error::new(ErrorCode::PeerLost, what).because(error)
        }
    })
}

/// Returns the failure that an error of the engine or of user code is to the host.
pub fn guest_failure(error: Error) -> GuestError {
    GuestError::Failed(GuestFailure {
        permanent: error.is_permanent(),
        message: error.to_string(),
        ..GuestFailure::default()
    })
}

/// Dead letters of an instance, until they are sent to the host.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterBuffer(Arc<Mutex<Vec<GuestDeadLetter>>>);

impl DeadLetterBuffer {
    fn letters(&self) -> MutexGuard<'_, Vec<GuestDeadLetter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record that user code failed to process.
    pub fn add_failed(&self, origin: &str, reason: String) {
        self.letters().push(GuestDeadLetter {
            origin: origin.into(),
            raw: String::new(),
            reason,
            failed: true,
        });
    }

    /// Takes all letters.
    pub fn take(&self) -> Vec<GuestDeadLetter> {
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

impl InstanceConfiguration {
    /// Returns the instance that is configured.
    pub fn own_instance(&self) -> Instance {
        Instance {
            index: self.instance,
            parallelism: self.instances,
        }
    }

    /// Returns the context of the instance, whose dead letters go to `letters`.
    pub fn context(&self, waker: Waker, letters: &DeadLetterBuffer) -> InstanceContext {
        let all = [
            Guarantee::None,
            Guarantee::AtLeastOnce,
            Guarantee::ExactlyOnce,
        ];
        let guarantee = all.into_iter().find(|it| it.as_str() == self.guarantee);
        InstanceContext {
            job: self.job.as_str().into(),
            instance: self.own_instance(),
            waker,
            dead_letters: Arc::new(letters.receiver()),
            guarantee: guarantee.unwrap_or_default(),
            ..InstanceContext::detached(&self.step)
        }
    }
}
