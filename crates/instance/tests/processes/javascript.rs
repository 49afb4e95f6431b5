//! The example in JavaScript, against the conformance kit and in a job.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RunFaultTolerant};
use ardea_connectors::collections::items;
use ardea_core::{Guarantee, OnError};
use ardea_instance::InstanceCommand;
use ardea_instance::check::{CheckSettings, CheckVerdict, run};
use ardea_instance::protocol::{ComponentOutput, InstanceRole};
use ardea_pipeline::Pipeline;
use ardea_testkit::TestSink;
use serde::{Deserialize, Serialize};

use crate::examples::{JAVASCRIPT, has_node};

#[derive(Serialize, Deserialize)]
struct Purchase {
    customer: String,
    amount: u64,
}

#[derive(Deserialize, PartialEq, Eq, Clone, Debug, Serialize)]
struct Total {
    customer: String,
    total: u64,
    over: bool,
}

#[test]
fn the_example_passes_all_checks() {
    if !has_node() {
        return;
    }
    let settings = CheckSettings {
        command: InstanceCommand::new("node").arg(format!("{JAVASCRIPT}/spending.js")),
        records: vec![r#"{"customer":"ann","amount":5}"#.into()],
        key: Some("ann".into()),
        timeout: Duration::from_secs(30),
        role: InstanceRole::Step,
        outputs: Vec::new(),
    };
    let outcomes = run(&settings, &mut |outcome| println!("{outcome}"));
    assert!(outcomes.iter().all(|it| !it.is_failed()), "{outcomes:?}");
    let restore = outcomes.iter().find(|it| it.name == "restore").unwrap();
    assert!(matches!(restore.verdict, CheckVerdict::Passed(_)));
}

#[test]
fn the_examples_of_components_pass_all_checks() {
    if !has_node() {
        return;
    }
    for (role, file, fields) in [
        (InstanceRole::Bolt, "split.js", &["word"][..]),
        (InstanceRole::Spout, "numbers.js", &["remainder", "number"]),
    ] {
        let settings = CheckSettings {
            command: InstanceCommand::new("node").arg(format!("{JAVASCRIPT}/{file}")),
            records: vec![r#"["to be or not"]"#.into()],
            key: None,
            timeout: Duration::from_secs(30),
            role,
            outputs: vec![ComponentOutput {
                stream: "default".into(),
                fields: fields.iter().map(|field| (*field).to_owned()).collect(),
                direct: false,
            }],
        };
        let outcomes = run(&settings, &mut |outcome| println!("{outcome}"));
        assert!(outcomes.iter().all(|it| !it.is_failed()), "{outcomes:?}");
    }
}

#[test]
fn the_example_keeps_totals_in_a_job_with_a_guarantee() {
    if !has_node() {
        return;
    }
    let file = |name: &str| std::fs::read(Path::new(JAVASCRIPT).join(name)).unwrap();
    let command = InstanceCommand::new("node")
        .file("instance.js", file("instance.js"))
        .file("spending.js", file("spending.js"))
        .arg("spending.js")
        .parameter("limit", 100)
        .on_error(OnError::Fail);
    let purchases: Vec<(String, u64)> = (0..2_000)
        .map(|number| (format!("customer {}", number % 7), number % 10))
        .collect();
    let mut expected = BTreeMap::<String, u64>::new();
    for (customer, amount) in &purchases {
        *expected.entry(customer.clone()).or_default() += amount;
    }
    let p = Pipeline::new("spending");
    let totals = TestSink::<Total>::new();
    p.read_from(items(purchases))
        .map(|(customer, amount)| Purchase { customer, amount })
        .key_by(|purchase: &Purchase| purchase.customer.clone())
        .in_process::<Total>("spending", command)
        .parallelism(2)
        .write_to(totals.sink());
    let tolerance = FaultTolerance::in_memory()
        .guarantee(Guarantee::ExactlyOnce)
        .every(Duration::from_millis(20));
    let outcome = p.run_fault_tolerant(&tolerance).unwrap();
    assert_eq!(outcome.end, JobEnd::Completed);
    let mut last = BTreeMap::<String, u64>::new();
    for total in totals.values() {
        assert_eq!(total.over, total.total > 100);
        let known = last.entry(total.customer).or_default();
        *known = total.total.max(*known);
    }
    assert_eq!(last, expected);
}
