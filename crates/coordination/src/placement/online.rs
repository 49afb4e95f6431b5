//! The decision when instances of a running job move to other hosts.

use std::time::Duration;

use crate::packing::PackingPlan;
use crate::placement::{CandidatePlacement, PlacementConfig, PlacementMode};

/// The number of consecutive windows in which a better placement must exist.
const WINDOWS: u32 = 3;

/// An event for the on-line placement of a job.
#[derive(Clone, PartialEq, Debug)]
pub enum PlacementEvent {
    /// Time has passed. `is_running` is true while all instances run and no change is under way.
    Tick {
        /// True while the job's traffic can be measured.
        is_running: bool,
    },
    /// The comparison that [`PlacementAction::Compare`] requested: the best replacement of the
    /// present plan by the traffic of the window, if there is one.
    Compared(Option<Box<CandidatePlacement>>),
    /// The change that [`PlacementAction::Apply`] requested was carried out, or refused.
    Applied {
        /// True if the change was carried out.
        is_done: bool,
    },
}

/// An action requested by the on-line placement of a job.
#[derive(Clone, PartialEq, Debug)]
pub enum PlacementAction {
    /// Compare the present plan with others by the traffic of the last window.
    Compare,
    /// Report that another placement is better.
    Propose(PlacementProposal),
    /// Report the proposal, and carry out the plan.
    Apply(PlacementProposal, Box<PackingPlan>),
    /// The last proposal does not hold any more.
    Withdraw,
}

/// A better placement, in figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementProposal {
    /// The traffic between hosts now, in records a second.
    pub cut_before: u64,
    /// The traffic between hosts after the change, in records a second.
    pub cut_after: u64,
    /// The number of instances that move.
    pub moves: usize,
}

/// Decides when instances of a running job move. Comparisons are made at the end of each window.
///
/// A replacement is proposed or applied if it saves the margin in three windows in a row, if the
/// records that it saves during a cool-down exceed the cost of its moves, and if the last proposal
/// or change is a cool-down ago.
#[derive(Debug)]
pub struct OnlinePlacement {
    config: PlacementConfig,
    /// The start of the present window; `None` while the job does not run.
    since: Option<Duration>,
    /// The number of consecutive windows with a better placement.
    better: u32,
    /// The time of the last proposal or change.
    last_change: Option<Duration>,
    is_comparing: bool,
    is_applying: bool,
    proposal: Option<PlacementProposal>,
}

impl OnlinePlacement {
    /// Creates the placement of a job that does not run yet.
    pub fn new(config: PlacementConfig) -> Self {
        OnlinePlacement {
            config,
            since: None,
            better: 0,
            last_change: None,
            is_comparing: false,
            is_applying: false,
            proposal: None,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &PlacementConfig {
        &self.config
    }

    /// Returns the proposal that holds at present, if there is one.
    pub fn proposal(&self) -> Option<PlacementProposal> {
        self.proposal
    }

    /// Handles an event and returns the resulting action, if any.
    pub fn on(&mut self, now: Duration, event: PlacementEvent) -> Option<PlacementAction> {
        if self.config.mode == PlacementMode::Off {
            return None;
        }
        match event {
            PlacementEvent::Tick { is_running } => self.tick(now, is_running),
            PlacementEvent::Compared(replacement) => {
                let was_asked = std::mem::take(&mut self.is_comparing);
                match was_asked {
                    true => self.compared(now, replacement.map(|it| *it)),
                    false => None,
                }
            }
            PlacementEvent::Applied { is_done } => {
                self.is_applying = false;
                // A refused change is tried again after the cool-down.
                self.last_change = Some(now);
                if is_done {
                    self.proposal = None;
                }
                None
            }
        }
    }

    fn tick(&mut self, now: Duration, is_running: bool) -> Option<PlacementAction> {
        if !is_running {
            // The traffic of a window with an interruption is not that of the job.
            (self.since, self.better, self.is_comparing) = (None, 0, false);
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let is_over = now.saturating_sub(since) >= self.config.window;
        if !is_over || self.is_comparing || self.is_applying {
            return None;
        }
        self.since = Some(now);
        self.is_comparing = true;
        Some(PlacementAction::Compare)
    }

    fn compared(
        &mut self,
        now: Duration,
        replacement: Option<CandidatePlacement>,
    ) -> Option<PlacementAction> {
        let better = replacement.filter(|replacement| self.is_worth(replacement));
        let Some(replacement) = better else {
            self.better = 0;
            return self.proposal.take().map(|_| PlacementAction::Withdraw);
        };
        self.better = self.better.saturating_add(1);
        let cools = |last| now.saturating_sub(last) < self.config.cooldown;
        if self.better < WINDOWS || self.last_change.is_some_and(cools) {
            return None;
        }
        let proposal = PlacementProposal {
            cut_before: replacement.cut_before,
            cut_after: replacement.cut_after,
            moves: replacement.moves,
        };
        (self.better, self.last_change, self.proposal) = (0, Some(now), Some(proposal));
        match self.config.mode {
            PlacementMode::Apply => {
                self.is_applying = true;
                let plan = Box::new(replacement.plan);
                Some(PlacementAction::Apply(proposal, plan))
            }
            _ => Some(PlacementAction::Propose(proposal)),
        }
    }

    /// Returns true if a replacement saves the margin, and during a cool-down more records than its
    /// moves cost.
    fn is_worth(&self, replacement: &CandidatePlacement) -> bool {
        let saved = u128::from(replacement.saved());
        let margin = u128::from(replacement.cut_before) * u128::from(self.config.margin_percent);
        let seconds = u128::from(self.config.cooldown.as_secs().max(1));
        let cost = replacement.moves as u128 * u128::from(self.config.move_cost);
        saved > 0 && saved * 100 >= margin && saved * seconds > cost
    }
}

#[cfg(test)]
mod tests;
