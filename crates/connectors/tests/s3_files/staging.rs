//! Tests of the parts of objects before and after their publication.

use std::sync::Arc;

use ardea_connectors::files;
use ardea_core::{Epoch, ProcessorSupplier, SnapshotRequest, StateChunk};

use super::driven::Driven;
use super::environment::Folder;

/// More numbers than a part of 8 MiB has room for.
const NUMBERS: u64 = 1_500_000;

fn supplier(folder: &Folder) -> Arc<dyn ProcessorSupplier> {
    let sink = files::write_lines::<u64>(folder.path("out.txt"));
    sink.build().into_parts().1
}

/// Ends the input, and takes the last snapshot.
fn ended(driven: &mut Driven, epoch: u64) -> StateChunk {
    let Driven {
        processor, outbox, ..
    } = driven;
    while !processor.complete(outbox).expect("completed").done {}
    driven.snapshot(SnapshotRequest {
        is_last: true,
        ..SnapshotRequest::full(Epoch(epoch))
    })
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn parts_that_a_lost_attempt_uploaded_after_its_snapshot_are_removed_at_the_restart() {
    let folder = Folder::new();
    let sink = supplier(&folder);
    let mut driven = Driven::new(&sink, "lost", (0, 1));
    driven.write(0..NUMBERS);
    let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    let kept = folder.staged();
    assert_eq!(kept.len(), 1);
    driven.write(0..NUMBERS);
    driven.snapshot(SnapshotRequest::full(Epoch(2)));
    assert!(folder.staged().len() > 1);
    drop(driven);
    let mut driven = Driven::new(&sink, "lost", (0, 1))
        .restored(1, &snapshot)
        .expect("restored");
    assert_eq!(folder.staged(), kept);
    ended(&mut driven, 2);
    assert_eq!(folder.objects().len(), 0);
    driven.commit(2).expect("published");
    assert!(folder.numbers().into_iter().eq(0..NUMBERS));
    assert_eq!(folder.staged(), [""; 0]);
}

#[test]
#[ignore = "run by files_in_a_bucket"]
fn an_object_of_several_parts_is_published_once_wherever_its_publication_was_interrupted() {
    let folder = Folder::new();
    let sink = supplier(&folder);
    let mut driven = Driven::new(&sink, "interrupted", (0, 1));
    driven.write(0..NUMBERS);
    driven.write(NUMBERS..2 * NUMBERS);
    let snapshot = ended(&mut driven, 1);
    let parts = folder.staged();
    assert!(parts.len() > 1, "{parts:?}");
    drop(driven);
    // Before the concatenation, after the removal of all parts, and in the middle of it.
    for left in [&parts[..0], &parts[..0], &parts[..1]] {
        for part in left {
            folder.put(part, "a part that was left");
        }
        Driven::new(&sink, "interrupted", (0, 1))
            .restored(1, &snapshot)
            .expect("published");
        let objects = folder.objects();
        assert_eq!(objects.len(), 1);
        let lines = objects[0].1.split(|byte| *byte == b'\n').count();
        assert_eq!(lines as u64, 2 * NUMBERS + 1);
        assert_eq!(folder.staged(), [""; 0]);
    }
}
