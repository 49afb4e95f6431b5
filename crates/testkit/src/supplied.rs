//! A processor that a supplier may have refused to make.

use ardea_core::{
    Epoch, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Result,
    Watermark,
};

/// What a supplier supplied; a refusal comes out as the error of `init`.
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
                        "a processor that was not made was used",
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

    fn close(&mut self) {
        if let Ok(processor) = &mut self.0 {
            processor.close();
        }
    }
}
