//! Watermarks, and their merge over several inputs.

use crate::Timestamp;

/// The promise that no record with an event time before this follows on the same edge.
///
/// A record whose time equals the watermark is not late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Watermark(pub Timestamp);

impl Watermark {
    /// No promise yet.
    pub const NONE: Watermark = Watermark(Timestamp::MIN);
    /// No record follows at all.
    pub const END: Watermark = Watermark(Timestamp::MAX);
}

/// The state of one input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InputState {
    /// Active, with its last watermark.
    Active(Watermark),
    /// Idle, with its last watermark: it does not hold back the other inputs.
    Idle(Watermark),
    /// Ended.
    Done,
}

/// Merges the watermarks of several inputs into their minimum, ignoring those that are idle or
/// done.
///
/// The merged watermark never decreases: an idle input that becomes active behind the others does
/// not pull it back, and its old records are late. While all inputs are idle the merged watermark
/// stands still. Cost: a scan of the inputs for each watermark.
///
/// **Waking.** The signals of one source arrive over several paths, on some later than on others.
/// Inputs of a [group](Self::set_group) wake together: when an idle input becomes active, the other
/// inputs of its group (of all groups, if all inputs were idle) hold back the watermark again.
/// Their next idle signal may be older than the wake-up, so it is dropped. An idle input must
/// therefore repeat its signal periodically. An input without group wakes alone.
///
/// ```
/// use ardea_core::{Timestamp, Watermark, WatermarkMerge};
/// let at = |secs| Watermark(Timestamp::from_secs(secs));
///
/// let mut merge = WatermarkMerge::new(2);
/// assert_eq!(merge.advance(0, at(5)), None, "the other input has state nothing yet");
/// assert_eq!(merge.advance(1, at(3)), Some(at(3)));
/// assert_eq!(merge.idle(1), Some(at(5)), "an idle input does not hold the others back");
/// ```
#[derive(Debug, Clone)]
pub struct WatermarkMerge {
    inputs: Vec<MergeInput>,
    merged: Watermark,
    all_idle: bool,
    /// Number of idle signals since idleness was last passed on.
    idle_signals: usize,
}

/// An input and its wake group.
#[derive(Debug, Clone, Copy)]
struct MergeInput {
    state: InputState,
    group: Option<usize>,
    /// True if another input has woken since the last signal of this one: its next idle signal may
    /// be outdated.
    may_be_stale: bool,
}

impl MergeInput {
    const INITIAL: MergeInput = MergeInput {
        state: InputState::Active(Watermark::NONE),
        group: None,
        may_be_stale: false,
    };
}

impl WatermarkMerge {
    /// Creates a merge of `inputs` inputs without watermarks.
    pub fn new(inputs: usize) -> Self {
        WatermarkMerge {
            inputs: vec![MergeInput::INITIAL; inputs],
            merged: Watermark::NONE,
            all_idle: false,
            idle_signals: 0,
        }
    }

    /// Returns the merged watermark.
    pub fn merged(&self) -> Watermark {
        self.merged
    }

    /// Returns true if every input that has not ended is idle (and at least one is).
    pub fn is_idle(&self) -> bool {
        self.all_idle
    }

    /// Returns true if idleness of all inputs must be passed on now: when they have become idle,
    /// and whenever about as many idle signals as there are idle inputs have arrived since.
    pub fn should_forward_idle(&mut self) -> bool {
        let idle = |it: &&MergeInput| matches!(it.state, InputState::Idle(_));
        let is_due = self.all_idle && self.idle_signals >= self.inputs.iter().filter(idle).count();
        if is_due {
            self.idle_signals = 0;
        }
        is_due
    }

    /// Assigns `input` to a group of inputs that wake together.
    pub fn set_group(&mut self, input: usize, group: usize) {
        self.inputs[input].group = Some(group);
    }

    /// Records a watermark of `input`. Returns the merged watermark if it rose.
    pub fn advance(&mut self, input: usize, watermark: Watermark) -> Option<Watermark> {
        self.record(input);
        let InputState::Active(last) = self.inputs[input].state else {
            return None;
        };
        self.inputs[input].state = InputState::Active(watermark.max(last));
        self.merge()
    }

    /// Records that a record arrived on `input`, which makes it active.
    pub fn record(&mut self, input: usize) {
        self.inputs[input].may_be_stale = false;
        if let InputState::Idle(last) = self.inputs[input].state {
            self.inputs[input].state = InputState::Active(last);
            self.wake_group(input);
            self.all_idle = false;
        }
    }

    /// Makes idle inputs of the same group active until their next signal.
    fn wake_group(&mut self, input: usize) {
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
            other.may_be_stale = true;
            if let InputState::Idle(last) = other.state {
                other.state = InputState::Active(last);
            }
        }
    }

    /// Marks `input` as idle. Returns the merged watermark if it rose.
    pub fn idle(&mut self, input: usize) -> Option<Watermark> {
        if std::mem::take(&mut self.inputs[input].may_be_stale) {
            return None;
        }
        if let InputState::Active(last) = self.inputs[input].state {
            let was_idle = self.all_idle;
            self.inputs[input].state = InputState::Idle(last);
            let risen = self.merge();
            if self.all_idle && !was_idle {
                // The caller passes it on at once.
                self.idle_signals = self.inputs.len();
            }
            return risen;
        }
        self.idle_signals += 1;
        None
    }

    /// Marks `input` as ended. Returns the merged watermark if it rose; [`Watermark::END`] when all
    /// have ended.
    pub fn done(&mut self, input: usize) -> Option<Watermark> {
        self.inputs[input].state = InputState::Done;
        self.merge()
    }

    /// Adds an input and returns its index. The new input holds back the watermark until it has
    /// caught up.
    pub fn add(&mut self) -> usize {
        self.inputs.push(MergeInput::INITIAL);
        self.all_idle = false;
        self.inputs.len() - 1
    }

    /// Replaces an input that ended by a new one with the same index, as by [`add`](Self::add).
    pub fn replace(&mut self, input: usize) {
        self.inputs[input] = MergeInput::INITIAL;
        self.all_idle = false;
    }

    /// Restarts event time for new inputs after all inputs have ended.
    pub fn restart(&mut self) {
        self.merged = Watermark::NONE;
    }

    fn merge(&mut self) -> Option<Watermark> {
        let (mut lowest_active, mut is_any_idle) = (None, false);
        for input in &self.inputs {
            match input.state {
                InputState::Active(mark) => {
                    lowest_active = Some(lowest_active.map_or(mark, |low: Watermark| low.min(mark)))
                }
                InputState::Idle(_) => is_any_idle = true,
                InputState::Done => {}
            }
        }
        self.all_idle = lowest_active.is_none() && is_any_idle;
        let all_ended = (!is_any_idle).then_some(Watermark::END);
        // While all inputs are idle the watermark stands still.
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
            merge.set_group(input, *group);
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
        // The idle signal that the other path delivered before.
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
        // After all were idle, each must signal idleness again.
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
        assert!(!merge.should_forward_idle());
        merge.idle(1);
        assert!(merge.should_forward_idle());
        assert!(!merge.should_forward_idle());
        merge.idle(0);
        assert!(!merge.should_forward_idle());
        merge.idle(1);
        assert!(merge.should_forward_idle());
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
