//! Commands of the user, and notices to the user.

use std::time::Duration;

use ardea_coordination::control::{
    CheckpointCommand, CommandId, CoordinatorEvent, CoordinatorStatus, EpochNotDone, SafeMode,
};
use ardea_core::{Epoch, Error};

use super::{Done, Driver};
use crate::local::RecoveryEvent;
use crate::local::attempt::JobCommand;
use crate::local::failure::{self, RecoveryOptions};

/// The maximum number of instances named in the notice of a slow checkpoint.
const MOST_NAMED: usize = 5;

impl Driver<'_> {
    /// Handles a command.
    pub(super) fn handle_command(&mut self, wish: JobCommand) {
        match wish {
            JobCommand::Cancel => self.is_done(Done::Cancelled),
            JobCommand::Drain => {
                self.wish = Some(self.wish.unwrap_or(JobCommand::Drain));
                if let Some(life) = &self.attempt {
                    life.handle.drain();
                }
            }
            JobCommand::Stop if self.wish == Some(JobCommand::Stop) => {}
            JobCommand::Stop => {
                self.wish = Some(JobCommand::Stop);
                self.stop_asked = Some(self.began.elapsed());
                match self.attempt.as_ref().is_some_and(|life| life.has_begun) {
                    true => self.command(CheckpointCommand::Stop),
                    // No state has changed since the last checkpoint.
                    false => self.is_done(Done::Stopped),
                }
            }
        }
    }

    /// Ends the job without a last checkpoint when the time limit of a stop has passed.
    pub(super) fn check_stop_timeout(&mut self) {
        let within = self.survival.stops_within;
        let waits = |asked: Duration| self.began.elapsed().saturating_sub(asked);
        if self.done.is_some() || self.stop_asked.is_none_or(|asked| waits(asked) < within) {
            return;
        }
        self.notify(&RecoveryEvent::StopTimedOut {
            within,
            epoch: self.home.committed(),
            place: self.home.lasting_place(),
        });
        self.shared.figures(|figures| figures.is_interrupted = true);
        self.is_done(Done::Interrupted);
    }

    pub(super) fn command(&mut self, command: CheckpointCommand) {
        self.commands += 1;
        let event = CoordinatorEvent::Command(CommandId(self.commands), command);
        self.pending_events.push_back(event);
    }

    /// Handles a command that the coordinator has not executed. Retries a stop whose last epoch was
    /// aborted.
    pub(super) fn not_done(&mut self, why: &EpochNotDone) {
        if self.wish == Some(JobCommand::Stop)
            && let EpochNotDone::GivenUp { why, .. } = why
        {
            let why = why.to_string();
            self.notify(&RecoveryEvent::StopDelayed { why });
            self.command(CheckpointCommand::Stop);
        }
    }

    pub(super) fn note(&mut self, note: CoordinatorStatus) {
        match note {
            CoordinatorStatus::Committed { epoch, took, bytes } => self.shared.figures(|figures| {
                figures.checkpoints += 1;
                figures.longest = figures.longest.max(took);
                figures.bytes += bytes;
                figures.last = Some((epoch, took));
            }),
            CoordinatorStatus::Aborted { .. } => {
                self.shared.figures(|figures| figures.aborted += 1);
            }
            CoordinatorStatus::Failing { in_a_row, why } => {
                let why = why.to_string();
                self.notify(&RecoveryEvent::NoCheckpoints { in_a_row, why });
            }
            CoordinatorStatus::RollingBack {
                to,
                reason,
                in_a_row,
                after,
            } => {
                self.shared.figures(|figures| figures.recoveries += 1);
                let why = self.last_error.as_ref().map_or(reason, Error::to_string);
                self.notify(&RecoveryEvent::Recovering {
                    from: to,
                    why,
                    in_a_row,
                    after: failure::rounded(after),
                });
            }
            CoordinatorStatus::CheckpointSkipped { epoch, why } => {
                self.notify(&RecoveryEvent::CheckpointSkipped { epoch, why });
            }
            CoordinatorStatus::Waiting(why) => self.notify(&RecoveryEvent::Waiting { why }),
            CoordinatorStatus::RecordRefused(why) => {
                let why = why.to_string();
                self.notify(&RecoveryEvent::RecordRefused { why });
            }
            CoordinatorStatus::SafeMode(why) => self.safe_mode(&why),
            CoordinatorStatus::Slow { epoch, .. } => self.slow(epoch),
            // These statuses do not occur or do not matter without other participants.
            CoordinatorStatus::RecordDoubtful
            | CoordinatorStatus::Down(_)
            | CoordinatorStatus::RestoringAlone { .. }
            | CoordinatorStatus::RestoredAlone { .. }
            | CoordinatorStatus::StartDelayed { .. } => {}
        }
    }

    /// Reports the instances that a checkpoint waits for.
    fn slow(&self, epoch: Epoch) {
        let Some(life) = &self.attempt else { return };
        let missing = life.tracker.missing(epoch).take(MOST_NAMED);
        self.notify(&RecoveryEvent::Slow {
            epoch,
            waiting_for: missing.map(|of| of.to_string()).collect(),
        });
    }

    /// Ends the job: in a single process, safe mode is left by running the job again.
    fn safe_mode(&mut self, why: &SafeMode) {
        let left = RecoveryOptions {
            epoch: self.home.committed(),
            place: self.home.lasting_place(),
        };
        let name = self.with.job.name();
        let error = failure::gave_up(name, why, self.last_error.take(), &left);
        self.is_done(Done::Failed(error));
    }
}
