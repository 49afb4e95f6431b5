//! Tests of the session: windows, order, restarts and suspects.

use super::*;
use crate::json_format::JsonFormat;
use crate::protocol::{
    ComponentConfiguration, EmitWriter, GuestOptions, ResultWriter, RowBatchWriter, RowRecord,
};
use ardea_core::Timestamp;

type Format = JsonFormat<u32, u32, fn(&u32, &mut Vec<u8>) -> Option<ardea_core::PartitionId>>;

fn format() -> Format {
    JsonFormat::plain()
}

fn batch(values: &[u32]) -> EncodedBatch {
    let mut writer = RowBatchWriter::default();
    for value in values {
        writer.push_record(RowRecord {
            time: Timestamp::MIN,
            partition: None,
            key: &[],
            value: value.to_string().as_bytes(),
        });
    }
    EncodedBatch {
        records: values.len() as u32,
        position: 0,
        payload: writer.finish().into(),
    }
}

fn session(window_batches: usize, suspects: &Arc<Suspects>) -> InstanceSession {
    let settings = SessionSettings {
        window_batches,
        deaths_per_record: 3,
        suspects: Arc::clone(suspects),
        rings: true,
    };
    let configuration = InstanceConfiguration {
        protocol: 0,
        job: "j".into(),
        step: "s".into(),
        instance: 0,
        instances: 1,
        format: "json".into(),
        schema: None,
        keyed: false,
        guarantee: "none".into(),
        restore: false,
        rings: false,
        parameters: serde_json::Value::Null,
        component: ComponentConfiguration::default(),
    };
    InstanceSession::new(settings, configuration)
}

/// Returns a session with a bolt or spout.
fn component(role: InstanceRole) -> InstanceSession {
    let mut session = session(2, &Arc::default());
    session.configuration.component.role = role;
    session
}

fn emit(sequence: u64, flags: u8) -> InstanceFrame {
    let head = FrameHead::new(FrameType::Emit, sequence).flags(flags);
    InstanceFrame::new(head, EmitWriter::default().finish(0))
}

fn hello(state: bool) -> InstanceFrame {
    let hello = GuestHello {
        protocol: ProtocolRange::OWN,
        language: "test".into(),
        formats: vec!["json".into()],
        state,
        watermarks: true,
        rings: false,
        roles: vec!["step".into(), "bolt".into()],
        options: GuestOptions::default(),
    };
    InstanceFrame::json(FrameType::Hello, 0, &hello)
}

/// Starts the session, and returns the types and sequences of the frames sent afterwards.
fn run(session: &mut InstanceSession) -> Vec<(FrameType, u64)> {
    session.start();
    session.on_frame(hello(true)).unwrap();
    let ready = InstanceFrame::empty(FrameType::Ready, 0);
    session.on_frame(ready).unwrap();
    sent(session).split_off(2)
}

fn sent(session: &mut InstanceSession) -> Vec<(FrameType, u64)> {
    let frames = session.take_frames();
    frames.map(|it| (it.head.kind, it.head.sequence)).collect()
}

fn result(sequence: u64) -> InstanceFrame {
    let head = FrameHead::new(FrameType::Result, sequence);
    InstanceFrame::new(head, ResultWriter::default().finish())
}

#[test]
fn batches_wait_for_the_window_and_results_keep_the_order() {
    let mut session = session(2, &Arc::default());
    assert_eq!(run(&mut session), []);
    for value in 0..2 {
        assert!(session.has_room());
        session.push_batch(batch(&[value]), &format());
    }
    assert!(!session.has_room());
    session.push_batch(batch(&[2]), &format());
    assert_eq!(
        sent(&mut session),
        [(FrameType::Batch, 1), (FrameType::Batch, 2)]
    );
    session.on_frame(result(2)).unwrap();
    assert_eq!(session.take_ready(), None);
    session.on_frame(result(1)).unwrap();
    assert_eq!(sent(&mut session), [(FrameType::Batch, 3)]);
    let ready = [session.take_ready(), session.take_ready()];
    for (item, value) in ready.into_iter().zip(0..) {
        assert!(
            matches!(item, Some(ReadyItem::Results { batch: it, .. }) if it == batch(&[value]))
        );
    }
}

