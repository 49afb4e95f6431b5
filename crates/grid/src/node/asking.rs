//! How maps and rings ask for what they need, and what the answers mean.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TrySendError, channel};

use crate::protocol::{Answer, MapId, Operation, Outcome, Refusal};
use ardea_core::{Error, ErrorCode, PartitionId, Result, Waker};

use crate::node::asker::{Answers, Asker, Group, Outcomes};
use crate::node::config::is_in_function;
use crate::node::ears::Ear;
use crate::node::grid::Inner;
use crate::node::mailbox::weight_of_request;
use crate::node::orders::{Ask, Order, Stopped};

/// Asks members for what somebody wants of a map or a ring.
#[derive(Clone)]
pub(crate) struct Asking {
    pub inner: Arc<Inner>,
    pub id: MapId,
    name: Arc<str>,
    /// What it is, for messages to people.
    kind: &'static str,
}

impl Asking {
    pub fn of(inner: Arc<Inner>, (kind, name): (&'static str, &str), id: MapId) -> Self {
        let name = name.into();
        Asking {
            inner,
            id,
            name,
            kind,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is and its name, for messages to people.
    pub fn what(&self) -> String {
        format!("the {} {:?}", self.kind, self.name)
    }

    /// Has something hear of all that happens to the map; returns when it does.
    pub fn hear(&self, ear: Arc<dyn Ear>) -> Result<()> {
        self.check_outside()?;
        let (ready, told) = channel();
        let ordered = self.inner.helm.order(Order::Listen(self.id, ear, ready));
        ordered.map_err(|Stopped| self.is_stopped())?;
        match told.recv_timeout(self.inner.patience) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(self.is_stopped()),
            Err(RecvTimeoutError::Timeout) => Err(Error::new(
                ErrorCode::StateUnavailable,
                format!(
                    "nobody can be heard who keeps some parts of {}",
                    self.what()
                ),
            )
            .hint("try again; it works when all parts of the map can be read")),
        }
    }

    pub fn ask(&self, partition: PartitionId, operation: Operation) -> Result<Answer> {
        self.check_outside()?;
        let answers = Arc::new(Answers::default());
        let room = self.inner.room.take(weight_of_request(&operation));
        let asker = Asker::new(0, &Arc::new(Group::new(&answers, room)));
        let ask = Ask {
            partition,
            operation,
            asker,
        };
        let ordered = self.inner.helm.ask(Order::Ask(Box::new(ask)));
        ordered.map_err(|Stopped| self.is_stopped())?;
        let mut outcomes = Outcomes::new();
        self.inner.helm.wait(&answers, &mut outcomes);
        match outcomes.pop() {
            Some((_, outcome)) => self.judge(outcome),
            None => Err(self.is_stopped()),
        }
    }

    /// Orders it if that can be done at once; whether it could.
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
        let asker = Asker::new(number, &Arc::new(Group::new(answers, room).waking(waker)));
        let order = Order::Ask(Box::new(Ask {
            partition,
            operation,
            asker,
        }));
        let (order, outcome) = match self.inner.helm.orders().try_send(order) {
            Ok(()) => return Ok(true),
            Err(TrySendError::Full(order)) => (order, Ok(false)),
            Err(TrySendError::Disconnected(order)) => (order, Err(self.is_stopped())),
        };
        if let Order::Ask(ask) = order {
            ask.asker.forgotten();
        }
        outcome
    }

    /// Refuses what a function asks for that a member waits for.
    #[inline]
    pub fn check_outside(&self) -> Result<()> {
        if !is_in_function() {
            return Ok(());
        }
        let what = format!(
            "a function of a grid can't use {}: a member waits for the function, and it would wait for the member",
            self.what()
        );
        Err(Error::new(ErrorCode::UserError, what).hint(
            "read first and give the function what it needs as its argument, or read, compute and `replace`",
        ))
    }

    pub fn judge(&self, outcome: Outcome) -> Result<Answer> {
        let what = self.what();
        Err(match outcome {
            Outcome::Answered(answer) => return Ok(answer),
            Outcome::Unknown => Error::new(
                ErrorCode::StateUnknown,
                format!("the member that keeps this part of {what} was lost: a write was done, or was not"),
            )
            .hint("read the key, then decide"),
            Outcome::Refused(Refusal::CutOff) if self.inner.standing.is_out() => self.is_stopped(),
            Outcome::Refused(Refusal::CutOff) => Error::new(
                ErrorCode::StateUnavailable,
                format!("{what} can't be used here: a majority of the grid's members can't be reached"),
            )
            .hint("nothing was done; it works again when they can be reached, or are proven to be dead"),
            Outcome::Refused(Refusal::NotPrimary | Refusal::Moving) => Error::new(
                ErrorCode::StateUnavailable,
                format!("the member that keeps this part of {what} can't be reached, or hands it over"),
            )
            .hint("nothing was done; try again"),
            Outcome::Refused(Refusal::Full { used, limit }) => Error::new(
                ErrorCode::LimitReached,
                format!("a member has no room for {what}: it keeps {used} bytes of at most {limit}"),
            )
            .hint("remove entries, add members, or raise their limit"),
            Outcome::Refused(Refusal::Function(why)) => Error::new(
                ErrorCode::UserError,
                format!("a function on {what} failed: {why}"),
            ),
        })
    }

    /// The error where something else was answered than was asked for.
    pub fn no_answer(&self, answer: &Answer) -> Error {
        Error::new(
            ErrorCode::Internal,
            format!(
                "a member answered something else for {}: {answer:?}",
                self.what()
            ),
        )
    }

    pub fn is_stopped(&self) -> Error {
        Error::new(
            ErrorCode::StateUnavailable,
            format!(
                "{} can't be used: this process's member of the grid has stopped, or the others went on without it",
                self.what()
            ),
        )
        .hint("nothing was done; start another member")
    }
}
