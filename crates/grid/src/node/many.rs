//! Many operations of one call: so many are under way at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::protocol::{Answer, Operation, Outcome, Roll};
use ardea_core::{Error, PartitionId, Result};

use crate::node::asker::{Answers, Asker, Group, Outcomes};
use crate::node::asking::Asking;
use crate::node::mailbox::weight_of_request;
use crate::node::orders::{Ask, Order, Stopped};

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

/// What of a call is under way, or waits for its turn.
#[derive(Default)]
struct UnderWay {
    /// What was ordered and has not ended.
    ordered: Roll<Ordered>,
    count: usize,
    bytes: usize,
    /// Some of it writes.
    writes: bool,
}

struct Ordered {
    which: usize,
    partition: PartitionId,
    bytes: usize,
}

impl UnderWay {
    /// They are, ordered or not.
    fn begin(&mut self, some: &[Wanted]) {
        self.writes = self.writes || some.iter().any(|wanted| wanted.operation.writes());
        self.count += some.len();
        self.bytes += some.iter().map(|wanted| wanted.bytes).sum::<usize>();
    }

    /// The number of one that is ordered.
    fn ordered(&mut self, wanted: &Wanted) -> u64 {
        self.ordered.enter(Ordered {
            which: wanted.which,
            partition: wanted.partition,
            bytes: wanted.bytes,
        })
    }

    /// What has ended.
    fn ended(&mut self, number: u64) -> Option<Ordered> {
        let ordered = self.ordered.remove(number)?;
        self.count -= 1;
        self.bytes -= ordered.bytes;
        Some(ordered)
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

/// Operations by partition, of each of which one is under way: what waits until that has ended. What was refused is tried again later, and others would overtake it.
#[derive(Default)]
struct Turns(BTreeMap<PartitionId, VecDeque<Wanted>>);

impl Turns {
    /// It, if it is its turn.
    fn now(&mut self, wanted: Wanted) -> Option<Wanted> {
        if let Some(waiting) = self.0.get_mut(&wanted.partition) {
            waiting.push_back(wanted);
            return None;
        }
        self.0.insert(wanted.partition, VecDeque::new());
        Some(wanted)
    }

    /// Whose turn it is when one of that partition has ended.
    fn after_one_of(&mut self, partition: PartitionId) -> Option<Wanted> {
        let next = self.0.get_mut(&partition)?.pop_front();
        if next.is_none() {
            self.0.remove(&partition);
        }
        next
    }
}

/// A call that has many operations. However it ends, all that it has ordered to be written has ended before: nothing is done later that nobody waits for.
struct Call<'a> {
    asking: &'a Asking,
    answers: Arc<Answers>,
    /// What has come and was not looked at.
    outcomes: Outcomes,
    under_way: UnderWay,
    /// Where order matters.
    turns: Option<Turns>,
}

impl Asking {
    /// Has all of it done, many at a time, in no order, and takes each answer with the number of what was asked, as they come.
    ///
    /// # Errors
    /// The first. If something else was written, or was not, as nobody knows, [`ErrorCode::StateUnknown`](ardea_core::ErrorCode::StateUnknown) because of it.
    pub fn ask_each(
        &self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        self.check_outside()?;
        Call::of(self, None).run(operations, take)
    }

    /// Has all of it done, many at a time; but those of one partition one after the other.
    ///
    /// # Errors
    /// As [`ask_each`](Self::ask_each).
    pub fn ask_in_turn(
        &self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
    ) -> Result<()> {
        self.check_outside()?;
        Call::of(self, Some(Turns::default())).run(operations, |_, _| Ok(()))
    }
}

impl<'a> Call<'a> {
    fn of(asking: &'a Asking, turns: Option<Turns>) -> Self {
        Call {
            asking,
            answers: Arc::default(),
            outcomes: Outcomes::new(),
            under_way: UnderWay::default(),
            turns,
        }
    }

    fn run(
        mut self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        let Err(error) = self.work(operations, take) else {
            return Ok(());
        };
        let unknown = self.settle();
        Err(match unknown {
            Some(unknown) if error.code() != unknown.code() => unknown.because(error),
            _ => error,
        })
    }

    fn work(
        &mut self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
        mut take: impl FnMut(usize, Answer) -> Result<()>,
    ) -> Result<()> {
        let asking = self.asking;
        let helm = &asking.inner.helm;
        let mut operations = operations.enumerate();
        loop {
            let (some, bytes) = next_few(&mut operations)?;
            if some.is_empty() {
                break;
            }
            while self.under_way.is_too_much_with(some.len(), bytes) {
                helm.wait_at_rest(&self.answers, &mut self.outcomes);
                self.hear(&mut take)?;
            }
            self.begin(some)?;
            if self.answers.take(&mut self.outcomes) {
                self.hear(&mut take)?;
            }
        }
        while self.under_way.count > 0 {
            self.wait();
            self.hear(&mut take)?;
        }
        Ok(())
    }