#[test]
fn a_watermark_follows_the_results_before_it() {
    let mut session = session(4, &Arc::default());
    run(&mut session);
    let watermark = Watermark(Timestamp::from_micros(-7));
    session.push_batch(batch(&[1]), &format());
    session.push_watermark(watermark);
    sent(&mut session);
    let returned = InstanceFrame::empty(FrameType::Watermark, -7i64 as u64);
    session.on_frame(returned).unwrap();
    assert_eq!(session.take_ready(), None);
    session.on_frame(result(1)).unwrap();
    assert!(matches!(
        session.take_ready(),
        Some(ReadyItem::Results { .. })
    ));
    assert_eq!(
        session.take_ready(),
        Some(ReadyItem::Watermark(watermark, vec![]))
    );
    assert!(session.is_empty());
}

#[test]
fn an_answer_to_nothing_and_a_message_out_of_turn_are_violations() {
    let mut session = session(4, &Arc::default());
    session.start();
    assert!(session.on_frame(result(1)).is_err());
    run(&mut session);
    assert!(session.on_frame(result(1)).is_err());
    session.push_batch(batch(&[1]), &format());
    sent(&mut session);
    session.on_frame(result(1)).unwrap();
    assert!(session.on_frame(result(1)).is_err(), "answered twice");
    assert!(session.on_frame(hello(false)).is_err());
}

#[test]
fn versions_formats_and_state_that_do_not_fit_are_refused() {
    let mut session = session(4, &Arc::default());
    session.start();
    let other = br#"{"protocol":{"min":7,"max":9},"formats":["json"]}"#.to_vec();
    let other = InstanceFrame::new(FrameHead::new(FrameType::Hello, 0), other);
    assert!(matches!(
        session.on_frame(other),
        Err(SessionError::Version(ProtocolRange { min: 7, max: 9 }))
    ));
    let other = br#"{"protocol":{"min":1,"max":1},"formats":["xml"]}"#.to_vec();
    let other = InstanceFrame::new(FrameHead::new(FrameType::Hello, 0), other);
    assert!(matches!(
        session.on_frame(other),
        Err(SessionError::Format(_))
    ));
    session.push_restore(Epoch(1), vec![1, 0, 0, 0, 9], true);
    assert_eq!(session.on_frame(hello(false)), Err(SessionError::Stateless));
}

#[test]
fn records_in_flight_at_a_death_are_sent_alone() {
    let suspects = Arc::default();
    let mut session = session(4, &suspects);
    run(&mut session);
    session.push_batch(batch(&[1, 2]), &format());
    session.push_batch(batch(&[3]), &format());
    session.push_watermark(Watermark::END);
    assert_eq!(sent(&mut session).len(), 3);
    let in_flight = session.on_death(&format());
    assert_eq!(in_flight.records, 3);
    assert_eq!(in_flight.first, Some(batch(&[1])));
    for sequence in 3..6 {
        let frames = match sequence {
            3 => run(&mut session),
            _ => sent(&mut session),
        };
        assert_eq!(frames, [(FrameType::Batch, sequence)]);
        assert_eq!(sent(&mut session), []);
        session.on_frame(result(sequence)).unwrap();
    }
    assert!(suspects.is_empty(), "answers acquit them");
    assert_eq!(
        sent(&mut session),
        [(FrameType::Watermark, i64::MAX as u64)]
    );
}

#[test]
fn the_end_of_an_input_is_sent_again_after_the_records_before_it() {
    let mut session = session(4, &Arc::default());
    run(&mut session);
    session.push_batch(batch(&[1]), &format());
    session.push_batch(batch(&[]), &format());
    assert_eq!(sent(&mut session).len(), 2);
    assert_eq!(session.on_death(&format()).records, 1);
    assert_eq!(run(&mut session), [(FrameType::Batch, 3)]);
    session.on_frame(result(3)).unwrap();
    assert_eq!(sent(&mut session), [(FrameType::Batch, 4)]);
}

