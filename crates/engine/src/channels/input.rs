//! The input of a tasklet: merges many queues into one sequence of events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, Epoch, Marker, MicroBatch, Ordinal, Priority, Timestamp, Watermark,
    WatermarkMerge,
};

use crate::channels::control_queue::ControlQueue;
use crate::channels::inlet::{Inlet, InletState, Input, InputSpec, NewInlet, Unconnected};
use crate::channels::pending_producers::{ExpectedProducers, ProducerState};
use crate::channels::queue::Message;
use crate::remote::RemoteSignal;

mod batches;
mod epochs;

use batches::BatchOrder;

/// An event for a stage.
#[derive(Debug)]
pub(crate) enum Event {
    /// Records on an input.
    Chunk(Ordinal, Chunk),
    /// The merged watermark of all inputs rose.
    Watermark(Watermark),
    /// All inputs are idle.
    Idle,
    /// The epoch ended on all inputs; the duration is the time since the first input's barrier.
    Barrier(Epoch, Duration),
    /// The micro-batch ended on all inputs; the duration is the time since the first input's end.
    BatchEnd(MicroBatch, Duration),
    /// A latency marker with its creation time.
    Latency(Timestamp),
    /// An input ended; `last` is true if it was the last one.
    EdgeDone { input: Ordinal, last: bool },
}

/// All queues of a tasklet's first stage.
///
/// Reads the queues in turn, those of the most urgent open priority first. Merges watermarks to
/// their minimum. Aligns barriers: a queue that has reached one is held until all have, unless the
/// set is [unaligned](Self::unaligned). (Sources end no epoch while any tasklet still reads an
/// urgent input, see job.rs: queues that wait for the urgent input could not reach the barrier.)
///
/// Queues may be added while records flow. An input ends when all its queues have ended, but not
/// before the tasklet has applied the pending changes of its control queue, which may replace these
/// queues.
#[derive(Debug)]
pub(crate) struct InputSet {
    inlets: Vec<Inlet>,
    inputs: Vec<Input>,
    unconnected: Unconnected,
    /// True if no queue is added later.
    is_fixed: bool,
    mailbox: Arc<ControlQueue>,
    active_priority: Option<Priority>,
    merge: WatermarkMerge,
    events: VecDeque<Event>,
    next: usize,
    /// True if the tasklet is stopping: queues without remote producers no longer keep an input
    /// open.
    is_leaving: bool,
    waiting: Vec<(usize, Message)>,
    last_epoch: Option<Epoch>,
    /// Epochs after the current one that have ended on some queue, in order; used if barriers are
    /// not aligned.
    begun: VecDeque<Epoch>,
    /// True if queues are read on after a barrier.
    is_unaligned: bool,
    /// Present in micro-batch mode.
    batches: Option<Box<BatchOrder>>,
    /// The clock for alignment times; `None` disables them.
    clock: Option<Clock>,
    /// Time of the current epoch's first barrier.
    ending_since: Option<Duration>,
    /// True if an input has begun after all inputs had ended.
    has_reopened: bool,
    misrouted: u64,
}

impl InputSet {
    /// Creates a set of these inputs with their initial queues.
    pub(crate) fn new(
        specs: Vec<InputSpec>,
        inlets: Vec<NewInlet>,
        unconnected: Unconnected,
        mailbox: Arc<ControlQueue>,
    ) -> Self {
        let inputs = specs.into_iter().map(Input::new).collect();
        let mut set = InputSet {
            inlets: Vec::with_capacity(inlets.len()),
            inputs,
            unconnected,
            is_fixed: false,
            mailbox,
            active_priority: None,
            merge: WatermarkMerge::new(0),
            events: VecDeque::new(),
            next: 0,
            is_leaving: false,
            waiting: Vec::new(),
            last_epoch: None,
            begun: VecDeque::new(),
            is_unaligned: false,
            batches: None,
            clock: None,
            ending_since: None,
            has_reopened: false,
            misrouted: 0,
        };
        for inlet in inlets {
            set.connect(inlet, true);
        }
        if unconnected == Unconnected::HasNotBegun {
            let begun = set.inputs.iter().any(|input| input.open > 0);
            for (index, input) in set.inputs.iter_mut().enumerate() {
                // Without any queue no producer is left that could signal the beginning.
                input.has_ended = input.open == 0 && (begun || index > 0);
            }
        }
        set.choose_priority();
        set.announce_ends();
        set
    }

