//! How a map asks for what it needs, and what its answers mean.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, TrySendError, channel};

use ardea_codec::Kept;
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result, Waker};
use ardea_grid::{Answer, Operation, Outcome, Refusal};

use super::GridMap;
use crate::config::is_in_function;
use crate::driver::{Asker, Order};
use crate::ears::Ear;
use crate::mailbox::weight_of_request;

/// How many operations of one call are under way at a time.
const UNDER_WAY: usize = 4096;

impl<K: Key + Kept, V: Kept> GridMap<K, V> {
    /// Has something hear of all that happens to the map; returns when it does.
    pub(super) fn hear(&self, ear: Arc<dyn Ear>) -> Result<()> {
        self.check_outside()?;
        let (ready, told) = channel();
        let order = Order::Listen(self.id, ear, ready);
        let sent = self.inner.orders.send(order);
        sent.map_err(|_| self.is_stopped())?;
        match told.recv_timeout(self.inner.patience) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(self.is_stopped()),
            Err(RecvTimeoutError::Timeout) => Err(Error::new(
                ErrorCode::StateUnavailable,
                format!(
                    "nobody can be heard who keeps some parts of the map {:?}",
                    self.name
                ),
            )
            .hint("try again; it works when all parts of the map can be read")),
        }
    }

    pub(super) fn ask(&self, partition: PartitionId, operation: Operation) -> Result<Answer> {
        let (tell, told) = channel();
        self.order(partition, operation, 0, tell)?;
        match told.recv() {
            Ok((_, outcome)) => self.judge(outcome),
            Err(_) => Err(self.is_stopped()),
        }
    }

    /// Has all of it done, many at a time, and takes each answer with the number of what was asked, as they come.
    pub(super) fn ask_each(
        &self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        mut take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        let (tell, told) = channel();
        let mut hear = || -> Result<()> {
            let (number, outcome) = told.recv().map_err(|_| self.is_stopped())?;
            take(number as usize, self.judge(outcome)?)
        };
        let mut under_way = 0;
        for (number, operation) in (0_u64..).zip(operations) {
            let (partition, operation) = operation?;
            if under_way == UNDER_WAY {
                hear()?;
                under_way -= 1;
            }
            self.order(partition, operation, number, tell.clone())?;
            under_way += 1;
        }
        (0..under_way).try_for_each(|_| hear())
    }

    fn order(
        &self,
        partition: PartitionId,
        operation: Operation,
        number: u64,
        tell: Sender<(u64, Outcome)>,
    ) -> Result<()> {
        self.check_outside()?;
        let room = self.inner.room.take(weight_of_request(&operation));
        let order = Order::Ask(partition, operation, Asker::new(number, tell, room));
        self.inner.orders.send(order).map_err(|_| self.is_stopped())
    }

    /// Orders it if that can be done at once; whether it could.
    pub(super) fn try_order(
        &self,
        partition: PartitionId,
        operation: Operation,
        number: u64,
        (tell, waker): (Sender<(u64, Outcome)>, Waker),
    ) -> Result<bool> {
        let Some(room) = self.inner.room.try_take(weight_of_request(&operation)) else {
            return Ok(false);
        };
        let asker = Asker::new(number, tell, room).waking(waker);
        let order = Order::Ask(partition, operation, asker);
        let (order, outcome) = match self.inner.orders.try_send(order) {
            Ok(()) => return Ok(true),
            Err(TrySendError::Full(order)) => (order, Ok(false)),
            Err(TrySendError::Disconnected(order)) => (order, Err(self.is_stopped())),
        };
        if let Order::Ask(_, _, asker) = order {
            asker.forgotten();
        }
        outcome
    }

    /// Refuses what a function asks for that a member waits for.
    #[inline]
    pub(super) fn check_outside(&self) -> Result<()> {
        if !is_in_function() {
            return Ok(());
        }
        let what = format!(
            "a function of a grid can't use the map {:?}: a member waits for the function, and it would wait for the member",
            self.name
        );
        Err(Error::new(ErrorCode::UserError, what).hint(
            "read first and give the function what it needs as its argument, or read, compute and `replace`",
        ))
    }

    pub(super) fn judge(&self, outcome: Outcome) -> Result<Answer> {
        let name = &self.name;
        Err(match outcome {
            Outcome::Answered(answer) => return Ok(answer),
            Outcome::Unknown => Error::new(
                ErrorCode::StateUnknown,
                format!("the member that keeps this part of the map {name:?} was lost: a write was done, or was not"),
            )
            .hint("read the key, then decide"),
            Outcome::Refused(Refusal::CutOff) if self.inner.standing.is_out() => self.is_stopped(),
            Outcome::Refused(Refusal::CutOff) => Error::new(
                ErrorCode::StateUnavailable,
                format!("the map {name:?} can't be used here: a majority of the grid's members can't be reached"),
            )
            .hint("nothing was done; it works again when they can be reached, or are proven to be dead"),
            Outcome::Refused(Refusal::NotPrimary | Refusal::Moving) => Error::new(
                ErrorCode::StateUnavailable,
                format!("a part of the map {name:?} is being moved to another member"),
            )
            .hint("nothing was done; try again"),
            Outcome::Refused(Refusal::Full { used, limit }) => Error::new(
                ErrorCode::LimitReached,
                format!("a member has no room for the map {name:?}: it keeps {used} bytes of at most {limit}"),
            )
            .hint("remove entries, add members, or raise their limit"),
            Outcome::Refused(Refusal::Function(why)) => Error::new(
                ErrorCode::UserError,
                format!("a function on the map {name:?} failed: {why}"),
            ),
        })
    }

    pub(super) fn no_answer(&self, answer: &Answer) -> Error {
        Error::new(
            ErrorCode::Internal,
            format!(
                "a member answered something else for the map {:?}: {answer:?}",
                self.name
            ),
        )
    }

    fn is_stopped(&self) -> Error {
        Error::new(
            ErrorCode::StateUnavailable,
            format!(
                "the map {:?} can't be used: this process's member of the grid has stopped, or the others went on without it",
                self.name
            ),
        )
        .hint("nothing was done; start another member")
    }
}
