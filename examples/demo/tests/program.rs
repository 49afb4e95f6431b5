//! Tests of the demo's program: its exit codes, errors and settings.

use std::fs;
use std::process::{Command, Output};

fn demo(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ardea-demo"));
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_help_has_the_options_of_the_job_and_of_the_program() {
    let help = demo(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    for option in [
        "--speed <N|max>",
        "--data",
        "--threads",
        "--quiet",
        "--set",
        "Exit codes",
    ] {
        assert!(help.contains(option), "{option} is not in {help}");
    }
}

#[test]
fn a_wrong_option_is_a_usage_error_also_as_json() {
    for args in [&["--sped", "5"][..], &["--speed", "fast"]] {
        assert_eq!(demo(args).status.code(), Some(2), "{args:?}");
    }
    let json = text(&demo(&["--json", "--speed", "fast"]).stderr);
    assert!(json.contains("\"code\":\"ARD-102\""), "{json}");
    assert!(json.contains("\"exit_code\":2"), "{json}");
}

#[test]
fn data_that_cannot_be_read_fails_the_job() {
    let failed = demo(&["--data", "no-such-folder", "--speed", "max", "--quiet"]);
    assert_eq!(failed.status.code(), Some(3));
    let told = text(&failed.stderr);
    assert!(
        told.contains("no-such-folder") && told.contains("hint: "),
        "{told}"
    );
}

#[test]
fn a_file_with_settings_of_clusters_is_accepted_and_an_unknown_setting_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ardea.toml");
    fs::write(&file, "threads = 1\n[clusters.prod]\nstate = \"auto\"\n").unwrap();
    let config = format!("--config={}", file.display());
    let run = |more: &str| {
        demo(&[&config, "--data", "no-such-folder", more])
            .status
            .code()
    };
    assert_eq!(run("--quiet"), Some(3), "the job has started");
    fs::write(&file, "thread = 1\n").unwrap();
    assert_eq!(run("--quiet"), Some(2));
}
