//! Steps that other libraries add to streams.

use std::sync::Arc;

use ardea_codec::ExchangeData;
use ardea_core::{Boundedness, ChunkCodec, Ends, Join, Priority, ProcessorSupplier, Routing, Sink};

use crate::step::{EdgeInput, Lower};
use crate::stream::Stream;

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Adds a step with a name generated from its kind. Like [`custom`](Self::custom), it follows
    /// its input instance by instance.
    ///
    /// The processors read input 0. Records of output 0 are those of the returned stream, and of
    /// output 1 those of its [`second_output`](Self::second_output). The type `U` may stand for
    /// records in another layout than rows, if all readers of the stream know it.
    pub fn extend_with<U>(self, kind: &str, make: Arc<dyn ProcessorSupplier>) -> Stream<U, B, E> {
        let name = self.pipeline.fresh_name(kind);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let first = lowering.follow::<T>(name, inputs[0], Arc::clone(&make));
            Ok(vec![first, first.second()])
        });
        self.pipeline.add(name, vec![self.from], 1, lower)
    }

    /// Works like [`extend_with`](Self::extend_with), with a thread for each instance: for
    /// processors that block.
    pub fn extend_blocking<U>(
        self,
        kind: &str,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<U, B, E> {
        let name = self.pipeline.fresh_name(kind);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let first = lowering.follow_on_thread::<T>(name, inputs[0], Arc::clone(&make));
            Ok(vec![first, first.second()])
        });
        self.pipeline.add(name, vec![self.from], 1, lower)
    }

    /// Works like [`extend_with`](Self::extend_with), and exchanges the records between all
    /// instances by `routing`. `codec` is that of edges between processes. The step runs on all
    /// cores, and has a name given by the author if its processors have state.
    pub fn exchange_with<U>(
        self,
        name: impl Into<String>,
        (routing, codec): (Routing, Arc<dyn ChunkCodec>),
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<U, B, E> {
        let input = EdgeInput::with_codec(routing, codec);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.default_parallelism();
            let inputs = [(inputs[0], input.clone())];
            let make = Arc::clone(&make);
            let first = lowering.vertex_with_inputs(name, parallelism, inputs, make);
            Ok(vec![first, first.second()])
        });
        self.pipeline.add(name.into(), vec![self.from], 1, lower)
    }

    /// Merges the stream with another one, by processors with two inputs. `codec` is that of edges
    /// between processes.
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn merge_with<B2>(
        self,
        other: Stream<T, B2, E>,
        codec: Arc<dyn ChunkCodec>,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<T, <B as Join<B2>>::Out, E>
    where
        B: Join<B2>,
    {
        self.merged(other, EdgeInput::with_codec(Routing::Forward, codec), make)
    }

    /// Writes the stream to a sink like [`write_to`](Self::write_to). `codec` is that of edges
    /// between processes.
    pub fn write_with(self, sink: Sink<T>, codec: Arc<dyn ChunkCodec>) {
        self.end_in(sink, EdgeInput::with_codec(Routing::Forward, codec));
    }

    /// Works like [`extend_with`](Self::extend_with) for a step with a second input: the rows of
    /// `table`, sent to every instance. The table is read to its end first, and does not hold back
    /// the watermark. `name` is that of the step.
    ///
    /// # Panics
    /// If the table belongs to another pipeline.
    pub fn extend_with_table<V: Clone + ExchangeData, B2: Ends, E2, U>(
        self,
        name: impl Into<String>,
        table: Stream<V, B2, E2>,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<U, B, E> {
        self.add_broadcast_step(name, table, Priority::FIRST, make)
    }

    /// Returns the second output of a step added by [`extend_with`](Self::extend_with). It needs no
    /// consumer.
    pub fn second_output<U>(&self) -> Stream<U, B, E> {
        self.sibling(1)
    }
}
