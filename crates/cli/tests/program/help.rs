//! The help of every command, and what is said of the program itself.

use crate::ardea::{run, succeed};

const COMMANDS: [&[&str]; 13] = [
    &[],
    &["demo"],
    &["run"],
    &["jobs"],
    &["plan"],
    &["bench"],
    &["bench", "nexmark"],
    &["bench", "wordcount"],
    &["nexmark"],
    &["nexmark", "generate"],
    &["nexmark", "run"],
    &["config"],
    &["completions"],
];

#[test]
fn every_command_explains_itself_on_standard_output() {
    for command in COMMANDS {
        let help = succeed(&[command, &["--help"]].concat());
        assert!(help.contains("Usage: ardea"), "{command:?}: {help}");
        assert!(
            help.contains("--json"),
            "{command:?} has the common options: {help}"
        );
    }
}

#[test]
fn the_help_documents_every_exit_code() {
    let help = succeed(&["--help"]);
    for line in [
        "  0    done",
        "  1    the job failed",
        "  2    ",
        "  3    ",
        "  130  ",
    ] {
        assert!(help.contains(line), "{line:?} is not in {help}");
    }
}

#[test]
fn without_a_command_the_help_is_a_usage_error() {
    let finished = run(&[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.out.is_empty() && finished.err.contains("Usage: ardea"));
}

#[test]
fn the_version_is_the_same_wherever_it_is_asked_for() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(succeed(&["version"]), format!("ardea {version}\n"));
    assert_eq!(succeed(&["--version"]), format!("ardea {version}\n"));
    assert_eq!(
        succeed(&["version", "--json"]),
        format!("{{\"name\":\"ardea\",\"version\":\"{version}\"}}\n")
    );
}
