//! The sender of side-channel messages to one other container.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ardea_core::{
    Backchannel, Chunk, Clock, InstanceContext, Outbox, Processor, Progress, Result, VertexId,
    Waker,
};
use ardea_network::exchange::{InstanceNumber, StreamSender};

use super::messages::{Address, BackchannelBatch};
use crate::endpoint_slot::{EndpointSlot, EndpointUser};

/// Size in bytes at which a batch is sent.
const BATCH_BYTES: usize = 48 << 10;

/// Maximum time between two calls of the tasklet.
const MAX_CALL_INTERVAL: Duration = Duration::from_secs(1);

/// The local proxy of a remote instance's mailbox.
pub(super) struct RemoteQueue {
    pub(super) channel: Arc<dyn Backchannel>,
    pub(super) vertex: VertexId,
    pub(super) address: Address,
    /// True if messages may have been posted since the mailbox was last emptied.
    is_nonempty: AtomicBool,
    /// The set of mailboxes that this mailbox belongs to.
    round: Weak<MailboxSet>,
}

/// The mailboxes of one other container.
#[derive(Default)]
pub(super) struct MailboxSet {
    boxes: Mutex<Arc<[Arc<RemoteQueue>]>>,
    /// The waker of the sending tasklet.
    carrier: Mutex<Option<Waker>>,
}

impl MailboxSet {
    /// Replaces the set of mailboxes.
    pub(super) fn set(&self, boxes: Vec<Arc<RemoteQueue>>) {
        *self.boxes.lock().unwrap_or_else(PoisonError::into_inner) = boxes.into();
        self.wake();
    }

    fn boxes(&self) -> Arc<[Arc<RemoteQueue>]> {
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

impl RemoteQueue {
    /// Creates a mailbox that is marked as non-empty.
    pub(super) fn new(
        channel: Arc<dyn Backchannel>,
        vertex: VertexId,
        address: Address,
        round: &Arc<MailboxSet>,
    ) -> Self {
        RemoteQueue {
            channel,
            vertex,
            address,
            is_nonempty: AtomicBool::new(true),
            round: Arc::downgrade(round),
        }
    }

    /// Registers the mailbox with its channel, so that posted messages wake the sender.
    pub(super) fn register(self: &Arc<Self>) {
        let mailbox = Arc::downgrade(self);
        let waker = Waker::new(move || {
            if let Some(mailbox) = mailbox.upgrade() {
                mailbox.is_nonempty.store(true, Ordering::Release);
                if let Some(round) = mailbox.round.upgrade() {
                    round.wake();
                }
            }
        });
        let instance = self.address.instance;
        self.channel.start_forwarding(self.vertex, instance, waker);
        self.is_nonempty.store(true, Ordering::Release);
    }
}

/// The tasklet that sends side-channel messages to one other container.
pub(super) struct BackchannelSenderP {
    round: Arc<MailboxSet>,
    endpoint: EndpointUser<StreamSender>,
    clock: Clock,
    /// The collected messages that have not been sent.
    bag: Chunk,
}

impl BackchannelSenderP {
    pub(super) fn new(round: Arc<MailboxSet>, slot: Arc<EndpointSlot<StreamSender>>) -> Self {
        BackchannelSenderP {
            round,
            endpoint: EndpointUser::new(slot),
            clock: Clock::system(),
            bag: Chunk::new(BackchannelBatch::default()),
        }
    }

    /// Collects messages into the batch. Returns true if the mailboxes may contain more.
    fn collect(&mut self) -> Result<bool> {
        let bag = self.bag.batch::<BackchannelBatch>()?;
        for mailbox in self.round.boxes().iter() {
            if !mailbox.is_nonempty.load(Ordering::Relaxed)
                || !mailbox.is_nonempty.swap(false, Ordering::AcqRel)
            {
                continue;
            }
            let Address { instance, .. } = mailbox.address;
            let (channel, vertex) = (&mailbox.channel, mailbox.vertex);
            while channel.collect(vertex, instance, bag.space()) {
                bag.seal(mailbox.address);
                if bag.total_bytes() >= BATCH_BYTES {
                    mailbox.is_nonempty.store(true, Ordering::Release);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn send(&mut self) -> Result<bool> {
        match self.endpoint.get() {
            Some(end) => end.send(InstanceNumber(0), &mut self.bag),
            None => Ok(false),
        }
    }
}

impl Processor for BackchannelSenderP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.endpoint.open(context.waker.clone());
        self.clock = context.clock.clone();
        let carrier = self.round.carrier.lock();
        *carrier.unwrap_or_else(PoisonError::into_inner) = Some(context.waker.clone());
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
        // A source receives no end-of-slice call, so flush here.
        if let Some(end) = self.endpoint.get() {
            end.flush()?;
        }
        outbox.wake_at(self.clock.now() + MAX_CALL_INTERVAL);
        Ok(Progress { made, done: false })
    }
}
