//! Watermarks, and how those of several inputs become one.

use crate::Timestamp;

/// The promise that no record with an event time before this follows on the same edge.
///
/// A record whose time equals the watermark is not late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Watermark(pub Timestamp);

impl Watermark {
    /// Nothing is promised yet.
    pub const NONE: Watermark = Watermark(Timestamp::MIN);
    /// No record follows at all.
    pub const END: Watermark = Watermark(Timestamp::MAX);
}

/// What one input has said of its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// Speaking; the last watermark it gave.
    Active(Watermark),
    /// Silent for so long that it does not hold the others back; the last watermark it gave.
    Idle(Watermark),
    /// Ended.
    Done,
}

/// Merges the watermarks of several inputs into their minimum, without those that are idle or done.
///
/// The merged watermark never runs backwards: an input that wakes from idleness behind the others does not pull
/// it back (its old records are then late). Cost: a scan of the inputs for each watermark that was the minimum.
///
/// ```
/// use ardea_core::{Timestamp, Watermark, WatermarkMerge};
/// let at = |secs| Watermark(Timestamp::from_secs(secs));
///
/// let mut merge = WatermarkMerge::new(2);
/// assert_eq!(merge.advance(0, at(5)), None, "the other input has said nothing yet");
/// assert_eq!(merge.advance(1, at(3)), Some(at(3)));
/// assert_eq!(merge.idle(1), Some(at(5)), "an idle input does not hold the others back");
/// ```
#[derive(Debug, Clone)]
pub struct WatermarkMerge {
    inputs: Vec<Input>,
    merged: Watermark,
    all_idle: bool,
}

impl WatermarkMerge {
    /// For `inputs` inputs, none of which has spoken.
    pub fn new(inputs: usize) -> Self {
        WatermarkMerge {
            inputs: vec![Input::Active(Watermark::NONE); inputs],
            merged: Watermark::NONE,
            all_idle: false,
        }
    }

    /// The merged watermark as it stands.
    pub fn merged(&self) -> Watermark {
        self.merged
    }

    /// Whether every input that has not ended is idle (and at least one is).
    pub fn is_idle(&self) -> bool {
        self.all_idle
    }

    /// `input` promised `watermark`. Returns the merged watermark if it rose.
    pub fn advance(&mut self, input: usize, watermark: Watermark) -> Option<Watermark> {
        let last = match self.inputs[input] {
            Input::Active(last) | Input::Idle(last) => last,
            Input::Done => return None,
        };
        self.inputs[input] = Input::Active(watermark.max(last));
        self.merge()
    }

    /// A record came from `input`: it is not idle any more.
    pub fn record(&mut self, input: usize) {
        if let Input::Idle(last) = self.inputs[input] {
            self.inputs[input] = Input::Active(last);
            self.all_idle = false;
        }
    }

    /// `input` has been silent for too long. Returns the merged watermark if it rose.
    pub fn idle(&mut self, input: usize) -> Option<Watermark> {
        if let Input::Active(last) = self.inputs[input] {
            self.inputs[input] = Input::Idle(last);
        }
        self.merge()
    }

    /// `input` ended. Returns the merged watermark if it rose; [`Watermark::END`] when all have ended.
    pub fn done(&mut self, input: usize) -> Option<Watermark> {
        self.inputs[input] = Input::Done;
        self.merge()
    }

    /// One input more, which has not spoken; its number. It holds the watermark where it is until it has caught up.
    pub fn add(&mut self) -> usize {
        self.inputs.push(Input::Active(Watermark::NONE));
        self.all_idle = false;
        self.inputs.len() - 1
    }

    /// Gives the number of an input that ended to a new one, as by [`add`](Self::add).
    pub fn replace(&mut self, input: usize) {
        self.inputs[input] = Input::Active(Watermark::NONE);
        self.all_idle = false;
    }

    /// All inputs have ended, and time begins anew with those that come now.
    pub fn restart(&mut self) {
        self.merged = Watermark::NONE;
    }

