//! The input of a tasklet: many queues become one sequence of events.

use std::collections::VecDeque;

use ardea_core::{Chunk, Epoch, Marker, Ordinal, Priority, Watermark, WatermarkMerge};

use crate::queue::{Message, QueueReceiver};

/// What a stage is given next.
#[derive(Debug)]
pub(crate) enum Event {
    /// Records on an input.
    Chunk(Ordinal, Chunk),
    /// Time advanced on all inputs.
    Watermark(Watermark),
    /// All inputs are silent.
    Idle,
    /// This epoch ended on all inputs.
    EpochEnd(Epoch),
    /// An input ended; `last` if it was the last one.
    EdgeDone { input: Ordinal, last: bool },
}

/// One queue, and how far its producer has come.
#[derive(Debug)]
struct Inlet {
    receiver: QueueReceiver,
    input: usize,
    state: InletState,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum InletState {
    /// Reading until the epoch or the stream ends.
    Open,
    /// Held until the others have ended this epoch as well.
    AtEpochEnd(Epoch),
    /// Ended.
    Done,
}

/// All queues of a tasklet's first stage.
///
/// Reads the queues in turn, those of the most urgent priority that has not ended first; merges watermarks to their minimum; aligns
/// epoch ends: a queue that has reached one is held until all have. (No source ends an epoch while anyone still reads a more
/// urgent input, see job.rs: the queues that wait for it could not reach the end.)
#[derive(Debug)]
pub(crate) struct InputSet {
    inlets: Vec<Inlet>,
    open_by_input: Vec<usize>,
    priorities: Vec<Priority>,
    active_priority: Option<Priority>,
    merge: WatermarkMerge,
    events: VecDeque<Event>,
    next: usize,
    source_of: Vec<usize>,
}

impl InputSet {
    /// Lets an input have no part in time: its watermarks are not listened to, and its silence holds nobody back.
    pub(crate) fn without_time(mut self, input: usize) -> Self {
        for (index, inlet) in self.inlets.iter().enumerate() {
            if inlet.input == input {
                // Nothing has been promised yet, so nothing can rise that somebody would have to be told.
                let _ = self.merge.done(index);
            }
        }
        self
    }

    /// From the queues of each input ordinal, with that input's priority.
    pub(crate) fn new(inputs: Vec<(Priority, Vec<QueueReceiver>)>) -> Self {
        let priorities: Vec<Priority> = inputs.iter().map(|(priority, _)| *priority).collect();
        let open_by_input: Vec<usize> = inputs.iter().map(|(_, queues)| queues.len()).collect();
        let mut inlets = Vec::new();
        for (input, (_, queues)) in inputs.into_iter().enumerate() {
            inlets.extend(queues.into_iter().map(|receiver| Inlet {
                receiver,
                input,
                state: InletState::Open,
            }));
        }
        let mut set = InputSet {
            merge: WatermarkMerge::new(inlets.len()),
            source_of: vec![0; priorities.len()],
            active_priority: None,
            inlets,
            open_by_input,
            priorities,
            events: VecDeque::new(),
            next: 0,
        };
        set.choose_priority();
        set.end_unconnected();
        set
    }

    /// Ends the inputs without queues: a producer that sends all to one instance leaves its siblings none.
    fn end_unconnected(&mut self) {
        let mut open = self.open_by_input.iter().filter(|open| **open > 0).count();
        let unconnected: Vec<usize> = (0..self.open_by_input.len())
            .filter(|&input| self.open_by_input[input] == 0)
            .collect();
        open += unconnected.len();
        for input in unconnected {
            open -= 1;
            self.events.push_back(Event::EdgeDone {
                input: Ordinal(input as u16),
                last: open == 0,
            });
        }
    }

    /// Whether an input waits for a more urgent one to end.
    pub(crate) fn is_urgent(&self) -> bool {
        let open = self.open_by_input.iter().zip(&self.priorities);
        open.into_iter()
            .any(|(open, priority)| *open > 0 && Some(*priority) > self.active_priority)
    }

    /// Gives an emptied chunk of an input back to where the last chunk of that input came from.
    pub(crate) fn give_back(&mut self, input: usize, chunk: Chunk) {
        self.inlets[self.source_of[input]].receiver.give_back(chunk);
    }

    /// The next event, if one has come.
    pub(crate) fn pull(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let count = self.inlets.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            while self.may_read(index) {
                let Some(message) = self.inlets[index].receiver.pop() else {
                    break;
                };
                if let Some(event) = self.take(index, message) {
                    self.next = (index + 1) % count;
                    return Some(event);
                }
            }
        }
        None
    }

