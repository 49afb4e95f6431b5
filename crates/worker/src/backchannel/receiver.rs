//! The receiver of side-channel messages from another container.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{Backchannel, Chunk, Clock, InstanceContext, Outbox, Processor, Progress, Result};
use ardea_network::exchange::StreamReceiver;

use super::messages::BackchannelBatch;
use crate::endpoint_slot::{EndpointSlot, EndpointUser};

/// Maximum time between two calls of the tasklet.
const MAX_CALL_INTERVAL: Duration = Duration::from_secs(1);

/// The tasklet that receives the side-channel messages of one other container.
pub(super) struct BackchannelReceiverP {
    channels: Arc<[Arc<dyn Backchannel>]>,
    endpoint: EndpointUser<StreamReceiver>,
    clock: Clock,
    bag: Chunk,
    /// Counter of undeliverable messages.
    lost: Arc<AtomicU64>,
}

impl BackchannelReceiverP {
    pub(super) fn new(
        channels: Arc<[Arc<dyn Backchannel>]>,
        slot: Arc<EndpointSlot<StreamReceiver>>,
        lost: Arc<AtomicU64>,
    ) -> Self {
        BackchannelReceiverP {
            channels,
            endpoint: EndpointUser::new(slot),
            clock: Clock::system(),
            bag: Chunk::new(BackchannelBatch::default()),
            lost,
        }
    }

    /// Delivers the received messages. An undecodable message counts as lost; side channels must
    /// tolerate lost messages.
    fn deliver(&mut self) -> Result<()> {
        if self.bag.is_empty() {
            return Ok(());
        }
        let bag = self.bag.batch::<BackchannelBatch>()?;
        while let Some((address, letter)) = bag.take() {
            let channel = self.channels.get(address.channel as usize);
            let vertex = channel.and_then(|channel| {
                let vertices = channel.vertices();
                vertices.get(address.vertex as usize).copied()
            });
            let delivered = match (channel, vertex) {
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

impl Processor for BackchannelReceiverP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.endpoint.open(context.waker.clone());
        self.clock = context.clock.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let now = self.clock.now();
        let mut made = false;
        let mut next_call = now + MAX_CALL_INTERVAL;
        while let Some(end) = self.endpoint.get() {
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