    fn merge(&mut self) -> Option<Watermark> {
        let mut lowest_active = None;
        let mut highest_idle = None;
        for input in &self.inputs {
            match *input {
                Input::Active(mark) => {
                    lowest_active = Some(lowest_active.map_or(mark, |low: Watermark| low.min(mark)))
                }
                Input::Idle(mark) => highest_idle = highest_idle.max(Some(mark)),
                Input::Done => {}
            }
        }
        self.all_idle = lowest_active.is_none() && highest_idle.is_some();
        // When all are idle the stream is as far as the most advanced of them.
        let candidate = lowest_active.or(highest_idle).unwrap_or(Watermark::END);
        (candidate > self.merged).then(|| {
            self.merged = candidate;
            candidate
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: i64) -> Watermark {
        Watermark(Timestamp::from_secs(secs))
    }

    #[test]
    fn the_slowest_input_holds_the_others() {
        let mut merge = WatermarkMerge::new(3);
        assert_eq!(merge.advance(0, at(10)), None);
        assert_eq!(merge.advance(1, at(20)), None);
        assert_eq!(merge.advance(2, at(5)), Some(at(5)));
        assert_eq!(merge.advance(2, at(15)), Some(at(10)));
    }

    #[test]
    fn an_ended_input_holds_nobody_and_all_ended_is_the_end() {
        let mut merge = WatermarkMerge::new(2);
        merge.advance(0, at(10));
        assert_eq!(merge.done(1), Some(at(10)));
        assert_eq!(merge.done(0), Some(Watermark::END));
    }

    #[test]
    fn an_idle_input_that_wakes_behind_does_not_pull_time_back() {
        let mut merge = WatermarkMerge::new(2);
        merge.advance(0, at(10));
        assert_eq!(merge.idle(1), Some(at(10)));
        merge.record(1);
        assert_eq!(merge.advance(1, at(3)), None);
        assert_eq!(merge.merged(), at(10));
        assert_eq!(
            merge.advance(0, at(30)),
            None,
            "the awake input holds again"
        );
        assert_eq!(merge.advance(1, at(12)), Some(at(12)));
    }

    #[test]
    fn when_all_are_idle_the_most_advanced_one_decides() {
        let mut merge = WatermarkMerge::new(2);
        merge.advance(0, at(10));
        merge.advance(1, at(4));
        merge.idle(0);
        assert_eq!(merge.idle(1), Some(at(10)));
        assert!(merge.is_idle());
    }

    #[test]
    fn an_input_that_comes_later_holds_time_where_it_is_until_it_has_caught_up() {
        let mut merge = WatermarkMerge::new(1);
        assert_eq!(merge.advance(0, at(10)), Some(at(10)));
        let late = merge.add();
        assert_eq!(merge.advance(0, at(20)), None);
        assert_eq!(
            merge.advance(late, at(5)),
            None,
            "time does not run backwards"
        );
        assert_eq!(merge.advance(late, at(15)), Some(at(15)));
        assert_eq!(merge.done(0), None);
        merge.replace(0);
        assert_eq!(merge.advance(late, at(30)), None);
        assert_eq!(merge.advance(0, at(25)), Some(at(25)));
    }

    proptest! {
        #[test]
        fn the_merged_watermark_never_runs_backwards(
            steps in prop::collection::vec((0usize..4, 0u8..4, 0i64..100), 0..200)
        ) {
            let mut merge = WatermarkMerge::new(4);
            let mut last = merge.merged();
            for (input, action, secs) in steps {
                let rose = match action {
                    0 | 1 => merge.advance(input, at(secs)),
                    2 => merge.idle(input),
                    _ => { merge.record(input); None }
                };
                if let Some(rose) = rose {
                    prop_assert!(rose > last);
                }
                prop_assert!(merge.merged() >= last);
                last = merge.merged();
            }
        }
    }
}