    fn wait(&mut self) {
        let asking = self.asking;
        let helm = &asking.inner.helm;
        match self.under_way.is_much() {
            true => helm.wait_at_rest(&self.answers, &mut self.outcomes),
            false => helm.wait(&self.answers, &mut self.outcomes),
        }
    }

    fn hear(&mut self, take: &mut impl FnMut(usize, Answer) -> Result<()>) -> Result<()> {
        let mut next = Vec::new();
        // One by one: what is left when one of them is bad is known to have ended.
        while let Some((number, outcome)) = self.outcomes.pop() {
            let Some(ended) = self.under_way.ended(number) else {
                continue;
            };
            let turns = self.turns.as_mut();
            next.extend(turns.and_then(|turns| turns.after_one_of(ended.partition)));
            take(ended.which, self.asking.judge(outcome)?)?;
        }
        self.order(next)
    }

    /// Waits until all has ended that was ordered to be written; the error if nobody knows of some whether it was.
    fn settle(&mut self) -> Option<Error> {
        let mut unknown = None;
        while self.under_way.writes {
            for (number, outcome) in self.outcomes.drain(..) {
                let is_unknown = outcome == Outcome::Unknown && unknown.is_none();
                if self.under_way.ended(number).is_some() && is_unknown {
                    unknown = self.asking.judge(outcome).err();
                }
            }
            if self.under_way.ordered.is_empty() {
                break;
            }
            self.wait();
        }
        unknown
    }

    fn begin(&mut self, some: Vec<Wanted>) -> Result<()> {
        self.under_way.begin(&some);
        let now = match &mut self.turns {
            Some(turns) => some
                .into_iter()
                .filter_map(|wanted| turns.now(wanted))
                .collect(),
            None => some,
        };
        self.order(now)
    }

    fn order(&mut self, some: Vec<Wanted>) -> Result<()> {
        if some.is_empty() {
            return Ok(());
        }
        let asking = self.asking;
        let inner = &asking.inner;
        let room = inner.room.take(some.iter().map(|it| it.bytes).sum());
        let group = Arc::new(Group::new(&self.answers, room));
        let ask = |wanted: Wanted| Ask {
            asker: Asker::new(self.under_way.ordered(&wanted), &group),
            partition: wanted.partition,
            operation: wanted.operation,
        };
        let order = Order::AskAll(some.into_iter().map(ask).collect());
        let ordered = inner.helm.ask(order);
        ordered.map_err(|Stopped| asking.is_stopped())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // Nothing is left but of who panics.
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::MapId;

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
        let begin = |under_way: &mut UnderWay, wanted: Wanted| {
            under_way.begin(std::slice::from_ref(&wanted));
            under_way.ordered(&wanted)
        };
        assert!(!under_way.is_too_much_with(1, 2 * UNDER_WAY_BYTES), "alone");
        let first = begin(&mut under_way, wanted(7, UNDER_WAY_BYTES));
        assert!(under_way.is_too_much_with(1, 1) && under_way.is_much());
        let second = begin(&mut under_way, wanted(8, 0));
        assert_eq!(under_way.ended(first).map(|it| it.which), Some(7));
        assert!(under_way.ended(first).is_none());
        assert!(!under_way.is_too_much_with(1, UNDER_WAY_BYTES) && !under_way.is_much());
        assert!(under_way.is_too_much_with(UNDER_WAY, 0));
        assert_eq!(under_way.ended(second).map(|it| it.which), Some(8));
        assert_eq!((under_way.count, under_way.bytes), (0, 0));
    }

    #[test]
    fn of_one_partition_one_is_under_way_and_the_others_follow_in_order() {
        let mut turns = Turns::default();
        let elsewhere = Wanted {
            partition: PartitionId::of_canonical(b"another"),
            ..wanted(9, 1)
        };
        let partition = wanted(0, 1).partition;
        assert_ne!(elsewhere.partition, partition);
        let now = [wanted(1, 1), wanted(2, 1), elsewhere, wanted(3, 1)].map(|it| turns.now(it));
        let now: Vec<usize> = now.into_iter().flatten().map(|it| it.which).collect();
        assert_eq!(now, [1, 9]);
        let mut after = || turns.after_one_of(partition).map(|it| it.which);
        assert_eq!([after(), after(), after()], [Some(2), Some(3), None]);
        assert_eq!(turns.now(wanted(4, 1)).map(|it| it.which), Some(4));
    }
}
