//! The conformance suite for stores on disk and in memory.

use ardea_checkpoint::store::conformance::CHECKS;
use ardea_checkpoint::store::*;

#[test]
fn folders_on_the_disk_and_in_memory_keep_their_promises() {
    for (promise, check) in CHECKS {
        println!("{promise}");
        let temporary = tempfile::tempdir().expect("a folder");
        check(&LocalDirStore::open(temporary.path()).expect("opened"));
        check(&MemoryStore::new());
    }
}
