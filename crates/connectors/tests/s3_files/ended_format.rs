//! Tests of sinks whose files need an end.

use std::sync::Arc;

use ardea_connectors::files::{self, FileSink, OutputContent};
use ardea_connectors::format::BatchEncode;
use ardea_core::{
    Epoch, ErrorCode, Guarantee, InstanceContext, ProcessorSupplier, Result, Rows, SnapshotRequest,
};

use super::driven::Driven;
use super::environment::Folder;

/// A format of lines, the last of which is `end`.
#[derive(Clone, Debug)]
struct EndedLines;

impl BatchEncode for EndedLines {
    type Batch = Rows<u64>;

    const HAS_END: bool = true;

    fn begin(&mut self) {}

    fn resume_from(&mut self, output: &mut OutputContent) -> Result<()> {
        assert!(output.file().is_err(), "an object cannot be read");
        Ok(())
    }

    fn encode(
        &mut self,
        batch: &mut Rows<u64>,
        _: u64,
        out: &mut Vec<u8>,
        _: &mut dyn FnMut(usize, Vec<u8>, String) -> Result<()>,
    ) -> Result<()> {
        for (number, _) in batch.drain_front(usize::MAX) {
            out.extend_from_slice(format!("{number}\n").as_bytes());
        }
        Ok(())
    }

    fn seal(&mut self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(b"end\n");
        Ok(())
    }
}

fn supplier(sink: FileSink<Rows<u64>, EndedLines>) -> Arc<dyn ProcessorSupplier> {
    sink.build_batches::<u64>().into_parts().1
}

/// Returns the contents of all objects.
fn contents(folder: &Folder) -> Vec<String> {
    let objects = folder.objects().into_iter();
    let contents = objects.map(|(_, content)| String::from_utf8(content).expect("text"));
    contents.collect()
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn objects_that_end_with_each_epoch_are_complete_and_written_once() {
    let folder = Folder::new();
    let sink = files::write_batches(folder.path("out.txt"), EndedLines).rotate_with_epochs();
    let sink = supplier(sink);
    let mut driven = Driven::new(&sink, "ended", (0, 1));
    driven.write(0..2);
    let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    driven.write(100..102);
    drop(driven);
    let mut driven = Driven::new(&sink, "ended", (0, 1))
        .restored(1, &snapshot)
        .expect("restored");
    assert_eq!(contents(&folder), ["0\n1\nend\n"]);
    driven.write(2..4);
    driven.snapshot(SnapshotRequest::full(Epoch(2)));
    driven.commit(2).expect("published");
    assert_eq!(contents(&folder), ["0\n1\nend\n", "2\n3\nend\n"]);
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn an_object_that_would_have_to_be_read_to_go_on_is_refused() {
    let folder = Folder::new();
    let sink = || files::write_batches(folder.path("out.txt"), EndedLines);
    let context = |guarantee| InstanceContext {
        guarantee,
        ..InstanceContext::detached("tested")
    };
    let start = |sink, guarantee| {
        let context = context(guarantee);
        let processor = supplier(sink).supply(context.instance);
        processor.expect("supplied").init(&context)
    };
    for refused in [sink(), sink().rotate_bytes(9), sink().rotate_min_bytes(9)] {
        let error = start(refused, Guarantee::ExactlyOnce).expect_err("refused");
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(error.to_string().contains("rotate_with_epochs"), "{error}");
    }
    start(sink().rotate_with_epochs(), Guarantee::ExactlyOnce).expect("started");
    start(sink(), Guarantee::None).expect("started");
}
