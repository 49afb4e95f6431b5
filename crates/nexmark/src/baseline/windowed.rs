//! The queries over windows of event time: 5, 7 and 8.
//!
//! Windows are aligned to the epoch. A sliding window is a run of panes, each as long as the slide
//! (Li, Maier, Tufte, Papadimos, Tucker: "No Pane, No Gain", 2005). Rows come in order of event
//! time, so one pane is open at a time. When a pane closes, the window that ends with it is
//! complete.

use super::{Baseline, Workload};
use crate::{BidRow, EventClock, auction_at, checksum, is_person_at, person_at};

/// Computes query 5: the auctions with the most bids in every sliding window that has a bid.
///
/// The counts of the current window are in a dense array. A closing pane is added to it, and the
/// pane that leaves the window is subtracted, so the cost does not depend on the number of panes.
/// Memory: 4 bytes for each key and pane, or for each bid in a window if these are fewer.
pub fn q5(workload: &Workload) -> Baseline {
    let panes = (workload.window_ms / workload.slide_ms) as usize;
    let events_in_pane = workload
        .schedule
        .events_per_second()
        .saturating_mul(workload.slide_ms as u64)
        / 1_000;
    if events_in_pane < workload.keys as u64 {
        most_bids(workload, LoggedPanes::new(workload.keys, panes))
    } else {
        most_bids(workload, DensePanes::new(workload.keys, panes))
    }
}

/// The counts of the window that ends with the open pane, updated pane by pane.
trait PanedCounts {
    /// Counts a bid in the open pane.
    fn count(&mut self, auction: usize);
    /// Closes the open pane, and returns the counts of the window that ends with it.
    fn close(&mut self) -> &[u32];
    /// Removes the oldest pane from the window, and opens a new one.
    fn open(&mut self);
}

/// Panes with a count for every auction: best if a pane has more bids than there are auctions.
struct DensePanes {
    window: Vec<u32>,
    panes: Vec<Vec<u32>>,
    current: usize,
}

impl DensePanes {
    fn new(keys: usize, panes: usize) -> Self {
        Self {
            window: vec![0; keys],
            panes: vec![vec![0; keys]; panes],
            current: 0,
        }
    }
}

impl PanedCounts for DensePanes {
    #[inline]
    fn count(&mut self, auction: usize) {
        self.panes[self.current][auction] += 1;
    }

    fn close(&mut self) -> &[u32] {
        for (total, count) in self.window.iter_mut().zip(&self.panes[self.current]) {
            *total += count;
        }
        &self.window
    }

    fn open(&mut self) {
        self.current = (self.current + 1) % self.panes.len();
        for (total, count) in self.window.iter_mut().zip(&mut self.panes[self.current]) {
            *total -= *count;
            *count = 0;
        }
    }
}

/// Panes that list the auctions of their bids: best if a pane has few bids.
struct LoggedPanes {
    window: Vec<u32>,
    panes: Vec<Vec<u32>>,
    current: usize,
}

impl LoggedPanes {
    fn new(keys: usize, panes: usize) -> Self {
        Self {
            window: vec![0; keys],
            panes: vec![Vec::new(); panes],
            current: 0,
        }
    }
}

impl PanedCounts for LoggedPanes {
    #[inline]
    fn count(&mut self, auction: usize) {
        self.window[auction] += 1;
        self.panes[self.current].push(auction as u32);
    }

    fn close(&mut self) -> &[u32] {
        &self.window
    }

    fn open(&mut self) {
        self.current = (self.current + 1) % self.panes.len();
        for auction in self.panes[self.current].drain(..) {
            self.window[auction as usize] -= 1;
        }
    }
}

fn most_bids(workload: &Workload, mut counts: impl PanedCounts) -> Baseline {
    let mut done = workload.events_only();
    let slide_ms = workload.slide_ms;
    let mut best = BlockMaxima::new(workload.keys);
    let mut pane_end_ms = first_pane_end_ms(workload);
    for bid in workload.bids() {
        while bid.date_time >= pane_end_ms {
            best.report(counts.close(), pane_end_ms, &mut done);
            counts.open();
            pane_end_ms += slide_ms;
        }
        counts.count(bid.auction as usize);
    }
    // The last bids are in windows that end up to a window's length after them.
    for _ in 0..workload.window_ms / slide_ms {
        best.report(counts.close(), pane_end_ms, &mut done);
        counts.open();
        pane_end_ms += slide_ms;
    }
    done
}

/// The maximum of every block of counts. It finds the highest counts in one pass: only blocks that
/// contain the overall maximum are scanned again.
struct BlockMaxima {
    of_block: Vec<u32>,
}

