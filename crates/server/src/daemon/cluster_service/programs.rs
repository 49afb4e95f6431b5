//! Programs that clients send to a host.

use ardea_core::{Error, ErrorCode};
use ardea_rest::{Pending, ProgramOutcome, ProgramRequest};

use super::ClusterService;

impl ClusterService {
    /// Runs a program that a client has sent.
    pub(super) fn run_sent_program(&self, request: ProgramRequest) -> Pending<'_, ProgramOutcome> {
        match &self.runner {
            Some(runner) => runner.run(request),
            None => Box::pin(async {
                let what = "the hosts of this cluster run no programs that are sent to them";
                let error = Error::new(ErrorCode::WrongState, what);
                Err(error.hint("submit it by its command line").into())
            }),
        }
    }
}
