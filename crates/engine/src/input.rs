//! The input of a tasklet: many queues become one sequence of events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, Epoch, FarNews, Marker, Ordinal, Priority, Timestamp, Watermark, WatermarkMerge,
};

use crate::coming::{Comers, Coming};
use crate::mailbox::Mailbox;
use crate::queue::Message;

mod epochs;
mod inlet;

use inlet::{Inlet, InletState, Input};
pub(crate) use inlet::{InputSpec, NewInlet, Unconnected};

/// What a stage is given next.
#[derive(Debug)]
pub(crate) enum Event {
    /// Records on an input.
    Chunk(Ordinal, Chunk),
    /// Time advanced on all inputs.
    Watermark(Watermark),
    /// All inputs are silent.
    Idle,
    /// This epoch ended on all inputs, so long after it did on the first.
    EpochEnd(Epoch, Duration),
    /// A mark of this time.
    Latency(Timestamp),
    /// An input ended; `last` if it was the last one.
    EdgeDone { input: Ordinal, last: bool },
}

/// All queues of a tasklet's first stage.
///
/// Reads the queues in turn, those of the most urgent priority that has not ended first; merges watermarks to their minimum; aligns
/// epoch ends: a queue that has reached one is held until all have, unless the job has [no need](Self::unaligned) of that. (No source
/// ends an epoch while anyone still reads a more urgent input, see job.rs: the queues that wait for it could not reach the end.)
///
/// Queues may be added while records flow. An input ends when all its queues have, but not before the tasklet has carried out the
/// changes that wait in its mailbox: they may be queues that take the place of those that ended.
#[derive(Debug)]
pub(crate) struct InputSet {
    inlets: Vec<Inlet>,
    inputs: Vec<Input>,
    unconnected: Unconnected,
    /// No queue comes later.
    is_fixed: bool,
    mailbox: Arc<Mailbox>,
    active_priority: Option<Priority>,
    merge: WatermarkMerge,
    events: VecDeque<Event>,
    next: usize,
    /// Queues that don't count any more once they were left: it is to end.
    is_leaving: bool,
    waiting: Vec<(usize, Message)>,
    last_epoch: Option<Epoch>,
    /// The epochs behind that which have ended on some queue, in order, where queues that have are read on.
    begun: VecDeque<Epoch>,
    /// Queues that have reached the end of an epoch are read on.
    is_unaligned: bool,
    /// By which it is known how long the ends of epochs take; nothing without.
    clock: Option<Clock>,
    /// When the first queue reached the end of the epoch at hand.
    ending_since: Option<Duration>,
    /// The last input has ended, and then one has begun.
    has_reopened: bool,
    misrouted: u64,
}

