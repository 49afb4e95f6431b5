//! Steps whose function runs in a process of its own.

use std::sync::Arc;

use ardea_core::{Boundedness, Key, PartitionId};
use ardea_instance::{InstanceCommand, InstanceStep, JsonFormat};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::keyed::{KeyedStream, add_keyed_step};
use crate::stream::Stream;

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Passes the records to processes of `command`, one per instance, as JSON documents. Emits the
    /// records that the processes return, in the order of the input.
    ///
    /// The command speaks the [instance protocol](ardea_instance); it may be written in any
    /// language. It has no state: the runtime restarts a process that ends or hangs, and sends
    /// unanswered records again. A record that kills its process repeatedly, and a record that the
    /// process reports as failed, become dead letters.
    ///
    /// ```no_run
    /// use ardea_connectors::collections::items;
    /// use ardea_instance::InstanceCommand;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("doubled");
    /// let command = InstanceCommand::new("node").arg("double.js");
    /// let out = p.read_from(items(vec![1, 2])).in_process::<u64>(command).collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), [2, 4]);
    /// ```
    pub fn in_process<Out>(self, command: InstanceCommand) -> Stream<Out, B, E>
    where
        T: Serialize,
        Out: DeserializeOwned + Send + 'static,
    {
        let name = self.pipeline.fresh_name("in-process");
        let step = InstanceStep::stateless(command, JsonFormat::<T, Out, _>::plain);
        self.follow_named(name, Arc::new(step))
    }
}

impl<T, K, F, B, E> KeyedStream<T, K, F, B, E>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
{
    /// Works like [`Stream::in_process`], with all records of a key in one process. The processes
    /// may have state per key, which is part of checkpoints.
    ///
    /// In a job with a guarantee, the end of a process with state fails the attempt, and the job
    /// restarts from its last checkpoint. Without a guarantee the process is restarted without
    /// state.
    pub fn in_process<Out>(
        self,
        name: impl Into<String>,
        command: InstanceCommand,
    ) -> Stream<Out, B, E>
    where
        T: Serialize,
        Out: DeserializeOwned + Send + 'static,
    {
        let key = self.key_of();
        let key = move |record: &T, out: &mut Vec<u8>| {
            let start = out.len();
            key(record).write_to(out);
            Some(PartitionId::of_canonical(&out[start..]))
        };
        let step =
            InstanceStep::keyed(command, move || JsonFormat::<T, Out, _>::keyed(key.clone()));
        let input = vec![self.keyed_input()];
        add_keyed_step(&self.stream.pipeline, name, input, Arc::new(step))
    }
}
