//! Tests of sinks.

use std::sync::Arc;

use ardea_connectors::collections::items;
use ardea_connectors::files::{self, Compression, FileSink};
use ardea_connectors::format::Lines;
use ardea_core::{Epoch, ErrorCode, ProcessorSupplier, SnapshotRequest};
use ardea_pipeline::Pipeline;

use super::driven::{Driven, together};
use super::environment::{Folder, own_server};

fn supplier(sink: FileSink<u64, Lines>) -> Arc<dyn ProcessorSupplier> {
    sink.build().into_parts().1
}

fn full(epoch: u64) -> SnapshotRequest {
    SnapshotRequest::full(Epoch(epoch))
}

/// Ends the input of a sink.
fn complete(driven: &mut Driven) {
    let Driven {
        processor, outbox, ..
    } = driven;
    while !processor.complete(outbox).expect("completed").done {}
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_job_without_state_writes_objects_packed_or_not() {
    let folder = Folder::new();
    for (name, rotated) in [("one.txt", false), ("few.txt.gz", true)] {
        let p = Pipeline::new("copy");
        let sink = files::write_lines::<u64>(folder.path(name));
        let sink = match rotated {
            true => sink.rotate_bytes(1_000),
            false => sink,
        };
        p.read_from(items((0..1_000u64).collect::<Vec<_>>()))
            .write_to(sink.build());
        p.run().expect("written");
    }
    let objects = folder.objects();
    assert_eq!(objects.last().expect("an object").0, "one.txt");
    assert!(objects.len() > 3, "{}", objects.len());
    let p = Pipeline::new("read");
    let lines = p.read_from(files::lines(folder.path("")).build()).collect();
    p.run().expect("read");
    let mut numbers: Vec<u64> = lines
        .take()
        .iter()
        .map(|line| line.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq((0..2_000).map(|n| n / 2)));
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn an_object_appears_with_the_commit_of_its_epoch_and_once() {
    let folder = Folder::new();
    let sink = supplier(files::write_lines(folder.path("out.txt")).rotate_with_epochs());
    let mut driven = Driven::new(&sink, "once", (0, 1));
    driven.write(0..10);
    driven.snapshot(full(1));
    assert_eq!(folder.objects().len(), 0);
    driven.commit(1).expect("published");
    assert_eq!(folder.numbers(), (0..10).collect::<Vec<_>>());
    driven.write(10..20);
    let snapshot = driven.snapshot(full(2));
    driven.write(900..950);
    driven.snapshot(full(3));
    // The commit of the second epoch is not heard of, and the third one is lost.
    drop(driven);
    let mut driven = Driven::new(&sink, "once", (0, 1))
        .restored(2, &snapshot)
        .expect("restored");
    assert_eq!(folder.numbers(), (0..20).collect::<Vec<_>>());
    driven.write(20..30);
    let snapshot = driven.snapshot(full(3));
    driven.commit(3).expect("published");
    assert_eq!(folder.numbers(), (0..30).collect::<Vec<_>>());
    drop(driven);
    // The objects were published, and the store has no such upload any more.
    let mut driven = Driven::new(&sink, "once", (0, 1))
        .restored(3, &snapshot)
        .expect("restored");
    complete(&mut driven);
    assert_eq!(folder.numbers(), (0..30).collect::<Vec<_>>());
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn an_object_that_spans_epochs_goes_on_behind_the_snapshot() {
    for (compression, before) in [
        // More than a part.
        (Compression::None, 1_500_000),
        (Compression::Gzip, 50_000),
        (Compression::Zstd, 50_000),
    ] {
        let folder = Folder::new();
        let path = folder.path("out.txt");
        let sink = supplier(files::write_lines(path).compression(compression));
        let mut driven = Driven::new(&sink, "spans", (0, 1));
        driven.write(0..before);
        let _ = driven.snapshot(full(1));
        driven.write(before..before + 1_000);
        let snapshot = driven.snapshot(full(2));
        driven.write(9_000_000..9_000_000 + before);
        drop(driven);
        let mut driven = Driven::new(&sink, "spans", (0, 1))
            .restored(2, &snapshot)
            .expect("restored");
        driven.write(before + 1_000..before + 1_100);
        complete(&mut driven);
        assert_eq!(folder.objects().len(), 0);
        driven.snapshot(SnapshotRequest {
            is_last: true,
            ..full(3)
        });
        driven.commit(3).expect("published");
        let p = Pipeline::new("read");
        let lines = p
            .read_from(files::lines(folder.path("")).in_order().build())
            .collect();
        p.run().expect("read");
        let lines = lines.take();
        assert_eq!(lines.len() as u64, before + 1_100);
        assert!(
            lines
                .iter()
                .zip(0u64..)
                .all(|(line, n)| line.parse() == Ok(n))
        );
    }
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn after_a_rescale_open_objects_are_completed_as_they_are() {
    let folder = Folder::new();
    let sink = supplier(files::write_lines(folder.path("out.txt")));
    let snapshots: Vec<_> = (0..2u32)
        .map(|index| {
            let mut driven = Driven::new(&sink, "rescaled", (index, 2));
            driven.write(u64::from(index) * 10..u64::from(index) * 10 + 10);
            driven.snapshot(full(1))
        })
        .collect();
    let mut driven = Driven::new(&sink, "rescaled", (0, 1))
        .restored(1, &together(&snapshots))
        .expect("restored");
    driven.write(20..30);
    driven.snapshot(full(2));
    driven.commit(2).expect("published");
    assert_eq!(folder.numbers(), (0..20).collect::<Vec<_>>());
    complete(&mut driven);
    driven.snapshot(SnapshotRequest {
        is_last: true,
        ..full(3)
    });
    driven.commit(3).expect("published");
    assert_eq!(folder.numbers(), (0..30).collect::<Vec<_>>());
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_store_that_dies_and_comes_back_is_waited_for() {
    let server = own_server().expect("a server");
    let folder = Folder::at(&server);
    let sink = supplier(files::write_lines(folder.path("out.txt")).rotate_with_epochs());
    let mut driven = Driven::new(&sink, "waits", (0, 1));
    driven.write(0..10);
    driven.snapshot(full(1));
    server.kill();
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            driven.commit(1).expect("published");
            driven.write(10..20);
            driven.snapshot(full(2));
            driven.commit(2).expect("published");
        });
        server.restart();
        writing.join().expect("written");
    });
    assert_eq!(folder.numbers(), (0..20).collect::<Vec<_>>());
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn a_bucket_that_is_missing_fails_the_job_at_its_start_and_a_lost_upload_the_restored_one() {
    let folder = Folder::new();
    let path = folder.path("out.txt").replace("states", "no-such-bucket");
    let sink = supplier(files::write_lines(path));
    let context = ardea_core::InstanceContext::detached("tested");
    let mut processor = sink.supply(context.instance).expect("supplied");
    let error = processor.init(&context).expect_err("there is no bucket");
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    assert!(error.to_string().contains("no such bucket"), "{error}");
    let sink = supplier(files::write_lines(folder.path("out.txt")).rotate_with_epochs());
    let mut driven = Driven::new(&sink, "lost", (0, 1));
    driven.write(0..10);
    let snapshot = driven.snapshot(full(1));
    driven.commit(1).expect("published");
    drop(driven);
    let name = folder.objects()[0].0.clone();
    folder.remove(&name);
    let restored = Driven::new(&sink, "lost", (0, 1)).restored(1, &snapshot);
    let error = restored.err().expect("the upload is gone");
    assert!(error.to_string().contains("is gone"), "{error}");
}
