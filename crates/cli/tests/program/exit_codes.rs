//! Exit codes of failures, and the errors as text and as JSON.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use crate::ardea::{Finished, ardea, events, finish, run};

fn fails(args: &[&str], code: i32, says: &str) -> Finished {
    let finished = run(args);
    assert_eq!(finished.code, Some(code), "{args:?}: {finished:?}");
    assert!(
        finished.err.contains(says),
        "{args:?} says {:?}",
        finished.err
    );
    assert!(finished.out.is_empty(), "no result: {:?}", finished.out);
    finished
}

#[test]
fn a_wrong_command_line_is_2() {
    fails(&["fly"], 2, "unrecognized subcommand");
    fails(
        &["nexmark", "generate", "--events", "many", "-o", "-"],
        2,
        "many",
    );
    fails(
        &[
            "nexmark", "generate", "--events", "1", "--rate", "0", "-o", "-",
        ],
        2,
        "'0' for '--rate <N>': must be at least 1",
    );
    fails(
        &["nexmark", "run", "--query", "q99", "-i", "a", "-o", "b"],
        2,
        "q99",
    );
    fails(
        &["run", "no-such-job"],
        2,
        "there is no job \"no-such-job\"\n  hint: one of ",
    );
    fails(&["plan", "no-such-job"], 2, "there is no job");
    for command in ["run", "plan"] {
        fails(&[command, "wordcuont"], 2, "did you mean wordcount?");
    }
    fails(&["demo", "--threads", "0"], 2, "--threads");
    fails(
        &["instance", "check", "--output", "words=word", "--", "true"],
        2,
        "a step has no streams",
    );
}

#[test]
fn an_argument_that_is_no_text_is_named_with_a_way_out() {
    for more in [&[][..], &["--json"]] {
        let mut child = ardea(&["run", "wordcount"]);
        let child = child.arg(OsStr::from_bytes(b"bad\xff.txt")).args(more);
        let finished = finish(child.spawn().unwrap());
        assert_eq!(finished.code, Some(2), "{finished:?}");
        for part in ["ARD-102", "argument 3 is not UTF-8: bad\\", "hint"] {
            assert!(finished.err.contains(part), "{part}: {finished:?}");
        }
    }
}

#[test]
fn a_file_in_the_place_of_a_folder_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.display().to_string();
    let told = "file is a file, not a folder";
    fails(&["savepoint", "inspect", &file], 3, told);
    fails(&["checkpoints", &file], 3, told);
    let input = events(folder.path(), 10);
    let query = ["nexmark", "run", "--query", "q2", "-i", &input, "-o"];
    let below = format!("{file}/out.jsonl");
    fails(&[&query[..], &[&below]].concat(), 3, told);
    let output = folder.path().join("out").display().to_string();
    let state = format!("checkpoints.folder={file}");
    let guarantee = ["--set", "guarantee=exactly-once", "--set", &state];
    fails(&[&query[..], &[&output], &guarantee].concat(), 3, told);
}

#[test]
fn more_threads_than_make_sense_are_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out").display().to_string();
    let query = [
        "nexmark",
        "run",
        "--query",
        "q1",
        "-i",
        "/no/such/file",
        "-o",
        &output,
    ];
    fails(
        &[&query[..], &["--threads", "100000"]].concat(),
        2,
        "100000 threads are too many",
    );
    fails(
        &["--set", "threads=1024", "run", "wordcount", "x"],
        2,
        "threads are too many",
    );
}

#[cfg(feature = "bench")]
#[test]
fn a_benchmark_refuses_more_threads_than_a_process_can_have() {
    for bench in [&["nexmark"][..], &["stages"], &["wordcount", "--max"]] {
        fails(
            &[&["bench"], bench, &["--threads", "100000"]].concat(),
            2,
            "threads are too many",
        );
    }
}

#[cfg(not(feature = "bench"))]
#[test]
fn a_program_without_benchmarks_says_how_to_build_one_with_them() {
    fails(&["bench", "nexmark", "--query", "q5"], 2, "make bench");
}

#[test]
fn more_threads_than_cores_share_the_cores() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 5_000);
    let query = [
        "-q", "nexmark", "run", "--query", "q5", "-i", &input, "-o", "-",
    ];
    let finished = run(&[&query[..], &["--threads", "33"]].concat());
    assert_eq!((finished.code, finished.err.as_str()), (Some(0), ""));
}

