//! Property tests: arbitrary events in arbitrary order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    /// A participant has saved its snapshot of the pending epoch, or of an earlier epoch at this
    /// distance.
    Save(u32, u64),
    CannotSave(u32),
    End(u32),
    Hear(u32),
    Lose(u32),
    /// The requested attempt starts, if there is one.
    Begin,
    NotBegun,
    Unreadable,
    Away,
    Store(Store),
    ComesLate,
    TakeOver,
    Command(CheckpointCommand),
}

fn step() -> impl Strategy<Value = Step> {
    let stores = [Store::Answers, Store::Refuses, Store::Mute, Store::Away];
    let commands = [
        CheckpointCommand::Savepoint,
        CheckpointCommand::Stop,
        CheckpointCommand::Retry,
    ];
    prop_oneof![
        6 => (50u64..3_000).prop_map(Step::Wait),
        12 => (1u32..4, prop_oneof![9 => Just(0u64), 1 => 1u64..3]).prop_map(|(id, before)| Step::Save(id, before)),
        1 => (1u32..4).prop_map(Step::CannotSave),
        1 => (1u32..4).prop_map(Step::End),
        5 => (1u32..4).prop_map(Step::Hear),
        2 => (1u32..4).prop_map(Step::Lose),
        5 => Just(Step::Begin),
        1 => Just(Step::NotBegun),
        1 => Just(Step::Unreadable),
        1 => Just(Step::Away),
        3 => prop::sample::select(stores.to_vec()).prop_map(Step::Store),
        2 => Just(Step::ComesLate),
        1 => Just(Step::TakeOver),
        1 => prop::sample::select(commands.to_vec()).prop_map(Step::Command),
    ]
}

/// The observer that checks the invariants.
#[derive(Default)]
struct InvariantChecker {
    recorded: BTreeMap<Epoch, Arc<RecordedCheckpoint>>,
    aborted: Vec<Epoch>,
    newest: Epoch,
    master: MasterEpoch,
    /// The time at which this leader last committed or aborted an epoch.
    over_at: Option<Duration>,
}

impl InvariantChecker {
    fn look(&mut self, desk: &mut TestHarness) {
        if let Some((record, _)) = &desk.stored {
            self.recorded_is_kept(record);
        }
        if self.master != desk.epochs.master {
            self.master = desk.epochs.master;
            self.over_at = None;
        }
        for (at, action) in std::mem::take(&mut desk.log) {
            match action {
                CoordinatorAction::Note(CoordinatorStatus::Aborted { epoch, .. }) => {
                    self.aborted.push(epoch);
                    self.over_at = Some(at);
                }
                CoordinatorAction::Note(CoordinatorStatus::Committed { .. }) => {
                    self.over_at = Some(at)
                }
                CoordinatorAction::To(_, message) => self.hear(at, message, desk.config.pause),
                _ => {}
            }
        }
        for epoch in &self.aborted {
            assert!(
                !self.recorded.contains_key(epoch),
                "{epoch:?} was recorded, and aborted"
            );
        }
    }

    fn hear(&mut self, at: Duration, message: ToParticipant, pause: Duration) {
        let committed = message.committed;
        assert!(committed.is_none_or(|epoch| self.recorded.contains_key(&epoch)));
        match message.word {
            CoordinatorMessage::End(epoch, _) if epoch > self.newest => {
                self.newest = epoch;
                assert!(self.over_at.is_none_or(|over_at| over_at + pause <= at));
            }
            CoordinatorMessage::Aborted(epoch) => self.aborted.push(epoch),
            CoordinatorMessage::End(..) | CoordinatorMessage::Committed => {}
        }
    }

    fn recorded_is_kept(&mut self, record: &CheckpointRecord) {
        let newest = self.recorded.keys().next_back().copied();
        assert_eq!(record.committed, newest.max(record.committed));
        for kept in &record.checkpoints {
            match self.recorded.get(&kept.epoch) {
                Some(before) => assert_eq!(before.snapshots, kept.snapshots),
                None => {
                    assert!(Some(kept.epoch) > newest);
                    assert_eq!(kept.over, newest);
                    assert_eq!(kept.snapshots.len(), ALL.len());
                    self.recorded.insert(kept.epoch, Arc::clone(kept));
                }
            }
        }
        assert!(
            record
                .committed
                .is_none_or(|epoch| record.checkpoint(epoch).is_some())
        );
        assert!(record.failures <= CoordinatorConfig::default().failed_attempts_tolerated + 2);
    }
}