    /// Declares that no queues are added later, so an end watermark of all present producers is
    /// final.
    pub(crate) fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// Adds queues while records flow.
    pub(crate) fn add(&mut self, inlets: Vec<NewInlet>) {
        for inlet in inlets {
            self.connect(inlet, false);
        }
        self.arrange_queues();
        self.choose_priority();
    }

    fn connect(&mut self, new: NewInlet, is_aligned: bool) {
        let NewInlet {
            input,
            receiver,
            crossing,
        } = new;
        while self.inputs.len() <= input {
            let mut unused = Input::new(InputSpec::ORDINARY);
            unused.has_ended = true;
            self.inputs.push(unused);
        }
        if self.inputs[input].has_ended {
            if self.unconnected == Unconnected::HasEnded {
                // The stage has already processed the end of this input.
                receiver.close();
                return;
            }
            if self.inputs.iter().all(|input| input.has_ended) {
                self.has_reopened = true;
                for event in &mut self.events {
                    if let Event::EdgeDone { last, .. } = event {
                        *last = false;
                    }
                }
            }
            // Withdraws the end event of this input if it was not delivered yet.
            let is_this = |event: &Event| matches!(event, Event::EdgeDone { input: it, .. } if it.index() == input);
            self.events.retain(|event| !is_this(event));
            self.inputs[input].has_ended = false;
        }
        self.inputs[input].open += 1;
        let inlet = Inlet {
            receiver,
            input,
            state: InletState::Open,
            crossing,
            producers: match crossing {
                Some(_) => ProducerState::NotStarted(None),
                None => ProducerState::NoProducers,
            },
            has_withheld_end: false,
            producers_left: false,
            is_awaited: false,
            is_aligned,
            ended: None,
        };
        let unused =
            |inlet: &mut Inlet| inlet.state == InletState::Done && inlet.receiver.is_finished();
        let index = match self
            .inlets
            .iter_mut()
            .position(unused)
            .filter(|_| !is_aligned)
        {
            Some(index) => {
                self.inlets[index] = inlet;
                index
            }
            None => {
                self.inlets.push(inlet);
                self.merge.add()
            }
        };
        self.reset_watermark(index);
    }

    /// Returns true if an input waits for a more urgent one to end.
    pub(crate) fn is_urgent(&self) -> bool {
        self.inputs
            .iter()
            .any(|input| input.open > 0 && Some(input.spec.priority) > self.active_priority)
    }

    /// Sets whether the tasklet is stopping: then queues without remote producers no longer keep an
    /// input open.
    pub(crate) fn set_stopping(&mut self, is_leaving: bool) {
        self.is_leaving = is_leaving;
        for input in &mut self.inputs {
            input.open = 0;
        }
        for inlet in &self.inlets {
            if !inlet.is_closed(is_leaving) {
                self.inputs[inlet.input].open += 1;
            }
        }
        self.choose_priority();
    }

    /// Announces the producers `comers`, which a change of the job will start at the other end of
    /// the edge that the tasklet `crossing` receives.
    pub(crate) fn expect(&mut self, crossing: u64, comers: ExpectedProducers) {
        for index in 0..self.inlets.len() {
            if self.inlets[index].crossing != Some(crossing) {
                continue;
            }
            self.change(index, |inlet| inlet.expect(comers));
            let inlet = &mut self.inlets[index];
            let is_expected = inlet.producers.is_expected();
            if self.inputs[inlet.input].has_ended {
                continue;
            }
            if is_expected && inlet.state == InletState::Done {
                self.change(index, |inlet| {
                    inlet.state = InletState::Open;
                    inlet.has_withheld_end = true;
                });
                self.reset_watermark(index);
            } else if !is_expected && std::mem::take(&mut inlet.has_withheld_end) {
                self.end(index);
            }
        }
    }

    /// Processes end-of-stream markers that were deferred until the pending changes were applied.
    pub(crate) fn resume(&mut self) {
        for (index, message) in std::mem::take(&mut self.waiting) {
            self.inlets[index].state = InletState::Open;
            if let Some(event) = self.take(index, message) {
                self.events.push_back(event);
            }
        }
        self.announce_ends();
    }