#[test]
fn a_job_that_would_overwrite_its_input_is_refused_and_the_input_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 100);
    let before = fs::read(&input).unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::hard_link(&input, at("hard")).unwrap();
    std::os::unix::fs::symlink(&input, at("soft")).unwrap();
    for output in [input.clone(), at("./events.jsonl"), at("hard"), at("soft")] {
        let query = [
            "nexmark", "run", "--query", "q0", "-i", &input, "-o", &output,
        ];
        fails(&query, 2, "would overwrite");
    }
    fs::write(at("side.csv"), "1,one\n").unwrap();
    let side = at("side.csv");
    let query = [
        "nexmark", "run", "--query", "q13", "-i", &input, "--side", &side, "-o", &side,
    ];
    fails(&query, 2, "would overwrite");
    // The sink's name for its file until that is complete.
    fs::rename(at("hard"), at("out.part")).unwrap();
    let (part, out) = (at("out.part"), at("out"));
    let query = ["nexmark", "run", "--query", "q0", "-i", &part, "-o", &out];
    fails(&query, 2, "would overwrite");
    assert_eq!(fs::read(&input).unwrap(), before);
    assert_eq!(fs::read_to_string(&side).unwrap(), "1,one\n");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        4,
        "nothing was begun"
    );
}

#[test]
fn bad_records_are_told_whatever_is_not_to_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text").display().to_string();
    fs::write(&path, b"good\n\xff\n\xfe\n").unwrap();
    let finished = run(&["-q", "run", "wordcount", &path]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let expected = "warning: 2 records could not be dealt with, the first at ";
    assert!(finished.err.starts_with(expected), "{}", finished.err);
    assert!(
        finished.err.contains("text:2: not UTF-8"),
        "{}",
        finished.err
    );
    assert_eq!(finished.err.lines().count(), 1);
}

#[test]
fn an_input_without_a_good_record_is_5() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text").display().to_string();
    fs::write(&path, b"\xff\n\xfe\n").unwrap();
    fails(
        &["run", "wordcount", &path],
        5,
        "no record was good: 2 records of \"read ",
    );
    let finished = run(&["--json", "run", "wordcount", &path]);
    let error: Value = serde_json::from_str(finished.err.trim_end()).unwrap();
    assert_eq!(
        (finished.code, &error["error"]["exit_code"]),
        (Some(5), &Value::from(5))
    );
    fs::write(&path, b"").unwrap();
    assert_eq!(
        run(&["run", "wordcount", &path]).code,
        Some(0),
        "nothing is not bad"
    );
}

#[test]
fn an_output_that_was_there_stays_if_no_record_of_the_input_was_good() {
    let folder = tempfile::tempdir().unwrap();
    let (log, keep) = (folder.path().join("access.log"), folder.path().join("keep"));
    fs::write(&log, "127.0.0.1 - -\n").unwrap();
    let run_to = |output: &std::path::Path| {
        let (log, output) = (log.display().to_string(), output.display().to_string());
        let query = ["nexmark", "run", "--query", "q2", "-i", &log, "-o", &output];
        fails(&[&["-q"], &query[..]].concat(), 5, "no record was good");
    };
    fs::write(&keep, "a good result\n").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&keep, &link).unwrap();
    for output in [&keep, &link] {
        run_to(output);
        assert_eq!(fs::read_to_string(&keep).unwrap(), "a good result\n");
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn who_keeps_state_is_told_what_it_means_when_no_record_was_good_or_nothing_is_promised() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("bad.jsonl"), "junk\n").unwrap();
    let kept = format!("checkpoints.folder={}", at("kept"));
    let (bad, output) = (at("bad.jsonl"), at("out.jsonl"));
    let query = ["nexmark", "run", "--query", "q2", "-i", &bad, "-o", &output];
    let keeps = ["--set", &kept, "--set", "guarantee=exactly-once"];
    fails(&[&query[..], &keeps].concat(), 5, "recovery.start_over");
    fails(
        &[&query[..], &keeps[..2]].concat(),
        5,
        "checkpoints.folder means nothing without a guarantee",
    );
}

#[test]
fn a_setting_that_no_job_could_run_with_is_refused_where_settings_are_listed() {
    fails(
        &["--set", "threads=1024", "config"],
        2,
        "threads are too many",
    );
    fails(&["config", "--set", "threads"], 2, "write KEY=VALUE");
}

#[test]
fn a_job_that_is_taken_for_a_command_is_told_how_to_run() {
    fails(&["wordcount", "book.txt"], 2, "ardea run wordcount");
}

#[test]
fn a_job_that_could_not_start_tells_why_and_nothing_else() {
    let finished = fails(&["run", "wordcount", "/no/such/file"], 3, "error: ARD-301");
    assert_eq!(finished.err.lines().count(), 2, "{}", finished.err);
}

