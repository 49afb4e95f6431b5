//! Delivers the mail that another container sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, InstanceContext, Outbox, Processor, Progress, Result, SideChannel, Waker,
};

use super::directory::Directory;
use super::letters::Letters;
use crate::berth::{Berth, Lent};
use crate::receive_end::ReceiveEnd;

/// How long it rests at most.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The tasklet.
pub(super) struct DelivererP {
    channels: Arc<[Arc<dyn SideChannel>]>,
    directory: Arc<Directory>,
    berth: Arc<Berth<ReceiveEnd>>,
    lent: Option<Lent<ReceiveEnd>>,
    waker: Waker,
    clock: Clock,
    bag: Chunk,
    /// Letters that could not be delivered.
    lost: Arc<AtomicU64>,
}

impl DelivererP {
    pub(super) fn new(
        channels: Arc<[Arc<dyn SideChannel>]>,
        directory: Arc<Directory>,
        berth: Arc<Berth<ReceiveEnd>>,
        lost: Arc<AtomicU64>,
    ) -> Self {
        DelivererP {
            channels,
            directory,
            berth,
            lent: None,
            waker: Waker::none(),
            clock: Clock::system(),
            bag: Chunk::new(Letters::default()),
            lost,
        }
    }

    /// Delivers what is in the bag. A letter that can't be read is as one that was lost on the way, which whoever waits for it has to
    /// expect anyway.
    fn deliver(&mut self) -> Result<()> {
        if self.bag.is_empty() {
            return Ok(());
        }
        let bag = self.bag.batch::<Letters>()?;
        while let Some((address, letter)) = bag.take() {
            let channel = self.channels.get(address.channel as usize);
            let vertex = channel.and_then(|channel| {
                let vertices = channel.vertices();
                vertices.get(address.vertex as usize).copied()
            });
            let delivered = match (channel, vertex) {
                (Some(_), Some(_)) if self.directory.relay(address, letter) => true,
                (Some(channel), Some(vertex)) => {
                    channel.deliver(vertex, address.instance, letter).is_ok()
                }
                _ => false,
            };
            if !delivered {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.bag.clear();
        Ok(())
    }
}

impl Processor for DelivererP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.waker = context.waker.clone();
        self.clock = context.clock.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let now = self.clock.now();
        let mut made = false;
        if self.lent.is_none() {
            self.lent = self.berth.lend(&self.waker);
        }
        let mut next_call = now + LONGEST_REST;
        while let Some(end) = self.lent.as_mut().and_then(Lent::end) {
            let received = end.receive(now, &mut self.bag);
            next_call = next_call.min(end.next_call().unwrap_or(next_call));
            match received {
                Ok(None) => break,
                Ok(Some(_)) => self.deliver()?,
                Err(_) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    self.bag.clear();
                }
            }
            made = true;
        }
        outbox.wake_at(next_call);
        Ok(Progress { made, done: false })
    }
}
