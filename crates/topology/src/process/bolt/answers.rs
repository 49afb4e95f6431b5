//! The answers of a bolt's process: tuples, acks and failures.

use ardea_core::{Error, ErrorCode, Result};
use ardea_instance::protocol::{
    EmitReader, FrameType, InstanceFrame, NOT_ANCHORED, PendingRow, ResultReader, Violation,
    read_tuple_acks,
};
use ardea_instance::{BatchLayout, EncodedBatch, HostEvent, ReadyItem};

use super::{ProcessBolt, ProcessBoltProcessor, unopened};
use crate::collector::{Collector, PendingTuple};
use crate::failure::{Failure, Outcome};
use crate::process::check_stream;
use crate::process::rows::SentTuple;
use crate::process::tuple_format::ReceivedTuple;
use crate::tuple::Origin;

/// The maximum number of tuples that an instance holds.
const MAX_HELD: usize = 1 << 20;

/// The outcome of a row.
#[derive(Clone, Debug)]
enum RowOutcome {
    Acked,
    Held,
    Failed(String),
}

impl ProcessBoltProcessor {
    pub(super) fn on_event(&mut self, event: HostEvent) -> Result<()> {
        match event {
            HostEvent::Answered => self.take_answered(),
            HostEvent::Received(frame) => match frame.head.kind {
                FrameType::Emit => self.on_emit(&frame),
                FrameType::Acks => self.on_acks(&frame),
                _ => Ok(()),
            },
            HostEvent::Restarted => self.fail_held(),
            HostEvent::Ended => Ok(()),
        }
    }

    /// Takes answered items, and tuples that are not sent any more.
    pub(super) fn take_answered(&mut self) -> Result<()> {
        loop {
            let item = self.bolt.slot.host_mut()?.session_mut().take_answered();
            let Some(item) = item else { return Ok(()) };
            self.on_item(item)?;
        }
    }

    fn on_item(&mut self, item: ReadyItem) -> Result<()> {
        match item {
            ReadyItem::Results {
                sequence,
                batch,
                payloads,
            } => {
                self.on_results(sequence, &batch, &payloads)?;
                self.bolt.slot.host_mut()?.recycle(batch);
                Ok(())
            }
            ReadyItem::Poisoned(batch) => {
                let deaths = self.shared.suspects.deaths(&batch);
                let reason = format!("its process died {deaths} times while it had this tuple");
                self.settle(0, &batch, &[RowOutcome::Failed(reason)])
            }
            ReadyItem::State(epoch, payloads) => {
                self.bolt.slot.host_mut()?.take_state(epoch, payloads)
            }
            ReadyItem::Watermark(..) | ReadyItem::Marker(_) => Ok(()),
        }
    }

    /// Emits the tuples of an answered batch, and settles its rows.
    fn on_results(
        &mut self,
        sequence: u64,
        batch: &EncodedBatch,
        payloads: &[Vec<u8>],
    ) -> Result<()> {
        let bolt = &mut *self.bolt;
        let host = bolt.slot.host()?;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let (streams, format) = (&self.wiring.streams, self.format);
        let mut outcomes = vec![RowOutcome::Acked; batch.records as usize];
        let sent = &bolt.sent;
        running.collect(|out| {
            for payload in payloads {
                let result = ResultReader::bolt(payload, batch.records);
                let result = result.map_err(|violation| host.broken(violation))?;
                for output in result.outputs {
                    let is_anchored = output.row != NOT_ANCHORED;
                    let position = batch.position + u64::from(output.row);
                    let anchor = sent.get(position).filter(|_| is_anchored);
                    match format.read_tuple(output.value, streams) {
                        Ok(tuple) => {
                            let checked = check_stream(streams, tuple.stream);
                            checked.map_err(|violation| host.broken(violation))?;
                            emit(out, anchor, &tuple)?;
                        }
                        Err(reason) if is_anchored => {
                            outcomes[output.row as usize] = RowOutcome::Failed(reason);
                        }
                        Err(reason) => return Err(host.broken(Violation::new(reason))),
                    }
                }
                for row in result.held {
                    if let Some(outcome @ RowOutcome::Acked) = outcomes.get_mut(row as usize) {
                        *outcome = RowOutcome::Held;
                    }
                }
                for failure in result.failures {
                    if let Some(outcome) = outcomes.get_mut(failure.row as usize) {
                        *outcome = RowOutcome::Failed(failure.reason);
                    }
                }
            }
            Ok(())
        })?;
        self.settle(sequence, batch, &outcomes)
    }