/// Returns the attempt whose start the coordinator awaits, if any, and the epoch to restore from.
fn awaited(desk: &TestHarness) -> Option<(Generation, Option<Epoch>)> {
    let record = desk.epochs.record()?;
    let awaited = matches!(desk.epochs.phase, AttemptPhase::Beginning { .. });
    awaited.then_some((record.generation, record.restored_from))
}

fn happens(desk: &mut TestHarness, step: Step) {
    let under_way = desk.under_way();
    let generation = desk
        .epochs
        .record()
        .map_or(Generation(0), |record| record.generation);
    match step {
        Step::Wait(long) => desk.wait(millis(long)),
        Step::Save(id, before) => {
            let epoch = Epoch(under_way.unwrap_or(1).saturating_sub(before));
            let since = desk.epochs.committed();
            desk.say_in(
                generation,
                id,
                ParticipantReport::Saved(epoch, receipt(since)),
            );
        }
        Step::CannotSave(id) => {
            let epoch = Epoch(under_way.unwrap_or(1));
            desk.say_in(
                generation,
                id,
                ParticipantReport::CannotSave(epoch, "disk full".into()),
            );
        }
        Step::End(id) => {
            let after = desk.epochs.committed();
            let receipt = receipt(None);
            desk.say_in(generation, id, ParticipantReport::Ended { after, receipt });
        }
        Step::Hear(id) => {
            if let Some(epoch) = desk.epochs.committed() {
                desk.say_in(generation, id, ParticipantReport::CommitDone(epoch));
            }
        }
        Step::Lose(id) => desk.happens(CoordinatorEvent::Lost {
            generation,
            participant: ParticipantId(id),
            reason: "it has died".into(),
        }),
        Step::Begin => {
            if let Some((generation, restored_from)) = awaited(desk) {
                desk.begin(generation, restored_from);
            }
        }
        Step::NotBegun => {
            let reason = "no room".into();
            desk.happens(CoordinatorEvent::NotBegun { generation, reason });
        }
        Step::Unreadable => {
            let reason = "a block is damaged".into();
            desk.happens(CoordinatorEvent::Unreadable { generation, reason });
        }
        Step::Away => {
            let reason = "nobody answers".into();
            desk.happens(CoordinatorEvent::Away { generation, reason });
        }
        Step::Store(store) => desk.store = store,
        Step::ComesLate => desk.comes_late(),
        Step::TakeOver => desk.take_over(),
        Step::Command(command) => desk.command(1, command),
    }
}

/// Stops all faults: from now on all participants carry out each request.
fn all_is_well(desk: &mut TestHarness, watch: &mut InvariantChecker) -> bool {
    desk.store = Store::Answers;
    let before = desk
        .stored
        .as_ref()
        .and_then(|(record, _)| record.committed);
    for _ in 0..2_000 {
        desk.wait(millis(50));
        happens(desk, Step::Begin);
        if desk
            .epochs
            .record()
            .is_some_and(|record| record.safe_mode.is_some())
        {
            desk.command(9, CheckpointCommand::Retry);
        }
        for id in ALL {
            if let Some(epoch) = desk.under_way() {
                desk.save(id, epoch);
            }
            happens(desk, Step::Hear(id));
        }
        watch.look(desk);
        let committed = desk
            .stored
            .as_ref()
            .and_then(|(record, _)| record.committed);
        if desk.over.is_some() || committed > before {
            return true;
        }
    }
    false
}

proptest! {
    #[test]
    fn commits_are_told_when_recorded_in_order_and_in_the_end_there_is_always_another(
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut desk = TestHarness::new(CoordinatorConfig::default());
        let mut watch = InvariantChecker::default();
        for step in steps {
            happens(&mut desk, step);
            watch.look(&mut desk);
            if desk.over.is_some() {
                break;
            }
        }
        prop_assert!(all_is_well(&mut desk, &mut watch), "no epoch is committed any more");
    }
}
