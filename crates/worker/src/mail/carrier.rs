//! Collects what was posted for the instances of one other container, and sends it there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, InstanceContext, Outbox, Processor, Progress, Result, SideChannel, VertexId,
    Waker,
};
use ardea_network::exchange::InstanceNumber;

use super::letters::{Address, Letters};
use crate::berth::{Berth, Lent};
use crate::send_end::SendEnd;

/// How much is collected before it is sent, in bytes.
const GATHERED_BYTES: usize = 48 << 10;

/// How long it rests at most.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// A mailbox of an instance there, as it is seen here.
pub(super) struct FarMailbox {
    pub(super) channel: Arc<dyn SideChannel>,
    pub(super) vertex: VertexId,
    pub(super) address: Address,
    /// Whether something may have been posted since it was last emptied.
    has_mail: AtomicBool,
    /// Letters of others that came this way.
    relayed: Mutex<Vec<Vec<u8>>>,
    /// Whoever empties it.
    round: Weak<Round>,
}

/// The mailboxes of one other container.
#[derive(Default)]
pub(super) struct Round {
    boxes: Mutex<Arc<[Arc<FarMailbox>]>>,
    /// Who goes round.
    carrier: Mutex<Option<Waker>>,
}

impl Round {
    /// From now on these mailboxes are emptied.
    pub(super) fn set(&self, boxes: Vec<Arc<FarMailbox>>) {
        *self.boxes.lock().unwrap_or_else(PoisonError::into_inner) = boxes.into();
        self.wake();
    }

    fn boxes(&self) -> Arc<[Arc<FarMailbox>]> {
        let boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&boxes)
    }

    fn wake(&self) {
        let carrier = self.carrier.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(carrier) = &*carrier {
            carrier.wake();
        }
    }
}

impl FarMailbox {
    /// A mailbox that is looked into at first.
    pub(super) fn new(
        channel: Arc<dyn SideChannel>,
        vertex: VertexId,
        address: Address,
        round: &Arc<Round>,
    ) -> Self {
        FarMailbox {
            channel,
            vertex,
            address,
            has_mail: AtomicBool::new(true),
            relayed: Mutex::default(),
            round: Arc::downgrade(round),
        }
    }

    /// Takes a letter that somebody else has sent, to carry it on.
    pub(super) fn relay(&self, letter: &[u8]) {
        self.relayed().push(letter.to_vec());
        self.has_mail.store(true, Ordering::Release);
        if let Some(round) = self.round.upgrade() {
            round.wake();
        }
    }

    fn relayed(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.relayed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has whoever goes the round empty the mailbox from now on.
    pub(super) fn be_carried(self: &Arc<Self>) {
        let mailbox = Arc::downgrade(self);
        let waker = Waker::new(move || {
            if let Some(mailbox) = mailbox.upgrade() {
                mailbox.has_mail.store(true, Ordering::Release);
                if let Some(round) = mailbox.round.upgrade() {
                    round.wake();
                }
            }
        });
        let instance = self.address.instance;
        self.channel.carry(self.vertex, instance, waker);
        self.has_mail.store(true, Ordering::Release);
    }
}

/// The tasklet.
pub(super) struct CarrierP {
    round: Arc<Round>,
    berth: Arc<Berth<SendEnd>>,
    lent: Option<Lent<SendEnd>>,
    waker: Waker,
    clock: Clock,
    /// What was collected and not sent yet.
    bag: Chunk,
}

impl CarrierP {
    pub(super) fn new(round: Arc<Round>, berth: Arc<Berth<SendEnd>>) -> Self {
        CarrierP {
            round,
            berth,
            lent: None,
            waker: Waker::none(),
            clock: Clock::system(),
            bag: Chunk::new(Letters::default()),
        }
    }

    /// Fills the bag; whether some may be left in the mailboxes.
    fn collect(&mut self) -> Result<bool> {
        let bag = self.bag.batch::<Letters>()?;
        for mailbox in self.round.boxes().iter() {
            if !mailbox.has_mail.load(Ordering::Relaxed)
                || !mailbox.has_mail.swap(false, Ordering::AcqRel)
            {
                continue;
            }
            let Address { instance, .. } = mailbox.address;
            let (channel, vertex) = (&mailbox.channel, mailbox.vertex);
            for letter in mailbox.relayed().drain(..) {
                bag.space().extend(letter);
                bag.seal(mailbox.address);
            }
            while channel.collect(vertex, instance, bag.space()) {
                bag.seal(mailbox.address);
                if bag.total_bytes() >= GATHERED_BYTES {
                    mailbox.has_mail.store(true, Ordering::Release);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn send(&mut self) -> Result<bool> {
        if self.lent.is_none() {
            self.lent = self.berth.lend(&self.waker);
        }
        match self.lent.as_mut().and_then(Lent::end) {
            Some(end) => end.send(InstanceNumber(0), &mut self.bag),
            None => Ok(false),
        }
    }
}

impl Processor for CarrierP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.waker = context.waker.clone();
        self.clock = context.clock.clone();
        let carrier = self.round.carrier.lock();
        *carrier.unwrap_or_else(PoisonError::into_inner) = Some(self.waker.clone());
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut made = false;
        loop {
            if !self.bag.is_empty() {
                if !self.send()? {
                    break;
                }
                made = true;
            }
            let is_full = self.collect()?;
            if self.bag.is_empty() && !is_full {
                break;
            }
        }
        // A source of its own job is told of no slice's end: what was collected goes on its way now.
        if let Some(end) = self.lent.as_mut().and_then(Lent::end) {
            end.flush()?;
        }
        outbox.wake_at(self.clock.now() + LONGEST_REST);
        Ok(Progress { made, done: false })
    }
}
