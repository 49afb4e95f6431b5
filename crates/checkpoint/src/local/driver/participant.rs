//! The process as the only participant in its job's epochs. It passes messages from the coordinator
//! to the instances, and events of the instances to the coordinator.

use std::collections::BTreeSet;

use crate::io::{SnapshotEvent, TrackerEvent};
use crate::store::StateHandle;
use ardea_coordination::control::{
    CoordinatorEvent, CoordinatorMessage, EpochKind, FromParticipant, ParticipantAction,
    ParticipantEvent, SnapshotAck, ToParticipant,
};
use ardea_core::{Epoch, Error, ErrorCode, SnapshotRequest};
use ardea_engine::JobStatus;

use super::{Done, Driver};
use crate::local::attempt::AttemptEvent;
use crate::local::failure;

impl Driver<'_> {
    /// Handles a message of the coordinator.
    pub(super) fn handle_message(&mut self, message: ToParticipant) {
        if matches!(message.word, CoordinatorMessage::End(..)) && self.attempt.is_none() {
            return;
        }
        self.agent(ParticipantEvent::From(message));
    }

    pub(super) fn agent(&mut self, event: ParticipantEvent) {
        let Some(life) = &mut self.attempt else {
            return;
        };
        for action in life.agent.on(event) {
            match action {
                ParticipantAction::End(epoch, kind) => self.end_epoch(epoch, kind),
                ParticipantAction::Commit(epoch) => self.commit(epoch),
                ParticipantAction::Abort(epoch) => self.abort(epoch),
                ParticipantAction::Send(message) => self.send_to_coordinator(message),
            }
        }
    }

    fn send_to_coordinator(&mut self, message: FromParticipant) {
        self.pending_events
            .push_back(CoordinatorEvent::From(message));
    }

    fn end_epoch(&mut self, epoch: Epoch, kind: EpochKind) {
        let now = self.began.elapsed();
        let store = self.home.store();
        let Some(life) = &mut self.attempt else {
            return;
        };
        let wanted = life.counts.keys().filter(|vertex| store.wants_full(vertex));
        let wanted: BTreeSet<String> = wanted.cloned().collect();
        life.taker.want_all_of(wanted);
        life.ending = Some((epoch, now));
        if kind == EpochKind::Last {
            life.handle.pause();
        }
        life.tracker.ends(epoch);
        life.handle.end_epoch_as(epoch);
        self.report_progress();
    }

    fn commit(&mut self, epoch: Epoch) {
        let Some(life) = &mut self.attempt else {
            return;
        };
        life.tracker.commit_sent(epoch);
        life.handle.epoch_committed(epoch);
        self.report_progress();
    }

    fn abort(&mut self, epoch: Epoch) {
        let Some(life) = &mut self.attempt else {
            return;
        };
        if life.ending.is_some_and(|(ending, _)| ending == epoch) {
            life.ending = None;
        }
        life.tracker.aborted(epoch);
        life.handle.epoch_aborted(epoch);
        life.handle.resume();
    }

    pub(super) fn handle_attempt_event(&mut self, event: AttemptEvent) {
        let Some(life) = &mut self.attempt else {
            return;
        };
        match event {
            AttemptEvent::Restored => {
                let from = self.epochs.record().and_then(|record| record.restored_from);
                self.has_begun(from);
            }
            AttemptEvent::Snapshots(SnapshotEvent::Saved(of, report, receipt)) => {
                let SnapshotRequest { epoch, is_last, .. } = report.snapshot;
                life.counts_at_snapshots
                    .saved(&of, epoch, is_last, report.counted);
                life.tracker.saved(&of, epoch, is_last, *receipt);
            }
            AttemptEvent::Snapshots(SnapshotEvent::Aborted(snapshot, error)) => {
                self.snapshot_aborted(snapshot, error)
            }
            AttemptEvent::Snapshots(SnapshotEvent::CommitProcessed(of, epoch)) => {
                life.tracker.commit_processed(&of, epoch)
            }
            AttemptEvent::Snapshots(SnapshotEvent::InstanceEnded(of)) => {
                life.tracker.instance_ended(&of)
            }
            AttemptEvent::Ended(status) => {
                life.over = Some(status.clone());
                match status {
                    // The attempt was cancelled after its failure, and the next has not started.
                    _ if life.has_failed => {}
                    JobStatus::Failed(error) => self.failed(error),
                    JobStatus::Cancelled => self.is_done(Done::Cancelled),
                    JobStatus::Completed | JobStatus::Drained | JobStatus::Running => {
                        life.tracker.all_have_left();
                    }
                }
            }
        }
        self.report_progress();
    }

    /// Handles a snapshot that could not be written or was superseded.
    fn snapshot_aborted(&mut self, snapshot: SnapshotRequest, error: Option<Error>) {
        if snapshot.is_last {
            let late = || Error::new(ErrorCode::Internal, "it was not written to its end");
            let error = failure::last_snapshot_lost(error.unwrap_or_else(late));
            return match failure::is_of_disk(&error) {
                true => self.wait_for_room(error),
                false => self.failed(error),
            };
        }
        let Some(life) = &self.attempt else { return };
        if life.tracker.awaits(snapshot.epoch) {
            let why = error.map_or("the next epoch has ended".into(), |error| error.to_string());
            self.agent(ParticipantEvent::CannotSave(snapshot.epoch, why));
        }
    }

    /// Reports states that all instances have reached: snapshots durable, ended, or commit
    /// processed.
    fn report_progress(&mut self) {
        let committed = self.home.committed();
        let Some(life) = &mut self.attempt else {
            return;
        };
        let since = committed.filter(|_| life.has_base);
        let receipt = |place: Option<Epoch>, bytes: u64| SnapshotAck {
            since,
            // The epoch suffices, since the checkpoint has its own name.
            place: place.map_or(Vec::new(), |epoch| epoch.0.to_be_bytes().to_vec()),
            bytes,
        };
        for gathered in life.tracker.take_events() {
            self.agent(match gathered {
                TrackerEvent::Saved(epoch, snapshots) => {
                    let bytes = snapshots.iter().map(StateHandle::bytes).sum();
                    ParticipantEvent::Saved(epoch, receipt(Some(epoch), bytes))
                }
                TrackerEvent::Ended { after, .. } => ParticipantEvent::Ended {
                    after,
                    receipt: receipt(None, 0),
                },
                TrackerEvent::Visible(epoch) => ParticipantEvent::Visible(epoch),
            });
        }
    }
}
