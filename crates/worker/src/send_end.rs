//! The sending end of a stream to a peer, over all connections to it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{Chunk, ChunkCodec, Epoch, Error, ErrorCode, Marker, Result, Watermark};
use ardea_network::exchange::{EdgeSender, InstanceNumber};

use crate::berth::Resting;
use crate::crossings::StreamConfig;
use crate::network::Network;
use crate::station::{LinkNumber, Station};

/// Sends what one edge has for one peer. While the peer is not there, nothing is sent, and so producers wait; a new connection begins with
/// what a receiver has to know of the past: how far time has come, which epoch has ended last, and whether the stream has ended.
pub(crate) struct SendEnd {
    station: Arc<Station>,
    codec: Arc<dyn ChunkCodec>,
    config: StreamConfig,
    network: Network,
    live: Option<Live>,
    /// Whether records were lost.
    has_lost: bool,
    watermark: Option<Watermark>,
    is_idle: bool,
    /// The epoch whose end was sent last. It may be lost with a connection; heard twice it is heard once.
    ended: Option<Epoch>,
    is_done: bool,
    /// The instances there that nobody here sends to any more.
    left: BTreeSet<InstanceNumber>,
    counts: Counts,
}

/// What a sending end counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Records that were lost with connections.
    pub(crate) lost: Arc<AtomicU64>,
    /// Bytes of frames with records.
    pub(crate) bytes: Arc<AtomicU64>,
}

/// What a receiver is told between records.
#[derive(Clone, Copy, Debug)]
enum Word {
    Marker(Marker),
    Leave(InstanceNumber),
}

/// What belongs to the present connection.
struct Live {
    sender: EdgeSender,
    link: LinkNumber,
    /// What the receiver has to be told before anything else.
    first: VecDeque<Word>,
    /// Records under way: up to which frame, how many.
    under_way: VecDeque<(u64, u64)>,
    /// The network had no room for what has gathered.
    is_holding: bool,
}

impl Live {
    fn say(&mut self, word: Word) -> Result<bool> {
        match word {
            Word::Marker(marker) => self.sender.mark(marker),
            Word::Leave(target) => self.sender.leave(target),
        }
    }

    /// Forgets what has arrived.
    fn settle(&mut self) {
        let acknowledged = self.sender.acknowledged();
        while let Some((frame, _)) = self.under_way.front() {
            if *frame > acknowledged {
                break;
            }
            self.under_way.pop_front();
        }
    }

    fn note(&mut self, records: usize) {
        if records > 0 {
            let last = *self.sender.in_flight().end();
            self.under_way.push_back((last, records as u64));
        }
    }
}

impl SendEnd {
    /// The end at this station.
    pub(crate) fn new(
        station: Arc<Station>,
        codec: Arc<dyn ChunkCodec>,
        config: StreamConfig,
        network: Network,
        counts: Counts,
    ) -> Self {
        SendEnd {
            station,
            codec,
            config,
            network,
            live: None,
            has_lost: false,
            watermark: None,
            is_idle: false,
            ended: None,
            is_done: false,
            left: BTreeSet::new(),
            counts,
        }
    }

    /// Whether the peer is gone for good.
    fn is_unreachable(&self) -> bool {
        self.station.is_given_up() && !self.station.has_port() && self.live.is_none()
    }

    /// Another processor begins to send, behind whatever was sent before.
    pub(crate) fn begin(&mut self) {
        self.is_done = false;
        self.is_idle = false;
        self.ended = None;
        self.watermark = None;
        self.left.clear();
    }

    /// Sends records from the front of `chunk` to one instance; true if none is left.
    ///
    /// # Errors
    /// If the codec can't encode a record, or one is too large for any frame.
    pub(crate) fn send(&mut self, target: InstanceNumber, chunk: &mut Chunk) -> Result<bool> {
        if self.is_unreachable() {
            self.count_lost(chunk.len() as u64);
            self.check_lost()?;
            chunk.clear();
            return Ok(true);
        }
        self.is_idle = false;
        if !self.left.is_empty() {
            self.left.remove(&target);
        }
        let before = chunk.len();
        let Some(live) = self.ready()? else {
            return Ok(false);
        };
        let bytes_before = live.sender.bytes_sent();
        let sent = live.sender.send(target, chunk);
        let bytes = live.sender.bytes_sent() - bytes_before;
        live.settle();
        live.note(before - chunk.len());
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.unless_gone(sent)
    }

    /// Sends a marker to all instances there; false: not now.
    ///
    /// # Errors
    /// None but those of the engine itself.
    pub(crate) fn mark(&mut self, marker: Marker) -> Result<bool> {
        self.say(Word::Marker(marker))
    }

    /// Says that nobody here sends to this instance at the moment; false: not now.
    ///
    /// # Errors
    /// None but those of the engine itself.
    pub(crate) fn leave(&mut self, target: InstanceNumber) -> Result<bool> {
        self.say(Word::Leave(target))
    }

    fn say(&mut self, word: Word) -> Result<bool> {
        if !self.is_unreachable() {
            let Some(live) = self.ready()? else {
                return Ok(false);
            };
            let said = live.say(word);
            if !self.unless_gone(said)? {
                return Ok(false);
            }
        }
        self.remember(word);
        Ok(true)
    }