impl BlockMaxima {
    const BLOCK: usize = 64;

    fn new(keys: usize) -> Self {
        Self {
            of_block: vec![0; keys.div_ceil(Self::BLOCK)],
        }
    }

    fn report(&mut self, counts: &[u32], window_end_ms: i64, done: &mut Baseline) {
        let mut most = 0;
        for (best, block) in self.of_block.iter_mut().zip(counts.chunks(Self::BLOCK)) {
            *best = block.iter().fold(0, |best, &count| best.max(count));
            most = most.max(*best);
        }
        if most == 0 {
            return;
        }
        let blocks = self
            .of_block
            .iter()
            .enumerate()
            .filter(|&(_, &best)| best == most);
        for first in blocks.map(|(block, _)| block * Self::BLOCK) {
            for (auction, &count) in (first..).zip(&counts[first..]).take(Self::BLOCK) {
                if count == most {
                    done.add(checksum::most_bids(
                        window_end_ms,
                        auction as u64,
                        u64::from(most),
                    ));
                }
            }
        }
    }
}

/// Computes query 7: the highest bids of every tumbling window, including ties.
pub fn q7(workload: &Workload) -> Baseline {
    let mut done = workload.events_only();
    let mut window_end_ms = i64::MIN;
    let mut highest: Vec<BidRow> = Vec::new();
    let mut price = 0;
    for bid in workload.bids() {
        if bid.date_time >= window_end_ms {
            report_highest(&mut highest, window_end_ms, &mut done);
            window_end_ms = end_of_pane_ms(bid.date_time, workload.window_ms);
            price = 0;
        }
        if bid.price >= price {
            if bid.price > price {
                highest.clear();
                price = bid.price;
            }
            highest.push(bid);
        }
    }
    report_highest(&mut highest, window_end_ms, &mut done);
    done
}

fn report_highest(highest: &mut Vec<BidRow>, window_end_ms: i64, done: &mut Baseline) {
    for bid in highest.drain(..) {
        done.add(checksum::highest_bid(
            window_end_ms,
            bid.auction,
            bid.bidder,
            bid.price,
        ));
    }
}

/// Computes query 8 over the mixed stream ([`is_person_at`]): persons who registered and opened an
/// auction in the same window. The windows slide; they tumble, as in the query's definition, if
/// slide and window are the same.
///
/// Rows come in order, so a person was active in the current window if the last time was in one of
/// its panes. The state is therefore one pane number for each person and kind of activity.
pub fn q8(workload: &Workload) -> Baseline {
    let mut done = workload.events_only();
    let panes = (workload.window_ms / workload.slide_ms) as u32;
    // Panes count from `panes`, so that pane 0, "never", is in no window.
    let mut pane = panes;
    let mut pane_end_ms = first_pane_end_ms(workload);
    let mut registered = vec![0_u32; workload.keys];
    let mut sold = vec![0_u32; workload.keys];
    let mut clock = EventClock::new(workload.schedule, 0);
    let mut close = |registered: &[u32], sold: &[u32], pane: u32, pane_end_ms: i64| {
        let oldest = pane + 1 - panes;
        for (id, (&registered, &sold)) in registered.iter().zip(sold).enumerate() {
            if registered >= oldest && sold >= oldest {
                done.add(checksum::new_seller(pane_end_ms, id as u64));
            }
        }
    };
    for index in 0..workload.events {
        let date_time = clock.tick();
        while date_time >= pane_end_ms {
            close(&registered, &sold, pane, pane_end_ms);
            pane += 1;
            pane_end_ms += workload.slide_ms;
        }
        if is_person_at(index) {
            let person = person_at(workload.seed, index, workload.keys as u64, date_time);
            registered[person.id as usize] = pane;
        } else {
            let auction = auction_at(workload.seed, index, workload.keys as u64, date_time);
            sold[auction.seller as usize] = pane;
        }
    }
    for _ in 0..panes {
        close(&registered, &sold, pane, pane_end_ms);
        pane += 1;
        pane_end_ms += workload.slide_ms;
    }
    done
}

/// Returns the end of the pane of event 0, in milliseconds since the epoch.
fn first_pane_end_ms(workload: &Workload) -> i64 {
    end_of_pane_ms(workload.schedule.first_ms(), workload.slide_ms)
}