#[test]
fn a_record_in_flight_at_three_deaths_is_poisoned() {
    let suspects = Arc::default();
    let mut first = session(4, &suspects);
    run(&mut first);
    first.push_batch(batch(&[1, 2, 3]), &format());
    sent(&mut first);
    first.on_death(&format());
    // The record 2 kills the process whenever it is processed.
    assert_eq!(run(&mut first), [(FrameType::Batch, 2)]);
    first.on_frame(result(2)).unwrap();
    assert_eq!(sent(&mut first), [(FrameType::Batch, 3)]);
    first.on_death(&format());
    // Another attempt of the job replays the records.
    let mut second = session(4, &suspects);
    run(&mut second);
    second.push_batch(batch(&[1, 2, 3]), &format());
    assert_eq!(sent(&mut second), [(FrameType::Batch, 1)]);
    second.on_frame(result(1)).unwrap();
    assert_eq!(sent(&mut second), [(FrameType::Batch, 2)]);
    second.on_death(&format());
    assert_eq!(second.deaths_in_a_row(), 1);
    run(&mut second);
    assert!(matches!(
        second.take_ready(),
        Some(ReadyItem::Results { .. })
    ));
    let poisoned = EncodedBatch {
        position: 1,
        ..batch(&[2])
    };
    assert_eq!(second.take_ready(), Some(ReadyItem::Poisoned(poisoned)));
    assert!(!second.is_empty());
}

#[test]
fn a_barrier_of_an_instance_without_state_needs_no_answer() {
    let mut session = session(4, &Arc::default());
    session.start();
    session.on_frame(hello(false)).unwrap();
    session
        .on_frame(InstanceFrame::empty(FrameType::Ready, 0))
        .unwrap();
    session.push_barrier(Epoch(2), false);
    // No frame need be sent before.
    assert_eq!(
        session.take_ready(),
        Some(ReadyItem::State(Epoch(2), vec![]))
    );
    session.push_barrier(Epoch(3), false);
    assert!(
        !sent(&mut session)
            .iter()
            .any(|(kind, _)| *kind == FrameType::Barrier)
    );
    assert_eq!(
        session.take_ready(),
        Some(ReadyItem::State(Epoch(3), vec![]))
    );
}

#[test]
fn equal_records_in_flight_at_a_death_are_one_suspect() {
    let suspects: Arc<Suspects> = Arc::default();
    let mut session = session(2, &suspects);
    run(&mut session);
    session.push_batch(batch(&[7, 7, 7, 7]), &format());
    sent(&mut session);
    session.on_death(&format());
    assert_eq!(suspects.deaths(&batch(&[7])), 1);
    assert_eq!(session.take_ready(), None, "no record is poisoned");
}

#[test]
fn an_instance_without_the_role_is_refused() {
    let mut session = component(InstanceRole::Spout);
    session.start();
    let refused = session.on_frame(hello(true)).unwrap_err();
    let roles = vec!["step".to_owned(), "bolt".to_owned()];
    assert_eq!(refused, SessionError::Role(InstanceRole::Spout, roles));
}

#[test]
fn batches_of_a_bolt_are_taken_in_the_order_of_their_answers() {
    let mut session = component(InstanceRole::Bolt);
    run(&mut session);
    for value in 0..2 {
        session.push_batch(batch(&[value]), &format());
    }
    session.push_watermark(Watermark::END);
    sent(&mut session);
    session.on_frame(result(2)).unwrap();
    let sequence_of = |item| match item {
        Some(ReadyItem::Results { sequence, .. }) => sequence,
        other => panic!("{other:?}"),
    };
    assert_eq!(sequence_of(session.take_answered()), 2);
    let end = Watermark::END.0.as_micros() as u64;
    let returned = InstanceFrame::empty(FrameType::Watermark, end);
    session.on_frame(returned).unwrap();
    assert_eq!(session.take_answered(), None);
    session.on_frame(result(1)).unwrap();
    assert_eq!(sequence_of(session.take_answered()), 1);
    let last = session.take_answered();
    assert!(matches!(last, Some(ReadyItem::Watermark(..))));
    assert!(session.is_empty());
}