    /// Acks, holds and fails the rows of a batch.
    fn settle(
        &mut self,
        sequence: u64,
        batch: &EncodedBatch,
        outcomes: &[RowOutcome],
    ) -> Result<()> {
        let ProcessBolt {
            slot, sent, held, ..
        } = &mut *self.bolt;
        let host = slot.host()?;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let (origins, format) = (&self.origins, self.format);
        let rows = sent.take(batch.position, batch.records);
        running.collect(|out| {
            for ((row, outcome), SentTuple { input, tuple }) in (0..).zip(outcomes).zip(rows) {
                match outcome {
                    RowOutcome::Acked => out.ack(tuple),
                    RowOutcome::Held => {
                        let batch = sequence;
                        held.insert(PendingRow { batch, row }, tuple);
                    }
                    RowOutcome::Failed(reason) => {
                        let failure = Failure::new(reason);
                        let failed = out.fail_as(&tuple, &failure, || {
                            let origin = origins.get(input);
                            let origin = origin.map_or_else(String::new, Origin::to_string);
                            (origin, format.raw(batch, row))
                        });
                        not_set_aside(failed)?;
                    }
                }
            }
            Ok(())
        })?;
        let has_state = host.session().guest().is_some_and(|guest| guest.state);
        if !held.is_empty() && !has_state && running.context.guarantee.keeps_state() {
            let what = format!(
                "the process `{}` holds tuples and has no state, so a restart of the job would lose them",
                self.shared.command
            );
            return Err(Error::new(ErrorCode::InvalidJob, what).hint(
                "ack the tuples at once, keep what is held in the state, or run the job without a guarantee",
            ));
        }
        if held.len() > MAX_HELD {
            let what = format!(
                "the process `{}` holds too many tuples",
                self.shared.command
            );
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint(format!("ack or fail them: at most {MAX_HELD} are possible")));
        }
        Ok(())
    }

    /// Emits tuples that the process emits outside of a batch.
    fn on_emit(&mut self, frame: &InstanceFrame) -> Result<()> {
        let ProcessBolt { slot, held, .. } = &mut *self.bolt;
        let host = slot.host()?;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let (streams, format) = (&self.wiring.streams, self.format);
        running.collect(|out| {
            let read = || -> Result<Vec<_>, Violation> {
                let mut reader = EmitReader::read(&frame.payload)?;
                let mut tuples = Vec::new();
                while let Some(tuple) = reader.next_tuple()? {
                    let anchors = tuple.anchors.iter();
                    let anchors = anchors.map(|row| held.get(row).ok_or_else(|| not_held(*row)));
                    let anchors = anchors.collect::<Result<Vec<_>, _>>()?;
                    let read = format.read_tuple(tuple.value, streams);
                    let tuple = read.map_err(Violation::new)?;
                    check_stream(streams, tuple.stream)?;
                    tuples.push((anchors, tuple));
                }
                reader.wait_millis()?;
                Ok(tuples)
            };
            let tuples = read().map_err(|violation| host.broken(violation))?;
            for (anchors, tuple) in tuples {
                emit(out, anchors, &tuple)?;
            }
            Ok(())
        })
    }

    /// Acks and fails held tuples.
    fn on_acks(&mut self, frame: &InstanceFrame) -> Result<()> {
        let ProcessBolt { slot, held, .. } = &mut *self.bolt;
        let host = slot.host()?;
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let acks = read_tuple_acks(&frame.payload);
        let acks = acks.map_err(|violation| host.broken(violation))?;
        running.collect(|out| {
            for ack in acks {
                let Some(tuple) = held.remove(&ack.held) else {
                    return Err(host.broken(not_held(ack.held)));
                };
                match ack.failure {
                    None => out.ack(tuple),
                    Some(reason) => not_set_aside(out.fail(tuple, &Failure::new(reason)))?,
                }
            }
            Ok(())
        })
    }

    /// Fails the tuples that a dead process held.
    fn fail_held(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.bolt.held);
        let running = self.running.as_mut().ok_or_else(unopened)?;
        let failure = Failure::new("the process that held it died");
        running.collect(|out| {
            let mut held = held.into_values();
            held.try_for_each(|tuple| not_set_aside(out.fail(tuple, &failure)))
        })
    }
}

/// Emits a tuple, anchored to `anchors`.
fn emit<'h>(
    out: &mut Collector<'_>,
    anchors: impl IntoIterator<Item = &'h PendingTuple>,
    tuple: &ReceivedTuple<'_>,
) -> Result<()> {
    let emitted = out.tied_to(anchors, |out| {
        Ok(out.emit_at(tuple.stream, tuple.target, tuple)?)
    });
    emitted.map_err(|failure| failure.into_error("a tuple of a process could not be emitted"))
}

fn not_set_aside(failed: Outcome) -> Result<()> {
    failed.map_err(|failure| failure.into_error("a failed tuple could not be set aside"))
}

fn not_held(PendingRow { batch, row }: PendingRow) -> Violation {
    Violation::new(format!(
        "row {row} of batch {batch} is named, and the process does not hold it"
    ))
}