    fn may_read(&self, index: usize) -> bool {
        let inlet = &self.inlets[index];
        inlet.state == InletState::Open
            && Some(self.priorities[inlet.input]) == self.active_priority
    }

    fn take(&mut self, index: usize, message: Message) -> Option<Event> {
        let input = self.inlets[index].input;
        match message {
            Message::Chunk(chunk) => {
                self.merge.record(index);
                self.source_of[input] = index;
                return Some(Event::Chunk(Ordinal(input as u16), chunk));
            }
            Message::Marker(Marker::Watermark(watermark)) => {
                return self.merge.advance(index, watermark).map(Event::Watermark);
            }
            Message::Marker(Marker::Idle) => {
                if let Some(watermark) = self.merge.idle(index) {
                    self.events.push_back(Event::Watermark(watermark));
                }
                if self.merge.is_idle() {
                    self.events.push_back(Event::Idle);
                }
            }
            Message::Marker(Marker::EpochEnd(epoch)) => {
                self.inlets[index].state = InletState::AtEpochEnd(epoch);
                self.align();
            }
            Message::Marker(Marker::Done) => self.end(index),
        }
        self.events.pop_front()
    }

    /// Ends an inlet: it no longer holds back time, epochs or its input.
    fn end(&mut self, index: usize) {
        let input = self.inlets[index].input;
        self.inlets[index].state = InletState::Done;
        // The end of all time is announced by the last input's end itself.
        if let Some(watermark) = self.merge.done(index).filter(|w| *w != Watermark::END) {
            self.events.push_back(Event::Watermark(watermark));
        }
        self.align();
        self.open_by_input[input] -= 1;
        if self.open_by_input[input] == 0 {
            self.choose_priority();
            let last = self.active_priority.is_none();
            self.events.push_back(Event::EdgeDone {
                input: Ordinal(input as u16),
                last,
            });
        }
    }

    /// If every queue that has not ended is at an epoch's end, announces it and lets all go on.
    fn align(&mut self) {
        let mut at: Option<Epoch> = None;
        for inlet in &self.inlets {
            match inlet.state {
                InletState::Open => return,
                InletState::AtEpochEnd(epoch) => {
                    at = Some(at.map_or(epoch, |other| other.min(epoch)))
                }
                InletState::Done => {}
            }
        }
        let Some(epoch) = at else { return };
        for inlet in &mut self.inlets {
            if inlet.state == InletState::AtEpochEnd(epoch) {
                inlet.state = InletState::Open;
            }
        }
        self.events.push_back(Event::EpochEnd(epoch));
    }

    fn choose_priority(&mut self) {
        let open = self
            .open_by_input
            .iter()
            .zip(&self.priorities)
            .filter(|(open, _)| **open > 0);
        self.active_priority = open.map(|(_, priority)| *priority).min();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::queue::{QueueSender, queue};
    use crate::worker::TaskletWaker;
    use ardea_core::{Rows, Timestamp};
    use ardea_ring::Capacity;

    fn inputs(priorities: &[(Priority, usize)]) -> (Vec<Vec<QueueSender>>, InputSet) {
        let capacity = Capacity::new(8).unwrap();
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for &(priority, queues) in priorities {
            let (s, r) = (0..queues)
                .map(|_| queue(capacity, TaskletWaker::none(), TaskletWaker::none()))
                .unzip();
            senders.push(s);
            receivers.push((priority, r));
        }
        (senders, InputSet::new(receivers))
    }

    fn chunk(value: u32) -> Message {
        Message::Chunk(Chunk::new(Rows::from_iter([(value, Timestamp::MIN)])))
    }

    fn watermark(secs: i64) -> Message {
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
        let end = || Message::Marker(Marker::EpochEnd(Epoch(1)));
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
        assert!(matches!(set.pull(), Some(Event::EpochEnd(Epoch(1)))));
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
        let (mut senders, set) = inputs(&[(Priority::NORMAL, 1), (Priority::NORMAL, 1)]);
        let mut set = set.without_time(1);
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
        senders[0][0].send(Message::Marker(Marker::EpochEnd(Epoch(1))));
        assert!(set.pull().is_none());
        senders[0][1].send(Message::Marker(Marker::Done));
        let Some(Event::Watermark(mark)) = set.pull() else {
            panic!("time was held by the ended queue")
        };
        assert_eq!(mark.0, Timestamp::from_secs(5));
        assert!(matches!(set.pull(), Some(Event::EpochEnd(Epoch(1)))));
        senders[0][0].send(Message::Marker(Marker::Done));
        assert!(matches!(
            set.pull(),
            Some(Event::EdgeDone { last: true, .. })
        ));
    }
}