    /// Repeats the current watermark and the ends of inputs for a restarted stage.
    pub(crate) fn repeat_state(&mut self) {
        let is_news =
            |event: &Event| !matches!(event, Event::EdgeDone { .. } | Event::Watermark(_));
        self.events.retain(is_news);
        let time = self.merge.merged();
        let mut said = VecDeque::new();
        let mut open = self.inputs.iter().filter(|input| !input.has_ended).count();
        if (open > 0 || self.is_fixed) && time > Watermark::NONE {
            said.push_back(Event::Watermark(time));
        }
        let ended = self.inputs.iter().filter(|input| input.has_ended).count();
        open += ended;
        for (index, _) in self
            .inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| input.has_ended)
        {
            open -= 1;
            said.push_back(Event::EdgeDone {
                input: Ordinal(index as u16),
                last: open == 0,
            });
        }
        said.append(&mut self.events);
        self.events = said;
    }

    /// Takes the flag that an input has begun after all inputs had ended.
    pub(crate) fn take_reopened(&mut self) -> bool {
        std::mem::take(&mut self.has_reopened)
    }

    /// Returns the number of records dropped because their input had ended, since the last call.
    pub(crate) fn take_misrouted(&mut self) -> u64 {
        std::mem::take(&mut self.misrouted)
    }

    /// Returns length and capacity of the fullest queue. Checks up to eight queues per call, in
    /// turn.
    pub(crate) fn fill(&mut self) -> (usize, usize) {
        const MOST: usize = 8;
        let count = self.inlets.len();
        let mut fullest = (0, 0);
        for step in 0..count.min(MOST) {
            let inlet = &mut self.inlets[(self.next + step) % count];
            fullest = fullest.max(inlet.receiver.fill());
        }
        fullest
    }

    /// Returns true if a producer waits for room in a queue.
    pub(crate) fn blocks_producer(&self) -> bool {
        self.inlets
            .iter()
            .any(|inlet| inlet.receiver.sender_waits())
    }

    /// Returns an emptied chunk to the queue that the latest chunk of the input came from.
    pub(crate) fn give_back(&mut self, input: usize, chunk: Chunk) {
        self.inlets[self.inputs[input].source]
            .receiver
            .return_chunk(chunk);
    }

    /// Returns the next event, if there is one.
    pub(crate) fn pull(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.batches.is_some() {
            return self.pull_in_order();
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
        let input = &self.inputs[inlet.input];
        match inlet.state {
            InletState::Open => Some(input.spec.priority) == self.active_priority,
            InletState::Done if inlet.crossing.is_some() => {
                input.has_ended || Some(input.spec.priority) == self.active_priority
            }
            _ => false,
        }
    }

    fn take(&mut self, index: usize, message: Message) -> Option<Event> {
        let inlet = &self.inlets[index];
        if let Message::Marker(Marker::Latency(born)) = message {
            // A latency marker has no effect on the state of the queue.
            return (inlet.state == InletState::Open).then_some(Event::Latency(born));
        }
        let input = inlet.input;
        let is_odd = inlet.state == InletState::Done || inlet.producers_left;
        if (is_odd || inlet.producers.has_not_started()) && !self.revive(index, &message) {
            crate::panics::quietly(|| drop(message));
            return None;
        }
        match message {
            Message::Chunk(chunk) => {
                self.merge.record(index);
                self.inputs[input].source = index;
                return Some(Event::Chunk(Ordinal(input as u16), chunk));
            }
            Message::Marker(Marker::Watermark(watermark)) => {
                if watermark == Watermark::NONE {
                    self.change(index, Inlet::handle_start_marker);
                    self.inlets[index].has_withheld_end = false;
                }
                let risen = match watermark {
                    // The end of one producer only: others may follow.
                    Watermark::END if !self.is_fixed => self.merge.done(index),
                    _ => self.merge.advance(index, watermark),
                };
                let risen = risen.filter(|w| self.is_fixed || *w != Watermark::END);
                return self.event_of(risen);
            }
            Message::Marker(Marker::Idle) => {
                let risen = self.merge.idle(index);
                let event = self.event_of(risen);
                self.events.extend(event);
                if self.merge.should_forward_idle() {
                    self.announce_idle();
                }
            }
            Message::Marker(Marker::Barrier(epoch)) => self.end_epoch(index, epoch),
            Message::Marker(Marker::BatchEnd(batch)) => self.end_batch(index, batch),
            Message::Marker(Marker::Latency(_)) => {}
            Message::Marker(Marker::Done) | Message::Signal(_) if self.mailbox.has_changes() => {
                self.inlets[index].state = InletState::Waiting;
                self.waiting.push((index, message));
            }
            Message::Marker(Marker::Done) if self.inlets[index].producers.is_expected() => {
                self.inlets[index].has_withheld_end = true;
            }
            Message::Marker(Marker::Done) => self.end(index),
            Message::Producers(known) => self.inlets[index].producers.adopt(known),
            Message::Signal(news) => {
                if news == RemoteSignal::Restarted {
                    self.inlets[index].producers = ProducerState::Restarting;
                    self.inlets[index].has_withheld_end = false;
                    self.change(index, |inlet| inlet.is_awaited = false);
                }
                self.change(index, |inlet| inlet.producers_left = true);
                self.announce_ends();
            }
        }
        self.events.pop_front()
    }

    /// Reopens a queue that receives a message after its stream had ended, or without remote
    /// producers. The producing process has restarted, or the routing has changed once more.
    /// Returns false if `message` needs no further processing.
    fn revive(&mut self, index: usize, message: &Message) -> bool {
        let input = self.inlets[index].input;
        let is_news = matches!(message, Message::Signal(_) | Message::Producers(_));
        if !is_news && !matches!(message, Message::Marker(Marker::Watermark(Watermark::NONE))) {
            self.inlets[index].producers.handle_message();
        }
        if self.inlets[index].state == InletState::Done {
            match message {
                Message::Marker(Marker::Done) => return false,
                Message::Signal(RemoteSignal::ProducersLeft) => {
                    // The signal remains valid if the stream begins again.
                    self.inlets[index].producers_left = true;
                    return false;
                }
                _ => {}
            }
            if self.inputs[input].has_ended {
                if let Message::Chunk(chunk) = message {
                    self.misrouted += chunk.len() as u64;
                }
                return false;
            }
            self.change(index, |inlet| inlet.state = InletState::Open);
            self.reset_watermark(index);
        }
        if matches!(message, Message::Chunk(_)) {
            self.change(index, |inlet| inlet.producers_left = false);
        }
        true
    }

    /// Changes a queue's state, and updates the number of queues that keep the input open.
    fn change(&mut self, index: usize, change: impl FnOnce(&mut Inlet)) {
        let inlet = &mut self.inlets[index];
        let before = inlet.is_closed(self.is_leaving);
        change(inlet);
        let after = inlet.is_closed(self.is_leaving);
        let input = inlet.input;
        match (before, after) {
            (false, true) => self.inputs[input].open -= 1,
            (true, false) => {
                self.inputs[input].open += 1;
                self.choose_priority();
            }
            _ => {}
        }
    }

    /// Resets the watermark of a queue that replaces an ended one.
    fn reset_watermark(&mut self, index: usize) {
        if self.merge.merged() == Watermark::END {
            self.merge.restart();
        }
        self.merge.replace(index);
        self.merge.set_group(index, self.inlets[index].input);
        if self.inputs[self.inlets[index].input].spec.is_timeless {
            // A timeless input cannot raise the merged watermark.
            let _ = self.merge.done(index);
        }
    }

    /// Ends a queue: it no longer holds back the watermark, epochs or its input.
    fn end(&mut self, index: usize) {
        self.change(index, |inlet| inlet.state = InletState::Done);
        // The end watermark is implied by the end of the last input.
        let risen = self.merge.done(index).filter(|w| *w != Watermark::END);
        let event = self.event_of(risen);
        self.events.extend(event);
        self.align();
        self.announce_ends();
    }

    /// Emits the ends of inputs whose queues have all ended.
    fn announce_ends(&mut self) {
        if self
            .inputs
            .iter()
            .all(|input| input.open > 0 || input.has_ended)
        {
            return;
        }
        self.choose_priority();
        for index in 0..self.inputs.len() {
            let input = &mut self.inputs[index];
            if input.open > 0 || input.has_ended {
                continue;
            }
            input.has_ended = true;
            let last = self.inputs.iter().all(|input| input.has_ended);
            if last {
                self.emit_deferred_time();
            }
            self.events.push_back(Event::EdgeDone {
                input: Ordinal(index as u16),
                last,
            });
        }
    }

    fn choose_priority(&mut self) {
        let open = self.inputs.iter().filter(|input| input.open > 0);
        self.active_priority = open.map(|input| input.spec.priority).min();
    }

    /// Drops all queues with their content; senders are not blocked by them any more.
    pub(crate) fn close(self) {
        for inlet in self.inlets {
            inlet.receiver.close();
        }
        // Events and messages that were not processed yet.
        crate::panics::quietly(|| drop((self.events, self.waiting, self.batches)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
