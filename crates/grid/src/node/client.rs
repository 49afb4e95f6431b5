//! Client of the driver for maps and rings: sends operations, and converts outcomes to errors.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TrySendError, channel};

use crate::protocol::{Answer, MapId, Operation, Outcome, Refusal};
use ardea_core::{Error, ErrorCode, PartitionId, Result, Waker};

use crate::node::command_queue::{DriverCommand, OperationRequest, Stopped};
use crate::node::config::is_in_function;
use crate::node::grid::Inner;
use crate::node::listeners::EventListener;
use crate::node::request_handle::{Answers, Group, Outcomes, Requester};
use crate::node::send_queue::weight_of_request;

/// Sends the operations of a map or a ring.
#[derive(Clone)]
pub(crate) struct GridClient {
    pub inner: Arc<Inner>,
    pub id: MapId,
    name: Arc<str>,
    /// Kind of the object, for error texts.
    kind: &'static str,
}

impl GridClient {
    pub fn of(inner: Arc<Inner>, (kind, name): (&'static str, &str), id: MapId) -> Self {
        let name = name.into();
        GridClient {
            inner,
            id,
            name,
            kind,
        }
    }

    /// Returns the object's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the object's kind and name, for error texts.
    pub fn what(&self) -> String {
        format!("the {} {:?}", self.kind, self.name)
    }

    /// Registers a listener for all events of the map. Returns once all partitions are watched.
    pub fn register_listener(&self, ear: Arc<dyn EventListener>) -> Result<()> {
        self.check_outside()?;
        let (ready, told) = channel();
        let ordered = self
            .inner
            .driver
            .order(DriverCommand::Listen(self.id, ear, ready));
        ordered.map_err(|Stopped| self.is_stopped())?;
        match told.recv_timeout(self.inner.patience) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(self.is_stopped()),
            Err(RecvTimeoutError::Timeout) => Err(Error::new(
                ErrorCode::StateUnavailable,
                format!(
                    "some partitions of {} cannot be watched: their primaries do not answer",
                    self.what()
                ),
            )
            .hint("try again; it works once all partitions can be read")),
        }
    }

    pub fn ask(&self, partition: PartitionId, operation: Operation) -> Result<Answer> {
        self.check_outside()?;
        let answers = Arc::new(Answers::default());
        let room = self.inner.room.take(weight_of_request(&operation));
        let asker = Requester::new(0, &Arc::new(Group::new(&answers, room)));
        let ask = OperationRequest {
            partition,
            operation,
            asker,
        };
        let ordered = self.inner.driver.ask(DriverCommand::Ask(Box::new(ask)));
        ordered.map_err(|Stopped| self.is_stopped())?;
        let mut outcomes = Outcomes::new();
        self.inner.driver.wait(&answers, &mut outcomes);
        match outcomes.pop() {
            Some((_, outcome)) => self.outcome_to_result(outcome),
            None => Err(self.is_stopped()),
        }
    }

    /// Sends an operation without blocking. Returns false if the budget or the command queue is
    /// full.
    pub fn try_order(
        &self,
        partition: PartitionId,
        operation: Operation,
        number: u64,
        (answers, waker): (&Arc<Answers>, Waker),
    ) -> Result<bool> {
        let Some(room) = self.inner.room.try_take(weight_of_request(&operation)) else {
            return Ok(false);
        };
        let asker = Requester::new(number, &Arc::new(Group::new(answers, room).waking(waker)));
        let order = DriverCommand::Ask(Box::new(OperationRequest {
            partition,
            operation,
            asker,
        }));
        let (order, outcome) = match self.inner.driver.orders().try_send(order) {
            Ok(()) => return Ok(true),
            Err(TrySendError::Full(order)) => (order, Ok(false)),
            Err(TrySendError::Disconnected(order)) => (order, Err(self.is_stopped())),
        };
        if let DriverCommand::Ask(ask) = order {
            ask.asker.forgotten();
        }
        outcome
    }

    /// Rejects calls from within a grid function, for which a member waits.
    #[inline]
    pub fn check_outside(&self) -> Result<()> {
        if !is_in_function() {
            return Ok(());
        }
        let what = format!(
            "a grid function cannot use {}: it would wait for the member that runs it",
            self.what()
        );
        Err(Error::new(ErrorCode::UserError, what).hint(
            "pass the needed data to the function as its argument, or read, compute and `replace`",
        ))
    }

    pub fn outcome_to_result(&self, outcome: Outcome) -> Result<Answer> {
        let what = self.what();
        Err(match outcome {
            Outcome::Answered(answer) => return Ok(answer),
            Outcome::Unknown => Error::new(
                ErrorCode::OutcomeUnknown,
                format!("the primary of this partition of {what} was lost: it is unknown whether the write was done"),
            )
            .hint("read the key, then decide"),
            Outcome::Refused(Refusal::CutOff) if self.inner.standing.is_out() => self.is_stopped(),
            Outcome::Refused(Refusal::CutOff) => Error::new(
                ErrorCode::StateUnavailable,
                format!("{what} is unavailable here: a majority of the grid's members cannot be reached"),
            )
            .hint("nothing was done; it works again when they can be reached, or are known to be dead"),
            Outcome::Refused(Refusal::NotPrimary | Refusal::Moving) => Error::new(
                ErrorCode::StateUnavailable,
                format!("the primary of this partition of {what} cannot be reached, or is handing it over"),
            )
            .hint("nothing was done; try again"),
            Outcome::Refused(Refusal::Full { used, limit }) => Error::new(
                ErrorCode::LimitReached,
                format!("a member has no memory left for {what}: it holds {used} bytes of at most {limit}"),
            )
            .hint("remove entries, add members, or raise their limit"),
            Outcome::Refused(Refusal::Function(why)) => Error::new(
                ErrorCode::UserError,
                format!("a function on {what} failed: {why}"),
            ),
        })
    }

    /// Returns the error for an answer of the wrong kind.
    pub fn unexpected_answer(&self, answer: &Answer) -> Error {
        Error::new(
            ErrorCode::Internal,
            format!(
                "unexpected answer of a member for {}: {answer:?}",
                self.what()
            ),
        )
    }

    pub fn is_stopped(&self) -> Error {
        Error::new(
            ErrorCode::StateUnavailable,
            format!(
                "{} is unavailable: this process's member of the grid has stopped or was removed by the others",
                self.what()
            ),
        )
        .hint("nothing was done; start another member")
    }
}
