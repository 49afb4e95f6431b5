//! Replays of recorded micro-batches of jobs that come with ardea.

use std::fs;

use serde_json::Value;

use crate::ardea::{run, succeed};

#[test]
fn a_recorded_example_is_replayed_and_steps_that_are_not_recorded_have_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let [text, record] = ["text", "recording"].map(|it| folder.path().join(it));
    fs::write(&text, "to be or not to be\n".repeat(1_000)).unwrap();
    let text = text.display().to_string();
    let set = format!("micro_batch.record={}", record.display());
    let job = ["wordcount", text.as_str()];
    let with = ["--set", "mode=micro-batch", "--set", set.as_str()];
    let line = |words: &[&str], rest: &[&str]| run(&[words, &with[..], rest].concat());
    let plan = line(&["plan", "--threads", "2"], &job);
    assert_eq!(plan.code, Some(0), "{plan:?}");
    for told in [
        "recorded to",
        "not recorded\n",
        "it is a source",
        "it is a sink",
        "top: its records to \"flat-map-2\" have no codec",
    ] {
        assert!(plan.out.contains(told), "{told}: {}", plan.out);
    }
    let ran = line(&["run", "--threads", "2"], &job);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for vertex in ["flat-map", "words: partial", "words", "map"] {
        let words = ["replay", "wordcount", "--json", "--vertex", vertex];
        let told = line(&words, &["--", &text]);
        assert_eq!(told.code, Some(0), "{told:?}");
        let report: Value = serde_json::from_str(&told.out).unwrap();
        assert_eq!(
            (&report["equal"], &report["first"]),
            (&true.into(), &0.into())
        );
    }
    let wrong = line(&["replay", "wordcount", "--vertex", "word"], &["--", &text]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(
        wrong.err.contains("the job has no step \"word\""),
        "{wrong:?}"
    );
    let program = line(&["replay", &text, "--vertex", "words"], &[]);
    assert_eq!(program.code, Some(2), "{program:?}");
    assert!(program.err.contains("replay --vertex words"), "{program:?}");
    let unrecorded = succeed(&["plan", "wordcount", &text]);
    assert!(!unrecorded.contains("recorded"), "{unrecorded}");
}
