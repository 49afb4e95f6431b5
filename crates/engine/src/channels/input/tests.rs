//! Tests of the merging of queues.

use super::*;
use crate::channels::queue::{QueueSender, queue};
use crate::executor::worker_shared::TaskletWaker;
use ardea_core::{Rows, Timestamp};
use ardea_spsc::Capacity;

pub(super) fn inputs(priorities: &[(Priority, usize)]) -> (Vec<Vec<QueueSender>>, InputSet) {
    inputs_with(priorities, false)
}

/// The second input is timeless if `timeless` is set.
fn inputs_with(
    priorities: &[(Priority, usize)],
    timeless: bool,
) -> (Vec<Vec<QueueSender>>, InputSet) {
    let capacity = Capacity::new(8).unwrap();
    let mut senders = Vec::new();
    let mut inlets = Vec::new();
    let mut specs = Vec::new();
    for (input, &(priority, queues)) in priorities.iter().enumerate() {
        let mut ends = Vec::new();
        for _ in 0..queues {
            let (sender, receiver) = queue(capacity, TaskletWaker::none(), TaskletWaker::none());
            ends.push(sender);
            inlets.push(NewInlet {
                input,
                receiver,
                crossing: None,
            });
        }
        senders.push(ends);
        specs.push(InputSpec {
            priority,
            is_timeless: input == 1 && timeless,
        });
    }
    let mailbox = Arc::default();
    (
        senders,
        InputSet::new(specs, inlets, Unconnected::HasEnded, mailbox).fixed(),
    )
}

pub(super) fn chunk(value: u32) -> Message {
    Message::Chunk(Chunk::new(Rows::from_iter([(value, Timestamp::MIN)])))
}

pub(super) fn watermark(secs: i64) -> Message {
    Message::Marker(Marker::Watermark(Watermark(Timestamp::from_secs(secs))))
}

#[test]
fn an_urgent_input_is_read_to_its_end_first() {
    let (mut senders, mut set) = inputs(&[(Priority::NORMAL, 1), (Priority::FIRST, 1)]);
    senders[0][0].send(chunk(1));
    senders[1][0].send(chunk(2));
    assert!(matches!(set.pull(), Some(Event::Chunk(Ordinal(1), _))));
    assert!(
        set.pull().is_none(),
        "the normal input waits for the urgent one"
    );
    senders[1][0].send(Message::Marker(Marker::Done));
    assert!(matches!(
        set.pull(),
        Some(Event::EdgeDone {
            input: Ordinal(1),
            last: false
        })
    ));
    assert!(matches!(set.pull(), Some(Event::Chunk(Ordinal(0), _))));
}

#[test]
fn a_queue_at_an_epochs_end_is_held_until_all_are() {
    let (mut senders, mut set) = inputs(&[(Priority::NORMAL, 2)]);
    let end = || Message::Marker(Marker::Barrier(Epoch(1)));
    senders[0][0].send(end());
    senders[0][0].send(chunk(10));
    senders[0][1].send(chunk(20));
    assert!(
        matches!(set.pull(), Some(Event::Chunk(..))),
        "the second queue's"
    );
    assert!(
        set.pull().is_none(),
        "the first queue's chunk belongs to the next epoch"
    );
    senders[0][1].send(end());
    assert!(matches!(set.pull(), Some(Event::Barrier(Epoch(1), _))));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))));
}

#[test]
fn an_input_is_urgent_while_others_wait_for_it() {
    let (mut senders, mut set) = inputs(&[(Priority::NORMAL, 1), (Priority::FIRST, 1)]);
    assert!(set.is_urgent());
    senders[1][0].send(Message::Marker(Marker::Done));
    assert!(set.pull().is_some());
    assert!(!set.is_urgent());
    let (_senders, set) = inputs(&[(Priority::FIRST, 1), (Priority::NORMAL, 0)]);
    assert!(!set.is_urgent(), "nothing comes on the other");
}

#[test]
fn an_input_without_queues_has_ended() {
    let (mut senders, mut set) = inputs(&[(Priority::NORMAL, 1), (Priority::FIRST, 0)]);
    let ended = |event, which, is_last| match event {
        Some(Event::EdgeDone { input, last }) => input == Ordinal(which) && last == is_last,
        _ => false,
    };
    assert!(ended(set.pull(), 1, false));
    assert!(set.pull().is_none());
    senders[0][0].send(Message::Marker(Marker::Done));
    assert!(ended(set.pull(), 0, true));
    let (_senders, mut set) = inputs(&[(Priority::NORMAL, 0), (Priority::NORMAL, 0)]);
    assert!(ended(set.pull(), 0, false));
    assert!(ended(set.pull(), 1, true));
}

