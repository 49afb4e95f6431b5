//! What clients have seen of a key or a ring, and whether it can be explained.
//!
//! The search is that of Wing and Gong ("Testing and verifying concurrent objects", 1993), remembering where it has been as Lowe does
//! ("Testing for linearizability", 2017).

use std::collections::HashSet;
use std::time::Duration;

/// How many values a ring has at most.
pub const CAPACITY: u64 = 5;

/// Something that is done with a key, or with a ring. Values are numbers that are put once only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    Get,
    Put(u64),
    PutIfAbsent(u64),
    Replace {
        wanted: u64,
        value: u64,
    },
    Remove,
    Add(u64),
    /// To a ring, which refuses it if it is full.
    Offer(u64),
    /// To a ring, whose first value goes if it is full.
    Push(u64),
    /// From a ring.
    Take,
    /// The first of a ring.
    Peek,
    /// All copies were lost: what was there may be lost.
    Lose,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It was done; what was told, if it tells something.
    Value(Option<u64>),
    /// It was done, and tells nothing.
    Done,
    /// Nobody knows.
    Unknown,
}

/// A deed, while it was under way, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub deed: Deed,
    pub began: Duration,
    pub ended: Duration,
    pub seen: Seen,
}

impl Event {
    /// What is there after it, if it was done when that was there: at most one value of a key, those of a ring in their order. None if it can't have been done then.
    fn explain(&self, there: &[u64]) -> Option<Vec<u64>> {
        let had = there.first().copied();
        let one = |value: Option<u64>| value.into_iter().collect::<Vec<u64>>();
        let is_full = there.len() as u64 >= CAPACITY;
        let with = |from: usize, value: u64| [&there[from..], &[value]].concat();
        let (has, told) = match self.deed {
            Deed::Get | Deed::Peek => (there.to_vec(), had),
            Deed::Put(value) => (one(Some(value)), None),
            Deed::PutIfAbsent(value) => (one(had.or(Some(value))), had),
            Deed::Replace { wanted, value } => match had == Some(wanted) {
                true => (one(Some(value)), had),
                false => (one(had), had),
            },
            Deed::Remove => (one(None), had),
            Deed::Add(more) => {
                let sum = Some(had.unwrap_or(0) + more);
                (one(sum), sum)
            }
            Deed::Offer(_) if is_full => (there.to_vec(), None),
            Deed::Offer(value) => (with(0, value), Some(value)),
            Deed::Push(value) => (with(usize::from(is_full), value), Some(value)),
            Deed::Take => (there.get(1..).unwrap_or_default().to_vec(), had),
            Deed::Lose => (one(None), None),
        };
        match self.seen {
            Seen::Value(seen) => (seen == told).then_some(has),
            Seen::Done | Seen::Unknown => Some(has),
        }
    }

    /// Whether somebody may have seen that it was done.
    fn may_show(&self, all: &[Event]) -> bool {
        let value = match self.deed {
            Deed::Put(value) | Deed::PutIfAbsent(value) | Deed::Replace { value, .. } => value,
            _ => return true,
        };
        let shows = |event: &Event| {
            event.seen == Seen::Value(Some(value))
                || matches!(event.deed, Deed::Replace { wanted, .. } if wanted == value)
        };
        all.iter().any(shows)
    }
}

/// What came of looking for an explanation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Explained,
    Impossible,
    /// It takes too long to say.
    TooMuch,
}

