//! The tuples that a bolt's process has not answered.

use std::collections::VecDeque;

use crate::collector::PendingTuple;

/// A tuple that was sent to a process.
#[derive(Debug)]
pub(super) struct SentTuple {
    /// The input.
    pub(super) input: usize,
    pub(super) tuple: PendingTuple,
}

/// The unanswered tuples of an instance, by position: each tuple has the next one.
#[derive(Debug, Default)]
pub(super) struct SentTuples {
    /// The position of the first element.
    first: u64,
    tuples: VecDeque<Option<SentTuple>>,
}

impl SentTuples {
    /// Returns the position of the next tuple.
    pub(super) fn next_position(&self) -> u64 {
        self.first + self.tuples.len() as u64
    }

    pub(super) fn push(&mut self, tuple: SentTuple) {
        self.tuples.push_back(Some(tuple));
    }

    /// Returns the tuple at `position`.
    pub(super) fn get(&self, position: u64) -> Option<&PendingTuple> {
        let at = usize::try_from(position.checked_sub(self.first)?).ok()?;
        let sent = self.tuples.get(at)?.as_ref();
        sent.map(|sent| &sent.tuple)
    }

    /// Takes `count` tuples from `position` on. Positions without a tuple are omitted.
    pub(super) fn take(&mut self, position: u64, count: u32) -> Vec<SentTuple> {
        let start = position.saturating_sub(self.first) as usize;
        let taken = self.tuples.iter_mut().skip(start).take(count as usize);
        let taken = taken.filter_map(Option::take).collect();
        while self.tuples.pop_front_if(|tuple| tuple.is_none()).is_some() {
            self.first += 1;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchor::Salt;
    use crate::tuple::{Origin, Tuple};

    fn sent(input: usize) -> SentTuple {
        let origin = Origin {
            component: "a".into(),
            stream: "b".into(),
            fields: [].into(),
            salt: Salt::NONE,
        };
        let tuple = PendingTuple::of(&Tuple {
            bytes: &[],
            anchors: &[],
            origin: &origin,
            index: 0,
        });
        SentTuple { input, tuple }
    }

    #[test]
    fn tuples_are_taken_in_any_order() {
        let mut tuples = SentTuples::default();
        (0..5).for_each(|input| tuples.push(sent(input)));
        let mut take = |position, count| {
            let taken = tuples.take(position, count);
            taken.iter().map(|it| it.input).collect::<Vec<_>>()
        };
        assert_eq!(take(2, 2), [2, 3]);
        assert_eq!(take(0, 2), [0, 1]);
        assert_eq!(take(4, 1), [4]);
        assert_eq!(tuples.next_position(), 5);
        assert!(tuples.tuples.is_empty());
    }
}