#[test]
fn an_input_without_time_neither_moves_nor_holds_the_watermark() {
    let (mut senders, mut set) = inputs_with(&[(Priority::NORMAL, 1), (Priority::NORMAL, 1)], true);
    senders[1][0].send(watermark(9));
    assert!(set.pull().is_none());
    senders[0][0].send(watermark(5));
    let Some(Event::Watermark(mark)) = set.pull() else {
        panic!("time was held by the timeless input")
    };
    assert_eq!(mark.0, Timestamp::from_secs(5));
}

#[test]
fn a_queue_that_ends_releases_the_epoch_and_the_watermark() {
    let (mut senders, mut set) = inputs(&[(Priority::NORMAL, 2)]);
    senders[0][0].send(watermark(5));
    senders[0][0].send(Message::Marker(Marker::Barrier(Epoch(1))));
    assert!(set.pull().is_none());
    senders[0][1].send(Message::Marker(Marker::Done));
    let Some(Event::Watermark(mark)) = set.pull() else {
        panic!("time was held by the ended queue")
    };
    assert_eq!(mark.0, Timestamp::from_secs(5));
    assert!(matches!(set.pull(), Some(Event::Barrier(Epoch(1), _))));
    senders[0][0].send(Message::Marker(Marker::Done));
    assert!(matches!(
        set.pull(),
        Some(Event::EdgeDone { last: true, .. })
    ));
}

/// One input with a queue from this process, and one queue from another process.
fn crossing() -> (QueueSender, QueueSender, InputSet, Arc<ControlQueue>) {
    let capacity = Capacity::new(8).unwrap();
    let pair = || queue(capacity, TaskletWaker::none(), TaskletWaker::none());
    let ((near, from_near), (mut far, from_far)) = (pair(), pair());
    let inlet = |receiver, crossing| NewInlet {
        input: 0,
        receiver,
        crossing,
    };
    let inlets = vec![inlet(from_near, None), inlet(from_far, Some(7))];
    let mailbox = Arc::new(ControlQueue::default());
    let mut set = InputSet::new(
        vec![InputSpec::ORDINARY],
        inlets,
        Unconnected::HasEnded,
        Arc::clone(&mailbox),
    );
    far.send(beginning());
    assert!(set.pull().is_none());
    (near, far, set, mailbox)
}

fn beginning() -> Message {
    Message::Marker(Marker::Watermark(Watermark::NONE))
}

fn done() -> Message {
    Message::Marker(Marker::Done)
}

fn has_ended(set: &mut InputSet) -> bool {
    matches!(set.pull(), Some(Event::EdgeDone { last: true, .. }))
}

#[test]
fn an_input_does_not_end_before_the_changes_that_wait_have_been_carried_out() {
    let (mut near, mut far, mut set, mailbox) = crossing();
    near.send(done());
    mailbox
        .post(crate::channels::control_queue::Change::CancelStop)
        .unwrap();
    far.send(done());
    assert!(set.pull().is_none(), "a queue may be on its way");
    let (mut other, receiver) = queue(
        Capacity::new(8).unwrap(),
        TaskletWaker::none(),
        TaskletWaker::none(),
    );
    mailbox.take();
    set.add(vec![NewInlet {
        input: 0,
        receiver,
        crossing: None,
    }]);
    set.resume();
    assert!(set.pull().is_none());
    other.send(chunk(1));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))));
    other.send(done());
    assert!(has_ended(&mut set));
}

#[test]
fn a_queue_that_was_left_is_not_waited_for_by_who_leaves_and_by_nobody_else() {
    let (mut near, mut far, mut set, _) = crossing();
    far.send(Message::Signal(RemoteSignal::ProducersLeft));
    near.send(done());
    assert!(set.pull().is_none(), "it stays, and records may come again");
    far.send(chunk(1));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))));
    far.send(Message::Signal(RemoteSignal::ProducersLeft));
    assert!(set.pull().is_none());
    set.set_stopping(true);
    set.resume();
    assert!(has_ended(&mut set));
}

