//! The output of a component's instance: one batch per stream, sent to all its subscriptions.

use std::mem;
use std::sync::Arc;

use ardea_config::nearest;
use ardea_core::{Chunk, Error, ErrorCode, Ordinal, Outbox, OutboxRuntime, Result};

use crate::anchor::{Anchor, Ids, Salt};
use crate::batch::{Refused, TupleBatch, batch_of};
use crate::encode::Values;
use crate::parallelism::ComponentParallelism;

/// The size in bytes from which a batch is sent although it has room for more tuples.
const FULL_BYTES: usize = 1 << 20;

/// The description of a stream for the instances that write it.
#[derive(Clone, Debug)]
pub(crate) struct StreamPlan {
    pub(crate) name: Arc<str>,
    pub(crate) fields: Arc<[Arc<str>]>,
    pub(crate) is_direct: bool,
    /// The subscriptions.
    pub(crate) readers: Arc<[Reader]>,
}

/// A subscriber of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    /// The output ordinal that is connected to the subscriber.
    pub(crate) output: Ordinal,
    /// The position of the bolt in the component list.
    pub(crate) component: usize,
    /// True if each instance of the subscriber gets a copy.
    pub(crate) is_all: bool,
}

impl StreamPlan {
    /// Computes the copies and targets for the present parallelism of the subscribers.
    fn extent(&self, roster: &ComponentParallelism) -> Extent {
        let mut salts = Vec::new();
        for (number, reader) in self.readers.iter().enumerate() {
            if reader.is_all {
                let instances = 0..roster.instances(reader.component);
                salts.extend(instances.map(|instance| Salt::of(number, Some(instance))));
            } else if self.readers.len() == 1 {
                salts.push(Salt::NONE);
            } else {
                salts.push(Salt::of(number, None));
            }
        }
        let readers = self.readers.iter();
        let instances = readers.map(|reader| roster.instances(reader.component));
        Extent {
            salts,
            targets: instances.min().unwrap_or(u32::MAX),
        }
    }
}

/// The properties of a stream that depend on the parallelism of its subscribers.
#[derive(Debug)]
struct Extent {
    /// The salts of all copies of a tuple.
    salts: Vec<Salt>,
    /// The smallest parallelism of any subscriber; targets of a direct stream are below it.
    targets: u32,
}

/// One stream with its buffers.
#[derive(Debug)]
struct Stream {
    plan: StreamPlan,
    /// True for the default stream, which is used without a name.
    is_default: bool,
    extent: Extent,
    batch: TupleBatch,
    /// One chunk per subscription, used for sending.
    spares: Vec<Chunk>,
    /// The number of subscriptions that the batch was sent to.
    sent: usize,
}

/// All streams of an instance.
#[derive(Debug)]
pub(crate) struct Emitter {
    component: Arc<str>,
    streams: Vec<Stream>,
    parallelism: Arc<ComponentParallelism>,
    /// The version of the parallelism for which the extents were computed.
    parallelism_version: u64,
    /// True if tuples are tracked.
    is_tracking: bool,
    ids: Ids,
    chunk_tuples: usize,
    is_full: bool,
    emitted: u64,
}

/// The target stream of a tuple.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// The component's default stream.
    Default,
    /// The stream of this name.
    Named(&'a str),
    /// The stream at this index in the component's outputs.
    Index(usize),
}

impl Emitter {
    pub(crate) fn new(
        component: Arc<str>,
        plans: &[StreamPlan],
        roster: &Arc<ComponentParallelism>,
        is_tracking: bool,
        chunk_tuples: usize,
    ) -> Self {
        let roster_version = roster.version();
        let streams = plans.iter().map(|plan| Stream {
            spares: plan.readers.iter().map(|_| Chunk::default()).collect(),
            extent: plan.extent(roster),
            is_default: *plan.name == *crate::DEFAULT_STREAM,
            plan: plan.clone(),
            batch: TupleBatch::default(),
            sent: 0,
        });
        Emitter {
            component,
            streams: streams.collect(),
            parallelism: Arc::clone(roster),
            parallelism_version: roster_version,
            is_tracking,
            ids: Ids::random(),
            chunk_tuples,
            is_full: false,
            emitted: 0,
        }
    }

    /// Applies changes of the parallelism. Must be called before each chunk of work.
    #[inline]
    pub(crate) fn apply_parallelism(&mut self) {
        if self.parallelism.version() != self.parallelism_version {
            self.update_extents();
        }
    }

    #[cold]
    fn update_extents(&mut self) {
        self.parallelism_version = self.parallelism.version();
        for stream in &mut self.streams {
            stream.extent = stream.plan.extent(&self.parallelism);
        }
    }

