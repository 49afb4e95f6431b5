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
/// it back (its old records are then late). When all are idle time stands still. Cost: a scan of the inputs for each watermark that was the minimum.
///
/// **Waking.** What one source says comes over several paths, and over some later than over others. Inputs that were told to be [beside](Self::beside) others
/// wake with them: when one speaks that was idle, those of its group (all, if all were idle) hold time again, and what they have said of idleness may be older than
/// that, so the next time that they say it is passed over. So whoever is idle has to say it again now and then. Each speaks for itself unless told otherwise.
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
    inputs: Vec<Spoken>,
    merged: Watermark,
    all_idle: bool,
    /// How many inputs have said that they are idle since that was told on.
    said_idle: usize,
}

/// An input, and with whom it wakes.
#[derive(Debug, Clone, Copy)]
struct Spoken {
    said: Input,
    group: Option<usize>,
    /// Another has woken since it has spoken: that it is idle may be old news.
    is_doubtful: bool,
}

impl Spoken {
    const NOTHING: Spoken = Spoken {
        said: Input::Active(Watermark::NONE),
        group: None,
        is_doubtful: false,
    };
}

impl WatermarkMerge {
    /// For `inputs` inputs, none of which has spoken.
    pub fn new(inputs: usize) -> Self {
        WatermarkMerge {
            inputs: vec![Spoken::NOTHING; inputs],
            merged: Watermark::NONE,
            all_idle: false,
            said_idle: 0,
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

    /// Whether it is to be told on that all are idle: when they have become so, and whenever about as many have said it again.
    pub fn tells_idle(&mut self) -> bool {
        let idle = |it: &&Spoken| matches!(it.said, Input::Idle(_));
        let is_due = self.all_idle && self.said_idle >= self.inputs.iter().filter(idle).count();
        if is_due {
            self.said_idle = 0;
        }
        is_due
    }

    /// From now on `input` is in a group: it wakes with the others of that.
    pub fn beside(&mut self, input: usize, group: usize) {
        self.inputs[input].group = Some(group);
    }

    /// `input` promised `watermark`. Returns the merged watermark if it rose.
    pub fn advance(&mut self, input: usize, watermark: Watermark) -> Option<Watermark> {
        self.record(input);
        let Input::Active(last) = self.inputs[input].said else {
            return None;
        };
        self.inputs[input].said = Input::Active(watermark.max(last));
        self.merge()
    }

    /// A record came from `input`: it is not idle any more.
    pub fn record(&mut self, input: usize) {
        self.inputs[input].is_doubtful = false;
        if let Input::Idle(last) = self.inputs[input].said {
            self.inputs[input].said = Input::Active(last);
            self.wake_others(input);
            self.all_idle = false;
        }
    }

    /// Those that are on other paths from where `input` has its news hold time until they have spoken, too.
    fn wake_others(&mut self, input: usize) {
        let Some(group) = self.inputs[input].group else {
            return;
        };
        for (at, other) in self.inputs.iter_mut().enumerate() {
            let wakes = match other.group {
                Some(of) => of == group || self.all_idle,
                None => false,
            };
            if at == input || !wakes {
                continue;
            }
            other.is_doubtful = true;
            if let Input::Idle(last) = other.said {
                other.said = Input::Active(last);
            }
        }
    }

    /// `input` has been silent for too long. Returns the merged watermark if it rose.
    pub fn idle(&mut self, input: usize) -> Option<Watermark> {
        if std::mem::take(&mut self.inputs[input].is_doubtful) {
            return None;
        }
        if let Input::Active(last) = self.inputs[input].said {
            let was_idle = self.all_idle;
            self.inputs[input].said = Input::Idle(last);
            let risen = self.merge();
            if self.all_idle && !was_idle {
                // Told on at once.
                self.said_idle = self.inputs.len();
            }
            return risen;
        }
        self.said_idle += 1;
        None
    }

    /// `input` ended. Returns the merged watermark if it rose; [`Watermark::END`] when all have ended.
    pub fn done(&mut self, input: usize) -> Option<Watermark> {
        self.inputs[input].said = Input::Done;
        self.merge()
    }

    /// One input more, which has not spoken; its number. It holds the watermark where it is until it has caught up.
    pub fn add(&mut self) -> usize {
        self.inputs.push(Spoken::NOTHING);
        self.all_idle = false;
        self.inputs.len() - 1
    }

    /// Gives the number of an input that ended to a new one, as by [`add`](Self::add).
    pub fn replace(&mut self, input: usize) {
        self.inputs[input] = Spoken::NOTHING;
        self.all_idle = false;
    }

    /// All inputs have ended, and time begins anew with those that come now.
    pub fn restart(&mut self) {
        self.merged = Watermark::NONE;
    }

    fn merge(&mut self) -> Option<Watermark> {
        let (mut lowest_active, mut is_any_idle) = (None, false);
        for input in &self.inputs {
            match input.said {
                Input::Active(mark) => {
                    lowest_active = Some(lowest_active.map_or(mark, |low: Watermark| low.min(mark)))
                }
                Input::Idle(_) => is_any_idle = true,
                Input::Done => {}
            }
        }
        self.all_idle = lowest_active.is_none() && is_any_idle;
        let all_ended = (!is_any_idle).then_some(Watermark::END);
        // When all are idle nothing says that time goes on.
        let candidate = lowest_active.or(all_ended)?;
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
    fn when_all_are_idle_time_stands_still() {
        let mut merge = WatermarkMerge::new(2);
        merge.advance(0, at(10));
        merge.advance(1, at(4));
        merge.idle(0);
        assert_eq!(merge.idle(1), None);
        assert!(merge.is_idle());
        assert_eq!(merge.merged(), at(4));
    }

    fn grouped(groups: &[usize]) -> WatermarkMerge {
        let mut merge = WatermarkMerge::new(groups.len());
        for (input, group) in groups.iter().enumerate() {
            merge.beside(input, *group);
            merge.advance(input, at(1));
        }
        merge
    }

    #[test]
    fn what_comes_over_one_path_first_is_not_taken_for_all() {
        let mut merge = grouped(&[0, 0]);
        merge.idle(0);
        merge.idle(1);
        assert_eq!(merge.advance(0, at(9)), None, "the other path has it, too");
        assert_eq!(merge.advance(1, at(9)), Some(at(9)));
    }

    #[test]
    fn that_a_path_was_idle_may_be_old_news() {
        let mut merge = grouped(&[0, 0]);
        merge.idle(0);
        assert_eq!(merge.advance(0, at(9)), None);
        // It says now what the other path has said before.
        assert_eq!(merge.idle(1), None);
        assert_eq!(merge.advance(1, at(8)), Some(at(8)));
        merge.idle(0);
        merge.advance(0, at(12));
        assert_eq!(merge.idle(1), None);
        assert_eq!(merge.idle(1), Some(at(12)), "it says so again");
    }

    #[test]
    fn another_source_that_goes_on_is_not_held_back_by_paths_that_stay_idle() {
        let mut merge = grouped(&[0, 0, 1]);
        merge.idle(0);
        merge.idle(1);
        assert_eq!(merge.advance(2, at(9)), Some(at(9)));
        // When all have been silent the silence of each counts anew.
        merge.idle(2);
        assert!(merge.is_idle());
        assert_eq!(merge.advance(2, at(20)), None);
        for _ in 0..2 {
            merge.idle(0);
        }
        merge.idle(1);
        assert_eq!(merge.idle(1), Some(at(20)));
    }

    #[test]
    fn idleness_is_told_once_for_all_inputs_and_again_when_all_say_it_again() {
        let mut merge = grouped(&[0, 0]);
        merge.idle(0);
        assert!(!merge.tells_idle());
        merge.idle(1);
        assert!(merge.tells_idle());
        assert!(!merge.tells_idle());
        merge.idle(0);
        assert!(!merge.tells_idle());
        merge.idle(1);
        assert!(merge.tells_idle());
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