    /// Nothing follows. It need not have been sent yet: whoever tends this end sees to it, and tells each new life of the peer.
    pub(crate) fn finish(&mut self) -> Result<()> {
        // If it can't be sent now, the first thing that can be will be this.
        let marked = self.mark(Marker::Done)?;
        self.is_done = true;
        if !marked && let Some(live) = &mut self.live {
            live.first.push_back(Word::Marker(Marker::Done));
        }
        self.flush()
    }

    /// Says what could not be said before, if it can be now, and gives what has gathered to the network.
    ///
    /// # Errors
    /// None but those of the engine itself.
    pub(crate) fn flush(&mut self) -> Result<()> {
        // Who has nothing to say tells a new connection of the past all the same: an epoch's end may be lost that everybody waits for.
        self.ready()?;
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let flushed = live.sender.flush();
        let is_flushed = self.unless_gone(flushed)?;
        if let Some(live) = &mut self.live {
            live.is_holding = !is_flushed;
        }
        Ok(())
    }

    /// Whether nothing is held here. While the peer is away there is nothing to hold but what each of its lives is told first.
    pub(crate) fn is_flushed(&self) -> bool {
        self.live
            .as_ref()
            .is_none_or(|live| live.first.is_empty() && !live.is_holding)
    }

    fn remember(&mut self, word: Word) {
        match word {
            Word::Marker(Marker::Watermark(watermark)) => {
                self.watermark = Some(watermark);
                self.is_idle = false;
            }
            Word::Marker(Marker::Idle) => self.is_idle = true,
            Word::Marker(Marker::Done) => self.is_done = true,
            Word::Marker(Marker::EpochEnd(epoch)) => self.ended = Some(epoch),
            Word::Marker(Marker::Latency(_)) => {}
            Word::Leave(target) => {
                self.left.insert(target);
            }
        }
    }

    /// What a new connection begins with.
    fn first_words(&self) -> VecDeque<Word> {
        // That it begins, unless nothing has been said yet, not even that.
        let begins = self.watermark.map(|_| Watermark::NONE);
        let time = self.watermark.filter(|time| *time > Watermark::NONE);
        let [begins, time] = [begins, time].map(|mark| mark.map(Marker::Watermark));
        let idle = self.is_idle.then_some(Marker::Idle);
        // Who waits for it would wait until the epoch is given up. Before time: what that made final may have been behind the epoch's
        // end, and must not be in its cut, as it comes again if the job goes back there; what was before it is told again then.
        let ended = self.ended.map(Marker::EpochEnd);
        let done = self.is_done.then_some(Marker::Done);
        let markers = [begins, ended, time, idle];
        let markers = markers.into_iter().flatten().map(Word::Marker);
        let left = self.left.iter().copied().map(Word::Leave);
        markers.chain(left).chain(done.map(Word::Marker)).collect()
    }

    /// The sender of the present connection, once the peer knows what it has to know first.
    fn ready(&mut self) -> Result<Option<&mut Live>> {
        if let Some((port, link)) = self.station.take() {
            self.lose();
            self.check_lost()?;
            let (stream, codec) = (self.station.stream, Arc::clone(&self.codec));
            self.live = Some(Live {
                sender: EdgeSender::new(
                    stream,
                    InstanceNumber::ALL,
                    port,
                    codec,
                    self.config.sender,
                ),
                link,
                first: self.first_words(),
                under_way: VecDeque::new(),
                is_holding: false,
            });
        }
        while let Some(live) = &mut self.live
            && let Some(word) = live.first.front().copied()
        {
            let said = live.say(word);
            if !self.unless_gone(said)? {
                return Ok(None);
            }
            if let Some(live) = &mut self.live {
                live.first.pop_front();
            }
        }
        Ok(self.live.as_mut())
    }

    /// What became of an attempt; if the peer is gone, what was under way is counted as lost, and there is nothing to do for now.
    fn unless_gone(&mut self, outcome: Result<bool>) -> Result<bool> {
        match outcome {
            Err(error) if error.code() == ErrorCode::Network => {
                self.complain(&error);
                self.lose();
                Ok(false)
            }
            outcome => outcome,
        }
    }

    /// If the connection is still there, and it is this stream that makes no sense, it is closed and made anew.
    fn complain(&self, error: &Error) {
        if let Some(live) = &self.live {
            self.network.complain(self.station.site, live.link, error);
        }
    }

    fn lose(&mut self) {
        if let Some(mut live) = self.live.take() {
            live.settle();
            let lost: u64 = live.under_way.iter().map(|(_, records)| records).sum();
            self.count_lost(lost);
        }
    }

    fn count_lost(&mut self, records: u64) {
        self.counts.lost.fetch_add(records, Ordering::Relaxed);
        self.has_lost |= records > 0;
    }

    /// In a life of a job with a guarantee a stream never goes on behind what was lost: an epoch that ends behind it would be committed without
    /// that. Markers that are lost need no such care. They are told again, or keep the epoch from being committed.
    fn check_lost(&self) -> Result<()> {
        if !self.has_lost || self.config.life.is_none() {
            return Ok(());
        }
        let what = format!(
            "records for container {} are lost with a connection",
            self.station.site.0
        );
        Err(Error::new(ErrorCode::PeerLost, what)
            .hint("nothing: the job goes back to what is committed"))
    }
}

impl Resting for SendEnd {
    fn station(&self) -> &Arc<Station> {
        &self.station
    }

    fn tend(&mut self, _: Duration) {
        // Only what has ended has something to say. Marking and flushing fail for no other reason than that the peer is gone.
        if self.is_done {
            let _ = self.flush();
        }
    }
}