/// A stopping tasklet whose only remote producers have left before others start there.
fn left_before_others_come() -> (QueueSender, QueueSender, InputSet) {
    let (near, mut far, mut set, _) = crossing();
    far.send(Message::Signal(RemoteSignal::ProducersLeft));
    assert!(set.pull().is_none());
    (near, far, set)
}

#[test]
fn who_leaves_waits_for_producers_that_come_where_others_had_left_until_they_leave_too() {
    let is_told_first = [true, false];
    for is_told_first in is_told_first {
        let (mut near, mut far, mut set) = left_before_others_come();
        if is_told_first {
            set.expect(7, ExpectedProducers::ForThis);
        }
        far.send(beginning());
        assert!(set.pull().is_none());
        if !is_told_first {
            set.expect(7, ExpectedProducers::ForThis);
        }
        set.set_stopping(true);
        near.send(done());
        assert!(set.pull().is_none(), "they may send to it");
        far.send(chunk(1));
        assert!(matches!(set.pull(), Some(Event::Chunk(..))));
        far.send(Message::Signal(RemoteSignal::ProducersLeft));
        assert!(has_ended(&mut set));
    }
}

#[test]
fn who_leaves_does_not_wait_for_producers_that_come_for_others_or_do_not_come_after_all() {
    let (mut near, _far, mut set) = left_before_others_come();
    set.expect(7, ExpectedProducers::ForOthers);
    set.set_stopping(true);
    near.send(done());
    assert!(has_ended(&mut set));
    let (mut near, _far, mut set) = left_before_others_come();
    set.expect(7, ExpectedProducers::ForThis);
    set.set_stopping(true);
    near.send(done());
    assert!(set.pull().is_none());
    set.expect(7, ExpectedProducers::NoProducers);
    set.resume();
    assert!(has_ended(&mut set));
}

#[test]
fn an_end_that_nobody_has_heard_of_is_none_when_a_queue_comes() {
    let capacity = Capacity::new(8).unwrap();
    let pair = || queue(capacity, TaskletWaker::none(), TaskletWaker::none());
    let inlet = |receiver| NewInlet {
        input: 0,
        receiver,
        crossing: None,
    };
    let ((mut first, from_first), (mut second, from_second)) = (pair(), pair());
    let mailbox = Arc::new(ControlQueue::default());
    let mut set = InputSet::new(
        vec![InputSpec::ORDINARY; 2],
        vec![inlet(from_first)],
        Unconnected::HasNotBegun,
        Arc::clone(&mailbox),
    );
    mailbox
        .post(crate::channels::control_queue::Change::CancelStop)
        .unwrap();
    first.send(done());
    assert!(set.pull().is_none());
    mailbox.take();
    set.resume();
    set.add(vec![inlet(from_second)]);
    second.send(chunk(1));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))));
    second.send(done());
    assert!(has_ended(&mut set));
}

#[test]
fn an_end_elsewhere_does_not_count_while_producers_are_expected_there() {
    let (mut near, mut far, mut set, _) = crossing();
    far.send(done());
    assert!(set.pull().is_none());
    set.expect(7, ExpectedProducers::ForThis);
    near.send(done());
    far.send(done());
    assert!(set.pull().is_none(), "others come");
    far.send(beginning());
    far.send(chunk(1));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))));
    far.send(done());
    assert!(has_ended(&mut set));
    let (mut near, mut far, mut set, _) = crossing();
    far.send(done());
    assert!(set.pull().is_none());
    set.expect(7, ExpectedProducers::ForThis);
    near.send(done());
    assert!(set.pull().is_none());
    set.expect(7, ExpectedProducers::NoProducers);
    assert!(has_ended(&mut set), "they do not come after all");
    let (mut near, mut far, mut set, _) = crossing();
    far.send(beginning());
    far.send(done());
    assert!(set.pull().is_none());
    set.expect(7, ExpectedProducers::ForThis);
    near.send(done());
    assert!(
        has_ended(&mut set),
        "they came and ended before it was known"
    );
}

