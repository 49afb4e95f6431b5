//! Vertices that fail without progress while the rest of the job commits epochs.

use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_checkpoint::local::RecoveryEvent;
use ardea_core::{
    Checkpointed, Dag, Edge, Epoch, Error, ErrorCode, Inbox, Instance, Ordinal, Outbox,
    Parallelism, Processor, Progress, Result, Vertex,
};
use ardea_engine::{Job, Parallelisms, Program};

use crate::site::{ReceivedNotices, run, survival};

/// A job of a sink, and a source without output. The source fails with `error` when the second
/// epoch is committed.
struct Stuck {
    error: Error,
}

struct Fails {
    error: Error,
    committed: u32,
}

impl Processor for Fails {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.committed > 1 {
            return Err(self.error.clone());
        }
        outbox.wake_at(std::time::Duration::MAX);
        Ok(Progress::NONE)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Fails {
    fn on_checkpoint_committed(&mut self, _: Epoch) -> Result<Progress> {
        self.committed += 1;
        if self.committed > 1 {
            return Err(self.error.clone());
        }
        Ok(Progress::DONE)
    }
}

struct Sink;

impl Processor for Sink {
    fn process(&mut self, _: Ordinal, _: &mut Inbox, _: &mut Outbox) -> Result<()> {
        Ok(())
    }
}

fn vertex<P: Processor + 'static>(
    name: &str,
    make: impl Fn() -> P + Send + Sync + 'static,
) -> Vertex {
    let supply = move |_: Instance| -> Result<Box<dyn Processor>> { Ok(Box::new(make())) };
    Vertex::new(name, Arc::new(supply)).parallelism(Parallelism::Exactly(NonZeroU32::MIN))
}

impl Job for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }

    fn program(&self, _: &Parallelisms) -> Result<Program> {
        Ok(Program {
            dag: self.graph(NonZeroU32::MIN)?,
            side_channels: Vec::new(),
            may_lose_instances: false,
        })
    }

    fn graph(&self, _: NonZeroU32) -> Result<Dag> {
        let mut dag = Dag::new();
        let error = self.error.clone();
        let topic = dag.vertex(vertex("topic", move || Fails {
            error: error.clone(),
            committed: 0,
        }));
        let sink = dag.vertex(vertex("sink", || Sink));
        dag.edge(Edge::between(topic, sink));
        Ok(dag)
    }
}

fn recoveries(told: &ReceivedNotices) -> usize {
    let is_one = |notice: &&RecoveryEvent| matches!(notice, RecoveryEvent::Recovering { .. });
    told.all().iter().filter(is_one).count()
}

#[test]
fn a_vertex_that_fails_without_progress_ends_the_job_though_epochs_are_committed_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let told = ReceivedNotices::default();
    let error = Error::new(ErrorCode::ReadFailed, "the topic does not answer");
    let error = run(
        &Stuck { error },
        &told.of(survival(folder.path()).attempts(3)),
    )
    .unwrap_err();
    assert_eq!(error.code(), ErrorCode::RestartLimitReached);
    let text = error.to_string();
    for part in ["4 times", "does not answer", "topic", "epoch"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(recoveries(&told), 3);
}

#[test]
fn a_permanent_error_ends_the_job_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let told = ReceivedNotices::default();
    let error = Error::new(ErrorCode::ReadFailed, "there is no topic \"orders\"").permanent();
    let error = run(&Stuck { error }, &told.of(survival(folder.path()))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed);
    assert_eq!(error.vertex(), Some(("topic", 0)));
    assert_eq!(recoveries(&told), 0);
}