/// Whether the events are explained by doing each deed once, at a moment while it was under way; those of which nobody knows once or never, at any
/// later moment.
pub fn explain(events: &[Event], most: usize) -> Verdict {
    // Nobody has seen what these did: they may not have been done.
    let counts = |event: &&Event| {
        let reads = matches!(event.deed, Deed::Get | Deed::Peek);
        event.seen != Seen::Unknown || (!reads && event.may_show(events))
    };
    let mut events: Vec<Event> = events.iter().filter(counts).copied().collect();
    events.sort_by_key(|event| event.began);
    let ends = |event: &Event| match event.seen {
        Seen::Unknown => Duration::MAX,
        _ => event.ended,
    };
    let words = events.len().div_ceil(64).max(1);
    let mut been: HashSet<(Vec<u64>, Vec<u64>)> = HashSet::new();
    let mut open = vec![(vec![0_u64; words], Vec::new())];
    while let Some((done, there)) = open.pop() {
        let is_done = |at: usize| done[at / 64] & (1 << (at % 64)) != 0;
        let left = || (0..events.len()).filter(|at| !is_done(*at));
        if left().all(|at| events[at].seen == Seen::Unknown) {
            return Verdict::Explained;
        }
        if been.len() > most {
            return Verdict::TooMuch;
        }
        // The next is one that had begun when the first of those left ended.
        let first_end = left()
            .map(|at| ends(&events[at]))
            .min()
            .unwrap_or(Duration::MAX);
        for at in left().take_while(|at| events[*at].began <= first_end) {
            if let Some(has) = events[at].explain(&there) {
                let mut next = done.clone();
                next[at / 64] |= 1 << (at % 64);
                if been.insert((next.clone(), has.clone())) {
                    open.push((next, has));
                }
            }
        }
    }
    Verdict::Impossible
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(deed: Deed, began: u64, ended: u64, seen: Seen) -> Event {
        Event {
            deed,
            began: Duration::from_millis(began),
            ended: Duration::from_millis(ended),
            seen,
        }
    }

    fn verdict(events: &[Event]) -> Verdict {
        explain(events, 100_000)
    }

    #[test]
    fn what_happens_one_after_the_other_is_explained_in_that_order_only() {
        let put = event(Deed::Put(1), 0, 1, Seen::Done);
        let get = |began, seen| event(Deed::Get, began, began + 1, Seen::Value(seen));
        assert_eq!(verdict(&[put, get(2, Some(1))]), Verdict::Explained);
        assert_eq!(verdict(&[put, get(2, None)]), Verdict::Impossible);
        let later = event(Deed::Put(2), 4, 5, Seen::Done);
        let back = [put, later, get(6, Some(2)), get(8, Some(1))];
        assert_eq!(verdict(&back), Verdict::Impossible);
    }

    #[test]
    fn what_nobody_knows_of_may_be_done_late_once_or_never() {
        let unknown = event(Deed::Put(1), 0, 1, Seen::Unknown);
        let get = |began, seen| event(Deed::Get, began, began + 1, Seen::Value(seen));
        assert_eq!(verdict(&[unknown, get(5, None)]), Verdict::Explained);
        assert_eq!(
            verdict(&[unknown, get(5, None), get(9, Some(1))]),
            Verdict::Explained
        );
        let twice = [
            unknown,
            get(5, Some(1)),
            event(Deed::Remove, 7, 8, Seen::Value(Some(1))),
            get(9, Some(1)),
        ];
        assert_eq!(verdict(&twice), Verdict::Impossible);
        let added = event(Deed::Add(4), 0, 1, Seen::Unknown);
        assert_eq!(
            verdict(&[added, event(Deed::Add(1), 2, 3, Seen::Value(Some(5)))]),
            Verdict::Explained
        );
        assert_eq!(
            verdict(&[added, event(Deed::Add(1), 2, 3, Seen::Value(Some(9)))]),
            Verdict::Impossible
        );
    }

    #[test]
    fn what_is_under_way_together_may_be_done_in_any_order() {
        let together = [
            event(Deed::PutIfAbsent(1), 0, 10, Seen::Value(Some(2))),
            event(Deed::PutIfAbsent(2), 0, 10, Seen::Value(None)),
            event(
                Deed::Replace {
                    wanted: 2,
                    value: 3,
                },
                5,
                12,
                Seen::Value(Some(2)),
            ),
            event(Deed::Get, 13, 14, Seen::Value(Some(3))),
        ];
        assert_eq!(verdict(&together), Verdict::Explained);
        let both = [
            event(Deed::PutIfAbsent(1), 0, 10, Seen::Value(None)),
            event(Deed::PutIfAbsent(2), 0, 10, Seen::Value(None)),
        ];
        assert_eq!(verdict(&both), Verdict::Impossible);
    }

    #[test]
    fn values_of_a_ring_go_in_their_order_and_once() {
        let offer = |value, began| {
            event(
                Deed::Offer(value),
                began,
                began + 1,
                Seen::Value(Some(value)),
            )
        };
        let take = |began, seen| event(Deed::Take, began, began + 1, Seen::Value(seen));
        let both = [offer(1, 0), offer(2, 2)];
        let and = |more: &[Event]| verdict(&[&both[..], more].concat());
        assert_eq!(
            and(&[take(4, Some(1)), take(6, Some(2)), take(8, None)]),
            Verdict::Explained
        );
        assert_eq!(and(&[take(4, Some(2))]), Verdict::Impossible);
        assert_eq!(
            and(&[take(4, Some(1)), take(6, Some(1))]),
            Verdict::Impossible
        );
        let lost = event(Deed::Take, 4, 5, Seen::Unknown);
        assert_eq!(and(&[lost, take(6, Some(2))]), Verdict::Explained);
        assert_eq!(
            and(&[lost, take(6, Some(1)), take(8, Some(2))]),
            Verdict::Explained
        );
    }

    #[test]
    fn a_full_ring_refuses_or_lets_the_first_value_go() {
        let mut events: Vec<Event> = (0..CAPACITY)
            .map(|n| event(Deed::Push(n), 2 * n, 2 * n + 1, Seen::Value(Some(n))))
            .collect();
        events.push(event(Deed::Offer(90), 20, 21, Seen::Value(None)));
        events.push(event(Deed::Push(91), 22, 23, Seen::Value(Some(91))));
        events.push(event(Deed::Peek, 24, 25, Seen::Value(Some(1))));
        assert_eq!(verdict(&events), Verdict::Explained);
        events.push(event(Deed::Peek, 26, 27, Seen::Value(Some(0))));
        assert_eq!(verdict(&events), Verdict::Impossible);
    }
}