impl InputSet {
    /// Of these inputs, fed by these queues.
    pub(crate) fn new(
        specs: Vec<InputSpec>,
        inlets: Vec<NewInlet>,
        unconnected: Unconnected,
        mailbox: Arc<Mailbox>,
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
                // Without any queue there is nobody left to begin, which one of them has to tell.
                input.has_ended = input.open == 0 && (begun || index > 0);
            }
        }
        set.choose_priority();
        set.announce_ends();
        set
    }

    /// No queues come later: when the producers that there are speak of the end of all time, it has come.
    pub(crate) fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// Adds queues while records flow.
    pub(crate) fn add(&mut self, inlets: Vec<NewInlet>) {
        for inlet in inlets {
            self.connect(inlet, false);
        }
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
                // The stage has been told so, and can't be told otherwise.
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
            // An end that nobody has heard of is none.
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
            coming: match crossing {
                Some(_) => Coming::Unheard(None),
                None => Coming::Nobody,
            },
            has_withheld_end: false,
            was_left: false,
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
        self.begin_time(index);
    }

    /// Whether an input waits for a more urgent one to end.
    pub(crate) fn is_urgent(&self) -> bool {
        self.inputs
            .iter()
            .any(|input| input.open > 0 && Some(input.spec.priority) > self.active_priority)
    }

    /// It is to end, or not after all: queues whose other end routes nothing here don't count then.
    pub(crate) fn leave(&mut self, is_leaving: bool) {
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

    /// There is another change of the job, by which these come at the other end of what comes from this tasklet.
    pub(crate) fn expect(&mut self, crossing: u64, comers: Comers) {
        for index in 0..self.inlets.len() {
            if self.inlets[index].crossing != Some(crossing) {
                continue;
            }
            self.change(index, |inlet| inlet.expect(comers));
            let inlet = &mut self.inlets[index];
            let is_expected = inlet.coming.is_expected();
            if self.inputs[inlet.input].has_ended {
                continue;
            }
            if is_expected && inlet.state == InletState::Done {
                self.change(index, |inlet| {
                    inlet.state = InletState::Open;
                    inlet.has_withheld_end = true;
                });
                self.begin_time(index);
            } else if !is_expected && std::mem::take(&mut inlet.has_withheld_end) {
                self.end(index);
            }
        }
    }

    /// After all changes that waited have been carried out: looks again at what ended meanwhile.
    pub(crate) fn resume(&mut self) {
        for (index, message) in std::mem::take(&mut self.waiting) {
            self.inlets[index].state = InletState::Open;
            if let Some(event) = self.take(index, message) {
                self.events.push_back(event);
            }
        }
        self.announce_ends();
    }

    /// The stage has been made anew: tells it what has been said, of ends and of time.
    pub(crate) fn tell_again(&mut self) {
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

    /// Whether an input has begun after the last one had ended; once.
    pub(crate) fn take_reopened(&mut self) -> bool {
        std::mem::take(&mut self.has_reopened)
    }

    /// How many records have come on inputs that had ended, and were dropped; since the last look.
    pub(crate) fn take_misrouted(&mut self) -> u64 {
        std::mem::take(&mut self.misrouted)
    }

    /// How many messages wait in the fullest queue, of how many that may. Of many queues some are looked at, in turn.
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

    /// Gives an emptied chunk of an input back to where the last chunk of that input came from.
    pub(crate) fn give_back(&mut self, input: usize, chunk: Chunk) {
        self.inlets[self.inputs[input].source]
            .receiver
            .give_back(chunk);
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
            // It says nothing of the stream, not even that there is one.
            return (inlet.state == InletState::Open).then_some(Event::Latency(born));
        }
        let input = inlet.input;
        let is_odd = inlet.state == InletState::Done || inlet.was_left;
        if (is_odd || inlet.coming.is_to_begin()) && !self.revive(index, &message) {
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
                    self.change(index, Inlet::speak);
                    self.inlets[index].has_withheld_end = false;
                }
                let risen = match watermark {
                    // That of one producer only: others may come.
                    Watermark::END if !self.is_fixed => self.merge.done(index),
                    _ => self.merge.advance(index, watermark),
                };
                let risen = risen.filter(|w| self.is_fixed || *w != Watermark::END);
                return risen.map(Event::Watermark);
            }
            Message::Marker(Marker::Idle) => {
                if let Some(watermark) = self.merge.idle(index) {
                    self.events.push_back(Event::Watermark(watermark));
                }
                if self.merge.tells_idle() {
                    self.events.push_back(Event::Idle);
                }
            }
            Message::Marker(Marker::EpochEnd(epoch)) => self.end_epoch(index, epoch),
            Message::Marker(Marker::Latency(_)) => {}
            Message::Marker(Marker::Done) | Message::News(_) if self.mailbox.has_changes() => {
                self.inlets[index].state = InletState::Waiting;
                self.waiting.push((index, message));
            }
            Message::Marker(Marker::Done) if self.inlets[index].coming.is_expected() => {
                self.inlets[index].has_withheld_end = true;
            }
            Message::Marker(Marker::Done) => self.end(index),
            Message::Coming(known) => self.inlets[index].coming.greeted(known),
            Message::News(news) => {
                if news == FarNews::Anew {
                    self.inlets[index].coming = Coming::Unbegun;
                    self.inlets[index].has_withheld_end = false;
                    self.change(index, |inlet| inlet.is_awaited = false);
                }
                self.change(index, |inlet| inlet.was_left = true);
                self.announce_ends();
            }
        }
        self.events.pop_front()
    }

    /// Something comes from a process whose stream had ended, or that routed nothing here: after it was started again, or when the
    /// routes have changed once more. False if it is too late.
    fn revive(&mut self, index: usize, message: &Message) -> bool {
        let input = self.inlets[index].input;
        let is_news = matches!(message, Message::News(_) | Message::Coming(_));
        if !is_news && !matches!(message, Message::Marker(Marker::Watermark(Watermark::NONE))) {
            self.inlets[index].coming.begin();
        }
        if self.inlets[index].state == InletState::Done {
            match message {
                Message::Marker(Marker::Done) => return false,
                Message::News(FarNews::Left) => {
                    // It still holds should the stream begin again.
                    self.inlets[index].was_left = true;
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
            self.begin_time(index);
        }
        if matches!(message, Message::Chunk(_)) {
            self.change(index, |inlet| inlet.was_left = false);
        }
        true
    }

    /// Changes a queue's state, and keeps count of those that hold their input open.
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

    /// In the place of one that ended a queue begins, which has promised nothing.
    fn begin_time(&mut self, index: usize) {
        if self.merge.merged() == Watermark::END {
            self.merge.restart();
        }
        self.merge.replace(index);
        self.merge.beside(index, self.inlets[index].input);
        if self.inputs[self.inlets[index].input].spec.is_timeless {
            // Nothing can rise that somebody would have to be told.
            let _ = self.merge.done(index);
        }
    }

    /// Ends an inlet: it no longer holds back time, epochs or its input.
    fn end(&mut self, index: usize) {
        self.change(index, |inlet| inlet.state = InletState::Done);
        // The end of all time is announced by the last input's end itself.
        if let Some(watermark) = self.merge.done(index).filter(|w| *w != Watermark::END) {
            self.events.push_back(Event::Watermark(watermark));
        }
        self.align();
        self.announce_ends();
    }

    /// Tells of the inputs whose queues have all ended.
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

    /// Drops all queues with what is in them; their senders wait for nobody.
    pub(crate) fn close(self) {
        for inlet in self.inlets {
            inlet.receiver.close();
        }
        // Chunks that were about to be read.
        crate::panics::quietly(|| drop((self.events, self.waiting)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
