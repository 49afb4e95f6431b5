//! The output of a component's instance: a batch for each stream, laid onto the edges of those who subscribed to it.

use std::mem;
use std::sync::Arc;

use ardea_core::settings::nearest;
use ardea_core::{Chunk, Error, ErrorCode, Ordinal, Outbox, Result};

use crate::anchor::{Anchor, Ids, Salt};
use crate::batch::{Refused, TupleBatch, batch_of};
use crate::encode::Values;

/// From how many bytes on a batch is sent although it has room for more tuples.
const FULL_BYTES: usize = 1 << 20;

/// A stream as its component's instances write to it.
#[derive(Clone, Debug)]
pub(crate) struct StreamPlan {
    pub(crate) name: Arc<str>,
    pub(crate) fields: Arc<[Arc<str>]>,
    pub(crate) is_direct: bool,
    /// The output of each subscription.
    pub(crate) outputs: Vec<Ordinal>,
    /// Of all copies that are made of a tuple.
    pub(crate) salts: Arc<[Salt]>,
    /// On a direct stream: the fewest instances that any subscriber has.
    pub(crate) targets: u32,
}

/// One stream under way.
#[derive(Debug)]
struct Stream {
    plan: StreamPlan,
    batch: TupleBatch,
    /// For each subscription a chunk to send with.
    spares: Vec<Chunk>,
    /// How many subscriptions have got the batch.
    sent: usize,
}

/// All streams of an instance.
#[derive(Debug)]
pub(crate) struct Emitter {
    component: Arc<str>,
    streams: Vec<Stream>,
    /// Whether the fate of tuples is followed.
    is_tracking: bool,
    ids: Ids,
    chunk_tuples: usize,
    is_full: bool,
    emitted: u64,
}

/// Which stream to write to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// The component's own.
    Default,
    /// The one of this name.
    Named(&'a str),
}

impl Emitter {
    pub(crate) fn new(
        component: Arc<str>,
        plans: &[StreamPlan],
        is_tracking: bool,
        chunk_tuples: usize,
    ) -> Self {
        let streams = plans.iter().map(|plan| Stream {
            spares: plan.outputs.iter().map(|_| Chunk::default()).collect(),
            plan: plan.clone(),
            batch: TupleBatch::default(),
            sent: 0,
        });
        Emitter {
            component,
            streams: streams.collect(),
            is_tracking,
            ids: Ids::random(),
            chunk_tuples,
            is_full: false,
            emitted: 0,
        }
    }

    /// Whether a batch is full, so that no more should be emitted before it has been sent.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// How many tuples have been emitted.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted
    }

    /// Writes a tuple of the trees that `roots` gives, and returns the exclusive-or of the ids of all its copies.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        to: To<'_>,
        target: Option<u32>,
        values: impl Values,
        roots: impl IntoIterator<Item = Anchor>,
    ) -> Result<u64> {
        let Some(stream) = (match to {
            To::Default => self
                .streams
                .first_mut()
                .filter(|s| &*s.plan.name == crate::DEFAULT_STREAM),
            To::Named(name) => self.streams.iter_mut().find(|s| *s.plan.name == *name),
        }) else {
            return Err(self.no_such_stream(to));
        };
        if stream.plan.is_direct != target.is_some() || target >= Some(stream.plan.targets) {
            return Err(wrong_target(&self.component, &stream.plan, target));
        }
        let batch = &mut stream.batch;
        let fields = stream.plan.fields.len();
        if let Err(refused) = batch.push(|to| values.encode(to), fields) {
            return Err(not_written(&self.component, &stream.plan, refused));
        }
        self.emitted += 1;
        if stream.plan.outputs.is_empty() {
            // Nobody subscribed: checked like any other, and gone.
            batch.clear();
            return Ok(0);
        }
        batch.targets.extend(target);
        if batch.len() >= self.chunk_tuples || batch.byte_len() >= FULL_BYTES {
            self.is_full = true;
        }
        if !self.is_tracking {
            return Ok(0);
        }
        let id = self.ids.draw();
        batch.anchor(roots.into_iter().map(|anchor| Anchor { id, ..anchor }));
        Ok(match &*stream.plan.salts {
            [only] => only.apply(id),
            salts => salts.iter().fold(0, |ids, salt| ids ^ salt.apply(id)),
        })
    }

    /// Whether all that waits, and a batch more for each stream, can be sent now.
    pub(crate) fn has_room(&self, outbox: &Outbox) -> bool {
        self.streams
            .iter()
            .flat_map(|stream| &stream.plan.outputs)
            .all(|output| outbox.has_room(*output) && !outbox.has_records(output.index()))
    }

    /// Sends what has been emitted, as far as there is room; says whether all has gone.
    pub(crate) fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let mut all = true;
        for stream in &mut self.streams {
            all &= stream.batch.is_empty() || stream.flush(outbox)?;
        }
        self.is_full &= !all;
        Ok(all)
    }

    #[cold]
    fn no_such_stream(&self, to: To<'_>) -> Error {
        let component = &self.component;
        let names: Vec<&str> = self.streams.iter().map(|s| &*s.plan.name).collect();
        let error = |what| Error::new(ErrorCode::InvalidJob, what);
        match to {
            _ if names.is_empty() => error(format!(
                "{component:?} emitted a tuple and declares no output"
            ))
            .hint("return the stream's fields from its `outputs`"),
            To::Default => error(format!(
                "{component:?} emitted to its default stream and declares only {}",
                names.join(", ")
            ))
            .hint("name the stream, or declare fields without a stream's name"),
            To::Named(name) => {
                let error = error(format!("{component:?} has no stream {name:?}"));
                match nearest(name, names.iter().copied()) {
                    Some(meant) => error.hint(format!("did you mean {meant:?}?")),
                    None => error.hint(format!("its streams are {}", names.join(", "))),
                }
            }
        }
    }
}

