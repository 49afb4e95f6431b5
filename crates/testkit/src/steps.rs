//! The plan of calls for the events of all inputs, computed before the run as the runtime would
//! make them.

use std::time::Duration;

use ardea_core::{Epoch, Priority, Watermark, WatermarkMerge};

use crate::input::{EventKind, InputPlan};
use crate::random::SplitMix64;
use crate::variant::{Batching, Order, Variant};

/// One action of the run on the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Offers the events `from..to` of an input, which are all records.
    Records {
        input: usize,
        from: usize,
        to: usize,
    },
    Watermark(Watermark),
    Idle,
    Barrier(Epoch),
    Advance(Duration),
    EdgeDone(usize),
    Complete,
}

/// The read position of an input.
#[derive(Debug)]
struct Cursor {
    kinds: Vec<EventKind>,
    next: usize,
    priority: Priority,
    at_barrier: bool,
    ended: bool,
}

/// Plans the steps of one variant.
struct Planner<'a> {
    variant: &'a Variant,
    cursors: Vec<Cursor>,
    merge: WatermarkMerge,
    random: SplitMix64,
    epoch: Epoch,
    picks: usize,
    last: usize,
    steps: Vec<Step>,
}

/// Returns the steps of `variant` over `inputs`, with the priority of each.
pub(crate) fn plan(inputs: &[(Box<dyn InputPlan>, Priority)], variant: &Variant) -> Vec<Step> {
    let cursor = |(input, priority): &(Box<dyn InputPlan>, Priority)| Cursor {
        kinds: input.kinds(),
        next: 0,
        priority: *priority,
        at_barrier: false,
        ended: false,
    };
    let mut planner = Planner {
        variant,
        cursors: inputs.iter().map(cursor).collect(),
        merge: WatermarkMerge::new(inputs.len()),
        random: SplitMix64::new(variant.seed),
        epoch: Epoch::default().next(),
        picks: 0,
        last: inputs.len().saturating_sub(1),
        steps: Vec::new(),
    };
    while let Some((input, events)) = planner.pick() {
        planner.take(input, events);
    }
    planner.steps.push(Step::Complete);
    planner.steps
}