#[test]
fn a_request_is_answered_by_the_emit_without_more() {
    let mut session = component(InstanceRole::Bolt);
    assert!(!session.request_tick(), "the instance is not ready");
    run(&mut session);
    assert!(session.request_tick());
    assert!(!session.request_tick());
    assert_eq!(sent(&mut session), [(FrameType::Tick, 1)]);
    assert!(session.on_frame(emit(1, FLAG_MORE)).unwrap().is_some());
    assert!(session.has_request() && session.awaits_answer());
    assert!(session.on_frame(emit(1, 0)).unwrap().is_some());
    assert!(!session.has_request());
    assert!(session.on_frame(emit(1, 0)).is_err(), "it answers nothing");
    assert!(session.on_frame(emit(0, 0)).unwrap().is_some());
}

#[test]
fn the_state_of_a_bolt_follows_the_results_before_the_barrier() {
    let mut session = component(InstanceRole::Bolt);
    run(&mut session);
    session.push_batch(batch(&[1]), &format());
    session.push_barrier(Epoch(1), false);
    sent(&mut session);
    let head = FrameHead::new(FrameType::State, 1).flags(FLAG_LAST);
    let state = InstanceFrame::new(head, vec![0; 4]);
    assert!(session.on_frame(state.clone()).is_err());
    session.on_frame(result(1)).unwrap();
    session.on_frame(state).unwrap();
}

#[test]
fn a_request_follows_all_earlier_items() {
    let mut session = component(InstanceRole::Bolt);
    run(&mut session);
    session.push_batch(batch(&[1]), &format());
    assert!(session.request_tick());
    assert_eq!(
        sent(&mut session),
        [(FrameType::Batch, 1), (FrameType::Tick, 2)]
    );
}

#[test]
fn a_process_is_configured_for_a_restore_only_if_its_state_follows() {
    let mut session = component(InstanceRole::Bolt);
    let restore = |session: &mut InstanceSession| {
        session.start();
        session.on_frame(hello(true)).unwrap();
        let ready = InstanceFrame::empty(FrameType::Ready, 0);
        session.on_frame(ready).unwrap();
        let frames: Vec<SharedFrame> = session.take_frames().collect();
        let configured: InstanceConfiguration = serde_json::from_slice(&frames[1].payload).unwrap();
        let follows = frames[2..].iter().map(|it| it.head.kind);
        (configured.restore, follows.collect::<Vec<_>>())
    };
    session.push_restore(Epoch(1), vec![0; 4], true);
    assert_eq!(restore(&mut session), (true, vec![FrameType::Restore]));
    session.on_death(&format());
    assert_eq!(restore(&mut session), (false, vec![]));
}

#[test]
fn acks_of_a_spout_and_output_of_an_end_that_was_not_requested_are_violations() {
    let mut spout = component(InstanceRole::Spout);
    spout.start();
    let mut spout_hello = hello(true).read_json::<GuestHello>().unwrap();
    spout_hello.roles = vec!["spout".into()];
    let spout_hello = InstanceFrame::json(FrameType::Hello, 0, &spout_hello);
    spout.on_frame(spout_hello).unwrap();
    let ready = InstanceFrame::empty(FrameType::Ready, 0);
    spout.on_frame(ready).unwrap();
    let acks = InstanceFrame::new(FrameHead::new(FrameType::Acks, 0), vec![0; 4]);
    assert!(spout.on_frame(acks.clone()).is_err());

    let mut bolt = component(InstanceRole::Bolt);
    run(&mut bolt);
    assert!(bolt.on_frame(acks).unwrap().is_some());
    let end = Watermark::END.0.as_micros() as u64;
    assert!(bolt.on_frame(emit(end, FLAG_MORE)).is_err());
    bolt.push_watermark(Watermark::END);
    sent(&mut bolt);
    assert!(bolt.on_frame(emit(end, FLAG_MORE)).unwrap().is_some());
    bolt.on_frame(InstanceFrame::empty(FrameType::Watermark, end))
        .unwrap();
    assert!(bolt.on_frame(emit(end, FLAG_MORE)).is_err());
}

