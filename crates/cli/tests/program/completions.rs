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