    /// Returns true if a batch is full, and should be sent before more is emitted.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the number of emitted tuples.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted
    }

    /// Writes a tuple that belongs to the trees `roots`, and returns the exclusive-or of the ids of
    /// all its copies.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        to: To<'_>,
        target: Option<u32>,
        values: impl Values,
        roots: impl IntoIterator<Item = Anchor>,
    ) -> Result<u64> {
        let Some(stream) = (match to {
            To::Default => self.streams.first_mut().filter(|stream| stream.is_default),
            To::Named(name) => self.streams.iter_mut().find(|s| *s.plan.name == *name),
            To::Index(index) => self.streams.get_mut(index),
        }) else {
            return Err(self.no_such_stream(to));
        };
        if stream.plan.is_direct != target.is_some() || target >= Some(stream.extent.targets) {
            let targets = stream.extent.targets;
            return Err(wrong_target(&self.component, &stream.plan, targets, target));
        }
        let batch = &mut stream.batch;
        let fields = stream.plan.fields.len();
        if let Err(refused) = batch.push(|to| values.encode(to), fields) {
            return Err(not_written(&self.component, &stream.plan, refused));
        }
        self.emitted += 1;
        if stream.plan.readers.is_empty() {
            // Without subscribers, the tuple is checked like any other and dropped.
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
        Ok(match &*stream.extent.salts {
            [only] => only.apply(id),
            salts => salts.iter().fold(0, |ids, salt| ids ^ salt.apply(id)),
        })
    }

    /// Returns true if all buffered tuples, and one more batch per stream, can be sent now.
    pub(crate) fn has_room(&self, outbox: &Outbox) -> bool {
        self.streams
            .iter()
            .flat_map(|stream| &*stream.plan.readers)
            .map(|reader| reader.output)
            .all(|output| outbox.has_room(output) && !outbox.has_records(output.index()))
    }

    /// Sends the buffered tuples as far as there is room; returns true if all are sent.
    pub(crate) fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let mut all = true;
        for stream in &mut self.streams {
            all &= stream.batch.is_empty() || stream.flush(outbox)?;
        }
        self.is_full &= !all;
        Ok(all)
    }

    /// Takes all buffered tuples: `take` gets the index of each stream and its tuples.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn take_batches<E>(
        &mut self,
        mut take: impl FnMut(usize, &TupleBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        self.is_full = false;
        for (index, stream) in self.streams.iter_mut().enumerate() {
            if !stream.batch.is_empty() {
                take(index, &stream.batch)?;
                stream.batch.clear();
            }
        }
        Ok(())
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
            To::Index(index) => error(format!("{component:?} has no stream {index}"))
                .hint(format!("its streams are {}", names.join(", "))),
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
    /// Sends the batch to each subscription: the last gets the batch itself, the others a copy.
    fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let last = self.spares.len().saturating_sub(1);
        while let Some(spare) = self.spares.get_mut(self.sent) {
            let output = self.plan.readers[self.sent].output;
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
fn wrong_target(component: &str, plan: &StreamPlan, targets: u32, target: Option<u32>) -> Error {
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
            "{component:?} emitted to instance {target} on {name:?}, whose subscribers have {targets}"
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

    fn plan(is_direct: bool, readers: &[(usize, bool)]) -> StreamPlan {
        let readers = readers.iter().enumerate();
        StreamPlan {
            name: crate::DEFAULT_STREAM.into(),
            fields: Arc::from([Arc::from("number")]),
            is_direct,
            readers: readers
                .map(|(output, (component, is_all))| Reader {
                    output: Ordinal(output as u16),
                    component: *component,
                    is_all: *is_all,
                })
                .collect(),
        }
    }

    fn roster(instances: &[u32]) -> Arc<ComponentParallelism> {
        let names = instances
            .iter()
            .map(|instances| (Arc::from("reader"), *instances));
        Arc::new(ComponentParallelism::new(names))
    }

    #[test]
    fn the_ids_of_a_tuples_copies_follow_the_number_of_those_who_get_one() {
        let roster = roster(&[2, 7]);
        let plans = [plan(false, &[(0, true), (1, false)])];
        let mut emitter = Emitter::new("test".into(), &plans, &roster, true, 4);
        let root = crate::anchor::Root::from_bits(0);
        for instances in [2, 5, 1] {
            roster.rescale(0, instances);
            emitter.apply_parallelism();
            let anchors = [Anchor { root, id: 0 }];
            let ids = emitter.emit(To::Default, None, [1], anchors).unwrap();
            let batch = &emitter.streams[0].batch;
            let id = batch.anchors_of(batch.len() - 1)[0].id;
            let every = (0..instances).map(|instance| Salt::of(0, Some(instance)));
            let salts = every.chain([Salt::of(1, None)]);
            assert_eq!(ids, salts.fold(0, |ids, salt| ids ^ salt.apply(id)));
        }
    }

    #[test]
    fn a_direct_stream_reaches_instances_that_were_added() {
        let roster = roster(&[3, 2]);
        let plans = [plan(true, &[(0, false), (1, false)])];
        let mut emitter = Emitter::new("test".into(), &plans, &roster, false, 4);
        let emit = |emitter: &mut Emitter| {
            emitter.apply_parallelism();
            emitter.emit(To::Default, Some(2), [1], []).is_ok()
        };
        assert!(!emit(&mut emitter));
        roster.rescale(1, 4);
        assert!(emit(&mut emitter));
        roster.rescale(0, 2);
        assert!(!emit(&mut emitter));
    }

    #[test]
    fn a_batch_that_some_subscriber_has_no_room_for_is_sent_once_to_each_all_the_same() {
        let plan = plan(false, &[(0, false), (0, false)]);
        let mut emitter = Emitter::new("test".into(), &[plan], &roster(&[1]), true, 4);
        let mut outbox = Outbox::new(2, 4);
        for number in 0..3 {
            emitter.emit(To::Default, None, [number], []).unwrap();
        }
        // The second lane contains a record of another writer.
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
