//! The help of every command, and the description of the program itself.

use std::fs;
use std::path::Path;

use crate::ardea::{run, succeed};

const COMMANDS: &[&[&str]] = &[
    &[],
    &["demo"],
    &["run"],
    &["examples"],
    &["plan"],
    &["submit"],
    &["list"],
    &["describe"],
    &["pause"],
    &["resume"],
    &["kill"],
    &["restart"],
    &["upgrade"],
    &["savepoint"],
    &["diff"],
    &["recover"],
    &["rescale"],
    &["logs"],
    &["metrics"],
    &["top"],
    &["why"],
    &["token"],
    &["token", "create"],
    &["token", "list"],
    &["token", "revoke"],
    &["audit"],
    &["cluster"],
    &["cluster", "start"],
    &["cluster", "stop"],
    &["cluster", "status"],
    &["cluster", "drain"],
    &["cluster", "undrain"],
    &["map"],
    &["map", "list"],
    &["map", "get"],
    &["map", "scan"],
    &["map", "watch"],
    &["map", "put"],
    &["map", "remove"],
    &["map", "drop"],
    &["metastore"],
    &["metastore", "dump"],
    &["metastore", "remove"],
    &["version"],
    &["replay"],
    &["replicas"],
    &["inspect"],
    &["nexmark"],
    &["nexmark", "generate"],
    &["nexmark", "run"],
    &["config"],
    &["completions"],
];

#[cfg(feature = "bench")]
const BENCHMARKS: &[&[&str]] = &[
    &["bench"],
    &["bench", "nexmark"],
    &["bench", "wordcount"],
    &["bench", "soak"],
    &["bench", "stages"],
    &["bench", "state"],
    &["bench", "windows"],
    &["bench", "wakeup"],
    &["bench", "exchange"],
    &["bench", "ipc"],
    &["bench", "active-active"],
    &["bench", "rescale"],
    &["bench", "scheduling"],
    &["bench", "grid"],
    &["bench", "input"],
];

#[cfg(not(feature = "bench"))]
const BENCHMARKS: &[&[&str]] = &[];

#[test]
fn every_command_explains_itself_on_standard_output() {
    for command in COMMANDS.iter().chain(BENCHMARKS) {
        let help = succeed(&[command, &["--help"][..]].concat());
        assert!(help.contains("Usage: ardea"), "{command:?}: {help}");
        assert!(
            help.contains("--json"),
            "{command:?} has the common options: {help}"
        );
    }
}

#[test]
fn verbs_of_heron_and_jet_are_aliases() {
    for (alias, verb) in [
        ("activate", "resume"),
        ("deactivate", "pause"),
        ("update", "rescale"),
    ] {
        assert_eq!(succeed(&[alias, "--help"]), succeed(&[verb, "--help"]));
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
        "  4    drained",
        "  5    ",
        "  6    ",
        "  130  ",
    ] {
        assert!(help.contains(line), "{line:?} is not in {help}");
    }
}

#[test]
fn the_readme_and_the_guide_explain_exit_codes_in_the_words_of_the_help() {
    let help = succeed(&["--help"]);
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    let codes: String = codes.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["README.md", "../../docs/command-line.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(text);
        let told = fs::read_to_string(path).unwrap();
        let (_, table) = told.split_once("| code | meaning |").unwrap();
        let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
        let mut count = 0;
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let line = format!("{} {}", cells[1], cells[2]);
            assert!(
                codes.contains(&line),
                "{text} has {line:?}, but the help {codes:?}"
            );
            count += 1;
        }
        assert_eq!(count, 8, "{text}");
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