impl Stream {
    /// Lays the batch onto each subscription's edge: the last gets it as it is, the others a copy of its bytes.
    fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let last = self.spares.len().saturating_sub(1);
        while let Some(spare) = self.spares.get_mut(self.sent) {
            let output = self.plan.outputs[self.sent];
            let to_send = batch_of(spare)?;
            if self.sent == last {
                mem::swap(to_send, &mut self.batch);
            } else {
                to_send.clear();
                to_send.append_copy(&self.batch)?;
            }
            if !outbox.offer_chunk(output, spare)? {
                if self.sent == last {
                    mem::swap(batch_of(spare)?, &mut self.batch);
                } else {
                    spare.clear();
                }
                return Ok(false);
            }
            self.sent += 1;
        }
        self.sent = 0;
        Ok(true)
    }
}

#[cold]
fn wrong_target(component: &str, plan: &StreamPlan, target: Option<u32>) -> Error {
    let name = &plan.name;
    let error = |what| Error::new(ErrorCode::InvalidJob, what);
    match target {
        None => error(format!(
            "the stream {name:?} of {component:?} is direct, and a tuple was emitted without a target"
        ))
        .hint("use `emit_direct`"),
        Some(_) if !plan.is_direct => error(format!(
            "the stream {name:?} of {component:?} is not direct, and a tuple was emitted to one instance"
        ))
        .hint("declare it with `direct_stream`"),
        Some(target) => error(format!(
            "{component:?} emitted to instance {target} on {name:?}, whose subscribers have {}",
            plan.targets
        ))
        .hint("instances are counted from zero; ask the context for their number"),
    }
}

#[cold]
fn not_written(component: &str, plan: &StreamPlan, refused: Refused) -> Error {
    let StreamPlan { name, fields, .. } = plan;
    match refused {
        Refused::Fields(written) => {
            let declared: Vec<&str> = fields.iter().map(|field| &**field).collect();
            Error::new(
                ErrorCode::InvalidJob,
                format!(
                    "{component:?} emitted {written} fields on {name:?}, which declares {} ({})",
                    fields.len(),
                    declared.join(", ")
                ),
            )
            .hint("emit a value for each declared field, in their order")
        }
        Refused::Bytes(bytes) => Error::new(
            ErrorCode::LimitReached,
            format!("{component:?} emitted {bytes} bytes on {name:?} in one call, and a batch holds 4 GiB"),
        )
        .hint("emit less in one call"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_some_subscriber_has_no_room_for_is_sent_once_to_each_all_the_same() {
        let plan = StreamPlan {
            name: crate::DEFAULT_STREAM.into(),
            fields: Arc::from([Arc::from("number")]),
            is_direct: false,
            outputs: vec![Ordinal(0), Ordinal(1)],
            salts: Arc::from([Salt::of(0, None), Salt::of(1, None)]),
            targets: 1,
        };
        let mut emitter = Emitter::new("test".into(), &[plan], true, 4);
        let mut outbox = Outbox::new(2, 4);
        for number in 0..3 {
            emitter.emit(To::Default, None, [number], []).unwrap();
        }
        // The second lane holds what someone else wrote.
        outbox
            .lane::<u8>(Ordinal(1))
            .unwrap()
            .push(1, ardea_core::Timestamp::MIN);
        assert!(!emitter.has_room(&outbox));
        assert!(!emitter.flush(&mut outbox).unwrap());
        let mut first = outbox.take_chunk(0, Chunk::default).unwrap();
        outbox.take_chunk(1, Chunk::default);
        assert!(emitter.flush(&mut outbox).unwrap());
        assert!(!outbox.has_records(0), "the first had got it");
        let mut second = outbox.take_chunk(1, Chunk::default).unwrap();
        let (first, second) = (
            batch_of(&mut first).unwrap(),
            batch_of(&mut second).unwrap(),
        );
        assert_eq!(first.len(), 3);
        assert_eq!(first, second);
        emitter.emit(To::Default, None, [9], []).unwrap();
        assert!(emitter.flush(&mut outbox).unwrap());
        assert_eq!(outbox.chunk_mut(0).len(), 1);
    }
}