impl Planner<'_> {
    /// Returns the input to read next, and the largest number of events to read from it.
    fn pick(&mut self) -> Option<(usize, usize)> {
        let open = |cursor: &Cursor| !cursor.ended && !cursor.at_barrier;
        let first = self
            .cursors
            .iter()
            .filter(|c| open(c))
            .map(|c| c.priority)
            .min()?;
        let ready: Vec<usize> = (0..self.cursors.len())
            .filter(|&i| open(&self.cursors[i]) && self.cursors[i].priority == first)
            .collect();
        let picked = match &self.variant.order {
            Order::Listed => (ready[0], usize::MAX),
            Order::InTurn => {
                let after = ready.iter().find(|&&input| input > self.last);
                (*after.unwrap_or(&ready[0]), usize::MAX)
            }
            Order::Drawn => (ready[self.random.below(ready.len())], usize::MAX),
            Order::Given(given) => {
                let rest = &given[self.picks.min(given.len())..];
                match rest.iter().position(|input| ready.contains(input)) {
                    None => (ready[0], usize::MAX),
                    Some(skipped) => {
                        let input = rest[skipped];
                        let run = rest[skipped..]
                            .iter()
                            .take_while(|&&next| next == input)
                            .count();
                        self.picks += skipped;
                        (input, run)
                    }
                }
            }
        };
        self.last = picked.0;
        Some(picked)
    }

    fn take(&mut self, input: usize, most: usize) {
        let cursor = &mut self.cursors[input];
        let Some(&kind) = cursor.kinds.get(cursor.next) else {
            self.picks += usize::from(most != usize::MAX);
            return self.end(input);
        };
        let from = cursor.next;
        let mut taken = 1;
        if kind == EventKind::Record {
            let rest = &cursor.kinds[from..];
            let run = rest
                .iter()
                .take_while(|&&kind| kind == EventKind::Record)
                .count()
                .min(most);
            taken = match self.variant.batching {
                Batching::OneByOne => 1,
                Batching::Random => 1 + self.random.below(run.min(8)),
                Batching::AllAtOnce => run,
            };
        }
        cursor.next += taken;
        self.picks += if most == usize::MAX { 0 } else { taken };
        let rose = match kind {
            EventKind::Record => {
                self.steps.push(Step::Records {
                    input,
                    from,
                    to: from + taken,
                });
                self.merge.record(input);
                None
            }
            EventKind::Watermark(watermark) => self.merge.advance(input, watermark),
            EventKind::Idle => self.merge.idle(input),
            EventKind::Barrier => {
                cursor.at_barrier = true;
                None
            }
            EventKind::Advance(by) => {
                self.steps.push(Step::Advance(by));
                None
            }
        };
        self.steps.extend(rose.map(Step::Watermark));
        if kind == EventKind::Idle && self.merge.is_idle() {
            self.steps.push(Step::Idle);
        }
        self.end_epoch();
    }

    /// Ends an input: it no longer holds back watermarks and epochs. The final watermark follows
    /// the end of the last input.
    fn end(&mut self, input: usize) {
        self.cursors[input].ended = true;
        let rose = self
            .merge
            .done(input)
            .filter(|watermark| *watermark != Watermark::END);
        self.steps.extend(rose.map(Step::Watermark));
        self.end_epoch();
        self.steps.push(Step::EdgeDone(input));
        if self.cursors.iter().all(|cursor| cursor.ended) {
            self.steps.push(Step::Watermark(Watermark::END));
        }
    }

    /// Ends the epoch if every input that has not ended has reached its barrier.
    fn end_epoch(&mut self) {
        let held = self.cursors.iter().any(|cursor| cursor.at_barrier);
        if held
            && self
                .cursors
                .iter()
                .all(|cursor| cursor.ended || cursor.at_barrier)
        {
            self.cursors
                .iter_mut()
                .for_each(|cursor| cursor.at_barrier = false);
            self.steps.push(Step::Barrier(self.epoch));
            self.epoch = self.epoch.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestInput;
    use crate::variant::OutboxCapacity;
    use ardea_core::Timestamp;

    fn variant(batching: Batching, order: Order) -> Variant {
        Variant {
            batching,
            room: OutboxCapacity::Plenty,
            order,
            several_inputs: true,
            seed: 3,
            stop_before: None,
            failure_mode: Default::default(),
        }
    }

    fn inputs(list: Vec<TestInput<u32>>) -> Vec<(Box<dyn InputPlan>, Priority)> {
        list.into_iter()
            .map(|input| (Box::new(input) as Box<dyn InputPlan>, Priority::NORMAL))
            .collect()
    }

    #[test]
    fn the_slowest_input_decides_the_watermark() {
        let at = Timestamp::from_secs;
        let inputs = inputs(vec![
            TestInput::new().watermark(at(5)),
            TestInput::new().watermark(at(3)).values([1]),
        ]);
        let steps = plan(&inputs, &variant(Batching::AllAtOnce, Order::InTurn));
        let expected = [
            Step::Watermark(Watermark(at(3))),
            Step::EdgeDone(0),
            Step::Records {
                input: 1,
                from: 1,
                to: 2,
            },
            Step::EdgeDone(1),
            Step::Watermark(Watermark::END),
            Step::Complete,
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn an_input_at_its_epoch_end_waits_for_the_others() {
        let inputs = inputs(vec![
            TestInput::new().barrier().values([1]),
            TestInput::new().values([2]).barrier(),
        ]);
        let steps = plan(&inputs, &variant(Batching::AllAtOnce, Order::Listed));
        assert_eq!(
            steps[0],
            Step::Records {
                input: 1,
                from: 0,
                to: 1
            }
        );
        assert_eq!(steps[1], Step::Barrier(Epoch(1)));
        assert_eq!(
            steps[2],
            Step::Records {
                input: 0,
                from: 1,
                to: 2
            }
        );
    }

    #[test]
    fn a_given_order_is_followed_event_by_event() {
        let inputs = inputs(vec![vec![1, 2, 3].into(), vec![4].into()]);
        let order = Order::Given([0, 0, 1, 0].into());
        let steps = plan(&inputs, &variant(Batching::AllAtOnce, order));
        assert_eq!(
            steps[0],
            Step::Records {
                input: 0,
                from: 0,
                to: 2
            }
        );
        assert_eq!(
            steps[1],
            Step::Records {
                input: 1,
                from: 0,
                to: 1
            }
        );
        assert_eq!(
            steps[2],
            Step::Records {
                input: 0,
                from: 2,
                to: 3
            }
        );
    }

    #[test]
    fn an_urgent_input_is_read_to_its_end_first() {
        let mut inputs = inputs(vec![vec![1, 2].into(), vec![3, 4].into()]);
        inputs[1].1 = Priority::FIRST;
        let steps = plan(&inputs, &variant(Batching::OneByOne, Order::InTurn));
        assert_eq!(steps[2], Step::EdgeDone(1));
    }
}
