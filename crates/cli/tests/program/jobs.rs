//! The example jobs through the program: listed, explained, planned.

use serde_json::Value;

use crate::ardea::succeed;

fn names() -> Vec<String> {
    let list: Value = serde_json::from_str(&succeed(&["--json", "jobs"])).unwrap();
    list.as_array()
        .unwrap()
        .iter()
        .map(|job| job["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn every_job_is_listed_and_explains_itself() {
    let names = names();
    assert!(
        names.iter().any(|name| name == "flights"),
        "the demo is one of {names:?}"
    );
    let list = succeed(&["jobs"]);
    for name in names {
        assert!(
            list.lines().any(|line| line.starts_with(&name)),
            "{name} is not in {list}"
        );
        let help = succeed(&["run", &name, "--help"]);
        assert!(help.contains(&name), "{help}");
    }
}

#[test]
fn the_demos_plan_shows_graph_and_tasklets() {
    let plan = succeed(&["plan", "--threads", "2", "flights"]);
    assert!(
        plan.contains("graph\n") && plan.contains("on 2 cooperative threads\n"),
        "{plan}"
    );
    let json: Value =
        serde_json::from_str(&succeed(&["--json", "plan", "--threads", "2", "flights"])).unwrap();
    assert_eq!(json["threads"], 2);
    let count = |field: &str| json[field].as_array().unwrap().len();
    assert!(count("vertices") > 3 && count("edges") > 2 && count("tasklets") <= count("vertices"));
}