#[test]
fn with_json_a_wrong_command_line_has_its_parts() {
    for (args, message, hint) in [
        (&["demoo"][..], "unrecognized subcommand 'demoo'", "'demo'"),
        (
            &["run", "--thread", "2", "wordcount"],
            "there is no option --thread",
            "--threads",
        ),
        (
            &["nexmark", "generate"],
            "the following required arguments were not provided: --events",
            "--help",
        ),
        (
            &["run", "--threads", "x", "wordcount"],
            "invalid value 'x' for '--threads <N>'",
            "--help",
        ),
        (&[], "there is no command", "--help lists"),
    ] {
        let finished = run(&[args, &["--json"]].concat());
        let error: Value = serde_json::from_str(finished.err.trim_end()).unwrap();
        let text = |part: &str| error["error"][part].as_str().unwrap().to_string();
        assert!(text("message").starts_with(message), "{error}");
        assert!(text("hint").contains(hint), "{error}");
        assert!(
            !text("message").contains("Usage") && !text("message").contains('\n'),
            "{error}"
        );
        assert_eq!(finished.code, Some(2));
    }
}

#[test]
fn a_wrong_setting_is_2_and_says_where_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.toml");
    fs::write(&file, "\nthreds = 3\n").unwrap();
    let file = file.display().to_string();
    fails(&["config", "--config", &file], 2, "my.toml:2");
    fails(&["config", "--set", "threads=none"], 2, "--set");
    fails(
        &["config", "--config", "/no/such/file.toml"],
        3,
        "/no/such/file.toml",
    );
}

#[cfg(feature = "bench")]
#[test]
fn modes_that_do_not_exist_are_refused_by_name() {
    for (option, value) in [("--mode", "sometimes"), ("--epoch", "soon")] {
        fails(
            &["bench", "nexmark", option, value],
            2,
            &format!("invalid value '{value}' for '{option}"),
        );
    }
}

#[test]
fn a_missing_input_is_3_and_leaves_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.jsonl");
    let path = output.display().to_string();
    fails(
        &[
            "nexmark",
            "run",
            "--query",
            "q1",
            "-i",
            "/no/such/file",
            "-o",
            &path,
        ],
        3,
        "/no/such/file",
    );
    assert!(!output.exists());
}

#[test]
fn an_output_that_cannot_be_written_is_3() {
    fails(
        &["nexmark", "generate", "--events", "10", "-o", "/dev/null/x"],
        3,
        "/dev/null/x",
    );
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 100);
    fails(
        &[
            "nexmark",
            "run",
            "--query",
            "q1",
            "-i",
            &input,
            "-o",
            "/dev/null/x",
        ],
        3,
        "/dev/null/x",
    );
}

#[test]
fn a_full_disk_is_3() {
    fails(
        &[
            "nexmark",
            "generate",
            "--events",
            "10000",
            "-o",
            "/dev/full",
        ],
        3,
        "ARD-302",
    );
}

#[test]
fn with_json_an_error_is_one_object_on_standard_error() {
    for (args, code, exit_code) in [
        (&["run", "no-such-job"][..], "ARD-102", 2),
        (
            &[
                "nexmark",
                "run",
                "--query",
                "q1",
                "-i",
                "/no/such/file",
                "-o",
                "/dev/null",
            ],
            "ARD-301",
            3,
        ),
        (&["fly"], "ARD-102", 2),
    ] {
        let finished = run(&[&["--json", "--quiet"], args].concat());
        let error: Value = serde_json::from_str(finished.err.trim_end()).unwrap();
        assert_eq!(error["error"]["code"], code, "{finished:?}");
        assert_eq!(error["error"]["exit_code"], exit_code);
        assert_eq!(finished.code, Some(exit_code));
        assert!(
            error["error"]["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty())
        );
    }
}

#[test]
fn settings_come_from_flag_environment_and_file_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("ardea.toml"),
        "threads = 3\nspin = \"7us\"\nslice = \"70us\"\n",
    )
    .unwrap();
    let child = ardea(&["--json", "--set", "threads=5", "config"])
        .env("ARDEA_THREADS", "4")
        .env("ARDEA_SLICE", "80us")
        .current_dir(folder.path())
        .spawn();
    let finished = finish(child.unwrap());
    let settings: Value = serde_json::from_str(&finished.out).unwrap();
    let of = |key: &str| {
        let all = settings.as_array().unwrap();
        let setting = all.iter().find(|setting| setting["key"] == key).unwrap();
        (
            setting["value"].clone(),
            setting["source"].as_str().unwrap().to_string(),
        )
    };
    assert_eq!(of("threads"), (5.into(), "--set".into()));
    assert_eq!(of("slice"), ("80us".into(), "ARDEA_SLICE".into()));
    assert_eq!(of("spin").0, Value::from("7us"));
    assert!(of("spin").1.ends_with("ardea.toml:2"));
    assert_eq!(of("pin").1, "default");
}