#[test]
fn what_comes_from_a_process_that_was_started_again_is_read_and_too_late_it_is_counted() {
    let (mut near, mut far, mut set, _) = crossing();
    far.send(done());
    far.send(Message::Signal(RemoteSignal::Restarted));
    far.send(beginning());
    far.send(chunk(1));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))));
    far.send(watermark(5));
    near.send(watermark(9));
    let Some(Event::Watermark(time)) = set.pull() else {
        panic!("time was held by the stream's end")
    };
    assert_eq!(time.0, Timestamp::from_secs(5));
    near.send(done());
    far.send(done());
    // The end of one queue releases the watermark of the other.
    assert!(matches!(
        set.pull(),
        Some(Event::Watermark(_)) | Some(Event::EdgeDone { .. })
    ));
    while set.pull().is_some() {}
    far.send(chunk(2));
    assert!(set.pull().is_none());
    assert_eq!(set.take_misrouted(), 1);
}

#[test]
fn without_alignment_a_queue_is_read_on_and_an_epoch_ends_when_it_has_on_all() {
    let (mut senders, set) = inputs(&[(Priority::NORMAL, 3)]);
    let mut set = set.unaligned();
    let end = |epoch| Message::Marker(Marker::Barrier(Epoch(epoch)));
    senders[0][0].send(end(1));
    senders[0][0].send(chunk(10));
    senders[0][0].send(end(2));
    senders[0][0].send(chunk(11));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))));
    assert!(matches!(set.pull(), Some(Event::Chunk(..))), "read on");
    senders[0][1].send(end(1));
    senders[0][1].send(end(2));
    assert!(set.pull().is_none());
    senders[0][2].send(end(1));
    assert!(matches!(set.pull(), Some(Event::Barrier(Epoch(1), _))));
    assert!(set.pull().is_none(), "the third has not ended the second");
    senders[0][0].send(end(3));
    assert!(set.pull().is_none());
    senders[0][2].send(Message::Marker(Marker::Done));
    assert!(matches!(set.pull(), Some(Event::Barrier(Epoch(2), _))));
    senders[0][1].send(Message::Marker(Marker::Done));
    assert!(matches!(set.pull(), Some(Event::Barrier(Epoch(3), _))));
}

#[test]
fn the_end_of_an_epoch_that_is_told_again_holds_nobody_and_ends_nothing() {
    let end = |epoch| Message::Marker(Marker::Barrier(Epoch(epoch)));
    for unaligned in [false, true] {
        let (mut senders, set) = inputs(&[(Priority::NORMAL, 2)]);
        let mut set = if unaligned { set.unaligned() } else { set };
        // A repeated barrier, before and after the epoch has ended.
        senders[0][0].send(end(1));
        senders[0][0].send(end(1));
        assert!(set.pull().is_none());
        senders[0][1].send(end(1));
        assert!(matches!(set.pull(), Some(Event::Barrier(Epoch(1), _))));
        senders[0][1].send(end(1));
        for queue in [0, 1] {
            senders[0][queue].send(chunk(1));
            assert!(matches!(set.pull(), Some(Event::Chunk(..))), "{unaligned}");
        }
        assert!(set.pull().is_none());
        senders[0][0].send(end(2));
        senders[0][1].send(end(2));
        assert!(matches!(set.pull(), Some(Event::Barrier(Epoch(2), _))));
    }
}

#[test]
fn numbers_of_epochs_that_were_skipped_are_not_ended() {
    let end = |epoch| Message::Marker(Marker::Barrier(Epoch(epoch)));
    for unaligned in [false, true] {
        let (mut senders, set) = inputs(&[(Priority::NORMAL, 2)]);
        let mut set = if unaligned { set.unaligned() } else { set };
        for epoch in [1, 66] {
            senders[0][0].send(end(epoch));
            senders[0][1].send(end(epoch));
            let Some(Event::Barrier(Epoch(ended), _)) = set.pull() else {
                panic!("{epoch} has ended on both")
            };
            assert_eq!((ended, set.pull().is_none()), (epoch, true));
        }
    }
}

#[test]
fn how_long_an_epochs_end_took_is_measured_from_the_first_queue_to_the_last() {
    let hand = ardea_core::ManualClock::new();
    let second = Duration::from_secs(1);
    for unaligned in [false, true] {
        let (mut senders, set) = inputs(&[(Priority::NORMAL, 2)]);
        let set = set.timed(hand.clock());
        let mut set = if unaligned { set.unaligned() } else { set };
        for queue in [0, 1] {
            assert!(set.pull().is_none());
            hand.advance(second);
            senders[0][queue].send(Message::Marker(Marker::Barrier(Epoch(1))));
        }
        let Some(Event::Barrier(Epoch(1), took)) = set.pull() else {
            panic!("it has ended on both")
        };
        assert_eq!(took, second);
    }
}
