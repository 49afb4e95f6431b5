//! The receiving end of an edge from one other container, as a step of the job.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, InstanceContext, Marker, Ordinal, Outbox, Processor, Progress, Result, Waker,
};
use ardea_network::exchange::Received;

use crate::berth::{Berth, Lent};
use crate::receive_end::{Came, ReceiveEnd};
use crate::traffic::Arrivals;

/// How long it rests at most.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How long after nobody needs it any more a stream may take to begin, if nothing has come over it.
const NEVER_BEGUN: Duration = Duration::from_secs(1);

/// Gives out what another container sends over an edge: its output *i* leads to the consumer's instance *i*, which lives here.
pub(crate) struct ReceiverP {
    berth: Arc<Berth<ReceiveEnd>>,
    lent: Option<Lent<ReceiveEnd>>,
    waker: Waker,
    clock: Clock,
    /// Records that came, and the output that they are for.
    chunk: Chunk,
    target: Option<Ordinal>,
    arrivals: Arrivals,
    /// The stream has ended; it may begin again.
    has_ended: bool,
    /// Since when nobody needs it any more.
    unneeded_since: Option<Duration>,
}

enum Taken {
    Nothing,
    Something,
    Leave,
}

impl ReceiverP {
    pub(crate) fn new(berth: Arc<Berth<ReceiveEnd>>, arrivals: Arrivals) -> Self {
        ReceiverP {
            berth,
            arrivals,
            lent: None,
            waker: Waker::none(),
            clock: Clock::system(),
            chunk: Chunk::default(),
            target: None,
            has_ended: false,
            unneeded_since: None,
        }
    }

    fn end(&mut self) -> Option<&mut ReceiveEnd> {
        if self.lent.is_none() {
            self.lent = self.berth.lend(&self.waker);
        }
        self.lent.as_mut()?.end()
    }

    /// Puts what came last into its output, if there is room.
    fn pass_on(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let Some(target) = self.target else {
            return Ok(true);
        };
        if target.index() >= outbox.lanes() {
            // Sent by routes of before this process was started: nobody switches to later ones before all know them.
            outbox.count_misrouted(self.chunk.len());
            self.chunk.clear();
            self.target = None;
            return Ok(true);
        }
        let passed = outbox.offer_chunk(target, &mut self.chunk)?;
        if passed {
            self.target = None;
        }
        Ok(passed)
    }

    /// Takes the next thing that came.
    fn take(&mut self, now: Duration, outbox: &mut Outbox) -> Result<Taken> {
        let mut chunk = std::mem::take(&mut self.chunk);
        let came = match self.end() {
            Some(end) => end.receive(now, &mut chunk),
            None => Ok(None),
        };
        self.chunk = chunk;
        let Some(came) = came? else {
            return Ok(Taken::Nothing);
        };
        self.has_ended = came == Came::Said(Received::Marker(Marker::Done));
        match came {
            Came::Anew => {
                outbox.begin_anew();
                return Ok(Taken::Leave);
            }
            Came::Said(Received::Records { target, .. }) => {
                // An output beyond those that there can be is one that never comes.
                let target = Ordinal(u16::try_from(target.0).unwrap_or(u16::MAX));
                self.target = Some(target);
                if target.index() < outbox.lanes() {
                    let bytes = self.end().map_or(0, |end| end.last_frame_bytes());
                    self.arrivals.count(target.index(), bytes);
                }
            }
            Came::Said(Received::Leave(target)) => {
                let target = Ordinal(u16::try_from(target.0).unwrap_or(u16::MAX));
                if target.index() < outbox.lanes() {
                    outbox.leave(target)?;
                }
                return Ok(Taken::Leave);
            }
            Came::Said(Received::Marker(marker)) => outbox.marker(marker),
        }
        Ok(Taken::Something)
    }

    /// Gives out what has come.
    fn give_out(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let now = self.clock.now();
        let mut made = false;
        while self.pass_on(outbox)? {
            match self.take(now, outbox)? {
                Taken::Nothing => break,
                Taken::Something => made = true,
                Taken::Leave => {
                    // What comes behind it has to wait until it has been moved on.
                    return Ok(Progress::MADE);
                }
            }
        }
        if self.is_abandoned() {
            outbox.marker(Marker::Done);
            self.has_ended = true;
            return Ok(Progress::MADE);
        }
        let next_call = self.end().and_then(|end| end.next_call());
        outbox.wake_at(next_call.unwrap_or(now + LONGEST_REST));
        Ok(Progress { made, done: false })
    }

    /// Whether the stream has no end, and its peer will not come back to say it. Should it come all the same, the stream begins anew.
    fn is_abandoned(&mut self) -> bool {
        let is_told = self.has_ended || self.target.is_some();
        !is_told && self.end().is_some_and(|end| end.is_given_up())
    }

    /// Whether nothing can be expected to come any more.
    fn is_over(&mut self, now: Duration) -> bool {
        let since = *self.unneeded_since.get_or_insert(now);
        let has_ended = self.has_ended;
        self.end().is_some_and(|end| {
            let has_begun = end.has_begun();
            has_ended || end.is_cut() || (!has_begun && now >= since + NEVER_BEGUN)
        })
    }
}

impl Processor for ReceiverP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.waker = context.waker.clone();
        self.clock = context.clock.clone();
        self.end();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.unneeded_since = None;
        self.give_out(outbox)
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.give_out(outbox)?;
        if progress.made || self.target.is_some() || !self.is_over(self.clock.now()) {
            return Ok(progress);
        }
        Ok(Progress::DONE)
    }
}
