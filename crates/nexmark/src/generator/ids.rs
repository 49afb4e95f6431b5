//! The kind of an event and the newest ids, from its index alone.
//!
//! Events come in rounds of fifty: a person, three auctions, forty-six bids. So the newest person
//! and the newest auction at an index follow by arithmetic.

use crate::random::EventRandom;

/// The first id of a person and of an auction. Beam starts at a thousand, so that an id is not
/// mistaken for an index.
pub(super) const FIRST_ID: u64 = 1_000;

pub(super) const EVENTS_IN_ROUND: u64 = 50;
pub(super) const AUCTIONS_IN_ROUND: u64 = 3;

/// The number of future persons or auctions that may be referred to; they come later in the stream.
const LEAD: u64 = 10;

/// The number of ids for which a hot id stays hot.
const HOT_FOR: u64 = 100;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Person,
    Auction,
    Bid,
}

impl Slot {
    /// Returns the kind of event `index`.
    pub(super) fn of(index: u64) -> Self {
        match index % EVENTS_IN_ROUND {
            0 => Self::Person,
            1..=AUCTIONS_IN_ROUND => Self::Auction,
            _ => Self::Bid,
        }
    }
}

/// Returns the newest person at event `index`, counted from 0. A round begins with its person.
pub(super) fn newest_person(index: u64) -> u64 {
    index / EVENTS_IN_ROUND
}

/// Returns the newest auction at event `index`, counted from 0; at event 0, where there is none
/// yet, the first to come.
pub(super) fn newest_auction(index: u64) -> u64 {
    let in_this_round = (index % EVENTS_IN_ROUND).min(AUCTIONS_IN_ROUND);
    (index / EVENTS_IN_ROUND * AUCTIONS_IN_ROUND + in_this_round).saturating_sub(1)
}

/// Returns the hot id among the hundred ids that contain `newest`.
pub(super) fn hot(newest: u64) -> u64 {
    newest - newest % HOT_FOR
}

/// Returns any of the `among` newest ids, or of the few that come next.
pub(super) fn recent(newest: u64, among: u64, random: &mut EventRandom) -> u64 {
    let oldest = (newest + 1).saturating_sub(among);
    oldest + random.below(newest + 1 - oldest + LEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_increase_with_their_events_and_none_is_skipped() {
        let (mut persons, mut auctions) = (0, 0);
        for index in 0..500 {
            match Slot::of(index) {
                Slot::Person => {
                    assert_eq!(newest_person(index), persons);
                    persons += 1;
                }
                Slot::Auction => {
                    assert_eq!(newest_auction(index), auctions);
                    auctions += 1;
                }
                Slot::Bid => {
                    assert_eq!(
                        (newest_person(index), newest_auction(index)),
                        (persons - 1, auctions - 1)
                    );
                }
            }
        }
        assert_eq!((persons, auctions), (10, 30));
        assert_eq!(newest_auction(50), 2);
    }

    #[test]
    fn recent_ids_reach_from_the_oldest_in_flight_to_the_lead() {
        let mut random = EventRandom::new(1, 1);
        let drawn: std::collections::BTreeSet<u64> =
            (0..10_000).map(|_| recent(999, 100, &mut random)).collect();
        assert_eq!(
            drawn.into_iter().collect::<Vec<_>>(),
            (900..1010).collect::<Vec<_>>()
        );
        assert!((0..100).all(|_| recent(0, 100, &mut random) <= 10));
    }

    #[test]
    fn the_hot_id_is_never_newer_than_the_newest() {
        assert_eq!([hot(0), hot(99), hot(100), hot(250)], [0, 0, 100, 200]);
    }
}
