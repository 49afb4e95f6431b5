//! A processor whose supplier may have failed.

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, Result, SourceControl, Watermark,
};

/// The result of a supplier; an error is returned from `init`.
pub(crate) struct SuppliedP(Result<Box<dyn Processor>>);

impl SuppliedP {
    pub(crate) fn new(supplied: Result<Box<dyn Processor>>) -> Self {
        SuppliedP(supplied)
    }

    fn inner(&mut self) -> Result<&mut dyn Processor> {
        match &mut self.0 {
            Ok(processor) => Ok(processor.as_mut()),
            Err(refusal) => {
                let refusal = std::mem::replace(
                    refusal,
                    Error::new(
                        ErrorCode::Internal,
                        "a processor was used whose supplier had failed",
                    ),
                );
                Err(refusal)
            }
        }
    }
}

impl Processor for SuppliedP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.inner()?.init(context)
    }

    fn process(&mut self, ordinal: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.inner()?.process(ordinal, inbox, outbox)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.inner()?.on_watermark(watermark, outbox)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.inner()?.on_epoch(epoch, outbox)
    }

    fn on_edge_done(&mut self, ordinal: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.inner()?.on_edge_done(ordinal, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.inner()?.complete(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.inner()?.on_wake(outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.0.as_ref().ok().and_then(|inner| inner.unsaved_state())
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.inner()?.catch_up(outbox)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.0.as_mut().ok()?.checkpointed()
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        self.0.as_mut().ok()?.source_control()
    }

    fn close(&mut self) {
        if let Ok(processor) = &mut self.0 {
            processor.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::{
        Ordinal, Outbox, Processor, Progress, Result, SourceControl, Timestamp, supplier,
    };

    use crate::SourceTest;

    /// Emits 1, and 2 when it is drained.
    #[derive(Default)]
    struct LastWord(u64);

    impl LastWord {
        fn emit_up_to(&mut self, last: u64, outbox: &mut Outbox) -> Result<bool> {
            let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
            while self.0 < last && !lane.is_full() {
                self.0 += 1;
                lane.push(self.0, Timestamp::MIN);
            }
            Ok(self.0 == last)
        }
    }

    impl Processor for LastWord {
        fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
            self.emit_up_to(1, outbox).map(|_| Progress::NONE)
        }

        fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
            Some(self)
        }
    }

    impl SourceControl for LastWord {
        fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
            self.emit_up_to(2, outbox).map(Progress::done_if)
        }
    }

    #[test]
    fn what_a_supplied_source_emits_when_it_is_drained_is_seen() {
        SourceTest::supplied(supplier(LastWord::default))
            .drain_after(1)
            .output::<u64>([1, 2])
            .run();
    }
}