/// Returns the end of the pane that contains `date_time`, with panes of `length_ms`; correct for
/// negative times as well.
fn end_of_pane_ms(date_time: i64, length_ms: i64) -> i64 {
    (date_time.div_euclid(length_ms) + 1).saturating_mul(length_ms)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::WorkloadConfig;
    use super::*;

    fn windows_of(workload: &Workload, date_time: i64) -> impl Iterator<Item = i64> {
        let (window_ms, slide_ms) = (workload.window_ms, workload.slide_ms);
        let first_end_ms = end_of_pane_ms(date_time, slide_ms);
        (0..window_ms / slide_ms).map(move |pane| first_end_ms + pane * slide_ms)
    }

    fn sum(workload: &Workload, digests: impl Iterator<Item = u64>) -> Baseline {
        let mut done = workload.events_only();
        digests.for_each(|digest| done.add(digest));
        done
    }

    fn q5_by_definition(workload: &Workload) -> Baseline {
        let mut counts: BTreeMap<i64, BTreeMap<u64, u64>> = BTreeMap::new();
        for bid in workload.bids() {
            for end_ms in windows_of(workload, bid.date_time) {
                *counts
                    .entry(end_ms)
                    .or_default()
                    .entry(bid.auction)
                    .or_default() += 1;
            }
        }
        let digests = counts.iter().flat_map(|(&end_ms, counts)| {
            let most = counts.values().copied().max().unwrap();
            let best = counts.iter().filter(move |&(_, &count)| count == most);
            best.map(move |(&auction, &count)| checksum::most_bids(end_ms, auction, count))
        });
        sum(workload, digests)
    }

    fn q7_by_definition(workload: &Workload) -> Baseline {
        let mut windows: BTreeMap<i64, Vec<BidRow>> = BTreeMap::new();
        for bid in workload.bids() {
            windows
                .entry(end_of_pane_ms(bid.date_time, workload.window_ms))
                .or_default()
                .push(bid);
        }
        let digests = windows.iter().flat_map(|(&end_ms, bids)| {
            let price = bids.iter().map(|bid| bid.price).max().unwrap();
            let highest = bids.iter().filter(move |bid| bid.price == price);
            highest
                .map(move |bid| checksum::highest_bid(end_ms, bid.auction, bid.bidder, bid.price))
        });
        sum(workload, digests)
    }

    fn q8_by_definition(workload: &Workload) -> Baseline {
        let (mut registered, mut sold) = (BTreeSet::new(), BTreeSet::new());
        for index in 0..workload.events {
            let date_time = workload.schedule.date_time_ms(index);
            for end_ms in windows_of(workload, date_time) {
                if is_person_at(index) {
                    registered.insert((
                        end_ms,
                        person_at(workload.seed, index, workload.keys as u64, date_time).id,
                    ));
                } else {
                    let auction = auction_at(workload.seed, index, workload.keys as u64, date_time);
                    sold.insert((end_ms, auction.seller));
                }
            }
        }
        sum(
            workload,
            registered
                .intersection(&sold)
                .map(|&(end_ms, id)| checksum::new_seller(end_ms, id)),
        )
    }

    #[test]
    fn both_ways_to_keep_panes_count_the_same() {
        let config = WorkloadConfig {
            events: 20_000,
            events_per_second: 10_000,
            keys: 30,
            window: Duration::from_millis(100),
            slide: Duration::from_millis(10),
            ..WorkloadConfig::default()
        };
        let workload = Workload::new(config).unwrap();
        let logged = most_bids(&workload, LoggedPanes::new(30, 10));
        let dense = most_bids(&workload, DensePanes::new(30, 10));
        assert_eq!(logged, dense);
        assert_eq!(dense, q5_by_definition(&workload));
    }

    #[test]
    fn no_events_give_no_results() {
        let nothing = Workload::new(WorkloadConfig {
            events: 0,
            ..WorkloadConfig::default()
        })
        .unwrap();
        assert_eq!(
            [q5(&nothing), q7(&nothing), q8(&nothing)],
            [Baseline::default(); 3]
        );
    }

    proptest! {
        #[test]
        fn the_loops_compute_what_the_queries_define(
            seed: u64,
            events in 1_u64..600,
            first_event_time_ms in -3_000_i64..3_000,
            events_per_second in 1_u64..3_000,
            keys in 1_u64..200,
            slide_ms in 1_u64..120,
            panes in 1_u64..12,
        ) {
            let workload = Workload::new(WorkloadConfig {
                seed,
                events,
                first_event_time_ms,
                events_per_second,
                keys,
                window: Duration::from_millis(slide_ms * panes),
                slide: Duration::from_millis(slide_ms),
            }).unwrap();
            prop_assert_eq!(q5(&workload), q5_by_definition(&workload));
            prop_assert_eq!(q7(&workload), q7_by_definition(&workload));
            prop_assert_eq!(q8(&workload), q8_by_definition(&workload));
        }
    }
}