/// Starts the session with an instance that uses all optional parts of the protocol.
fn run_extended(session: &mut InstanceSession) -> Vec<(FrameType, u64)> {
    session.start();
    let mut extended = hello(true).read_json::<GuestHello>().unwrap();
    extended.options = GuestOptions {
        control: true,
        named_state: true,
        commits: true,
    };
    let extended = InstanceFrame::json(FrameType::Hello, 0, &extended);
    session.on_frame(extended).unwrap();
    let ready = InstanceFrame::empty(FrameType::Ready, 0);
    session.on_frame(ready).unwrap();
    sent(session).split_off(2)
}

#[test]
fn a_change_of_the_topology_is_repeated_to_the_next_process_that_accepts_it() {
    let mut session = component(InstanceRole::Bolt);
    let paused = InstanceControl {
        active: Some(false),
        aborted: Some(3),
        ..InstanceControl::default()
    };
    session.push_control(paused);
    let frames = run_extended(&mut session);
    assert_eq!(frames, [(FrameType::Control, 0)]);
    session.push_control(InstanceControl {
        parallelism: Some([("split".to_owned(), 3)].into()),
        ..InstanceControl::default()
    });
    assert_eq!(sent(&mut session), [(FrameType::Control, 0)]);
    session.on_death(&format());
    assert_eq!(run(&mut session), [], "an instance without the ability");
    session.on_death(&format());
    run_extended(&mut session);
    assert_eq!(session.control.active, Some(false));
    assert!(session.control.parallelism.is_some() && session.control.aborted.is_none());
}

#[test]
fn a_commit_is_done_when_an_instance_that_returns_it_has() {
    let mut session = component(InstanceRole::Bolt);
    session.push_commit(Epoch(1));
    assert!(!session.has_committed(Epoch(1)), "it was not sent");
    assert_eq!(run(&mut session), [(FrameType::Commit, 1)]);
    assert!(session.has_committed(Epoch(1)), "it returns no commit");
    session.on_death(&format());
    session.push_restore(Epoch(1), vec![0; 4], true);
    session.push_commit(Epoch(2));
    let frames = run_extended(&mut session);
    assert_eq!(frames, [(FrameType::Restore, 1), (FrameType::Commit, 2)]);
    assert!(!session.has_committed(Epoch(2)));
    let commit = InstanceFrame::empty(FrameType::Commit, 2);
    session.on_frame(commit).unwrap();
    assert!(session.has_committed(Epoch(2)));
    session.stop();
    session.push_commit(Epoch(3));
    assert!(session.has_committed(Epoch(3)), "it is stopped");
}

#[test]
fn the_last_state_says_whether_the_instance_awaits_its_commit() {
    let mut session = component(InstanceRole::Bolt);
    run_extended(&mut session);
    for (epoch, flags) in [(1, FLAG_LAST), (2, FLAG_LAST | FLAG_AWAITS_COMMIT)] {
        session.push_barrier(Epoch(epoch), epoch == 2);
        let frames: Vec<SharedFrame> = session.take_frames().collect();
        assert_eq!(frames[0].head.has(FLAG_LAST), epoch == 2);
        let head = FrameHead::new(FrameType::State, epoch).flags(flags);
        session
            .on_frame(InstanceFrame::new(head, vec![0; 4]))
            .unwrap();
        assert_eq!(session.awaits_commit(), epoch == 2);
        session.take_answered();
    }
}
