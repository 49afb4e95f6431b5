//! The conformance kit against instances of this test program.

use std::time::Duration;

use ardea_instance::InstanceCommand;
use ardea_instance::check::{CheckOutcome, CheckSettings, CheckVerdict, run};
use ardea_instance::protocol::InstanceRole;

use crate::guest::command;

const TIMEOUT: Duration = Duration::from_secs(60);

fn check(command: InstanceCommand, key: Option<&str>, timeout: Duration) -> Vec<CheckOutcome> {
    let settings = CheckSettings {
        command,
        records: vec!["1".into(), "2".into()],
        key: key.map(str::to_owned),
        timeout,
        role: InstanceRole::Step,
        outputs: Vec::new(),
    };
    run(&settings, &mut |outcome| println!("{outcome}"))
}

fn verdict<'a>(outcomes: &'a [CheckOutcome], name: &str) -> &'a CheckVerdict {
    let outcome = outcomes.iter().find(|outcome| outcome.name == name);
    &outcome.unwrap().verdict
}

#[test]
fn instances_that_conform_pass_all_checks() {
    let of_state = check(command("count"), Some("a"), TIMEOUT);
    let of_watermarks = check(command("watermarks"), None, TIMEOUT);
    for outcomes in [&of_state, &of_watermarks] {
        let failed: Vec<_> = outcomes.iter().filter(|it| it.is_failed()).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(outcomes.len(), 13);
    }
    assert!(matches!(
        verdict(&of_state, "restore"),
        CheckVerdict::Passed(_)
    ));
    assert!(matches!(
        verdict(&of_watermarks, "watermark"),
        CheckVerdict::Passed(_)
    ));
}

#[test]
fn an_instance_that_never_answers_fails_at_the_handshake() {
    let outcomes = check(command("no hello"), None, TIMEOUT);
    assert_eq!(outcomes.len(), 1);
    let CheckVerdict::Failed(reason) = &outcomes[0].verdict else {
        panic!("{outcomes:?}");
    };
    assert!(reason.contains("status 7"), "{reason}");
}

#[test]
fn a_program_that_does_not_speak_the_protocol_fails() {
    let outcomes = check(InstanceCommand::new("cat"), None, Duration::from_secs(1));
    assert!(outcomes[0].is_failed(), "{outcomes:?}");
}
