//! `ardea completions`: scripts that shells can read.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::ardea::succeed;

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = succeed(&["completions", shell]);
        for word in ["nexmark", "generate", "tables-every"] {
            assert!(script.contains(word), "{shell} knows {word}");
        }
    }
}

#[test]
fn jobs_are_completed_by_name() {
    for shell in ["bash", "fish", "zsh"] {
        let script = succeed(&["completions", shell]);
        for job in ["wordcount", "sessions"] {
            assert!(script.contains(job), "{shell} knows {job}");
        }
    }
    let zsh = succeed(&["completions", "zsh"]);
    assert_eq!(
        zsh.matches("'1:job:(flights ").count(),
        2,
        "of run and of plan"
    );
}

#[test]
fn bash_offers_the_jobs_behind_run() {
    let script = succeed(&["completions", "bash"]);
    let ask = "COMP_WORDS=(ardea run wordc); COMP_CWORD=2; _ardea ardea wordc run; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    let mut bash = bash
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The script is too long for an argument.
    let mut told = bash.stdin.take().unwrap();
    write!(told, "{script}\n{ask}\n").unwrap();
    drop(told);
    let answer = bash.wait_with_output().unwrap();
    let offered = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert_eq!(offered.trim(), "wordcount", "{answer:?}");
}

#[test]
fn bash_can_read_its_script() {
    let script = succeed(&["completions", "bash"]);
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(bash.wait().unwrap().success());
}
