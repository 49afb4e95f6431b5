//! What people want of a job, and what they are told.

use std::time::Duration;

use ardea_coordination::control::{
    CommandId, EpochNotDone, EpochsCommand, EpochsEvent, EpochsNote, SafeMode,
};
use ardea_core::{Epoch, Error};

use super::{Done, Driver};
use crate::local::Notice;
use crate::local::failure::{self, Left};
use crate::local::life::Wish;

/// How many instances are named that a snapshot waits for.
const MOST_NAMED: usize = 5;

impl Driver<'_> {
    /// Somebody wants something.
    pub(super) fn wants(&mut self, wish: Wish) {
        match wish {
            Wish::Cancel => self.is_done(Done::Cancelled),
            Wish::Drain => {
                self.wish = Some(self.wish.unwrap_or(Wish::Drain));
                if let Some(life) = &self.life {
                    life.handle.drain();
                }
            }
            Wish::Stop if self.wish == Some(Wish::Stop) => {}
            Wish::Stop => {
                self.wish = Some(Wish::Stop);
                self.stop_asked = Some(self.began.elapsed());
                match self.life.as_ref().is_some_and(|life| life.has_begun) {
                    true => self.command(EpochsCommand::Stop),
                    // Nothing has been done since that would have to be kept.
                    false => self.is_done(Done::Stopped),
                }
            }
        }
    }

    /// Ends the job without a last snapshot, if that could not be made in time.
    pub(super) fn look_at_stop(&mut self) {
        let within = self.survival.stops_within;
        let waits = |asked: Duration| self.began.elapsed().saturating_sub(asked);
        if self.done.is_some() || self.stop_asked.is_none_or(|asked| waits(asked) < within) {
            return;
        }
        self.tell(&Notice::StopTimedOut {
            within,
            epoch: self.home.committed(),
            place: self.home.lasting_place(),
        });
        self.shared.figures(|figures| figures.is_interrupted = true);
        self.is_done(Done::Interrupted);
    }

    pub(super) fn command(&mut self, command: EpochsCommand) {
        self.commands += 1;
        let event = EpochsEvent::Command(CommandId(self.commands), command);
        self.untold.push_back(event);
    }

    /// Something that was wanted has not been done.
    pub(super) fn not_done(&mut self, why: &EpochNotDone) {
        if self.wish == Some(Wish::Stop)
            && let EpochNotDone::GivenUp { why, .. } = why
        {
            let why = why.to_string();
            self.tell(&Notice::StopDelayed { why });
            self.command(EpochsCommand::Stop);
        }
    }

    pub(super) fn note(&mut self, note: EpochsNote) {
        match note {
            EpochsNote::Committed { epoch, took, bytes } => self.shared.figures(|figures| {
                figures.snapshots += 1;
                figures.longest = figures.longest.max(took);
                figures.bytes += bytes;
                figures.last = Some((epoch, took));
            }),
            EpochsNote::GivenUp { .. } => {
                self.shared.figures(|figures| figures.given_up += 1);
            }
            EpochsNote::Failing { in_a_row, why } => {
                let why = why.to_string();
                self.tell(&Notice::NoSnapshots { in_a_row, why });
            }
            EpochsNote::RollingBack {
                to,
                reason,
                in_a_row,
                after,
            } => {
                self.shared.figures(|figures| figures.recoveries += 1);
                let why = self.last_error.as_ref().map_or(reason, Error::to_string);
                self.tell(&Notice::Recovering {
                    from: to,
                    why,
                    in_a_row,
                    after: failure::rounded(after),
                });
            }
            EpochsNote::SnapshotSkipped { epoch, why } => {
                self.tell(&Notice::SnapshotSkipped { epoch, why });
            }
            EpochsNote::Waiting(why) => self.tell(&Notice::Waiting { why }),
            EpochsNote::RecordRefused(why) => {
                let why = why.to_string();
                self.tell(&Notice::RecordRefused { why });
            }
            EpochsNote::SafeMode(why) => self.safe_mode(&why),
            EpochsNote::Slow { epoch, .. } => self.slow(epoch),
            // In one process nobody joins whom others wait for.
            EpochsNote::RecordDoubtful | EpochsNote::Down(_) | EpochsNote::BeginsLate { .. } => {}
        }
    }

    /// Says whom a snapshot waits for.
    fn slow(&self, epoch: Epoch) {
        let Some(life) = &self.life else { return };
        let missing = life.gathering.missing(epoch).take(MOST_NAMED);
        self.tell(&Notice::Slow {
            epoch,
            waiting_for: missing.map(|of| of.to_string()).collect(),
        });
    }

    /// Nothing is tried any more unless somebody decides: by what was decided before, or by running the job again.
    fn safe_mode(&mut self, why: &SafeMode) {
        let left = Left {
            epoch: self.home.committed(),
            place: self.home.lasting_place(),
        };
        let name = self.with.job.name();
        let error = failure::gave_up(name, why, self.last_error.take(), &left);
        self.is_done(Done::Failed(error));
    }
}
