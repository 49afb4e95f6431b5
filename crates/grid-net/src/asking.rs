//! How maps and rings ask for what they need, and what the answers mean.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, TrySendError, channel};

use ardea_core::{Error, ErrorCode, PartitionId, Result, Waker};
use ardea_grid::{Answer, MapId, Operation, Outcome, Refusal, Roll};

use crate::asker::{Answers, Asker, Group, Outcomes};
use crate::config::is_in_function;
use crate::ears::Ear;
use crate::grid::Inner;
use crate::mailbox::weight_of_request;
use crate::orders::{Ask, Order, Stopped};

/// How many operations of one call are under way at a time, and about how many bytes of them.
const UNDER_WAY: usize = 4096;
const UNDER_WAY_BYTES: usize = 16 << 20;

/// So many, or so many bytes of them, keep other members busy for longer than it takes to sleep a little.
const MANY: usize = 256;
const MANY_BYTES: usize = 256 << 10;

/// How many are ordered together at most, and about how many bytes of them: others wait for no more.
const TOGETHER: usize = 1024;
const TOGETHER_BYTES: usize = 2 << 20;

/// An operation that is one of many.
struct Wanted {
    /// Which one.
    which: usize,
    partition: PartitionId,
    operation: Operation,
    bytes: usize,
}

/// The next few, and about how many bytes they have.
fn next_few(
    operations: &mut impl Iterator<Item = (usize, Result<(PartitionId, Operation)>)>,
) -> Result<(Vec<Wanted>, usize)> {
    let (mut some, mut sum) = (Vec::new(), 0);
    while some.len() < TOGETHER && sum < TOGETHER_BYTES {
        let Some((which, operation)) = operations.next() else {
            break;
        };
        let (partition, operation) = operation?;
        let bytes = weight_of_request(&operation);
        sum += bytes;
        some.push(Wanted {
            which,
            partition,
            operation,
            bytes,
        });
    }
    // What is of one partition is done while that is near, in the order in which it was asked for.
    some.sort_by_cached_key(|wanted| wanted.partition.index());
    Ok((some, sum))
}

/// What is under way of a call that has many operations.
#[derive(Default)]
struct UnderWay {
    /// Which they are, and about how many bytes they have.
    all: Roll<(usize, usize)>,
    count: usize,
    bytes: usize,
}

impl UnderWay {
    /// The number of one that begins.
    fn begins(&mut self, wanted: &Wanted) -> u64 {
        self.count += 1;
        self.bytes += wanted.bytes;
        self.all.enter((wanted.which, wanted.bytes))
    }

    /// Which one has ended.
    fn ended(&mut self, number: u64) -> Option<usize> {
        let (which, bytes) = self.all.remove(number)?;
        self.count -= 1;
        self.bytes -= bytes;
        Some(which)
    }

    /// Whether others have to end before so many more begin, of so many bytes.
    fn is_too_much_with(&self, count: usize, bytes: usize) -> bool {
        self.count > 0 && (self.count + count > UNDER_WAY || self.bytes + bytes > UNDER_WAY_BYTES)
    }

    /// Whether it is worth while to sleep until some have ended.
    fn is_much(&self) -> bool {
        self.count >= MANY || self.bytes >= MANY_BYTES
    }
}

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

    /// Has all of it done, many at a time, and takes each answer with the number of what was asked, as they come.
    pub fn ask_each(
        &self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        mut take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        self.check_outside()?;
        let (answers, mut outcomes) = (Arc::new(Answers::default()), Outcomes::new());
        let mut under_way = UnderWay::default();
        let mut hear = |under_way: &mut UnderWay, outcomes: &mut Outcomes| {
            let mut all = outcomes.drain(..);
            all.try_for_each(|(number, outcome)| match under_way.ended(number) {
                Some(which) => take(which, self.judge(outcome)?),
                None => Ok(()),
            })
        };
        let mut operations = operations.enumerate();
        loop {
            let (some, bytes) = next_few(&mut operations)?;
            if some.is_empty() {
                break;
            }
            while under_way.is_too_much_with(some.len(), bytes) {
                self.inner.helm.wait_at_rest(&answers, &mut outcomes);
                hear(&mut under_way, &mut outcomes)?;
            }
            self.order_all(some, &mut under_way, &answers)?;
            if answers.take(&mut outcomes) {
                hear(&mut under_way, &mut outcomes)?;
            }
        }
        while under_way.count > 0 {
            match under_way.is_much() {
                true => self.inner.helm.wait_at_rest(&answers, &mut outcomes),
                false => self.inner.helm.wait(&answers, &mut outcomes),
            }
            hear(&mut under_way, &mut outcomes)?;
        }
        Ok(())
    }

    fn order_all(
        &self,
        some: Vec<Wanted>,
        under_way: &mut UnderWay,
        answers: &Arc<Answers>,
    ) -> Result<()> {
        let room = self.inner.room.take(some.iter().map(|it| it.bytes).sum());
        let group = Arc::new(Group::new(answers, room));
        let ask = |wanted: Wanted| Ask {
            asker: Asker::new(under_way.begins(&wanted), &group),
            partition: wanted.partition,
            operation: wanted.operation,
        };
        let order = Order::AskAll(some.into_iter().map(ask).collect());
        let ordered = self.inner.helm.ask(order);
        ordered.map_err(|Stopped| self.is_stopped())
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

    fn is_stopped(&self) -> Error {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(which: usize, bytes: usize) -> Wanted {
        Wanted {
            which,
            partition: PartitionId::of_canonical(b"key"),
            operation: Operation::Clear(MapId(1)),
            bytes,
        }
    }

    #[test]
    fn so_many_are_under_way_at_a_time_and_so_many_bytes_of_them() {
        let mut under_way = UnderWay::default();
        assert!(!under_way.is_too_much_with(1, 2 * UNDER_WAY_BYTES), "alone");
        let first = under_way.begins(&wanted(7, UNDER_WAY_BYTES));
        assert!(under_way.is_too_much_with(1, 1) && under_way.is_much());
        let second = under_way.begins(&wanted(8, 0));
        assert_eq!(under_way.ended(first), Some(7));
        assert_eq!(under_way.ended(first), None);
        assert!(!under_way.is_too_much_with(1, UNDER_WAY_BYTES) && !under_way.is_much());
        assert!(under_way.is_too_much_with(UNDER_WAY, 0));
        assert_eq!(under_way.ended(second), Some(8));
        assert_eq!((under_way.count, under_way.bytes), (0, 0));
    }
}
